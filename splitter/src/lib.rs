//! Cuts a program into an image.
