//! Pieces of an index: the sorted files that many parcels bring to one list.

use ecluse_spool::SeekRead;
use ecluse_stage::{Failure, Parcel};

/// One sorted file of one parcel.
pub struct IndexPiece<'a> {
    parcel: &'a Parcel,
    name: &'a str,
    /// Its size.
    pub bytes: u64,
}

/// Finds the files of these parcels that end so.
pub fn pieces_of<'a>(members: &[&'a Parcel], suffix: &str) -> Vec<IndexPiece<'a>> {
    let mut pieces = Vec::new();
    for parcel in members {
        let files = parcel.manifest().files.iter();
        let files = files.filter(|file| file.name.ends_with(suffix));
        pieces.extend(files.map(|file| IndexPiece {
            parcel,
            name: &file.name,
            bytes: file.bytes,
        }));
    }
    pieces
}

impl IndexPiece<'_> {
    /// Returns what it is called where something is wrong with it: the parcel and the file.
    pub fn label(&self) -> String {
        format!("{}/{}", self.parcel.id(), self.name)
    }

    /// Opens it.
    ///
    /// # Errors
    /// As [`Parcel::open`], in the name of its parcel: the batch goes on without it.
    pub fn open(&self) -> Result<Box<dyn SeekRead>, Failure> {
        let opened = self.parcel.open(self.name);
        opened.map_err(|error| Failure::from(error).of_member(self.parcel.id()))
    }
}
