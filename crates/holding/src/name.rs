//! What is an archive file, by its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How the names of archive files end.
const ARCHIVES: [&str; 6] = [
    ".warc",
    ".warc.gz",
    ".warc.zst",
    ".arc",
    ".arc.gz",
    ".arc.zst",
];

/// Tells whether a name is that of an archive file.
pub fn is_archive(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_lowercase();
    ARCHIVES
        .iter()
        .any(|end| name.len() > end.len() && name.ends_with(end.as_bytes()))
}
