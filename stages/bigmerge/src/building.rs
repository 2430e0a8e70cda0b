//! Building one generation: the last one and the new lines, merged into files that are synced and not yet seen.
//!
//! The order of every new line is checked. The lines of the last generation are not looked at again: their checksum, taken as
//! they are read, says that they are the bytes that were in order when they were written, and their number is compared. So
//! long unchanged runs are copied as they stand. An index somebody put there by hand has no checksum and is read line by line.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use ecluse_cdx::path::{self, PathLine};
use ecluse_cdx::zipnum::{self, Shards, ZipNumWriteError};
use ecluse_cdx::{
    LineShape, LineSource, Lines, MAX_LINE_BYTES, MergeError, MergeOptions, MergeStats, ReadError,
    check, merge, merge_into, merge_pieces,
};
use ecluse_generation::{
    AskedToStop, DESCRIPTION, FLAT, FileSum, IndexDirectory, IndexFile, IndexGeneration,
    LastGeneration, PATHS, SummedFile, WatchedReader, ZIPNUM, block_bytes, entry_of,
};
use ecluse_holding::{IndexPiece, pieces_of};
use ecluse_manifest::PlaceRoot;
use ecluse_stage::{Failure, Outbox, Parcel};

use crate::Settings;
use crate::days::{duplicates_of, members_of};
use crate::planning::Planned;
use crate::sums::SummedReader;

/// What a generation is built from, and where.
pub(crate) struct Building<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) index: &'a IndexDirectory,
    /// The generation before.
    pub(crate) last: Option<&'a LastGeneration>,
    pub(crate) members: &'a [&'a Parcel],
    /// The directory it is built in.
    pub(crate) directory: &'a Path,
    /// The root that the places in parcels begin at.
    pub(crate) root: &'a Path,
    /// The ranges that others build of it; none: it is built here.
    pub(crate) planned: Option<&'a Planned<'a>>,
    pub(crate) outbox: &'a Outbox,
}

/// Opens a piece to be merged.
pub(crate) fn open(piece: &IndexPiece<'_>) -> Result<LineSource, Failure> {
    Ok(LineSource::new(piece.label(), piece.open()?))
}

/// Returns how many bytes these pieces have.
pub(crate) fn bytes_of(pieces: &[IndexPiece<'_>]) -> u64 {
    pieces.iter().map(|piece| piece.bytes).sum()
}

impl Building<'_> {
    /// Writes and syncs every file of the generation; `generation.json` last.
    pub(crate) fn build(&self, number: u64) -> Result<IndexGeneration, Failure> {
        let joined = self.planned.map(|planned| self.join_parts(planned));
        let joined = joined.transpose()?;
        let (flat, stats) = match &joined {
            Some(joined) => (joined.flat.clone(), joined.stats),
            None => self.merge_list(FLAT, ".cdxj", LineShape::Capture)?,
        };
        let (paths, _) = self.merge_list(PATHS, ".path", LineShape::Path)?;
        let mut files = vec![flat, paths];
        match (&joined, self.planned) {
            (Some(joined), Some(planned)) if planned.plan.zipnum_lines.is_some() => {
                files.extend(self.join_zipnum(joined)?);
            }
            (None, _) if self.settings.zipnum => {
                files.extend(self.write_zipnum(stats.lines_written)?);
            }
            _ => {}
        }
        let mut members = Vec::new();
        for parcel in self.members {
            members.extend(members_of(parcel)?);
        }
        let generation = IndexGeneration {
            schema: IndexGeneration::schema_of(&files),
            number,
            previous: self.last.map(|last| last.number),
            lines: stats.lines_written,
            duplicates: stats.duplicates + duplicates_of(self.members)?,
            files,
            members,
        };
        let written = generation.write(self.directory);
        written.map_err(|error| cannot("write", &self.directory.join(DESCRIPTION), &error))?;
        Ok(generation)
    }

    /// Merges one list of the last generation with its new pieces.
    fn merge_list(
        &self,
        name: &str,
        suffix: &str,
        shape: LineShape,
    ) -> Result<(IndexFile, MergeStats), Failure> {
        let path = self.directory.join(name);
        let sum = match name == FLAT && self.settings.ranges.get() > 1 {
            true => FileSum::in_blocks(self.flat_block_bytes()?),
            false => FileSum::default(),
        };
        let mut out = SummedFile::create(&path, sum, self.outbox.signs())
            .map_err(|error| cannot("make", &path, &error))?;
        let options = self.settings.options(shape);
        let mut new = self.new_sources(&pieces_of(self.members, suffix), &options)?;
        if shape == LineShape::Path && !new.is_empty() {
            new = vec![self.whole_places(new, &options)?];
        }
        let stats = match self.last_file(name)? {
            None => merge(new, &mut out, &options).map_err(|error| self.blame(&error))?,
            Some((last, known)) => self.merge_with(&last, known, new, &mut out, &options)?,
        };
        let mut entry = out
            .finish(name)
            .map_err(|error| cannot("sync", &path, &error))?;
        let counted = if self.settings.recheck {
            let source = LineSource::open(&path).map_err(|error| self.blame(&error.into()))?;
            check(source, &options).map_err(|error| self.blame(&error))?
        } else {
            stats
        };
        let expected = stats.lines_read - stats.duplicates;
        if (counted.lines_written, entry.bytes) != (expected, stats.bytes_written) {
            return Err(Failure::halt(format!(
                "{}: {} lines in {} bytes, expected {expected} in {}",
                path.display(),
                counted.lines_written,
                entry.bytes,
                stats.bytes_written
            )));
        }
        entry.lines = Some(counted.lines_written);
        Ok((entry, stats))
    }

    /// Returns how large the blocks of the flat list are that have sums of their own.
    pub(crate) fn flat_block_bytes(&self) -> Result<NonZeroU64, Failure> {
        let last = match self.last_file(FLAT)? {
            Some((path, _)) => path
                .metadata()
                .map_err(|error| cannot("look at", &path, &error))?
                .len(),
            None => 0,
        };
        let new = bytes_of(&pieces_of(self.members, ".cdxj"));
        Ok(block_bytes(last + new))
    }

    /// Merges new lines into a file of the last generation, and makes sure that it was read as it was written.
    fn merge_with(
        &self,
        last: &Path,
        known: Option<&IndexFile>,
        new: Vec<LineSource>,
        out: &mut SummedFile,
        options: &MergeOptions,
    ) -> Result<MergeStats, Failure> {
        let file = File::open(last).map_err(|error| cannot("open", last, &error))?;
        let (reader, sum) = SummedReader::new(file);
        let big = LineSource::new(last.display().to_string(), reader);
        let blame = |error| self.blame(&error);
        let Some(expected) = known else {
            let all = std::iter::once(big).chain(new).collect();
            return merge(all, out, options).map_err(blame);
        };
        let stats = merge_into(big, new, out, options).map_err(blame)?;
        let found = sum.entry(&expected.name);
        if (found.bytes, &found.xxh128) != (expected.bytes, &expected.xxh128) {
            return Err(Failure::halt(format!(
                "{} is not what was written: {} bytes with checksum {}, expected {} with {}",
                last.display(),
                found.bytes,
                found.xxh128,
                expected.bytes,
                expected.xxh128
            )));
        }
        Ok(stats)
    }

    /// Opens the new pieces, merged into one beforehand when there are more than may be open.
    fn new_sources(
        &self,
        pieces: &[IndexPiece<'_>],
        options: &MergeOptions,
    ) -> Result<Vec<LineSource>, Failure> {
        if pieces.len() < options.open_files {
            return pieces.iter().map(open).collect();
        }
        let failed = |error: io::Error| cannot("use a temporary file in", self.directory, &error);
        let mut run = tempfile::tempfile_in(self.directory).map_err(failed)?;
        join(pieces, &mut run, self.directory, options, self.outbox)?;
        run.rewind().map_err(failed)?;
        Ok(vec![LineSource::new("the new lines", run)])
    }

    /// Makes the places of new PATH lines whole: in parcels they begin at the root, and readers of the index know of none.
    fn whole_places(
        &self,
        new: Vec<LineSource>,
        options: &MergeOptions,
    ) -> Result<LineSource, Failure> {
        let failed = |error: io::Error| cannot("use a temporary file in", self.directory, &error);
        let mut merged = tempfile::tempfile_in(self.directory).map_err(failed)?;
        merge(new, &mut merged, options).map_err(|error| self.blame(&error))?;
        merged.rewind().map_err(failed)?;
        let mut lines = Lines::new(LineSource::new("the new lines", merged), MAX_LINE_BYTES);
        let mut whole = BufWriter::new(tempfile::tempfile_in(self.directory).map_err(failed)?);
        let places = PlaceRoot::new(self.root);
        // Another beginning may change the order of one file's lines, and no more than that.
        let mut of_file: (String, BTreeSet<Vec<u8>>) = Default::default();
        while let Some(line) = lines.next_line().map_err(Failure::halt)? {
            let line = path::parse(line.bytes).map_err(Failure::halt)?;
            if line.filename != of_file.0 {
                let (_, lines) = std::mem::take(&mut of_file);
                lines
                    .iter()
                    .try_for_each(|line| whole.write_all(line))
                    .map_err(failed)?;
                of_file.0 = line.filename.to_owned();
            }
            let mut text = Vec::new();
            let line = PathLine {
                location: &places.whole(line.location),
                ..line
            };
            path::write(line, &mut text).map_err(Failure::halt)?;
            of_file.1.insert(text);
        }
        let rest = of_file.1.iter();
        rest.map(Vec::as_slice)
            .try_for_each(|line| whole.write_all(line))
            .map_err(failed)?;
        let mut whole = whole
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        whole.rewind().map_err(failed)?;
        Ok(LineSource::new("the new lines", whole))
    }

    fn write_zipnum(&self, lines: u64) -> Result<Vec<IndexFile>, Failure> {
        let path = self.directory.join(FLAT);
        let file = File::open(&path).map_err(|error| cannot("open", &path, &error))?;
        let reader = WatchedReader::new(file, self.outbox.signs());
        let source = LineSource::new(path.display().to_string(), reader);
        let options = zipnum::ZipNumOptions {
            lines_per_member: self.settings.zipnum_lines.get() as usize,
            shards: Shards::Bytes(self.settings.zipnum_shard.0),
            ..zipnum::ZipNumOptions::default()
        };
        let written = zipnum::write(source, self.directory, ZIPNUM, &options);
        let written = written.map_err(|error| match &error {
            ZipNumWriteError::Read(ReadError::Read { source, .. }) if AskedToStop::is(source) => {
                Failure::give_back()
            }
            _ => Failure::halt(with_cause(&error)),
        })?;
        if written.lines != lines {
            // A header line of a CDX file has no place in ZipNum.
            let headers = lines - written.lines;
            tracing::warn!(headers, "lines of the flat index that are not in ZipNum");
        }
        let shards = written.shards.iter().map(|shard| &shard.path);
        let paths = [&written.summary, &written.locations]
            .into_iter()
            .chain(shards);
        paths.map(|path| self.entry(path)).collect()
    }

    pub(crate) fn entry(&self, path: &Path) -> Result<IndexFile, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.outbox.tick();
        entry_of(path, &name).map_err(|error| cannot("read", path, &error))
    }

    /// Returns a list of the last generation and what was written of it; nothing is known of one a person put there, which
    /// may have no PATH lines.
    fn last_file(&self, name: &str) -> Result<Option<(PathBuf, Option<&IndexFile>)>, Failure> {
        let Some(last) = self.last else {
            return Ok(None);
        };
        let path = self.index.generation(last.number).join(name);
        if let Some(described) = &last.described {
            let file = described.file(name);
            let unnamed = || format!("{DESCRIPTION} beside {} does not name it", path.display());
            return match file {
                Some(file) => Ok(Some((path, Some(file)))),
                None => Err(Failure::halt(unnamed())),
            };
        }
        let is_there = path
            .try_exists()
            .map_err(|error| cannot("look at", &path, &error))?;
        Ok((is_there || name == FLAT).then_some((path, None)))
    }

    /// Says who is at fault: a piece for its lines, the machine for an index that is no longer in order.
    fn blame(&self, error: &MergeError) -> Failure {
        let text = with_cause(error);
        match error {
            MergeError::Write { source, .. } if AskedToStop::is(source) => Failure::give_back(),
            MergeError::Read(
                ReadError::Unterminated { place }
                | ReadError::TooLong { place, .. }
                | ReadError::Unsorted { place, .. }
                | ReadError::Malformed { place, .. },
            ) if !Path::new(&place.file).starts_with(self.index.root()) => {
                Failure::hold(text).of_piece(&place.file)
            }
            _ => Failure::halt(text),
        }
    }
}

/// Merges pieces, however many, into one list.
pub(crate) fn join(
    pieces: &[IndexPiece<'_>],
    out: &mut impl Write,
    temporary: &Path,
    options: &MergeOptions,
    outbox: &Outbox,
) -> Result<MergeStats, Failure> {
    /// Why they did not become one.
    enum Stopped {
        Merge(MergeError),
        Open(Failure),
    }

    impl From<MergeError> for Stopped {
        fn from(error: MergeError) -> Self {
            Self::Merge(error)
        }
    }

    let open_next = |piece: &IndexPiece<'_>| {
        outbox.tick();
        open(piece).map_err(Stopped::Open)
    };
    let joined = merge_pieces(pieces, open_next, out, temporary, options);
    joined.map_err(|stopped| match stopped {
        Stopped::Merge(MergeError::Write { source, .. }) if AskedToStop::is(&source) => {
            Failure::give_back()
        }
        Stopped::Merge(error @ MergeError::Read(ReadError::Read { .. })) => {
            Failure::halt(with_cause(&error))
        }
        Stopped::Merge(MergeError::Read(error)) => {
            Failure::hold(with_cause(&error)).of_piece(error.file())
        }
        Stopped::Merge(error) => Failure::halt(with_cause(&error)),
        Stopped::Open(failure) => failure,
    })
}

/// Says what the machine would not do.
pub(crate) fn cannot(step: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::halt(format!("cannot {step} {}: {error}", path.display()))
}

pub(crate) fn with_cause(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
