//! Judges what a torture left behind, from the disk alone.
//!
//! It knows the three sample stages and what was given to them, works out anew every parcel, digest
//! and sheet that must have come of it, and compares. It shares no code with the spool: what the
//! spool believes of its own formats is what is being judged.
//!
//! The chain is `relay → split → tally → shelf`, and nobody works at the shelf. A given file is
//! accounted for when both its halves stand in exactly one sheet on the shelf, or when relay holds it
//! with a reason it asked for, or because its worker died as often as it may ([`RELAY_ATTEMPTS`]).

mod disk;
mod given;
mod objects;
mod trace;

use std::fmt;
use std::io;
use std::path::Path;

pub use given::{Given, GivenLog};
pub use objects::lay_out;

/// The stages in order; the last one only takes.
pub const STAGES: [&str; 4] = ["relay", "split", "tally", "shelf"];

/// How many attempts relay must be allowed: a file on which fewer workers died is not to be held for it.
pub const RELAY_ATTEMPTS: u32 = 6;

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CheckerVerdict {
    /// Files given and acknowledged, or found although the gift was cut short.
    pub parcels: usize,
    /// Of these, the ones held with a reason they asked for.
    pub held: usize,
    /// Files, or what was made of them, that are nowhere.
    pub lost: usize,
    /// What was done, or lies, more than once.
    pub twice: usize,
    /// Everything else that is not as it must be.
    pub bad: usize,
    /// What was found, one line each.
    pub findings: Vec<String>,
}

impl CheckerVerdict {
    /// Tells whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.lost + self.twice + self.bad == 0
    }

    fn lost(&mut self, what: impl fmt::Display) {
        self.lost += 1;
        self.findings.push(format!("lost: {what}"));
    }

    fn twice(&mut self, what: impl fmt::Display) {
        self.twice += 1;
        self.findings.push(format!("twice: {what}"));
    }

    fn bad(&mut self, what: impl fmt::Display) {
        self.bad += 1;
        self.findings.push(format!("bad: {what}"));
    }
}

impl fmt::Display for CheckerVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} parcels, {} lost, {} twice, {} bad",
            self.parcels, self.lost, self.twice, self.bad
        )
    }
}

/// Checks the tree under `root`, in which nothing runs any more, against what was given.
///
/// # Errors
/// When the tree or the log of gifts cannot be read at all.
pub fn check(root: &Path, given: &Path) -> io::Result<CheckerVerdict> {
    let gifts = given::read(given)?;
    let mut verdict = CheckerVerdict::default();
    let disk = disk::Disk::read(&root.join("work"), &mut verdict)?;
    trace::follow(&disk, &gifts, &mut verdict);
    Ok(verdict)
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
