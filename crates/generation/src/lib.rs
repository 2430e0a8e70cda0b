//! The big index as it lies on disk: a row of generations, of which readers follow one.
//!
//! [`IndexDirectory`] finds them, makes one current and retires old ones; [`IndexGeneration`] is what `generation.json` says
//! of one. What is in their lines is for `ecluse-cdx` to say, and how they are made for bigmerge.
//! `docs/formats/index-generation.md` has the bytes.

mod anew;
mod directory;
mod generation;
mod ranges;
mod replace;
mod sum;
mod summed_file;

pub use anew::NewList;
pub use directory::{BuilderLock, IndexDirectory, IndexError, LastGeneration};
pub use generation::{
    BY_HAND, DESCRIPTION, FLAT, FileBlocks, IndexFile, IndexGeneration, IndexMember, PATHS, SCHEMA,
    SUMMARY, ZIPNUM,
};
pub use ranges::{NEW_LINES, PartShard, RangeOrder, RangePart, RangePlan};
pub use sum::{CheckedSlice, FileSum, block_bytes, entry_of};
pub use summed_file::{AskedToStop, SummedFile, WatchedReader};
