//! For tests only: three sample stages that show how a stage is written and exercise the spool
//! until the real ones do. They are not shipped.

mod relay;
mod split;
mod tally;

pub use relay::Relay;
pub use split::Split;
pub use tally::Tally;
