//! The directory of a job: what lies where, and the few files in it that are written whole.
//!
//! Frontier, logs, reports, control and status lie together, so that a job can be looked at, moved or kept as one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The directory of one job.
#[derive(Debug, Clone)]
pub(crate) struct JobDir {
    root: PathBuf,
}

impl JobDir {
    /// The directory of a job among all jobs.
    pub(crate) fn of(jobs: &Path, job: &str, harvest: &str) -> Self {
        Self::at(&jobs.join(format!("{job}-{harvest}")))
    }

    /// A directory that is known to be a job's.
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Makes everything that is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        for dir in [
            self.frontier(),
            self.logs(),
            self.reports(),
            self.control().join("done"),
            self.control().join("ask"),
            self.control().join("answers"),
            self.seeds(),
            self.spool(),
        ] {
            fs::create_dir_all(dir)?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn frontier(&self) -> PathBuf {
        self.root.join("frontier")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn reports(&self) -> PathBuf {
        self.root.join("reports")
    }

    /// Where an operator puts changes and questions.
    pub(crate) fn control(&self) -> PathBuf {
        self.root.join(crate::control::CONTROL)
    }

    /// The seed files that came with the order.
    pub(crate) fn seeds(&self) -> PathBuf {
        self.root.join("seeds")
    }

    /// Where large responses lie while they are fetched; files there have no names.
    pub(crate) fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }

    /// The order as it came.
    pub(crate) fn given_order(&self) -> PathBuf {
        self.root.join("order-given.toml")
    }

    /// The order in force.
    pub(crate) fn order(&self) -> PathBuf {
        self.root.join("order.toml")
    }

    /// The starts that brought nothing: by these a job is known that kills its worker.
    pub(crate) fn starts(&self) -> PathBuf {
        self.root.join("starts.json")
    }
}

/// Writes a file so that a reader sees the old one or the new one, and a power cut leaves one of them.
pub(crate) fn write_whole(path: &Path, mut bytes: &[u8]) -> io::Result<()> {
    copy_whole(&mut bytes, path)
}

/// Writes a file as [`write_whole`] does, from what need not fit into memory.
pub(crate) fn copy_whole(from: &mut dyn io::Read, path: &Path) -> io::Result<()> {
    let part = part_of(path);
    let mut file = File::create(&part)?;
    io::copy(from, &mut file)?;
    file.sync_data()?;
    publish(&part, path)
}

/// Writes a file whole, but leaves it to the system when it reaches the disk: what it says is only worth something now.
pub(crate) fn write_quick(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = part_of(path);
    fs::write(&part, bytes)?;
    rename(&part, path)
}

/// Gives a finished file its name, durably.
pub(crate) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    rename(from, to)?;
    sync_dir_of(to)
}

/// Makes the name of a file durable.
pub(crate) fn sync_dir_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

#[expect(
    clippy::disallowed_methods,
    reason = "files of the job's own directory and the file it has closed: no parcel is moved"
)]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status.json");
        write_whole(&path, b"one").unwrap();
        write_quick(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
