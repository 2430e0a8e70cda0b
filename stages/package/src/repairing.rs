//! Packages put right after something happened to them.
//!
//! Nothing is removed: what is taken out of a package, or a whole package, lies beside the packages under a name of its own,
//! `.ecluse-bad-N-NAME`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ecluse_holding::{CopyDirectory, CopyFault, Fixity, SET_ASIDE, open_plain};
use ecluse_spool::{Fs, RealFs};
use rustix::fs::{CWD, renameat};
use rustix::io::Errno;

/// Puts a good file in the place of one in a package, linked where the file system allows, else copied and read back.
/// Returns where the bad one is now; `None` when there was none.
///
/// # Errors
/// When the disk fails. Where it fails in between, the file is missing from the package, and this can be done again.
pub fn put_right(
    packages: &Path,
    file: &Path,
    good: &Path,
    wanted: &Fixity,
) -> Result<Option<PathBuf>, CopyFault> {
    let at = |what: &'static str, path: &Path, error: io::Error| CopyFault::Place {
        what,
        path: path.to_owned(),
        error,
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let new = format!(".ecluse-new-{name}");
    let path = packages.join(&new);
    RealFs
        .remove_tree(&path)
        .map_err(|error| at("remove", &path, error))?;
    if RealFs.link(good, &path).is_err() {
        let mut open = || -> io::Result<Box<dyn io::Read>> { Ok(Box::new(open_plain(good)?)) };
        CopyDirectory::open(packages, "repair")?.keep(&new, wanted, 0, &mut open, &|| true)?;
    }
    let aside = move_aside(packages, file).map_err(|error| at("set aside", file, error))?;
    let parent = file.parent().unwrap_or(packages);
    let named = fs::create_dir_all(parent)
        .and_then(|()| Ok(renameat(CWD, &path, CWD, file)?))
        .and_then(|()| sync(parent))
        .and_then(|()| sync(packages));
    named.map_err(|error| at("name", file, error))?;
    Ok(aside)
}

/// Moves a package out of the way, if there is anything of it, so that it can be made again. Returns where it is now.
///
/// # Errors
/// When the disk fails.
pub fn set_aside(packages: &Path, package: &str) -> io::Result<Option<PathBuf>> {
    let aside = move_aside(packages, &packages.join(package))?;
    if aside.is_some() {
        sync(packages)?;
    }
    Ok(aside)
}

fn move_aside(packages: &Path, from: &Path) -> io::Result<Option<PathBuf>> {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    for number in 1..u32::MAX {
        let to = packages.join(format!("{SET_ASIDE}{number}-{name}"));
        // Not every file system can refuse to replace in one step: nobody else uses these names.
        if to.symlink_metadata().is_ok() {
            continue;
        }
        return match renameat(CWD, from, CWD, &to) {
            Ok(()) => Ok(Some(to)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    Err(Errno::EXIST.into())
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
