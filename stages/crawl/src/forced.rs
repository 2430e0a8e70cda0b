//! What librarians force out, for every URL of every job: seeds, links, redirects, embeds, sitemaps and robots.txt alike, whoever
//! gave the order.
//!
//! The file is read when a job begins or goes on, and again when it is another one. One that makes no sense then changes nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ecluse_names::{ForcedOut, ForcedRules};
use ecluse_stage::Failure;
use url::Url;

/// How logs, reports and the statistics of links name it.
pub(crate) const FORCED_OUT: &str = "forced-out";
/// Heritrix's status for what a user's setting blocks.
pub(crate) const BLOCKED: i32 = -5001;

/// The rules in force, and the file that they come from.
#[derive(Default)]
pub(crate) struct ForcedFile {
    path: PathBuf,
    /// Which file was read last.
    stamp: Option<FileStamp>,
    rules: ForcedRules,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl ForcedFile {
    /// Reads the rules; where there is no file there are none.
    ///
    /// # Errors
    /// When they make no sense.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let stamp = stamp_of(path);
        Ok(Self {
            path: path.to_owned(),
            stamp,
            rules: ForcedRules::read(path).map_err(Failure::config)?,
        })
    }

    /// Reads the rules again when the file is another one than before, and tells whether they are others now.
    ///
    /// # Errors
    /// When they make no sense; those read before hold. It is told once for each state of the file.
    pub(crate) fn look_again(&mut self) -> Result<bool, String> {
        let stamp = stamp_of(&self.path);
        if stamp == self.stamp {
            return Ok(false);
        }
        self.stamp = stamp;
        let rules = ForcedRules::read(&self.path)?;
        let are_others = rules.text() != self.rules.text();
        self.rules = rules;
        Ok(are_others)
    }

    /// Returns the rule by which a URL is forced out.
    pub(crate) fn out(&self, url: &Url) -> Option<ForcedOut<'_>> {
        self.rules.out(url)
    }

    /// Tells whether a URL is forced out. What is no URL is not.
    pub(crate) fn is_out(&self, url: &str) -> bool {
        self.rules.text().is_some() && Url::parse(url).is_ok_and(|url| self.out(&url).is_some())
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_again_when_the_file_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("forced.toml");
        let mut file = ForcedFile::read(&path).unwrap();
        let url = "https://a.test/x";
        assert_eq!((file.look_again(), file.is_out(url)), (Ok(false), false));
        let rule = "[[rule]]\nverdict = 'out'\nprefix = 'http://a.test/x'\nwho = 'a'\nwhen = '2026-11-01'\nwhy = 'b'\n";
        fs::write(&path, rule).unwrap();
        assert_eq!((file.look_again(), file.is_out(url)), (Ok(true), true));
        assert_eq!(file.look_again(), Ok(false));
        fs::write(&path, "rule = 7").unwrap();
        assert!(file.look_again().unwrap_err().contains("forced.toml"));
        assert_eq!(
            (file.look_again(), file.is_out(url)),
            (Ok(false), true),
            "told once"
        );
        fs::write(&path, "").unwrap();
        assert_eq!((file.look_again(), file.is_out(url)), (Ok(true), false));
    }
}
