//! The Oxford Common File Layout (<https://ocfl.io/1.1/spec/>): objects are written into a storage root, and any are checked.
//!
//! [`validate_object`] and [`validate_root`] name what is wrong by the codes of the specification, for versions 1.0 and 1.1; each file
//! is read once for all digests that are stated of it, on all cores.
//!
//! [`StorageRoot`] writes: the first version of an object takes the directory that becomes its content, later versions add small
//! files. A version is there when its inventory is; nothing that is there is ever changed but the inventory at the object's root.

mod fault;
mod inventory;
mod layout;
mod object;
mod root;
mod states;
mod write;

pub use fault::{OcflFault, OcflReport};
pub use layout::{LAYOUT, object_path};
pub use object::validate_object;
pub use root::{RootReport, validate_root};
pub use write::{
    NewVersion, ObjectFile, OcflError, StorageRoot, VersionNote, add_files, write_object,
};

/// What the declaration of an object is called.
pub(crate) const OBJECT: &str = "ocfl_object_";
/// What the declaration of a storage root is called.
pub(crate) const ROOT: &str = "ocfl_";
/// The versions of the specification that are known, oldest first.
pub(crate) const SPECS: [&str; 2] = ["1.0", "1.1"];
/// The inventory of an object or a version.
pub(crate) const INVENTORY: &str = "inventory.json";

/// Tells whether a directory says that it is an OCFL object.
#[must_use]
pub fn is_object(path: &std::path::Path) -> bool {
    declares(path, OBJECT)
}

/// Tells whether a directory says that it is an OCFL storage root.
#[must_use]
pub fn is_root(path: &std::path::Path) -> bool {
    declares(path, ROOT)
}

fn declares(path: &std::path::Path, what: &str) -> bool {
    let mut specs = SPECS.iter();
    specs.any(|spec| path.join(format!("0={what}{spec}")).exists())
}
