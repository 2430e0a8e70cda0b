//! Removes from `harvested/` what is provably safe elsewhere; as shipped it only says what it would remove.
//!
//! * **Reads** the manifest, the stored copies, the lists of the current index, and the harvested files.
//! * **Writes** one line on standard output for each file it removes, or one for all it would remove; its row in the
//!   manifest, and there what it found in the harvested directories.
//! * **Never** removes a file without a fresh read of it and of a stored copy, a backup's proof, the
//!   delete of its working copy and all of its lines in the current index; nor anything outside the harvested
//!   directories, nor anything while the manifest is frozen.
//! * **Defers** while the manifest is frozen. **Holds** nothing: what is not proven stays, with the reason. An index that is
//!   not whole stops the stage.
//! * **Again**: what was removed stays removed. What it would remove is read once, and remembered in the manifest.

mod original;
mod proof;

mod sweep;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use ecluse_config::Span;
use ecluse_holding::must_not_be_frozen;
use ecluse_manifest::{CopyRow, FileRow, Manifest};
use ecluse_stage::{Failure, Home, Inbox, Intake, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use serde::Deserialize;

use crate::original::Original;

/// What `[stage.clean]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Remove; without it only say what would be removed.
    pub remove: bool,
    /// How many backups must have proved their copy.
    pub backups: NonZeroUsize,
    /// How often to sweep, beside the sweep after each new generation of the index; zero for never.
    pub every: Span,
    /// Keep a file until the preservation repository has given a receipt for it.
    pub requires_deposit: bool,
}

/// The stage.
pub struct Clean {
    settings: Settings,
    home: Home,
    manifest: Manifest,
}

/// A file of the manifest, and what of it is in the harvested directories.
struct Candidate {
    row: FileRow,
    copies: Vec<CopyRow>,
    originals: Vec<Original>,
    /// It was found by its name where the manifest has no file: moved there, or put there after the row was done with.
    is_leftover: bool,
}

impl Stage for Clean {
    const NAME: &'static str = "clean";
    const ABOUT: &'static str =
        "Removes from harvested/ what is provably safe elsewhere; as shipped it only says so";
    const INTAKE: Intake = Intake::Batch;
    const MAKES_ROOM: bool = true;
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.harvested(home);
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let manifest = Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?;
        Ok(Self {
            settings,
            home: home.clone(),
            manifest,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let mut paths = home.harvested();
        paths.push(home.manifest_directory());
        paths
    }

    /// A sweep is due: its parcel is named after the time it is for, so that it is put once.
    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        let every = self.settings.every.0.as_secs();
        if every == 0 {
            return Ok(0);
        }
        let now = jiff::Timestamp::now().as_second().max(0).unsigned_abs();
        let begun = jiff::Timestamp::from_second(i64::try_from(now / every * every).unwrap_or(0));
        let mode = if self.settings.remove {
            "remove"
        } else {
            "say"
        };
        let name = match begun {
            Ok(time) => format!("sweep-{}-{mode}", time.strftime("%Y%m%dT%H%M%SZ")),
            Err(_) => format!("sweep-{mode}"),
        };
        let id = ParcelId::try_from(name).map_err(Failure::halt)?;
        inbox.put(&id, "sweep", ("sweep", b"\n"))?;
        Ok(0)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    /// One sweep, however many generations and times ask for it.
    fn process_batch(&mut self, _batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        must_not_be_frozen(&self.manifest)?;
        let swept = self.sweep(outbox)?;
        outbox.fact("removed", self.settings.remove);
        outbox.fact("files", swept.files);
        outbox.fact("bytes", swept.bytes);
        outbox.fact("kept", swept.kept);
        outbox.fact("unaccounted", swept.unaccounted);
        self.tell(&swept);
        Ok(())
    }
}
