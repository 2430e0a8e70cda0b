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
            io::ErrorKind::IsADirectory => Failure::hold(text).of_piece(error.file()),
            _ => Failure::halt(text),
        },
        MergeError::Read(error) => Failure::hold(text).of_piece(error.file()),
        _ => Failure::halt(text),
    }
}
