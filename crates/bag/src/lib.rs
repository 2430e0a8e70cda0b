//! BagIt bags (RFC 8493): the tag files of a new one are written, and any is checked.
//!
//! [`validate`] is as strict as the RFC on versions 0.93 to 1.0. It reads each file once, whatever the number of manifests, on
//! all cores. What the RFC only advises against is a [`BagWarning`]; in a strict check, and in every bag that Écluse made,
//! it counts as a fault. So nothing can be added to, taken from or changed in one of ours unseen.
//!
//! [`write_tags`] makes a directory whose payload lies in `data/` a bag of version 1.0 with SHA-512.

mod algorithm;
mod declaration;
mod fault;
mod fetch;
mod info;
mod lanes;
mod manifest;
mod path;
mod reading;
mod tree;
mod validate;
mod write;

pub use algorithm::{DigestAlgorithm, Hasher};
pub use fault::{BagFault, BagWarning, ValidateError};
pub use info::InfoField;
pub use reading::{FileReading, read_digests};
pub use validate::{BagReport, ValidateOptions, validate, validate_knowing};
pub use write::{BagWriteError, PayloadEntry, SOFTWARE, TagFile, write_tags};
