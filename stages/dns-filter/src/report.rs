//! Results that no stage takes lie with the reports, each shown by one rename.

#![expect(
    clippy::disallowed_methods,
    reason = "reports are no parcels: they are for people, and are made here alone"
)]

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// A report that nobody sees before it is whole.
pub(crate) struct Report {
    directory: PathBuf,
    name: String,
    building: PathBuf,
    /// Takes its text.
    pub(crate) file: BufWriter<File>,
}

impl Report {
    /// Begins a report.
    pub(crate) fn begin(directory: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let building = directory.join(format!(".tmp-{name}"));
        Ok(Self {
            file: BufWriter::new(File::create(&building)?),
            directory: directory.to_owned(),
            name: name.to_owned(),
            building,
        })
    }

    /// Shows it, durably; one of that name is replaced, which has the same bytes.
    pub(crate) fn show(self) -> io::Result<()> {
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&self.building, self.directory.join(&self.name))?;
        File::open(&self.directory)?.sync_all()
    }
}
