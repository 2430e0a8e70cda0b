//! The frontier of one crawl job: what is known, what waits, and whom to ask next and when.
//!
//! It lives in a directory of its own and is at its last [`Frontier::commit`] after whatever happens:
//! URLs, budgets, manners and the caller's checkpoint become durable together. Memory is bounded by
//! [`Settings`]: only active queues are in it, the others and every known URL are on disk.
//!
//! It opens no sockets and has no clock: the caller says what time it is, fetches what [`Frontier::next`]
//! hands out and says how it went. Formats: `docs/formats/frontier.md`.

mod active;
mod codec;
mod control;
mod error;
mod finish;
mod flights;
mod frontier;
mod item;
mod key;
mod lane;
mod manners;
mod notes;
mod places;
mod prerequisite;
mod record;
mod settings;
mod starts;
mod status;
mod store;
mod table;

pub use control::Rests;
pub use error::{FrontierError, Result};
pub use frontier::Frontier;
pub use item::{
    Added, Candidate, Disposition, Finished, Item, ItemId, Millis, Next, Outcome, Precedence,
};
pub use manners::RestReason;
pub use notes::NoteKind;
pub use prerequisite::Prerequisite;
pub use record::Retired;
pub use settings::{Budget, Manners, Memory, Overrides, Settings};
pub use status::{FrontierCounts, GroupStatus, Known, Origin, QueueState, QueueStatus, UrlState};
pub use store::{PendingCommit, StoreSize};
