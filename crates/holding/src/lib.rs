//! Copies that are proved.
//!
//! A copy counts once its bytes were read back from the disk and have the digest taken at ingest.
//! [`Shelf`] makes such copies, [`read_afresh`] reads one again, [`Proof`] is what a backup leaves
//! behind, and [`payload`] says which file of a parcel all this is about.

mod digest;
mod freeze;
mod name;
mod payload;
mod piece;
mod proof;
mod shelf;

pub use digest::{Fixity, Going, ReadFault, drop_cached, is_same_file, open_plain, read_afresh};
pub use freeze::must_not_be_frozen;
pub use name::is_archive;
pub use payload::{Source, payload, read_small, stored_places};
pub use piece::{IndexPiece, pieces_of};
pub use proof::Proof;
pub use shelf::{Kept, Room, SET_ASIDE, Shelf, ShelfFault, TEMPORARY};
