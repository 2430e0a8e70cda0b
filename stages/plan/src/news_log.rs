//! What came into the register, kept for good: the register can be made again from it.
//!
//! `news/DAY-DIGEST.tsv.zst` for each batch: lines about domains, sorted, written whole before the generation that has them. The same batch
//! has the same name; a batch that is there twice changes nothing, for every line says when.

#![expect(
    clippy::disallowed_methods,
    reason = "news are no parcels: their files stay for good, and are made here alone"
)]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use ecluse_stage::Failure;

/// How the files end.
const ENDING: &str = ".tsv.zst";
/// They are read once in years.
const LEVEL: i32 = 6;
/// No line is longer: those of parcels are not, and this one has a few words more.
const LINE_BYTES: usize = 512 << 10;

/// The directory of news.
#[derive(Debug, Clone)]
pub(crate) struct NewsLog(PathBuf);

impl NewsLog {
    /// Returns the directory at a path; nothing is made.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Keeps the lines of a batch. Lines that only say that rules are to be looked at are not news.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub(crate) fn keep(&self, name: &str, lines: &mut File) -> Result<(), Failure> {
        let path = self.0.join(format!("{name}{ENDING}"));
        let part = self.0.join(format!(".{name}.part"));
        let written = || -> io::Result<()> {
            fs::create_dir_all(&self.0)?;
            let mut out = zstd::Encoder::new(BufWriter::new(File::create(&part)?), LEVEL)?;
            out.include_checksum(true)?;
            let mut lines = BufReader::with_capacity(256 << 10, lines);
            let (mut line, mut count) = (Vec::new(), 0u64);
            while lines.read_until(b'\n', &mut line)? > 0 {
                if line.split(|byte| *byte == b'\t').nth(2) != Some(b"F") {
                    out.write_all(&line)?;
                    count += 1;
                }
                line.clear();
            }
            let file = out.finish()?.into_inner().map_err(io::Error::from)?;
            if count == 0 {
                return fs::remove_file(&part);
            }
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(&self.0)?.sync_all()
        };
        written()
            .map_err(|error| Failure::halt(format!("cannot write {}: {error}", path.display())))
    }

    /// Returns the files, in order of their names.
    ///
    /// # Errors
    /// When the directory cannot be read; one that is not there is empty.
    pub(crate) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(ENDING) && !name.starts_with('.') {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Gives each line of a file of news to `see`.
///
/// # Errors
/// When it cannot be read to its end, and what `see` says.
pub(crate) fn each_line(
    path: &Path,
    see: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| {
        Failure::hold(format!("cannot read {}: {what}", path.display()))
    };
    let file = File::open(path).map_err(|error| failed(&error))?;
    let packed = zstd::Decoder::new(file).map_err(|error| failed(&error))?;
    let mut lines = BufReader::with_capacity(256 << 10, packed);
    let mut line = String::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut lines, LINE_BYTES as u64).read_line(&mut line);
        if read.map_err(|error| failed(&error))? == 0 {
            return Ok(());
        }
        if line.pop() != Some('\n') {
            return Err(failed(&"a line was cut"));
        }
        see(&line).map_err(|failure| match failure.blame {
            ecluse_stage::Blame::Parcel => failed(&failure.reason),
            _ => failure,
        })?;
    }
}
