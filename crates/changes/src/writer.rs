//! Writes a file of records: zstd, in frames that begin with a line, so that one key can be found without reading what is before.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::ChangeRecord;
use crate::error::ChangesError;
use crate::frames::FrameList;

/// A frame is full when it holds this much.
const FRAME_BYTES: usize = 1 << 20;
/// How hard zstd tries.
const LEVEL: i32 = 3;

/// Writes records one by one, in the order of their keys.
pub struct RecordWriter<Record> {
    out: BufWriter<File>,
    path: PathBuf,
    /// Where the frames begin, by their first key.
    frames: FrameList,
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
    /// Begins the file of these records in a directory that has none.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(directory: &Path) -> Result<Self, ChangesError> {
        let path = directory.join(Record::FILE);
        let file = File::create_new(&path).map_err(ChangesError::io("make", &path))?;
        let packer = zstd::bulk::Compressor::new(LEVEL).map_err(ChangesError::io("pack", &path))?;
        Ok(Self {
            out: BufWriter::with_capacity(256 << 10, file),
            frames: FrameList::default(),
            path,
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
            self.frames.push(&self.frame_key, self.offset);
        }
        self.offset += packed.len() as u64;
        self.frame.clear();
        self.frame_key.clear();
        Ok(())
    }

    /// Writes what is left and the list of frames, and syncs the file; returns how many records there are.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<u64, ChangesError> {
        if !self.frame.is_empty() {
            self.flush()?;
        }
        let written = self.out.write_all(&self.frames.to_frame());
        written.map_err(ChangesError::io("write", &self.path))?;
        let file = self.out.into_inner();
        let synced = file
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all());
        synced.map_err(ChangesError::io("sync", &self.path))?;
        Ok(self.lines)
    }
}
