//! For tests only: four sample stages that show how a stage is written and exercise the spool until
//! the real ones do, temporary roots with the programs that run in them, a web and a name server on
//! loopback, the contract every stage keeps, and the checker that judges what a torture left on disk.
//! Nothing of it is shipped.

pub mod checker;
pub mod contract;
pub mod dns;
mod drip;
pub mod machine;
mod relay;
pub mod root;
mod split;
mod tally;
pub mod web;
mod words;

pub use drip::Drip;
pub use relay::Relay;
pub use split::Split;
pub use tally::Tally;
