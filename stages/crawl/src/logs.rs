//! The logs of a job.

use std::fs::File;
use std::io;
use std::path::Path;

use ecluse_report::{LogFile, PROGRESS_LEGEND};

pub(crate) const CRAWL: &str = "crawl.log";
pub(crate) const ERRORS: &str = "uri-errors.log";
pub(crate) const PROGRESS: &str = "progress-statistics.log";
pub(crate) const CHANGES: &str = "changes.log";

/// The logs; what is behind the last checkpoint is cut off when they are opened.
pub(crate) struct Logs {
    /// A line for each URL that is finished.
    pub(crate) crawl: LogFile,
    /// A line for each URL that was given up.
    pub(crate) errors: LogFile,
    /// A line every so often.
    pub(crate) progress: LogFile,
    /// A line for each change of the order, and for each start and stop.
    pub(crate) changes: LogFile,
}

impl Logs {
    pub(crate) fn open(dir: &Path, lengths: [u64; 4]) -> io::Result<Self> {
        let [crawl, errors, progress, changes] = lengths;
        let mut logs = Self {
            crawl: LogFile::open(&dir.join(CRAWL), crawl)?,
            errors: LogFile::open(&dir.join(ERRORS), errors)?,
            progress: LogFile::open(&dir.join(PROGRESS), progress)?,
            changes: LogFile::open(&dir.join(CHANGES), changes)?,
        };
        for (name, log) in [(CRAWL, &logs.crawl), (ERRORS, &logs.errors)] {
            if log.lost() > 0 {
                tracing::warn!(log = name, bytes = log.lost(), "log is shorter than it was");
            }
        }
        if logs.progress.is_empty() {
            logs.progress.append(PROGRESS_LEGEND)?;
        }
        Ok(logs)
    }

    /// Hands all lines to the system; says how long the logs are, and which files are to be synced before that counts.
    pub(crate) fn hand_over(&mut self) -> io::Result<([u64; 4], Vec<File>)> {
        let logs = [
            &mut self.crawl,
            &mut self.errors,
            &mut self.progress,
            &mut self.changes,
        ];
        let (mut lengths, mut unsynced) = ([0; 4], Vec::new());
        for (log, length) in logs.into_iter().zip(&mut lengths) {
            let (written, file) = log.hand_over()?;
            *length = written;
            unsynced.extend(file);
        }
        Ok((lengths, unsynced))
    }
}
