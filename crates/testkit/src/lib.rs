//! For tests only: four sample stages that show how a stage is written and exercise the spool until
//! the real ones do, and the checker that judges what a torture left on disk. Not shipped.

pub mod checker;
mod drip;
mod relay;
mod split;
mod tally;
mod words;

pub use drip::Drip;
pub use relay::Relay;
pub use split::Split;
pub use tally::Tally;
