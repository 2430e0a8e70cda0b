//! Figures in a file, for node_exporter's textfile collector and for runs too short to be scraped.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes a file so that a reader sees the old text or the new one, never a part.
///
/// The name must not begin with a dot and should end in `.prom`. The file is readable by all: the
/// collector is another user. It is not synced; after a power cut the next run writes it again.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| {
        let message = format!("{} is not a file name", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let mut aside = std::ffi::OsString::from(".");
    aside.push(name);
    aside.push(format!(".{}.tmp", std::process::id()));
    let aside = path.with_file_name(aside);
    let written = write_new(&aside, text).and_then(|()| rename(&aside, path));
    if written.is_err() {
        // What went wrong is told above; a leftover is removed by the next run.
        let _ = remove(&aside);
    }
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // A crash may have left one, under a process id that comes round again.
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // The directory is often shared: `create_new` follows nobody's link.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    // Units run with a strict umask.
    file.set_permissions(Permissions::from_mode(0o644))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the file lies outside every work directory"
)]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the file is one this process is about to write, outside every work directory"
)]
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_whole_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ecluse.prom");
        write(&path, "a 1\n").unwrap();
        write(&path, "b 2\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "b 2\n");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn nobodys_link_is_followed_and_a_leftover_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ecluse.prom");
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let aside = format!(".ecluse.prom.{}.tmp", std::process::id());
        std::os::unix::fs::symlink(&victim, directory.path().join(aside)).unwrap();
        write(&path, "a 1\n").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 1\n");
        assert!(!path.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write(&directory.path().join("none/ecluse.prom"), "").is_err());
        assert!(write(Path::new("/"), "").is_err());
        let occupied = directory.path().join("occupied.prom");
        fs::create_dir_all(occupied.join("inside")).unwrap();
        assert!(write(&occupied, "").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
