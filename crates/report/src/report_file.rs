//! A report on its way to the disk: written whole, then made durable.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A report on its way to the disk. What was there under its name is gone.
pub(crate) struct ReportFile {
    out: BufWriter<File>,
    path: PathBuf,
}

impl ReportFile {
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Self> {
        let path = dir.join(name);
        let file = File::create(&path)?;
        Ok(Self {
            out: BufWriter::with_capacity(64 << 10, file),
            path,
        })
    }

    /// Makes it durable, and returns its path. The folder is the caller's to sync.
    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        let file = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(self.path)
    }
}

impl Write for ReportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a whole report.
pub(crate) fn write_text(dir: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let mut file = ReportFile::create(dir, name)?;
    file.write_all(text.as_bytes())?;
    file.finish()
}

/// Writes a whole report as JSON.
pub(crate) fn write_json(dir: &Path, name: &str, value: &impl Serialize) -> io::Result<PathBuf> {
    let mut file = ReportFile::create(dir, name)?;
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.finish()
}

/// A report in JSON that is one long list, written as it comes: `{"KEY":[`, a line for each item, `], … }`.
pub(crate) struct JsonList {
    file: ReportFile,
    is_empty: bool,
}

impl JsonList {
    pub(crate) fn create(dir: &Path, name: &str, key: &str) -> io::Result<Self> {
        let mut file = ReportFile::create(dir, name)?;
        write!(file, "{{\"{key}\":[")?;
        Ok(Self {
            file,
            is_empty: true,
        })
    }

    pub(crate) fn item(&mut self, item: &impl Serialize) -> io::Result<()> {
        let before: &[u8] = if self.is_empty { b"\n" } else { b",\n" };
        self.is_empty = false;
        self.file.write_all(before)?;
        serde_json::to_writer(&mut self.file, item)?;
        Ok(())
    }

    /// Ends the list, with a word about its order.
    pub(crate) fn finish(mut self, order: &str) -> io::Result<PathBuf> {
        writeln!(self.file, "\n],\"order\":\"{order}\"}}")?;
        self.file.finish()
    }
}
