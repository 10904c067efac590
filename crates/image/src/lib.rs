//! Wire format of a pagein image: manifest, frames, groups, digests.
