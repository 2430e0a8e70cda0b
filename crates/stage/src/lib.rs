//! The shell every stage runs in.
//!
//! A stage implements [`Stage`] and its `main.rs` calls [`main`]. The shell does the rest:
//! arguments, settings, logs, the claim loop with its workers, verdicts by blame, signals, the
//! watchdog, metrics, `--once`, `--dry-run` and exit codes.

mod bell;
mod check;
mod control;
mod engine;
mod entry;
mod exit;
mod failure;
mod home;
mod inbox;
mod open_files;
mod pool;
mod program;
mod shortest;
mod stage;
mod supervise;
mod thread;
mod worker_loop;

pub use check::SettingsCheck;
pub use control::Control;
pub use ecluse_config::Site;
pub use ecluse_spool::{
    FileEntry, NewParcel, OutFile, Outbox, Parcel, ParcelId, ParcelManifest, ParcelPlace,
    ParcelState, Paused, RestWatch, digest, hex,
};
pub use ecluse_telemetry::{CrawlFigures, Metrics};
pub use engine::{engine_problems, open_engine};
pub use entry::StageEntry;
pub use exit::Exit;
pub use failure::{Blame, Failure};
pub use home::{HarvestCollection, Home};
pub use inbox::{Inbox, News};
pub use open_files::must_have_files;
pub use pool::{StageContext, StageTally, WorkerPool, limits_of, marks_of};
pub use program::{main, start_log};
pub use shortest::ShortestQueue;
pub use stage::{Intake, Stage};
pub use supervise::{Progress, RunEnd, RunPlan, deferred_for, supervise};
pub use worker_loop::{STANDING_BY, say_blocked};
