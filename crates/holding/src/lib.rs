//! What an archived file is.
//!
//! [`payload`] says which file of a parcel is the archived one, and where its bytes are read from; [`pieces_of`] finds what
//! many parcels bring to an index. A copy counts once its bytes were read back from the disk and have the digest taken at
//! ingest: [`CopyDirectory`] makes such copies, [`read_afresh`] reads one again, [`Proof`] is what a backup leaves behind.
//! [`must_not_be_frozen`] stands before every removal. [`run_command`] runs what an operator has for a file. [`PackingList`] is what a job says it wrote.

mod command;
mod copies;
mod digest;
mod freeze;
mod name;
mod packing;
mod payload;
mod piece;
mod proof;

pub use command::{
    CommandEnd, end_command, last_lines, run_command, start_command, tail_of, with_words,
};
pub use copies::{CopyDirectory, CopyFault, CopyRoom, KeptCopy, SET_ASIDE, TEMPORARY};
pub use digest::{
    Fixity, Going, ReadFault, digest_of, drop_cached, is_same_file, open_plain, read_afresh,
    read_both,
};
pub use freeze::must_not_be_frozen;
pub use name::is_archive;
pub use packing::{PackedFile, PackingList, is_packing_list, read_packing_list};
pub use payload::{PayloadSource, archive_file_of, payload, read_small, stored_places};
pub use piece::{IndexPiece, pieces_of};
pub use proof::Proof;
