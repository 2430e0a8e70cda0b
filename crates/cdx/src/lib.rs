//! CDXJ, CDX and PATH lines: parsing, merging, ZipNum, lookup.
//!
//! An index is a text file of lines in byte order (`LC_ALL=C`), each ended by one line feed. Sorting, merging and
//! lookup compare whole lines as bytes and never look inside them, so they serve every layout alike; only
//! [`cdxj`], [`cdx`] and [`path`] know what a line says. `docs/formats/` has the bytes.
//!
//! Nothing here makes a key, reads a setting or renames a file. Every reader has a limit on the length of a line,
//! every merge and sort a limit on memory, and every fault names file, line and offset.

mod capture;
pub mod cdx;
pub mod cdxj;
mod cursor;
mod fault;
mod lookup;
mod merge;
mod parts;
pub mod path;
mod range;
mod sort;
mod time;
pub mod zipnum;

pub use capture::{Capture, Extra};
pub use cursor::{LineSource, Lines, NumberedLine};
pub use fault::{LineFault, LinePlace, ReadError};
pub use lookup::{Lookup, LookupError, Matches};
pub use merge::{
    Duplicates, LineShape, MergeError, MergeOptions, MergeStats, check, merge, merge_into,
    merge_pieces,
};
pub use parts::{PartedFile, split_points};
pub use range::KeyRange;
pub use sort::{SortOptions, Sorter};
pub use time::CaptureTime;

/// The longest line read unless a caller says otherwise: room for a POST body in a key, and no more.
pub const MAX_LINE_BYTES: usize = 8 << 20;
