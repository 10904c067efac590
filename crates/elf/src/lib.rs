//! What pagein knows of an ELF file.
