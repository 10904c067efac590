//! Emulates networks.
