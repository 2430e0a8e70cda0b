//! ZipNum: a sorted index in gzip members of some thousand lines, and a summary to find the right one.
//!
//! Three kinds of file, as pywb reads them and Common Crawl publishes them:
//!
//! * the **shards**, `<name>-00000.cdxj.gz` and on, each a run of gzip members, each member whole lines;
//! * the **summary**, `<name>.idx`: for each member the key and time of its first line, the shard, the member's offset
//!   and length there, and the member's number from 1, separated by tabs;
//! * the **locations**, `<name>.loc`: for each shard its name and its file, relative to the summary.
//!
//! Shards are cut between keys: all captures of a key are in one shard.

mod blocks;
mod shards;
mod summary;
mod write;

pub use blocks::BlockError;
pub(crate) use blocks::Blocks;
pub use shards::{WrittenShard, join_shards, write_shard};
pub(crate) use summary::Summary;
pub use summary::{SummaryLine, parse_summary_line};
pub use write::{Shard, Shards, WrittenZipNum, ZipNumOptions, ZipNumWriteError, write};

#[cfg(test)]
mod tests;
