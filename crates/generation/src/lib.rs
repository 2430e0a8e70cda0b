//! The big index as it lies on disk: a row of generations, of which readers follow one.
//!
//! [`IndexDirectory`] finds them, makes one current and retires old ones; [`IndexGeneration`] is what `generation.json` says
//! of one. What is in their lines is for `ecluse-cdx` to say, and how they are made for bigmerge.
//! `docs/formats/index-generation.md` has the bytes.

mod anew;
mod directory;
mod generation;
mod replace;
mod sum;

pub use anew::NewList;
pub use directory::{BuilderLock, IndexDirectory, IndexError, LastGeneration};
pub use generation::{
    BY_HAND, DESCRIPTION, FLAT, IndexFile, IndexGeneration, IndexMember, PATHS, SCHEMA, SUMMARY,
    ZIPNUM,
};
pub use sum::{FileSum, entry_of};
