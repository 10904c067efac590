//! Where an image's bytes come from.
