//! One host writes the manifest.
//!
//! Two hosts that write spoil the database where each keeps caches of its own, and nobody can tell from one host whether another
//! does. So on every file system that several machines may have, a writer locks a file beside the database for as long as it
//! lives, shared with the other writers of its host, and the first of them writes the host's name into it. A writer of
//! another host finds the lock and the name, and is refused. When the last writer is gone, whichever way, any host may
//! begin. Where a mount keeps its locks to itself this sees nothing; `ecluse check` tells of those.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{ManifestError, Result};

/// Who writes: one running kernel. Containers on it share its locks and its caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WritingHost {
    boot: String,
    name: String,
}

impl WritingHost {
    pub(crate) fn this() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self {
            boot: boot.unwrap_or_default().trim().to_owned(),
            name: rustix::system::uname().nodename().to_string_lossy().into(),
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.host"))
}

/// Makes this host the one that writes; what is returned must live as long as the writer.
///
/// # Errors
/// When another host writes, and where no file can be locked.
pub(crate) fn claim(path: &Path, host: &WritingHost, patience: Duration) -> Result<File> {
    let beside = beside(path);
    let failed = |step| {
        let path = beside.clone();
        move |error: io::Error| ManifestError::File { step, path, error }
    };
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&beside).map_err(failed("mark"))?;
    let deadline = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                write(&mut file, host).map_err(failed("mark"))?;
                // Between the two locks another may come: whose name stands there then is right.
                flock(&file, FlockOperation::LockShared)
                    .map_err(|error| failed("lock")(error.into()))?;
                break;
            }
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(failed("lock")(error.into())),
        }
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => break,
            // Another is just writing its name.
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failed("lock")(error.into())),
        }
    }
    let mut text = String::new();
    file.rewind()
        .and_then(|()| file.read_to_string(&mut text))
        .map_err(failed("read who writes"))?;
    let (boot, name) = text.trim_end().split_once(' ').unwrap_or_default();
    if boot == host.boot {
        return Ok(file);
    }
    Err(ManifestError::OtherHost {
        path: path.to_owned(),
        host: name.to_owned(),
    })
}

fn write(file: &mut File, host: &WritingHost) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{} {}\n", host.boot, host.name).as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_writes_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifest.sqlite");
        let host = |name: &str| WritingHost {
            boot: format!("boot-of-{name}"),
            name: name.to_owned(),
        };
        let claim = |name| claim(&path, &host(name), Duration::ZERO);
        let first = claim("alpha").unwrap();
        let second = claim("alpha").unwrap();
        let refused = claim("beta").err().unwrap().to_string();
        assert!(
            refused.contains("(archive.manifest) is written by the host alpha"),
            "{refused}"
        );
        assert!(refused.contains("on one host"), "{refused}");
        drop(first);
        assert!(claim("beta").is_err(), "one of alpha's is left");
        drop(second);
        let _beta = claim("beta").unwrap();
        assert!(claim("alpha").is_err());
        assert_eq!(WritingHost::this(), WritingHost::this());
    }
}
