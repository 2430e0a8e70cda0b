//! Names of domains out of lists that people wrote, and the list that is made of them.
//!
//! [`Normaliser`] reads one line: what it names, or why it names nothing. [`key_of`] gives the key by which lists of names are
//! sorted, [`Registered`] the registered domain of a name, and [`NameLine`] is a line of the list itself. [`CheckedLine`] is what
//! DNS says of one. `docs/formats/names.md` and `checked-names.md` have the order of the steps and the bytes.

mod checked;
mod context;
mod fast;
mod flags;
mod forced;
mod host;
mod key;
mod line;
mod list;
mod reason;
mod registered;
mod text;

pub use checked::{
    ADDRESSES, BadCheckedLine, CheckedEvidence, CheckedLine, DnsClass, DnsHint, DnsVerdict,
    FormEvidence, RedirectEvidence, RedirectKind,
};
pub use flags::NameFlags;
pub use forced::{ForcedDomain, ForcedOut, ForcedPrefix, ForcedRules, ForcedVerdict};
pub use key::{key_of, name_of, name_text_of, write_key};
pub use line::{FoundName, Normaliser};
pub use list::{BadNameLine, MOST_NAMES, NameLine};
pub use reason::{RejectReason, Rejection};
pub use registered::Registered;
