//! What reordered functions bring at startup: pages and compressed bytes of code, before and after. The job that is measured is not
//! one of those that were profiled.
//!
//! | part | file |
//! |---|---|
//! | what is compared of two runs | `relaid/alike.rs` |
//! | programs, jobs, what they work on | `relaid/jobs.rs` |
//! | pages and bytes of a recording | `relaid/startup.rs` |

pub mod alike;
pub mod jobs;
pub mod startup;
