//! The sources' directory: which lists are there, and which are at rest.
//!
//! A list is at rest when it has looked the same to this process for the settle time. Lists come a few times a year, so the whole
//! directory is looked through each time.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecluse_stage::{Failure, RestWatch};
use walkdir::WalkDir;

use crate::sidecar_of;
use crate::source::SIDECAR_END;
use crate::source_file::{ListLook, SourceFile};

/// Endings of files that somebody is still writing.
const UNFINISHED: [&str; 4] = [".part", ".open", ".lck", ".tmp"];

/// While lists come to rest, how long to wait before looking again.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The directory, and what is known of the files in it.
pub(crate) struct SourceDirectory {
    path: PathBuf,
    settle: Duration,
    seen: RestWatch<PathBuf, (ListLook, Option<ListLook>)>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct SourceLook {
    /// Lists at rest.
    pub(crate) found: Vec<SourceFile>,
    /// Lists that are not at rest yet.
    pub(crate) settling: Vec<PathBuf>,
    /// What cannot be looked at, and why.
    pub(crate) unread: Vec<(PathBuf, String)>,
}

impl SourceDirectory {
    pub(crate) fn new(path: PathBuf, settle: Duration) -> Self {
        Self {
            path,
            settle,
            seen: RestWatch::default(),
        }
    }

    /// Looks until every list is at rest, but no longer than a list takes to be: who waits longer is still being written.
    /// `is_stopped` is asked now and then.
    pub(crate) fn look_at_rest(
        &mut self,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<SourceLook, Failure> {
        let mut look = self.look()?;
        let begun = Instant::now();
        while !look.settling.is_empty() && begun.elapsed() <= self.settle {
            if is_stopped() {
                return Err(Failure::give_back());
            }
            std::thread::sleep((self.settle / 10).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1));
            look = self.look()?;
        }
        Ok(look)
    }

    /// Looks through the directory; where there is none, nothing is there.
    pub(crate) fn look(&mut self) -> Result<SourceLook, Failure> {
        let mut look = SourceLook::default();
        let walk = WalkDir::new(&self.path).max_depth(2).sort_by_file_name();
        for entry in walk
            .into_iter()
            .filter_entry(|entry| entry.depth() == 0 || !is_ignored(entry.file_name()))
        {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error)
                    if error
                        .io_error()
                        .is_some_and(|e| e.kind() == io::ErrorKind::NotFound) =>
                {
                    continue;
                }
                Err(error) => {
                    tracing::warn!(reason = %error, "cannot read a list's directory: nothing is taken from it");
                    let path = error.path().unwrap_or(&self.path).to_owned();
                    look.unread.push((path, error.to_string()));
                    continue;
                }
            };
            if entry.file_type().is_file() {
                self.see(entry.path(), &mut look);
            }
        }
        self.seen.end_round();
        Ok(look)
    }

    fn see(&mut self, path: &Path, look: &mut SourceLook) {
        // A list without its sidecar would be another list: both must be at rest.
        let mut sidecar = path.as_os_str().to_owned();
        sidecar.push(SIDECAR_END);
        let Ok(now) = path.metadata() else {
            return;
        };
        let now = ListLook::of(&now);
        let beside = Path::new(&sidecar).metadata().ok();
        let beside = beside.map(|metadata| ListLook::of(&metadata));
        if self
            .seen
            .is_at_rest(path, (now, beside), self.settle, Instant::now())
        {
            look.found.push(SourceFile::of(path, now, sidecar_of(path)));
        } else {
            look.settling.push(path.to_owned());
        }
    }
}

fn is_ignored(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let ends = |end: &str| bytes.ends_with(end.as_bytes());
    bytes.starts_with(b".") || ends(SIDECAR_END) || UNFINISHED.into_iter().any(ends)
}
