//! What is known of the changes of every page.
//!
//! [`PageChanges`] is a page's line in `pages.tsv.zst`; [`VersionChange`], [`PagePattern`], [`SitePattern`] and [`Announcement`]
//! are those of the files beside it. [`RecordReader`] and [`RecordWriter`] read and write them one by one, in the order of their
//! keys, with errors that name file and line. `docs/formats/changes.md` has the bytes.
//!
//! Nothing here reads a clock or a setting, or knows where the files lie.

mod announcement;
mod archive_time;
mod blocks;
mod dates;
mod error;
mod field;
mod frames;
mod page_changes;
mod page_history;
mod pattern_sums;
mod reader;
mod signals;
mod simhash;
mod standing;
mod version_change;
mod weight;
mod words;
mod writer;

pub use announcement::{Announcement, SignalKind};
pub use archive_time::{ArchiveTime, DayClass};
pub use blocks::{BlockDocument, DocumentForm};
pub use dates::{any_date, declared_change, http_date};
pub use error::{BadLine, ChangesError};
pub use page_changes::{PageChanges, PatternOf};
pub use page_history::{HistorySettings, PageHistory};
pub use pattern_sums::{PagePattern, PatternSums, PeriodSums, SitePattern, site_of};
pub use reader::{RecordReader, read_records};
pub use signals::{ToldChange, told_changes};
pub use simhash::simhash_distance;
pub use standing::{StandingChances, expected_changes, standing_chances};
pub use version_change::{ElementCounts, ReadOutcome, VersionChange};
pub use weight::{DocumentChange, ElementChange, WeightNorm, change_weight, compare};
pub use words::{WordList, WordMeasures};
pub use writer::RecordWriter;

/// A record that is one line of a sorted file.
pub trait ChangeRecord: Sized {
    /// The file's name in a generation.
    const FILE: &'static str;
    /// Its first line.
    const HEADER: &'static str;

    /// Returns what it is sorted by.
    fn key(&self) -> &str;

    /// Appends its line, without a line feed.
    fn write(&self, line: &mut String);

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is none.
    fn parse(line: &str) -> Result<Self, BadLine>;
}
