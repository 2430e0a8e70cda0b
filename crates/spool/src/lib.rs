//! The work-directory protocol: parcels that are in exactly one place, whatever is killed.
//!
//! A parcel is one directory entry, so that one `rename` moves all of it. A [`Worker`] claims
//! parcels of one stage, works on them in an [`Outbox`] nobody sees, and commits by linking a
//! receipt: from then on the hand-over can be repeated from the receipt by anybody. The page
//! `docs/formats/work-directory.md` describes every state on disk and what a restart makes of it.
//!
//! * Nothing is lost: what is not committed goes back, what is committed goes on.
//! * Nothing is done twice: the link of a receipt has one winner, and a parcel that was moved
//!   cannot be moved again.
//! * A worker taken for dead is fenced: its directory was renamed away, and every call it makes
//!   is by path.

mod adopt;
mod carry;
mod clock;
mod cluster;
mod commit;
mod depths;
mod engine;
mod error;
mod fitness;
mod fs;
mod handover;
mod ledger;
mod moving;
mod name;
mod new_parcel;
mod operator;
mod outbox;
mod parcel;
mod place;
mod reap;
mod receipt;
mod rest;
mod scan;
mod setback;
mod spool;
mod tree;
mod worker;

pub use adopt::Adopted;
pub use carry::{Arrival, CarryLock, Departure};
pub use clock::CLOCK_SKEW_LIMIT;
pub use cluster::{ClusterTrouble, ClusterView, QueueView, ServerState, ServerView, StoreView};
pub use commit::{Finish, Work};
pub use depths::{Blocked, Depths, Floor, Marks, Paused, Throughput, WorkerNote, WorkerView};
pub use engine::{
    BellWire, CollectExtent, Collected, Engine, FoldedShard, NotOwned, OtherOwner, ReconcileExtent,
    Ring, WorkerTerms,
};
pub use error::{Result, SpoolError};
pub use fitness::second_process;
pub use fs::{FileKind, Fs, Inside, InsideByPath, Lease, RealFs, Room, SeekRead, Sink, Stat};
pub use ledger::{fold, fold_shard};
pub use moving::{EngineSide, Movable, MoveRound, StageStanding, StepWatch};
pub use name::{BadName, Deferred, ParcelEntry, ParcelId, WorkerId, hex, safe_file_name};
pub use new_parcel::{NewParcel, OutFile};
pub use operator::{Gift, ParcelPlace, ParcelState};
pub use outbox::{Outbox, Parcel, ParcelSource, work_id};
pub use parcel::{
    FileEntry, HISTORY, MANIFEST, ParcelManifest, TROUBLE, Trouble, digest, maker_of,
};
pub use reap::Recovered;
pub use receipt::{Fate, Filed, Input, Output, Receipt, find_in_sheet, parse_sheet};
pub use rest::RestWatch;
pub use scan::{Scan, Urgency};
pub use setback::{Setback, Verdict, Why};
pub use spool::Spool;
#[cfg(feature = "failpoints")]
pub use tree::{AROUND, Around};
pub use tree::{Host, Monotonic, RandomSource, StageDir, Wall, WorkTree, time_text};
pub use worker::{LeaseNote, Pulse, Signs, Waiting, Worker, WorkerLimits};
