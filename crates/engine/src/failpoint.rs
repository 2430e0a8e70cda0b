//! Where a step may kill its process, and bad variants of the protocol: for torture only.
//!
//! Without the feature `failpoints` all of this is nothing. With it, `ECLUSE_FAILPOINTS` says who dies where, as for the
//! directories (`crates/failpoint`), and `ECLUSE_MUTANT` names one of [`MUTANTS`].

use object_store::PutMode;

/// The bad variants that the torture must reject.
pub const MUTANTS: [&str; 3] = [
    "receipt-before-data",
    "no-conditional-put",
    "ack-before-receipt",
];

/// The steps after which a process may die, in the order of the protocol. The torture wants each of them hit.
pub const STEPS: [&str; 18] = [
    "born",
    "claimed",
    "sheet-put",
    "uploaded",
    "member-filed",
    "committed",
    "ticket-put",
    "told",
    "handed-over",
    "ticket-removed",
    "retired",
    "mark-put",
    "set-aside",
    "let-go-on",
    "mark-removed",
    "put-back",
    "settled",
    "acknowledged",
];

/// A step was taken.
pub(crate) fn hit(step: &'static str) {
    debug_assert!(STEPS.contains(&step), "{step} is not in the list");
    #[cfg(feature = "failpoints")]
    ecluse_failpoint::pass(step);
}

/// Tells whether this process is a bad variant.
pub(crate) fn is_mutant(name: &str) -> bool {
    cfg!(feature = "failpoints")
        && std::env::var("ECLUSE_MUTANT").is_ok_and(|mutant| mutant == name)
}

/// Returns the condition on which an object is put; a bad variant forgets it.
pub(crate) fn put_mode(mode: PutMode) -> PutMode {
    if is_mutant("no-conditional-put") {
        return PutMode::Overwrite;
    }
    mode
}
