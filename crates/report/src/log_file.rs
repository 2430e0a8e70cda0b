//! An append-only text file whose committed length the caller keeps.
//!
//! What was written behind that length before a crash is cut off at the opening, so that the work done again is logged
//! once. After a failed write the file refuses all further work.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Lines wait in memory until they are this many bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// An append-only text file; opened, it is cut back to the length that was committed.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    waiting: Vec<u8>,
    written: u64,
    /// Length when it was last handed over to be synced; another time costs nothing then.
    synced: u64,
    lost: u64,
    dead: bool,
}

impl LogFile {
    /// Opens a log, or makes it, and cuts it to `committed` bytes.
    ///
    /// A log that is shorter has lost lines, to a disk that lied about a sync: [`LogFile::lost`] says how many bytes. It
    /// goes on at its end, on a new line.
    pub fn open(path: &Path, committed: u64) -> io::Result<Self> {
        let is_new = !path.exists();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if is_new && let Some(folder) = path.parent().filter(|folder| folder.is_dir()) {
            File::open(folder)?.sync_all()?;
        }
        let found = file.metadata()?.len();
        if found > committed {
            file.set_len(committed)?;
        }
        file.seek(SeekFrom::End(0))?;
        let mut log = Self {
            written: found.min(committed),
            synced: 0,
            lost: committed.saturating_sub(found),
            waiting: Vec::new(),
            dead: false,
            file,
        };
        if log.lost > 0 && !log.ends_a_line()? {
            log.waiting.push(b'\n');
        }
        Ok(log)
    }

    /// Returns how many committed bytes were not there any more when the log was opened.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Adds a line; its end of line is put behind it if it has none. It may wait in memory until
    /// [`LogFile::hand_over`].
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        self.alive()?;
        self.waiting.extend_from_slice(line.as_bytes());
        if !line.ends_with('\n') {
            self.waiting.push(b'\n');
        }
        if self.waiting.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands all lines to the system, and returns the length to be committed and the file that is to be synced before,
    /// if anything came since the last time. The caller syncs it where nobody waits, and opens the log again if that
    /// fails.
    pub fn hand_over(&mut self) -> io::Result<(u64, Option<File>)> {
        self.alive()?;
        self.flush()?;
        let unsynced = match self.written != self.synced {
            true => Some(self.file.try_clone()?),
            false => None,
        };
        self.synced = self.written;
        Ok((self.written, unsynced))
    }

    /// Returns the length, lines in memory included.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Tells whether there is no line in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.waiting);
        self.dead = written.is_err();
        written?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead {
            return Err(io::Error::other("log failed before"));
        }
        Ok(())
    }

    fn ends_a_line(&mut self) -> io::Result<bool> {
        if self.written == 0 {
            return Ok(true);
        }
        let mut last = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(last == *b"\n")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_is_cut_back_to_what_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crawl.log");
        let mut log = LogFile::open(&path, 0).unwrap();
        assert!(log.is_empty());
        log.append("one").unwrap();
        log.append("two\n").unwrap();
        assert_eq!((log.len(), log.lost()), (8, 0));
        assert_eq!(fs::read(&path).unwrap(), b"");
        let (length, unsynced) = log.hand_over().unwrap();
        assert_eq!((length, unsynced.is_some()), (8, true));
        assert!(log.hand_over().unwrap().1.is_none());
        log.append("three").unwrap();
        log.hand_over().unwrap();
        drop(log);

        let mut log = LogFile::open(&path, 8).unwrap();
        assert_eq!((log.len(), log.lost()), (8, 0));
        log.append("drei").unwrap();
        assert_eq!(log.hand_over().unwrap().0, 13);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\ndrei\n");
    }

    #[test]
    fn a_log_that_lost_lines_goes_on_on_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crawl.log");
        fs::write(&path, "one\ntw").unwrap();
        let mut log = LogFile::open(&path, 100).unwrap();
        assert_eq!(log.lost(), 94);
        log.append("three").unwrap();
        assert_eq!(log.hand_over().unwrap().0, 13);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");

        fs::write(&path, "").unwrap();
        let mut log = LogFile::open(&path, 7).unwrap();
        log.append("one").unwrap();
        assert_eq!((log.lost(), log.hand_over().unwrap().0), (7, 4));
    }

    #[test]
    fn lines_do_not_wait_in_memory_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crawl.log");
        let mut log = LogFile::open(&path, 0).unwrap();
        log.append(&"x".repeat(BUFFER_BYTES)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), log.len());
    }

    #[test]
    fn a_failed_log_refuses_further_work() {
        let dir = tempfile::tempdir().unwrap();
        assert!(LogFile::open(&dir.path().join("none/crawl.log"), 0).is_err());
        let full = Path::new("/dev/full");
        if full.exists() {
            let mut log = LogFile::open(full, 0).unwrap();
            log.append("one").unwrap();
            assert!(log.hand_over().is_err());
            assert_eq!(
                log.append("two").unwrap_err().to_string(),
                "log failed before"
            );
            assert!(log.hand_over().is_err());
        }
    }
}
