//! The names of the store's files, and the two acts that change a directory: making durable, removing.
//!
//! The directory belongs to the frontier alone; no parcel and no archived byte is ever in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Result, io_error};

/// The log of this number.
pub(super) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log-{number:08}"))
}

/// The run of this number.
pub(super) fn run_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("run-{number:08}"))
}

/// The numbers of the logs and of the runs that lie in `dir`, in order.
pub(super) fn listing(dir: &Path) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut logs, mut runs) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let entry = entry.map_err(io_error("list", dir))?;
        let name = entry.file_name();
        let Some((kind, number)) = name.to_str().and_then(|name| name.split_once('-')) else {
            continue;
        };
        let Ok(number) = number.parse() else {
            continue;
        };
        match kind {
            "log" => logs.push(number),
            "run" => runs.push(number),
            _ => {}
        }
    }
    logs.sort_unstable();
    runs.sort_unstable();
    Ok((logs, runs))
}

/// Makes the names in `dir` durable.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    let handle = File::open(dir).map_err(io_error("open", dir))?;
    handle.sync_all().map_err(io_error("fsync", dir))
}

/// Removes a log or a run that the newest log no longer names.
#[expect(
    clippy::disallowed_methods,
    reason = "a store's own superseded files, in a directory that holds no parcel"
)]
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", path)(source))
        }
        _ => Ok(()),
    }
}
