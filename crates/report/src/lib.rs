//! What a crawl job tells of itself: its logs, its counts, its reports and its metadata WARC.
//!
//! Names and layouts are those of Heritrix and NetarchiveSuite, so that what reads theirs reads ours.
//! `docs/formats/crawl-logs.md` and `docs/formats/metadata-warc.md` write them down.
//!
//! * Whatever a URL, a MIME type or a tag holds, a line stays one line with its number of fields.
//! * Memory is bounded, whatever the size of the crawl: every table of a tally has a limit, and counts the rest as
//!   `other`.
//! * There is no clock and no chance in here: the same input gives the same bytes.
//!
//! When lines are logged, reports are made and files are packed is the caller's matter.

mod compact;
mod crawl_log;
mod escape;
mod figures;
mod host_tally;
mod job;
mod log_file;
mod metadata;
mod moment;
mod packing;
mod progress;
mod report_file;
mod reports;
mod seed_tally;
mod tally;
mod uri_errors;

pub use compact::DecodeError;
pub use crawl_log::{Fetched, Kept, LogLine, parse_line};
pub use host_tally::HostTally;
pub use job::JobFacts;
pub use log_file::LogFile;
pub use metadata::{
    Body, MetadataEntry, MetadataError, Part, media_type, metadata_name, write_metadata,
};
pub use moment::Moment;
pub use packing::{PACKING_LIST, Packed, archivefiles_report};
pub use progress::{PROGRESS_LEGEND, ProgressLine, progress_note};
pub use reports::{ReportSource, SORTED_HOSTS, write_reports};
pub use seed_tally::SeedTally;
pub use tally::{JobTally, Share, Totals};
pub use uri_errors::UriError;
