//! Names of domains out of lists that people wrote, and the list that is made of them.
//!
//! [`Normaliser`] reads one line: what it names, or why it names nothing. [`key_of`] gives the key by which lists of names are
//! sorted, [`Registered`] the registered domain of a name, and [`NameLine`] is a line of the list itself.
//! `docs/formats/names.md` has the order of the steps and the bytes.

mod fast;
mod flags;
mod host;
mod key;
mod line;
mod list;
mod reason;
mod registered;
mod text;

pub use flags::NameFlags;
pub use key::{key_of, name_of, write_key};
pub use line::{FoundName, Normaliser};
pub use list::{BadNameLine, NameLine};
pub use reason::{Reason, Rejection};
pub use registered::Registered;
