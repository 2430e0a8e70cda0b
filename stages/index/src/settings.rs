//! What `[stage.index]` may say.

use std::path::PathBuf;

use ecluse_cdx::{Duplicates, SortOptions, cdx};
use ecluse_config::Bytes;
use ecluse_warc::ReaderLimits;
use serde::Deserialize;

/// Which records have lines, in which layout, and how much memory a file may take.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// The lines of the filter; the stage writes CDXJ in any case, and this layout beside it.
    pub format: Format,
    /// Revisit records have lines.
    pub revisits: bool,
    /// Revisit records with a server's 304 have lines too.
    pub not_modified: bool,
    /// Records of `dns:` URIs have lines.
    pub dns: bool,
    /// Metadata records have lines.
    pub metadata: bool,
    /// Resource and metadata records of type `application/warc-fields` have lines.
    pub warc_fields: bool,
    /// A member or a record that is larger is read as a stream.
    pub member: Bytes,
    /// A file with a member that inflates to more, and to more than 200 times its own size, is held.
    pub bomb: Bytes,
    /// A record header of more bytes is damage.
    pub header: Bytes,
    /// A record header of more lines is damage.
    pub header_lines: usize,
    /// What the lines of one file may take before they are sorted on disk.
    pub sort_memory: Bytes,
    /// How many damages of a file are told one by one; the others are counted.
    pub damages: usize,
    /// How many pages of each site in a file are looked at for what they tell of it; 0 for none.
    pub evidence_pages: u32,
    /// What captures link to is written beside their lines.
    pub links: bool,
}

/// A layout of index lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A key, a time and a JSON object.
    Cdxj,
    /// Eleven fields.
    Cdx11,
    /// Nine fields.
    Cdx9,
}

impl Settings {
    /// Returns the bounds of a reader.
    pub fn limits(&self) -> ReaderLimits {
        ReaderLimits {
            member_bytes: bytes(self.member),
            bomb_bytes: self.bomb.0,
            header_bytes: bytes(self.header),
            header_lines: self.header_lines,
            damages: self.damages,
            ..ReaderLimits::default()
        }
    }

    /// Returns how lines are sorted, with temporary files in this directory.
    pub(crate) fn sort_options(&self, temporary: PathBuf) -> SortOptions {
        SortOptions {
            duplicates: Duplicates::Remove,
            memory_bytes: bytes(self.sort_memory),
            temporary,
        }
    }
}

impl Format {
    /// Returns what is added to the archive's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Cdxj => "cdxj",
            Self::Cdx11 | Self::Cdx9 => "cdx",
        }
    }

    /// Returns the layout of CDX, unless it is CDXJ.
    pub(crate) fn layout(self) -> Option<cdx::Layout> {
        match self {
            Self::Cdxj => None,
            Self::Cdx11 => Some(cdx::Layout::Eleven),
            Self::Cdx9 => Some(cdx::Layout::Nine),
        }
    }
}

fn bytes(size: Bytes) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_the_readers_or_the_sorters() {
        let text = "[stage.index]\nmember = \"1 MiB\"\nbomb = \"3 B\"\nheader = \"5 B\"\nheader-lines = 7\nsort-memory = \"9 B\"\ndamages = 11\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("index").unwrap();
        let limits = settings.limits();
        assert_eq!((limits.member_bytes, limits.bomb_bytes), (1 << 20, 3));
        assert_eq!((limits.header_bytes, limits.header_lines), (5, 7));
        assert_eq!(limits.damages, 11);
        assert_eq!(settings.sort_options(PathBuf::new()).memory_bytes, 9);
    }
}
