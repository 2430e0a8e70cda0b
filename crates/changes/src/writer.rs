//! Writes a file of records: zstd, in frames that begin with a line, so that one key can be found without reading what is before.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::ChangeRecord;
use crate::error::ChangesError;

/// A frame is full when it holds this much.
const FRAME_BYTES: usize = 1 << 20;
/// How hard zstd tries.
const LEVEL: i32 = 3;

/// Writes records one by one, in the order of their keys.
pub struct RecordWriter<Record> {
    out: BufWriter<File>,
    path: PathBuf,
    frames: BufWriter<File>,
    frames_path: PathBuf,
    packer: zstd::bulk::Compressor<'static>,
    frame: String,
    /// The key of the frame's first line.
    frame_key: String,
    previous: String,
    offset: u64,
    lines: u64,
    kind: PhantomData<Record>,
}

impl<Record: ChangeRecord> RecordWriter<Record> {
    /// Begins the file of these records, and the list of its frames, in a directory that has neither.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn create(directory: &Path) -> Result<Self, ChangesError> {
        let make = |path: &Path| {
            let file = File::create_new(path).map_err(ChangesError::io("make", path))?;
            Ok(BufWriter::with_capacity(256 << 10, file))
        };
        let (path, frames_path) = (directory.join(Record::FILE), directory.join(Record::FRAMES));
        let packer = zstd::bulk::Compressor::new(LEVEL).map_err(ChangesError::io("pack", &path))?;
        Ok(Self {
            out: make(&path)?,
            frames: make(&frames_path)?,
            path,
            frames_path,
            packer,
            frame: format!("{}\n", Record::HEADER),
            frame_key: String::new(),
            previous: String::new(),
            offset: 0,
            lines: 0,
            kind: PhantomData,
        })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When it is below the one before it, or the disk refuses.
    pub fn write(&mut self, record: &Record) -> Result<(), ChangesError> {
        self.begin(record.key())?;
        record.write(&mut self.frame);
        self.frame.push('\n');
        Ok(())
    }

    /// Writes the line of a record as it was read.
    ///
    /// # Errors
    /// As [`RecordWriter::write`].
    pub fn write_line(&mut self, key: &str, line: &str) -> Result<(), ChangesError> {
        self.begin(key)?;
        self.frame.push_str(line);
        self.frame.push('\n');
        Ok(())
    }

    fn begin(&mut self, key: &str) -> Result<(), ChangesError> {
        if key < self.previous.as_str() {
            return Err(ChangesError::Unsorted {
                path: self.path.clone(),
                line: self.lines + 2,
                before: self.previous.clone(),
                key: key.to_owned(),
            });
        }
        // All lines of a key are in one frame.
        if self.frame.len() >= FRAME_BYTES && key != self.previous {
            self.flush()?;
        }
        if self.frame_key.is_empty() {
            key.clone_into(&mut self.frame_key);
        }
        self.lines += 1;
        key.clone_into(&mut self.previous);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ChangesError> {
        let packed = self.packer.compress(self.frame.as_bytes());
        let packed = packed.map_err(ChangesError::io("pack", &self.path))?;
        let written = self.out.write_all(&packed);
        written.map_err(ChangesError::io("write", &self.path))?;
        if !self.frame_key.is_empty() {
            let noted = writeln!(self.frames, "{}\t{}", self.frame_key, self.offset);
            noted.map_err(ChangesError::io("write", &self.frames_path))?;
        }
        self.offset += packed.len() as u64;
        self.frame.clear();
        self.frame_key.clear();
        Ok(())
    }

    /// Writes what is left and syncs both files; returns how many records there are.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<u64, ChangesError> {
        if !self.frame.is_empty() {
            self.flush()?;
        }
        let synced = |file: BufWriter<File>, path: &Path| {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error);
            let synced = file.and_then(|file| file.sync_all());
            synced.map_err(ChangesError::io("sync", path))
        };
        synced(self.out, &self.path)?;
        synced(self.frames, &self.frames_path)?;
        Ok(self.lines)
    }
}
