//! Who is at fault, said where it is known; everything else follows from it.

use std::error::Error;
use std::io;
use std::time::Duration;

use ecluse_spool::{ParcelId, SpoolError};

/// Who is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The parcel: it is set aside for a person.
    Parcel,
    /// The machine: the stage takes no more work until the machine is well.
    Machine,
    /// The world: the parcel waits, with back-off.
    World,
    /// `pipeline.toml`: nothing is touched.
    Config,
    /// Nobody: the stage was asked to stop and gives the parcel back.
    Nobody,
}

/// Why a piece of work did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// Who is at fault.
    pub blame: Blame,
    /// What happened, naming the object: file, record, offset.
    pub reason: String,
    /// The one parcel of a batch that is at fault, when it is known: the others go on without it.
    pub member: Option<ParcelId>,
    /// Somebody asked to be left alone for so long: the parcel waits, and that does not count against it.
    pub pause: Option<Duration>,
}

impl Failure {
    /// The parcel is at fault: malformed, wrong digest, unknown job.
    pub fn hold(reason: impl ToString) -> Self {
        Self::of(Blame::Parcel, reason)
    }

    /// The machine is at fault: disk full, failed fsync, read-only.
    pub fn halt(reason: impl ToString) -> Self {
        Self::of(Blame::Machine, reason)
    }

    /// The world is at fault: DNS, 503, a busy lock.
    pub fn defer(reason: impl ToString) -> Self {
        Self::of(Blame::World, reason)
    }

    /// Nobody is at fault: somebody asked to be left alone for so long, a busy service or a limit of our own.
    pub fn pause(reason: impl ToString, pause: Duration) -> Self {
        Self {
            pause: Some(pause),
            ..Self::defer(reason)
        }
    }

    /// `pipeline.toml` is at fault.
    pub fn config(reason: impl ToString) -> Self {
        Self::of(Blame::Config, reason)
    }

    /// Nobody is at fault: the stage was asked to stop, the parcel goes back untouched.
    pub fn give_back() -> Self {
        Self::of(Blame::Nobody, "asked to stop")
    }

    /// Says which parcel of a batch is at fault.
    #[must_use]
    pub fn of_member(self, member: &ParcelId) -> Self {
        Self {
            member: Some(member.clone()),
            ..self
        }
    }

    /// Says which file of which parcel of a batch is at fault: `PARCEL/FILE`.
    #[must_use]
    pub fn of_piece(self, piece: &str) -> Self {
        let member = piece.split_once('/').map(|(parcel, _)| parcel);
        match member.and_then(|member| ParcelId::new(member).ok()) {
            Some(member) => self.of_member(&member),
            None => self,
        }
    }

    fn of(blame: Blame, reason: impl ToString) -> Self {
        Self {
            blame,
            reason: reason.to_string(),
            member: None,
            pause: None,
        }
    }
}

impl From<SpoolError> for Failure {
    fn from(error: SpoolError) -> Self {
        let blame = match &error {
            SpoolError::Io { .. } | SpoolError::Fenced { .. } => Blame::Machine,
            SpoolError::Damaged { .. } | SpoolError::Refused(_) | SpoolError::Waits { .. } => {
                Blame::Parcel
            }
            SpoolError::NoRoom(_) => Blame::World,
            _ => Blame::Machine,
        };
        Self::of(blame, with_causes(&error))
    }
}

impl From<io::Error> for Failure {
    /// Bytes that end early or make no sense are the parcel's fault, the rest the machine's.
    fn from(error: io::Error) -> Self {
        let blame = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Blame::Parcel,
            _ => Blame::Machine,
        };
        Self::of(blame, error)
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
