//! Parcels beyond one machine: NATS JetStream dispatches, an S3 store holds parcels and receipts.
//!
//! *The store is the truth and a message is a hint.* A parcel is a ticket, a small object that is changed only as the one
//! that was read; its files lie under keys that follow from their content; a receipt is put only where none is, as `link`
//! does for the directories. Whatever the queues lose costs delay: [`Engine::reconcile`](ecluse_spool::Engine::reconcile)
//! tells of it again. `docs/formats/object-store.md` has the layout and what a restart makes of every state.
//!
//! * A worker whose ticket was taken over can do no harm: its changes are refused, and the first receipt counts.
//! * Nothing that two hosts' clocks say is compared: due times are told by the store's.
//! * Memory is bounded: lists are read page by page, files piece by piece.

mod carry;
mod check;
mod cluster;
mod collect;
mod commit;
mod failpoint;
mod hand_over;
mod mixed;
mod operator;
mod owner;
mod queue;
mod reconcile;
mod refusal;
mod scratch;
mod standing;
mod store;
mod ticket;
mod worker;

pub use check::EngineFault;
pub use cluster::JetstreamEngine;
pub use failpoint::{MUTANTS, STEPS};
pub use mixed::MixedEngine;
pub use reconcile::Reconciled;

/// Why an engine cannot be opened, and which key of `[engine]` is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'engine.{key}': {reason}")]
pub struct OpenError {
    /// The key.
    pub key: &'static str,
    /// What is wrong.
    pub reason: String,
    /// The settings may be right, and a server is away: it may come back.
    pub is_away: bool,
}

impl OpenError {
    pub(crate) fn new(key: &'static str, reason: String) -> Self {
        Self {
            key,
            reason,
            is_away: false,
        }
    }

    pub(crate) fn away(key: &'static str, reason: String) -> Self {
        Self {
            key,
            reason,
            is_away: true,
        }
    }
}
