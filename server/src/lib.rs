//! Serves images over HTTP.
