//! The one trait a stage implements.

use ecluse_config::Site;
use ecluse_spool::{Outbox, Parcel};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// What a stage takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// One parcel.
    One,
    /// Many parcels that become one piece of work.
    Batch,
}

/// A stage of the chain. The shell does the rest: arguments, settings, logs, claim, commit,
/// signals, exit code.
pub trait Stage: Sized {
    /// Its name in `pipeline.toml`, on disk, in units, logs and metrics.
    const NAME: &'static str;
    /// What it takes at a time.
    const INTAKE: Intake = Intake::One;
    /// One line for `--help`.
    const ABOUT: &'static str;
    /// Its own keys in `[stage.<name>]`.
    type Settings: DeserializeOwned;

    /// Opens what outlives one parcel: clients, indexes, locks. Each worker opens its own.
    fn open(settings: Self::Settings, site: &Site) -> Result<Self, Failure>;

    /// Turns one parcel into outputs; nothing in `outbox` is visible until this returns `Ok`.
    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure>;

    /// Turns a batch into outputs; only called when [`Stage::INTAKE`] is [`Intake::Batch`].
    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let _ = (batch, outbox);
        Err(Failure::config(format!(
            "stage {} takes one parcel at a time",
            Self::NAME
        )))
    }
}
