//! The document of a capture, read whole: what a revisit refers to, chunks and content codings undone.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::{OpenGeneration, ReadingArchive};
use crate::capture_list::IndexedCapture;
use crate::loader::{LoadError, LoadedBody, load, read_stored};
use crate::locations::Locations;
use crate::record::{RecordError, ResponseHead, decoded};

/// Reads the documents of an archive, one at a time.
pub struct DocumentReader {
    archive: ReadingArchive,
    root: PathBuf,
    locations: Locations,
    limit_bytes: u64,
}

/// A document as the server sent it.
#[derive(Debug)]
pub struct StoredDocument {
    /// The head of the response.
    pub head: ResponseHead,
    /// What the body's own head says of its media type.
    pub media_type: String,
    /// Its body, or as much of it as may be read.
    pub body: Vec<u8>,
}

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// No copy of its file is there, or its disk does not answer.
    #[error("it is not there: {0}")]
    Missing(String),
    /// It is not what was indexed, or cannot be unpacked.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A revisit of what the archive does not have.
    #[error("{0}")]
    NoOriginal(String),
}

impl From<LoadError> for DocumentError {
    fn from(error: LoadError) -> Self {
        let text = error.to_string();
        match error {
            LoadError::NoOriginal { .. } => Self::NoOriginal(text),
            LoadError::ReadingArchive(_)
            | LoadError::Lookup(_)
            | LoadError::Record(RecordError::NoCopy(_) | RecordError::Hung(_)) => {
                Self::Missing(text)
            }
            LoadError::Record(RecordError::Read { .. } | RecordError::NotAsIndexed { .. }) => {
                Self::Damaged(text)
            }
        }
    }
}

impl DocumentReader {
    /// Reads documents of the archive whose indexes lie in `index`; no more than so many bytes of each.
    pub fn new(index: &Path, main: &str, root: &Path, limit_bytes: u64) -> Self {
        Self {
            archive: ReadingArchive::new(index, main),
            root: root.to_owned(),
            locations: Locations::new(2),
            limit_bytes,
        }
    }

    /// Returns the archive that is read.
    pub fn archive(&self) -> &ReadingArchive {
        &self.archive
    }

    /// Reads the document of a capture.
    ///
    /// # Errors
    /// When it is not there, or not what the index says.
    pub fn read(
        &self,
        collection: &str,
        generation: &Arc<OpenGeneration>,
        capture: &IndexedCapture,
    ) -> Result<StoredDocument, DocumentError> {
        let loaded = load(
            &self.archive,
            &self.locations,
            &self.root,
            collection,
            generation,
            capture.clone(),
        )?;
        let codings = loaded.body_head.codings();
        let mut body = Vec::new();
        let read = match &loaded.body {
            LoadedBody::Whole(bytes) if codings.is_empty() => {
                let bytes = bytes
                    .iter()
                    .take(usize::try_from(self.limit_bytes).unwrap_or(usize::MAX));
                body.extend(bytes);
                Ok(())
            }
            LoadedBody::Whole(bytes) => {
                let source = Box::new(Cursor::new(bytes));
                let mut source = decoded(source, &codings, self.limit_bytes).take(self.limit_bytes);
                source.read_to_end(&mut body).map(|_| ())
            }
            LoadedBody::Stored(_) => read_stored(
                &self.locations,
                &self.root,
                &loaded.generation,
                &loaded.stored,
                &loaded.body_head,
                &mut |source| {
                    let source = decoded(Box::new(source), &codings, self.limit_bytes);
                    source.take(self.limit_bytes).read_to_end(&mut body)?;
                    Ok(())
                },
            ),
        };
        read.map_err(|error| DocumentError::Damaged(error.to_string()))?;
        Ok(StoredDocument {
            media_type: loaded.body_head.media_type(),
            head: loaded.head,
            body,
        })
    }
}
