//! The harvested directories: which files are there, and which are at rest.
//!
//! A file is at rest when the bell told that it was closed or renamed in and it is not empty, or when it has looked the
//! same to this process for the settle time. The bell saves looking; a walk through everything at every scan is the truth.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecluse_config::ShellSettings;
use ecluse_holding::is_archive;
use ecluse_stage::{Failure, News, RestWatch};
use walkdir::WalkDir;

use crate::harvested_file::{FileIdentity, HarvestedFile};

/// Without a bell, everything is walked through this often.
const WALK_WHEN_DEAF: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Debug)]
pub(crate) struct Look {
    now: Instant,
    pub(crate) found: Vec<HarvestedFile>,
    pub(crate) settling: usize,
}

/// The directories, and what is known of the files in them.
pub(crate) struct Harvested {
    directories: Vec<PathBuf>,
    ignore: Vec<String>,
    settle: Duration,
    scan: Duration,
    walked: Option<Instant>,
    /// Files that have their parcel.
    put: HashMap<PathBuf, FileIdentity>,
    /// Files not at rest yet.
    settling: RestWatch<PathBuf, FileIdentity>,
    /// Files of the last walk that are not at rest and could not be watched: too many were.
    unwatched: usize,
    /// Directories that could not be read, told once.
    unreadable: Vec<String>,
}

impl Harvested {
    pub(crate) fn new(
        directories: Vec<PathBuf>,
        ignore: Vec<String>,
        shell: &ShellSettings,
    ) -> Self {
        Self {
            directories,
            ignore,
            settle: shell.settle.0,
            scan: shell.scan.0,
            walked: None,
            put: HashMap::new(),
            settling: RestWatch::default(),
            unwatched: 0,
            unreadable: Vec::new(),
        }
    }

    /// Looks at what the bell told of and what was not at rest, and at everything when it is time.
    pub(crate) fn look(
        &mut self,
        news: &[News],
        deaf: bool,
        now: Instant,
    ) -> Result<Look, Failure> {
        let every = if deaf {
            self.scan.min(WALK_WHEN_DEAF)
        } else {
            self.scan
        };
        let mut look = Look {
            now,
            found: Vec::new(),
            settling: 0,
        };
        let whole: HashSet<&Path> = news
            .iter()
            .filter(|news| news.whole)
            .map(|news| news.path.as_path())
            .collect();
        let has_room = self.unwatched > 0 && self.settling.watched().next().is_none();
        let is_time = |walked: Instant| now.saturating_duration_since(walked) >= every;
        if has_room || self.walked.is_none_or(is_time) {
            self.walked = Some(now);
            self.unwatched = 0;
            self.walk(&whole, &mut look)?;
        } else {
            look.settling = self.unwatched;
            let told = news.iter().map(|news| news.path.clone());
            let mut paths: Vec<PathBuf> = told.chain(self.settling.watched().cloned()).collect();
            paths.sort();
            paths.dedup();
            for path in paths {
                if self.is_inside(&path) {
                    self.see_tree(&path, &whole, &mut look)?;
                }
            }
        }
        self.settling.end_round();
        Ok(look)
    }

    /// Remembers that a file has its parcel.
    pub(crate) fn remember(&mut self, file: HarvestedFile) {
        self.put.insert(file.found_at, file.identity);
    }

    fn walk(&mut self, whole: &HashSet<&Path>, look: &mut Look) -> Result<(), Failure> {
        // What has gone is forgotten: memory is bounded by what is there.
        self.put.retain(|path, _| path.symlink_metadata().is_ok());
        for directory in self.directories.clone() {
            self.see_tree(&directory, whole, look)?;
        }
        Ok(())
    }

    /// Sees a file, or all files below a directory.
    fn see_tree(
        &mut self,
        top: &Path,
        whole: &HashSet<&Path>,
        look: &mut Look,
    ) -> Result<(), Failure> {
        let is_top = self.directories.iter().any(|directory| directory == top);
        let mut walk = WalkDir::new(top).follow_links(false).into_iter();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let is_lasting = is_top && error.depth() == 0;
                    self.tell_unreadable(&error, is_lasting);
                    continue;
                }
            };
            let name = entry.file_name();
            let below = entry.depth() > 0 || !is_top;
            let kind = entry.file_type();
            if below && self.is_ignored(name) {
                if kind.is_dir() {
                    walk.skip_current_dir();
                }
                continue;
            }
            let is_archive = below && is_archive(name);
            if kind.is_dir() && !is_archive {
                continue;
            }
            if kind.is_dir() {
                walk.skip_current_dir();
            }
            if !is_archive {
                continue;
            }
            let metadata = match entry.path().symlink_metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    // Of the directory, which is why: it may hold very many.
                    let directory = entry.path().parent().unwrap_or(top);
                    self.tell(format!("{}: {error}", directory.display()));
                    continue;
                }
            };
            let problem = if kind.is_symlink() {
                Some("is a symbolic link; link or copy the file itself")
            } else if kind.is_dir() {
                Some("is a directory with the name of an archive file")
            } else if !kind.is_file() {
                Some("is not a plain file")
            } else {
                None
            };
            let path = entry.into_path();
            // Some make a name first and fill it later: that a file was closed says nothing while it is empty.
            let is_closed = whole.contains(path.as_path()) && metadata.len() > 0;
            let is_whole = problem.is_some() || is_closed;
            self.see(path, FileIdentity::of(&metadata), is_whole, problem, look);
        }
        Ok(())
    }

    fn see(
        &mut self,
        path: PathBuf,
        identity: FileIdentity,
        is_whole: bool,
        problem: Option<&str>,
        look: &mut Look,
    ) {
        if self.put.get(&path) == Some(&identity) {
            return;
        }
        let is_at_rest = is_whole || {
            let (path, rest) = (path.as_path(), self.settle);
            self.settling.is_at_rest(path, identity, rest, look.now)
        };
        if !is_at_rest {
            look.settling += 1;
            self.unwatched += usize::from(!self.settling.watches(path.as_path()));
            return;
        }
        let file = HarvestedFile::new(path, identity, problem);
        look.found.push(file);
    }

    fn is_inside(&self, path: &Path) -> bool {
        let mut directories = self.directories.iter();
        let Some(rest) = directories.find_map(|directory| path.strip_prefix(directory).ok()) else {
            return false;
        };
        // Nothing below an ignored directory counts, however the bell tells of it.
        !rest
            .components()
            .any(|part| self.is_ignored(part.as_os_str()))
    }

    fn is_ignored(&self, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        let mut ignore = self.ignore.iter();
        bytes.starts_with(b".") || ignore.any(|end| bytes.ends_with(end.as_bytes()))
    }

    fn tell_unreadable(&mut self, error: &walkdir::Error, is_lasting: bool) {
        // Files, and directories that are empty then, may go while they are looked at: that is not worth a word.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if is_lasting || !error.io_error().is_some_and(is_gone) {
            self.tell(error.to_string());
        }
    }

    /// Tells of a place that cannot be read, once: what can be read is taken all the same.
    fn tell(&mut self, words: String) {
        if !self.unreadable.contains(&words) {
            tracing::warn!(
                reason = words,
                "cannot read a harvested directory: nothing is taken from it"
            );
            self.unreadable.push(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::SystemTime;

    use super::*;

    /// A file server's clock tells nothing: only that the file looks the same, and for how long.
    #[test]
    fn a_file_being_written_is_not_taken_whatever_its_times_say() {
        for (ahead, behind) in [(0, 60), (60, 0), (0, 0)] {
            let root = tempfile::tempdir().unwrap();
            let shell = ecluse_config::Pipeline::default().defaults;
            let settle = shell.settle.0;
            let mut harvested = Harvested::new(vec![root.path().to_owned()], Vec::new(), &shell);
            let mut file = std::fs::File::create(root.path().join("a.warc.gz")).unwrap();
            let mut now = Instant::now();
            for _ in 0..20 {
                file.write_all(b"more").unwrap();
                let server =
                    SystemTime::now() + Duration::from_secs(ahead) - Duration::from_secs(behind);
                file.set_modified(server).unwrap();
                let look = harvested.look(&[], false, now).unwrap();
                assert_eq!((look.found.len(), look.settling), (0, 1));
                now += settle / 2;
            }
            assert_eq!(harvested.look(&[], false, now).unwrap().settling, 1);
            let look = harvested.look(&[], false, now + settle / 2).unwrap();
            assert_eq!((look.found.len(), look.settling), (1, 0));
        }
    }
}
