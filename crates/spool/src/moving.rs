//! A chain that is on its way from one engine to the other: which of the two has a stage, and how a stage is moved.

use crate::engine::WorkerTerms;
use crate::error::Result;
use crate::worker::Signs;

/// One of the two engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineSide {
    /// The work directories.
    Directories,
    /// NATS JetStream and an S3 store.
    Jetstream,
}

impl EngineSide {
    /// Returns the word of the settings for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Directories => "directories",
            Self::Jetstream => "jetstream",
        }
    }

    /// Returns the other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Directories => Self::Jetstream,
            Self::Jetstream => Self::Directories,
        }
    }
}

/// Where a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageStanding {
    /// The engine that has it, or that it is leaving.
    pub home: EngineSide,
    /// It is being moved to the other one: nobody claims its parcels meanwhile.
    pub is_moving: bool,
}

/// What one round of a move came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MoveRound {
    /// Parcels that arrived.
    pub parcels: u64,
    /// Receipts that were copied, or were there.
    pub receipts: u64,
    /// Parcels that are still where they were: in a worker's hands, or come meanwhile.
    pub remaining: u64,
    /// Parcels that cannot be moved, each with the reason. They stay where they were, held.
    pub left: Vec<(String, String)>,
    /// The stage has moved.
    pub is_done: bool,
    /// Another process is at it.
    pub is_busy: bool,
}

/// Called after each step of a move; what it says ends it there, as a death would.
pub type StepWatch<'a> = &'a mut dyn FnMut(&'static str) -> Result<()>;

/// An engine of which stages can be moved to another.
pub trait Movable {
    /// Tells where a stage is.
    ///
    /// # Errors
    /// When the store does not answer.
    fn standing(&self, stage: &str) -> Result<StageStanding>;

    /// Notes that a stage moves, so that nobody claims its parcels any more.
    ///
    /// # Errors
    /// When the work directories of the archive are those of another machine.
    fn begin_move(&self, stage: &str, to: EngineSide, who: &str, why: &str) -> Result<()>;

    /// Carries what a stage holds, as far as nobody has it in hand. To be called until it is done, by anybody and as often
    /// as one likes.
    ///
    /// # Errors
    /// When one of the engines fails, or `step` says so.
    fn move_on(
        &self,
        terms: &WorkerTerms<'_>,
        signs: &Signs,
        step: StepWatch<'_>,
    ) -> Result<MoveRound>;

    /// Counts the parcels that one of the engines has of a stage.
    ///
    /// # Errors
    /// When it cannot be read.
    fn count(&self, stage: &str, side: EngineSide) -> Result<u64>;
}
