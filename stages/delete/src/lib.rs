//! Takes the working copy out of a parcel once two proofs agree.
//!
//! * **Reads** the stored copy that `<file>.path` names, from the disk, and the proofs in
//!   `<file>.backup.json`.
//! * **Writes** nothing: the parcel goes on without `<file>`.
//! * **Never** takes it out unless every stored copy and every proof have the digest taken at ingest.
//! * **Defers** while the archive is frozen: a check found a copy that is not what it should be; and, where that is asked for,
//!   until the preservation repository has given a receipt.
//!   **Holds** a parcel with a copy or a proof that is missing or differs, and one the manifest does not know.
//! * **Again**: the same proofs are asked for, and the parcel is the same without the file.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ecluse_holding::{
    Fixity, Going, PayloadSource, Proof, must_not_be_frozen, payload, read_small, stored_places,
};
use ecluse_manifest::{Manifest, PlaceRoot};
use ecluse_stage::{Failure, Home, Outbox, Parcel, SettingsCheck, Stage};
use serde::Deserialize;

/// The stage.
pub struct Delete {
    settings: Settings,
    manifest: Manifest,
}

/// What `[stage.delete]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Take the working copy out; otherwise it passes on, and is proved all the same.
    pub working_copy: bool,
    /// How many backup targets must have proved their copy.
    pub backups: NonZeroU32,
    /// Keep it until the preservation repository has given a receipt for the file.
    pub requires_deposit: bool,
}

/// How often a receipt that is waited for is looked for.
const RECEIPT: Duration = Duration::from_secs(600);

impl Stage for Delete {
    const NAME: &'static str = "delete";
    const ABOUT: &'static str = "Takes the working copy out of a parcel once two proofs agree";
    const MAKES_ROOM: bool = true;
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            settings,
            manifest: Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.manifest_directory()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        must_not_be_frozen(&self.manifest)?;
        let file = payload(parcel.manifest())?;
        let wanted = Fixity::from(file);
        self.must_be_the_ingested(&file.name, &wanted)?;
        // The proofs first: they cost nothing.
        self.must_be_backed_up(parcel, &file.name, &wanted)?;
        if self.settings.requires_deposit {
            let has = self.manifest.is_receipted(&file.name, &wanted.sha256);
            if !has.map_err(Failure::halt)? {
                let name = &file.name;
                let reason = format!("the preservation repository has given no receipt for {name}");
                return Err(Failure::pause(reason, RECEIPT));
            }
        }
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        must_be_stored(parcel, &file.name, &wanted, self.manifest.places(), &going)?;
        // A long read lies between: a check may have found something since.
        must_not_be_frozen(&self.manifest)?;
        if self.settings.working_copy {
            outbox.detach(&file.name);
            self.manifest.deleted(&file.name).map_err(Failure::halt)?;
        }
        Ok(())
    }
}

impl Delete {
    /// The parcel must speak of the same bytes as the manifest.
    fn must_be_the_ingested(&self, name: &str, wanted: &Fixity) -> Result<(), Failure> {
        let row = self.manifest.file(name).map_err(Failure::halt)?;
        match row.and_then(|row| row.sha256) {
            Some(sha256) if sha256 == wanted.sha256 => Ok(()),
            Some(sha256) => Err(Failure::hold(format!(
                "the manifest has {name} with sha256 {sha256}, the parcel with {}",
                wanted.sha256
            ))),
            // Every stage before this one has told the manifest: this is another's, or it was lost.
            None => Err(Failure::hold(format!(
                "the manifest does not know {name}: is it the manifest of this archive?"
            ))),
        }
    }

    fn must_be_backed_up(
        &self,
        parcel: &Parcel,
        name: &str,
        wanted: &Fixity,
    ) -> Result<(), Failure> {
        let proofs_name = format!("{name}.backup.json");
        let Some(bytes) = read_small(parcel, &proofs_name)? else {
            return Err(Failure::hold(format!(
                "{name} has no proof of a backup: {proofs_name} is missing"
            )));
        };
        let proofs: Vec<Proof> = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::hold(format!("cannot read {proofs_name}: {error}")))?;
        for proof in &proofs {
            if !proof.is_of(wanted) {
                return Err(Failure::hold(format!(
                    "the backup {} of {name} at {} has sha256 {} ({} bytes), ingest took {wanted}",
                    proof.target, proof.place, proof.sha256, proof.bytes
                )));
            }
        }
        let targets: BTreeSet<&str> = proofs.iter().map(|proof| proof.target.as_str()).collect();
        let needed = self.settings.backups.get();
        if targets.len() < needed as usize {
            return Err(Failure::hold(format!(
                "{name} has {} proofs of a backup, {needed} are asked for",
                targets.len()
            )));
        }
        Ok(())
    }
}

fn must_be_stored(
    parcel: &Parcel,
    name: &str,
    wanted: &Fixity,
    places: &PlaceRoot,
    going: Going<'_>,
) -> Result<(), Failure> {
    let places = stored_places(parcel, name, places)?;
    if places.is_empty() {
        return Err(Failure::hold(format!(
            "{name} is not stored: {name}.path is missing or empty"
        )));
    }
    for place in places {
        PayloadSource::Stored(place).verify(wanted, going)?;
    }
    Ok(())
}
