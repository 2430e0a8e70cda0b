//! For tests only: three sample stages that show how a stage is written and exercise the spool
//! until the real ones do, temporary roots with the programs that run in them, and the contract
//! every stage keeps. Nothing of it is shipped.

pub mod contract;
mod relay;
pub mod root;
mod split;
mod tally;

pub use relay::Relay;
pub use split::Split;
pub use tally::Tally;
