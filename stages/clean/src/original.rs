//! A file in a harvested directory: how it looked before it was read, and its removal.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ecluse_manifest::{Finding, HarvestedFile};

/// A harvested file, as it was before it was read.
pub(crate) struct Original {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// What tells this state of it from another.
    pub(crate) stamp: String,
}

impl Original {
    /// Looks at a file; none where there is none.
    pub(crate) fn look(path: &Path) -> io::Result<Option<Self>> {
        match path.symlink_metadata() {
            Ok(metadata) => Ok(Some(Self {
                path: path.to_owned(),
                bytes: metadata.len(),
                stamp: stamp_of(&metadata),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns its name in the manifest's table.
    pub(crate) fn key(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Returns what is noted of it.
    pub(crate) fn found(&self, finding: Finding, why: &str) -> HarvestedFile {
        HarvestedFile {
            path: self.key(),
            bytes: self.bytes,
            stamp: self.stamp.clone(),
            finding,
            why: why.to_owned(),
        }
    }

    /// Removes it if it is as it was; tells whether it was.
    #[expect(
        clippy::disallowed_methods,
        reason = "this stage is the one that removes harvested files"
    )]
    pub(crate) fn remove(&self) -> io::Result<bool> {
        // Long reads lie between: another file may have taken its place, which nobody has taken in.
        if stamp_of(&self.path.symlink_metadata()?) != self.stamp {
            return Ok(false);
        }
        std::fs::remove_file(&self.path)?;
        if let Some(parent) = self.path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(true)
    }
}

fn stamp_of(metadata: &Metadata) -> String {
    format!(
        "{}:{} {} {}.{:09}",
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_the_place_of_a_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.warc.gz");
        let look = || Original::look(&path).unwrap().unwrap();
        std::fs::write(&path, "read").unwrap();
        let read = look();
        std::fs::write(&path, "another").unwrap();
        assert!(!read.remove().unwrap());
        assert!(path.exists());
        assert!(look().remove().unwrap());
        assert!(Original::look(&path).unwrap().is_none());
    }
}
