//! The file being written, and the names of those before it.
//!
//! A file is named in a checkpoint before it exists, and gets its final name only after a checkpoint that counts all of
//! it. So whatever is killed, everything behind the last checkpoint is cut off at the next start, and no file that
//! anybody else can see holds a record that the frontier does not know.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ecluse_report::Moment;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::writer::{self, Part, Then, Writer};

/// What stands behind the name of a file while it is written.
const OPEN: &str = ".open";

/// What a checkpoint says of the files.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct WarcState {
    /// Files begun so far.
    pub(crate) serial: u32,
    /// The file being written, and how much of it counts.
    pub(crate) open: Option<OpenFile>,
    /// The file that is whole and waits for its name.
    pub(crate) closing: Option<ClosedFile>,
    /// Files closed.
    pub(crate) files: u64,
    /// Bytes in them.
    pub(crate) bytes: u64,
}

/// The file being written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct OpenFile {
    pub(crate) name: String,
    pub(crate) opened: u64,
    /// Bytes of whole records.
    pub(crate) bytes: u64,
}

/// A file that is whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ClosedFile {
    pub(crate) name: String,
    pub(crate) opened: u64,
    pub(crate) closed: u64,
    pub(crate) bytes: u64,
}

/// The files of a job.
pub(crate) struct Warcs {
    dir: PathBuf,
    /// What names begin and end with.
    naming: Naming,
    pub(crate) state: WarcState,
    writer: Writer,
    is_open: bool,
}

/// What the names of a job's files are made of.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    /// `[collection-]job-harvest`.
    pub(crate) front: String,
    /// The machine.
    pub(crate) host: String,
    /// `.warc.gz` or `.warc`.
    pub(crate) end: &'static str,
}

impl Naming {
    fn name(&self, at: Moment, serial: u32) -> String {
        format!(
            "{}-{}-{serial:05}-{}{}",
            self.front,
            at.digits17(),
            self.host,
            self.end
        )
    }
}

impl Warcs {
    /// Takes up the files where a checkpoint left them.
    pub(crate) fn resume(dir: &Path, naming: Naming, state: WarcState) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut warcs = Self {
            dir: dir.to_owned(),
            naming,
            state,
            writer: Writer::start()?,
            is_open: false,
        };
        if let Some((from, to)) = warcs.closed() {
            writer::name(&from, &to)?;
        }
        if let Some(open) = warcs.state.open.clone().filter(|open| open.bytes > 0) {
            let path = warcs.open_path(&open.name);
            let mut file = OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(|error| named(&path, &error))?;
            let found = file.metadata()?.len();
            if found < open.bytes {
                let short = format!(
                    "{} has {found} bytes, {} were made durable",
                    path.display(),
                    open.bytes
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, short));
            }
            file.set_len(open.bytes)?;
            file.seek(SeekFrom::End(0))?;
            warcs.writer.open(file);
            warcs.is_open = true;
        }
        Ok(warcs)
    }

    /// Tells whether there is a file to write to.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Chooses the name of the next file. It must be in a checkpoint before [`Warcs::create`].
    pub(crate) fn reserve(&mut self, now: Moment) {
        // A name that was reserved before a crash is used: the checkpoint has it.
        if self.state.open.is_none() {
            self.state.serial += 1;
            self.state.open = Some(OpenFile {
                name: self.naming.name(now, self.state.serial),
                opened: now.0,
                bytes: 0,
            });
        }
    }

    /// Makes the reserved file, over what a crash may have left of it, once the checkpoint before is durable.
    pub(crate) fn create(&mut self) {
        if let Some(open) = &self.state.open {
            let path = self.open_path(&open.name);
            self.writer.create(path);
            self.is_open = true;
        }
    }

    /// The name of the file being written.
    pub(crate) fn name(&self) -> Option<&str> {
        self.state.open.as_ref().map(|open| open.name.as_str())
    }

    /// Appends records; the next sync tells whether that went well.
    pub(crate) fn append(&mut self, parts: Vec<Part>) -> io::Result<()> {
        let Some(open) = self.state.open.as_mut().filter(|_| self.is_open) else {
            return Err(io::Error::other("no file is open"));
        };
        open.bytes += parts.iter().map(Part::bytes).sum::<u64>();
        self.writer.append(parts);
        Ok(())
    }

    /// Tells whether large records keep the disk busy: whoever wants a sync now waits long.
    pub(crate) fn is_busy(&self) -> bool {
        self.writer.is_busy()
    }

    /// What waits in memory to be written, in bytes.
    pub(crate) fn bytes_in_memory(&self) -> u64 {
        self.writer.bytes_in_memory()
    }

    /// Tells whether the file is to be closed.
    pub(crate) fn is_full(&self, size: u64, age_ms: Option<u64>, now: Moment) -> bool {
        self.state.open.as_ref().is_some_and(|open| {
            let age = now.0.saturating_sub(open.opened);
            open.bytes >= size || (open.bytes > 0 && age_ms.is_some_and(|limit| age >= limit))
        })
    }

    /// Makes durable what was appended and what these files hold, and then does this.
    pub(crate) fn sync(
        &mut self,
        others: Vec<File>,
        then: Then,
    ) -> oneshot::Receiver<io::Result<()>> {
        self.writer.sync(others, then)
    }

    /// Ends the file; it gets its name by [`Warcs::finish_close`], which follows a checkpoint.
    pub(crate) fn begin_close(&mut self, now: Moment) -> Option<ClosedFile> {
        self.is_open = false;
        let open = self.state.open.take()?;
        if open.bytes == 0 {
            // Reserved, and never written to: its name is used for the next one.
            self.state.open = Some(open);
            return None;
        }
        let closed = ClosedFile {
            name: open.name,
            opened: open.opened,
            closed: now.0,
            bytes: open.bytes,
        };
        self.state.files += 1;
        self.state.bytes += closed.bytes;
        self.state.closing = Some(closed.clone());
        Some(closed)
    }

    /// Gives the closed file its name, once the checkpoint before is durable.
    pub(crate) fn finish_close(&mut self) {
        if let Some((from, to)) = self.closed() {
            self.writer.publish(from, to);
        }
    }

    /// The closed file as it is called, and as it is to be; later checkpoints know nothing of it.
    fn closed(&mut self) -> Option<(PathBuf, PathBuf)> {
        let closing = self.state.closing.take()?;
        let from = self.open_path(&closing.name);
        Some((from, self.dir.join(&closing.name)))
    }

    /// Bytes in all files, the one being written included.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.state.bytes + self.state.open.as_ref().map_or(0, |open| open.bytes)
    }

    fn open_path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{OPEN}"))
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming() -> Naming {
        Naming {
            front: "7-1".to_owned(),
            host: "lock".to_owned(),
            end: ".warc",
        }
    }

    fn begin(dir: &Path) -> Warcs {
        let mut warcs = Warcs::resume(dir, naming(), WarcState::default()).unwrap();
        warcs.reserve(Moment(0));
        warcs.create();
        warcs
    }

    fn text(text: &str) -> Vec<Part> {
        vec![Part::Bytes(text.as_bytes().to_vec())]
    }

    fn sync(warcs: &mut Warcs) {
        let answer = warcs.sync(Vec::new(), Box::new(|| Ok(())));
        answer.blocking_recv().unwrap().unwrap();
    }

    const NAME: &str = "7-1-19700101000000000-00001-lock.warc";

    #[test]
    fn what_is_behind_the_checkpoint_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut warcs = begin(dir.path());
        warcs.append(text("one ")).unwrap();
        sync(&mut warcs);
        let checkpoint = warcs.state.clone();
        warcs.append(text("two ")).unwrap();
        sync(&mut warcs);
        drop(warcs);
        let mut warcs = Warcs::resume(dir.path(), naming(), checkpoint).unwrap();
        warcs.append(text("three")).unwrap();
        warcs.begin_close(Moment(9)).unwrap();
        warcs.finish_close();
        sync(&mut warcs);
        let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
        assert_eq!(bytes, b"one three");
    }

    #[test]
    fn a_file_gets_its_name_once_wherever_it_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut warcs = begin(dir.path());
        warcs.append(text("all")).unwrap();
        warcs.begin_close(Moment(9)).unwrap();
        sync(&mut warcs);
        let checkpoint = warcs.state.clone();
        for _ in 0..2 {
            let warcs = Warcs::resume(dir.path(), naming(), checkpoint.clone()).unwrap();
            assert!(!warcs.is_open());
            assert_eq!(warcs.state.files, 1);
        }
        assert_eq!(std::fs::read(dir.path().join(NAME)).unwrap(), b"all");
    }

    #[test]
    fn a_file_shorter_than_its_checkpoint_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut warcs = begin(dir.path());
        warcs.append(text("all")).unwrap();
        sync(&mut warcs);
        let mut checkpoint = warcs.state.clone();
        checkpoint.open.as_mut().unwrap().bytes = 4;
        let error = Warcs::resume(dir.path(), naming(), checkpoint)
            .err()
            .unwrap();
        assert!(error.to_string().contains("has 3 bytes"), "{error}");
    }

    #[test]
    fn a_reserved_name_that_was_never_written_is_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut warcs = begin(dir.path());
        let checkpoint = warcs.state.clone();
        warcs.append(text("lost")).unwrap();
        sync(&mut warcs);
        let mut warcs = Warcs::resume(dir.path(), naming(), checkpoint).unwrap();
        assert!(!warcs.is_open());
        warcs.reserve(Moment(5));
        warcs.create();
        assert_eq!(warcs.name(), Some(NAME));
        assert_eq!(warcs.begin_close(Moment(6)), None);
    }
}
