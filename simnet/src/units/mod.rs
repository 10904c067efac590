//! Typed quantities as people write them: `10mbit`, `20ms`, `64KiB`, `1%`.
//!
//! Every quantity is parsed exactly (decimal digits, no floating point on the way, except for probabilities), has a stated
//! range, and on a mistake names the text, what is wrong with it and the form that is allowed.

mod bandwidth;
mod byte_size;
mod decimal;
mod duration;
mod error;
mod probability;

pub use bandwidth::Bandwidth;
pub use byte_size::ByteSize;
pub use duration::{format_duration, parse_duration};
pub use error::UnitError;
pub use probability::Probability;
