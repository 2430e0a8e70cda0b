//! The files of a bag as they lie on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::declaration::shown;
use crate::fault::{BagFault, ValidateError};

/// The files below a directory with their sizes, by path in it with slashes; what is no plain file is a fault.
pub(crate) fn files_of(
    bag: &Path,
    faults: &mut Vec<BagFault>,
) -> Result<BTreeMap<String, u64>, ValidateError> {
    let mut files = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let path = bag.join(&directory);
        let at = |source: io::Error| ValidateError::Io {
            path: path.clone(),
            source,
        };
        for entry in fs::read_dir(&path).map_err(at)? {
            let entry = entry.map_err(at)?;
            let kind = entry.file_type().map_err(at)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                let path = format!("{directory}{}", shown(&name.to_string_lossy()));
                let what = "not named in UTF-8";
                faults.push(BagFault::NotPlain { path, what });
                continue;
            };
            let name = format!("{directory}{name}");
            if kind.is_dir() {
                directories.push(name + "/");
            } else if kind.is_file() {
                files.insert(name, entry.metadata().map_err(at)?.len());
            } else {
                let what = match kind.is_symlink() {
                    true => "a symbolic link",
                    false => "neither file nor directory",
                };
                let path = shown(&name);
                faults.push(BagFault::NotPlain { path, what });
            }
        }
    }
    Ok(files)
}
