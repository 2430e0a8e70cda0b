//! The stages this program holds.

use ecluse_stage::Entry;

/// Every shipped stage, in the order of the chain.
pub const ALL: &[Entry] = &[];
