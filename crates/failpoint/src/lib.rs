//! A file system that kills its process after a chosen call, or lies: for torture only.
//!
//! The protocol knows nothing of it, and no shipped program has it. [`wrap`] puts it around the file system of a work tree; without the
//! features below it returns what it was given. With the feature `failpoints` every call that changes something in a work directory
//! is a place to die, by SIGKILL or SIGSTOP, which a signal handler cannot soften. A place has the name of the step
//! of the protocol it is part of, told by the paths of the call alone; the torture wants each of [`ALL`] hit.
//!
//! With the feature `mutants` the same file system can lie, so that the protocol above it is one of the known-bad
//! variants the torture must reject:
//!
//! * `no-fsync` says that something is durable without asking the disk;
//! * `receipt-first` keeps back the manifests of a piece of work until its receipt is linked;
//! * `two-renames` takes a dead worker's directory by a rename of each part, where one of the whole was asked for.

use std::path::Path;
use std::sync::Arc;

use ecluse_spool::Fs;

/// Every failpoint, in the order of the protocol. The torture wants each of them hit.
pub const ALL: &[&str] = &[
    "born-locked",
    "born",
    "claimed",
    "output-created",
    "outputs-sealed",
    "sheet-written",
    "data-durable",
    "member-filed",
    "committed",
    "receipts-durable",
    "output-handed-over",
    "file-attached",
    "manifest-replaced",
    "history-linked",
    "passed-on",
    "consumed",
    "consumed-removed",
    "outbox-removed",
    "sheet-removed",
    "why-written",
    "held",
    "trouble-written",
    "deferred",
    "undeferred",
    "given-back",
    "adopt-taken",
    "adopt-described",
    "adopted",
    "reap-taken",
    "reap-stolen",
    "settle-receipt",
    "settle-handed-over",
    "settle-requeued",
    "settle-poisoned",
    "settle-adoption-returned",
    "settle-emptied",
    "settle-removed",
    OTHER,
];

/// A call that changes something and is part of no step above: directories made, rubbish swept, notes written.
const OTHER: &str = "other-call";

/// Returns the file system of the work directories under `work`, with the faults the environment asks for where this
/// build has them: `ECLUSE_FAILPOINTS` for deaths, `ECLUSE_MUTANT` for a lie.
pub fn wrap(fs: Arc<dyn Fs>, work: &Path) -> Arc<dyn Fs> {
    #[cfg(any(feature = "failpoints", feature = "mutants"))]
    return faulty::FaultyFs::from_environment(fs, work);
    #[cfg(not(any(feature = "failpoints", feature = "mutants")))]
    {
        let _ = work;
        fs
    }
}

/// Passes a step that is no call of a file system: a request to a server. Its name is told to whoever counts deaths.
pub fn pass(step: &'static str) {
    #[cfg(feature = "failpoints")]
    plan::pass(|| Some(step));
    #[cfg(not(feature = "failpoints"))]
    let _ = step;
}

/// A call that changes something.
#[cfg(any(test, feature = "failpoints", feature = "mutants"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// A directory is made, or a file written.
    Make,
    Rename,
    Link,
    /// A file or an empty directory is removed.
    Remove,
    Sync,
    Lock,
}

#[cfg(any(feature = "failpoints", feature = "mutants"))]
mod faulty;
#[cfg(feature = "failpoints")]
mod plan;
#[cfg(any(test, feature = "failpoints"))]
mod step;
