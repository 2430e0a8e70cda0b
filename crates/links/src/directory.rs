//! Where the generations of links and ranks lie.

use std::path::{Path, PathBuf};

use ecluse_generation::IndexDirectory;

use crate::error::LinksError;
use crate::rank::RankReader;
use crate::site::SiteReader;

/// The links of every page, as its latest capture has them.
pub const LINKS_FILE: &str = "links.tsv.zst";
/// Where each frame of it begins.
pub const LINKS_INDEX: &str = "links.idx";
/// Every known URL by its number.
pub const URLS_FILE: &str = "urls.fc";
/// What is known of the importance of every URL.
pub const RANKS_FILE: &str = "ranks.tsv.zst";
/// The same of every site.
pub const SITES_FILE: &str = "sites.tsv.zst";

/// The directory of links and ranks.
#[derive(Debug, Clone)]
pub struct LinksDirectory {
    generations: IndexDirectory,
}

impl LinksDirectory {
    /// Returns the one at a path; nothing is made or looked at.
    ///
    /// # Errors
    /// Never for a path; the directory of generations has the same rules as an index.
    pub fn at(directory: &Path) -> Result<Self, LinksError> {
        let generations = IndexDirectory::of(directory, None)?;
        Ok(Self { generations })
    }

    /// Returns the directory of its generations.
    pub fn generations(&self) -> &IndexDirectory {
        &self.generations
    }

    /// Returns the directory of the current generation; none where there is none yet. Whoever reads two files of it reads them there.
    ///
    /// # Errors
    /// When `current` is something else than a link to a generation.
    pub fn current(&self) -> Result<Option<PathBuf>, LinksError> {
        Ok(self.generations.current()?)
    }

    /// Opens the ranks of the current generation; none where there is none yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn ranks(&self) -> Result<Option<RankReader>, LinksError> {
        let current = self.current()?;
        let open = |path: PathBuf| RankReader::open(&path.join(RANKS_FILE));
        current.map(open).transpose()
    }

    /// Opens the sites of the current generation; none where there is none yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn sites(&self) -> Result<Option<SiteReader>, LinksError> {
        let current = self.current()?;
        let open = |path: PathBuf| SiteReader::open(&path.join(SITES_FILE));
        current.map(open).transpose()
    }
}
