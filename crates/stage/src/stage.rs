//! The one trait a stage implements.

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};

use ecluse_spool::{Outbox, Parcel, ParcelId};
use serde::de::DeserializeOwned;

use crate::check::SettingsCheck;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::home::Home;
use crate::inbox::Inbox;

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
    /// Its own keys in `[stage.<name>]`; their default values stand in the shipped `pipeline.toml`.
    type Settings: DeserializeOwned + Debug;
    /// It gives each result to one of its nexts, not to all: it goes on while one of them has room.
    const SPREADS: bool = false;
    /// It writes nothing but receipts and makes room: it goes on below `min-free`.
    const MAKES_ROOM: bool = false;
    /// What it does with files named on its command line, when it is a Unix filter too.
    const FILTER: Option<&'static str> = None;
    /// What it writes into the directory of `--reports`, when it is a filter that has reports.
    const FILTER_REPORTS: Option<&'static str> = None;

    /// Says what is wrong with its settings on this machine: everything that [`Stage::open`] would stumble over. Asked
    /// at the start and for `--check`; touches nothing.
    fn check(settings: &Self::Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        let _ = (settings, home, check);
    }

    /// Tries those it needs outside this machine, and warns of whom it cannot reach. Asked for `--check` and by `ecluse check`;
    /// takes a few seconds at most.
    fn try_out(settings: &Self::Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        let _ = (settings, home, check);
    }

    /// Opens what outlives one parcel: clients, indexes, locks. Each worker opens its own.
    fn open(settings: Self::Settings, home: &Home) -> Result<Self, Failure>;

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

    /// It takes the most urgent parcel first: [`Stage::urgency`] is asked before each claim.
    const BY_URGENCY: bool = false;

    /// Tells how urgent a waiting parcel is, which lies there. Only asked when [`Stage::BY_URGENCY`] is set.
    fn urgency(&mut self, parcel: &ParcelId, path: &Path) -> u8 {
        let _ = (parcel, path);
        0
    }

    /// Returns the directories outside its work directory whose files ring its bell, with all that
    /// is below them; those that are not there yet too.
    fn watched(settings: &Self::Settings, home: &Home) -> Vec<PathBuf> {
        let _ = (settings, home);
        Vec::new()
    }

    /// Returns the directories outside the work directories that it writes to, or links files from: its unit
    /// allows no others.
    fn writes(settings: &Self::Settings, home: &Home) -> Vec<PathBuf>;

    /// Tells whether it opens connections to other machines: the unit of any other stage has no network.
    fn needs_network(settings: &Self::Settings) -> bool {
        let _ = settings;
        false
    }

    /// Brings in what lies outside the work directory. The first worker is asked, at the start, when
    /// the bell rings and at every scan, before the stage looks at what waits. Returns how many files are there and not
    /// at rest yet: it is asked again soon.
    ///
    /// # Errors
    /// Any failure is the machine's or the configuration's: no parcel is in hand.
    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        let _ = inbox;
        Ok(0)
    }

    /// Works on files named on the command line and writes to `out`; only called when
    /// [`Stage::FILTER`] is set. `-` is standard input.
    ///
    /// # Errors
    /// As [`Stage::process`]; the program ends with the failure's code.
    fn filter(
        settings: Self::Settings,
        files: &[PathBuf],
        out: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        let _ = (settings, files, out);
        Err(Failure::config(format!("{} is no filter", Self::NAME)))
    }

    /// As [`Stage::filter`], with reports in a new directory; only called when [`Stage::FILTER_REPORTS`] is set.
    ///
    /// # Errors
    /// As [`Stage::filter`].
    fn filter_with_reports(
        settings: Self::Settings,
        files: &[PathBuf],
        out: &mut dyn Write,
        reports: &Path,
    ) -> Result<Exit, Failure> {
        let _ = (settings, files, out, reports);
        Err(Failure::config(format!("{} has no reports", Self::NAME)))
    }
}
