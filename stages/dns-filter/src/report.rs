//! Results that no stage takes lie with the reports, each shown by one rename.

#![expect(
    clippy::disallowed_methods,
    reason = "reports are no parcels: they are for people, and are made here alone"
)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a report durably; one of that name is replaced, which has the same bytes.
pub(crate) fn write_report(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let building = directory.join(format!(".tmp-{name}"));
    let mut file = File::create(&building)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&building, directory.join(name))?;
    File::open(directory)?.sync_all()
}
