//! Merging the pieces of a batch, and who is at fault when they do not merge.

use std::error::Error;
use std::io;
use std::path::Path;

use ecluse_cdx::{LineShape, LineSource, MergeError, MergeStats, ReadError, merge_pieces};
use ecluse_holding::IndexPiece;
use ecluse_stage::{Failure, OutFile, Outbox};

use crate::Settings;

/// Merges pieces into a file of the outbox.
pub(crate) fn merge(
    pieces: &[IndexPiece<'_>],
    shape: LineShape,
    settings: &Settings,
    temporary: &Path,
    outbox: &Outbox,
    out: &mut OutFile,
) -> Result<MergeStats, Failure> {
    let open = |piece: &IndexPiece<'_>| {
        if outbox.stop_asked() {
            return Err(Stopped::Asked);
        }
        let source = piece.open().map_err(Stopped::Open)?;
        Ok(LineSource::new(piece.label(), source))
    };
    let options = settings.options(shape);
    let merged = merge_pieces(pieces, open, out, temporary, &options);
    merged.map_err(|stopped| match stopped {
        Stopped::Asked => Failure::give_back(),
        Stopped::Merge(error) => blame(&error),
        Stopped::Open(failure) => failure,
    })
}

/// Merges packed pieces into a packed file of the outbox.
pub(crate) fn merge_packed(
    pieces: &[IndexPiece<'_>],
    settings: &Settings,
    temporary: &Path,
    outbox: &Outbox,
    out: &mut OutFile,
) -> Result<MergeStats, Failure> {
    let open = |piece: &IndexPiece<'_>| {
        if outbox.stop_asked() {
            return Err(Stopped::Asked);
        }
        let source = piece.open().map_err(Stopped::Open)?;
        let name = piece.label();
        let unpacked = zstd::Decoder::new(source).map_err(|source| ReadError::Read {
            file: name.clone(),
            offset: 0,
            source,
        });
        let unpacked = unpacked.map_err(MergeError::from)?;
        Ok(LineSource::new(name, Unpacked(unpacked)))
    };
    let mut options = settings.options(LineShape::Any);
    // Each has a window for unpacking too.
    options.open_files = options.open_files.min(PACKED_FILES);
    let failed = |error: io::Error| Failure::halt(format!("cannot write links: {error}"));
    let mut packed = zstd::Encoder::new(out, 3).map_err(failed)?;
    packed.include_checksum(true).map_err(failed)?;
    let merged = merge_pieces(pieces, open, &mut packed, temporary, &options);
    let stats = merged.map_err(|stopped| match stopped {
        Stopped::Asked => Failure::give_back(),
        Stopped::Merge(error) => blame(&error),
        Stopped::Open(failure) => failure,
    })?;
    packed.finish().map_err(failed)?;
    Ok(stats)
}

/// How many packed pieces are open at once.
const PACKED_FILES: usize = 32;

/// Says of bytes that cannot be unpacked that they are at fault, and not the machine.
struct Unpacked<Source>(Source);

impl<Source: io::Read> io::Read for Unpacked<Source> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let told = |error: io::Error| match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(io::ErrorKind::InvalidData, error),
        };
        self.0.read(buffer).map_err(told)
    }
}

/// Why a merge of pieces stopped.
enum Stopped {
    Asked,
    Merge(MergeError),
    Open(Failure),
}

impl From<MergeError> for Stopped {
    fn from(error: MergeError) -> Self {
        Self::Merge(error)
    }
}

/// Says who is at fault: a piece for its lines, the machine for what it cannot read or write.
pub(crate) fn blame(error: &MergeError) -> Failure {
    let mut text = error.to_string();
    if let Some(cause) = error.source() {
        text = format!("{text}: {cause}");
    }
    match error {
        MergeError::Read(
            error @ (ReadError::Open { source, .. } | ReadError::Read { source, .. }),
        ) => match source.kind() {
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidData => {
                Failure::hold(text).of_piece(error.file())
            }
            _ => Failure::halt(text),
        },
        MergeError::Read(error) => Failure::hold(text).of_piece(error.file()),
        _ => Failure::halt(text),
    }
}
