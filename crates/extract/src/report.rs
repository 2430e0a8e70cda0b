//! What extraction did, and why it ended.

use std::io;

use thiserror::Error;

use crate::charset::CharsetSource;
use crate::kind::DocumentKind;

/// What was read and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the document was taken for.
    pub kind: DocumentKind,
    /// The character set it was read in, by its WHATWG name.
    pub charset: &'static str,
    /// Who said so.
    pub charset_source: CharsetSource,
    /// Bytes read.
    pub bytes: u64,
    /// What became of the strings that stood where a link stands.
    pub counts: LinkCounts,
    /// Tags, strings and embedded documents passed over because they were over a limit.
    pub passed_over: u32,
    /// Whether the page asks robots not to follow its links.
    pub nofollow: bool,
    /// Why extraction ended.
    pub ended: Ended,
}

/// What became of the strings that stood where a link stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Given to the sink.
    pub links: usize,
    /// Given before, with the same hop.
    pub repeated: usize,
    /// The document itself.
    pub own: usize,
    /// Not a URL, or of a scheme that is not fetched.
    pub refused: usize,
    /// A template with places to fill in.
    pub holes: usize,
    /// Over the limit for URLs.
    pub too_long: usize,
}

/// Why extraction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The document did.
    Complete,
    /// [`ExtractLimits::document_bytes`](crate::ExtractLimits::document_bytes) were read.
    Bytes,
    /// [`ExtractLimits::links`](crate::ExtractLimits::links) were found.
    Links,
}

/// A document could not be read to its end. The links before are with the sink already.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The source failed.
    #[error("cannot read the document at byte {}", .report.bytes)]
    Read {
        /// What was done until then.
        report: Box<Report>,
        /// How it failed.
        source: io::Error,
    },
}
