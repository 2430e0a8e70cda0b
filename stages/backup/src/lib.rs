//! Makes a copy of a stored file in every backup target, and proves each.
//!
//! * **Reads** the stored copy that `<file>.path` names; without one, the file in the parcel.
//! * **Writes** a copy into each target, and `<file>.backup.json` into the parcel: the proofs.
//! * **Never** calls a copy good that was not read back, or taken by an operator's command, and never
//!   writes over another file.
//! * **Defers** when a target does not answer, is full, or its command fails. **Holds** a file that is
//!   not the one ingest took, and one whose name another file has in a target.
//! * **Again**: a copy that is there is read again and counts. A command that was killed with the
//!   stage is run again.

mod command;
mod directory;
mod s3;
mod service;
mod settings;

use std::io::Write;
use std::path::PathBuf;

use ecluse_holding::{Fixity, Going, PayloadSource, Proof, payload, stored_places};
use ecluse_manifest::{Copy, CopyKind, Manifest};
use ecluse_stage::{Blame, Failure, Home, Outbox, Parcel, SettingsCheck, Stage};

pub use service::{BackupService, ServiceCopy, ServiceFinding};
pub use settings::{Command, Directory, S3, Settings, Target, TargetKind, Targets};

/// The stage.
pub struct Backup {
    root: PathBuf,
    manifest: Manifest,
    targets: Vec<(String, Open)>,
}

/// A target, with what this worker keeps for it.
enum Open {
    Directory(directory::Vault),
    S3(Box<s3::Bucket>),
    Command(Command),
}

/// One file on its way to a target.
pub(crate) struct BackupTask<'a> {
    name: &'a str,
    wanted: &'a Fixity,
    source: &'a PayloadSource<'a>,
    going: Going<'a>,
}

/// Where a copy is, and how that is known.
pub(crate) struct Made {
    place: String,
    how: &'static str,
}

impl Stage for Backup {
    const NAME: &'static str = "backup";
    const ABOUT: &'static str =
        "Makes a copy of a stored file in every backup target, and proves each";
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        for (number, target) in settings.targets.as_slice().iter().enumerate() {
            let key = |key: &str| format!("stage.backup.targets[{number}].{key}");
            match &target.kind {
                TargetKind::Directory(directory) => check.directory(&key("path"), &directory.path),
                TargetKind::S3(s3) => {
                    check.file(&key("key-file"), &home.path(&s3.key_file));
                    check.secret_file(&key("secret-file"), &home.path(&s3.secret_file));
                    if let Some(file) = &s3.ca_file {
                        check.file(&key("ca-file"), &home.path(file));
                    }
                }
                TargetKind::Command(command) => {
                    let program = command.command.first().map_or("", String::as_str);
                    check.program(&key("command"), program);
                    if let Some(program) = command.fetch.first() {
                        check.program(&key("fetch"), program);
                    }
                }
            }
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let root = std::path::absolute(&home.root)?;
        let mut targets = Vec::new();
        for target in settings.targets.into_vec() {
            let open = match target.kind {
                TargetKind::Directory(directory) => {
                    Open::Directory(directory::Vault::new(directory))
                }
                TargetKind::S3(s3) => Open::S3(Box::new(s3::Bucket::open(s3, &home.root)?)),
                TargetKind::Command(command) => Open::Command(command),
            };
            targets.push((target.name, open));
        }
        Ok(Self {
            root,
            manifest: Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?,
            targets,
        })
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let mut paths = vec![home.manifest_directory()];
        for target in settings.targets.as_slice() {
            if let TargetKind::Directory(directory) = &target.kind {
                paths.push(home.path(&directory.path));
            }
        }
        paths
    }

    /// What an operator's command does is not known here; most send the file away.
    fn needs_network(settings: &Settings) -> bool {
        let mut targets = settings.targets.as_slice().iter();
        targets.any(|target| !matches!(target.kind, TargetKind::Directory(_)))
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let file = payload(parcel.manifest())?;
        let wanted = Fixity::from(file);
        let source = match stored_places(parcel, &file.name, self.manifest.places())?
            .into_iter()
            .next()
        {
            Some(place) => PayloadSource::Stored(place),
            None => PayloadSource::Working(parcel, &file.name),
        };
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let task = BackupTask {
            name: &file.name,
            wanted: &wanted,
            source: &source,
            going: &going,
        };
        let proofs = self.back_up(&task)?;
        let mut text = serde_json::to_vec(&proofs).map_err(Failure::halt)?;
        text.push(b'\n');
        let mut out = outbox.create(&format!("{}.backup.json", file.name))?;
        out.write_all(&text)?;
        outbox.attach(out)?;
        // What the manifest is made of again, should it be lost.
        outbox.fact(
            "proofs",
            serde_json::to_value(&proofs).map_err(Failure::halt)?,
        );
        let names: Vec<String> = proofs.into_iter().map(|proof| proof.target).collect();
        outbox.fact("backups", names);
        Ok(())
    }
}

impl Backup {
    /// Makes every copy it can: one target that fails does not keep the others waiting.
    fn back_up(&mut self, task: &BackupTask<'_>) -> Result<Vec<Proof>, Failure> {
        let mut proofs = Vec::new();
        let mut reasons = Vec::new();
        let mut blame = Blame::World;
        for number in 0..self.targets.len() {
            match self.back_up_to(number, task) {
                Ok(proof) => proofs.push(proof),
                Err(failure) => {
                    let target = &self.targets[number].0;
                    let reason = format!("backup {target}: {}", failure.reason);
                    match failure.blame {
                        Blame::Nobody | Blame::Config => return Err(failure),
                        Blame::Parcel => return Err(Failure::hold(reason)),
                        Blame::Machine => blame = Blame::Machine,
                        Blame::World => {}
                    }
                    reasons.push(reason);
                }
            }
        }
        if reasons.is_empty() {
            return Ok(proofs);
        }
        let reason = reasons.join("; ");
        Err(match blame {
            Blame::Machine => Failure::halt(reason),
            _ => Failure::defer(reason),
        })
    }

    fn back_up_to(&mut self, number: usize, task: &BackupTask<'_>) -> Result<Proof, Failure> {
        let (target, open) = &mut self.targets[number];
        let (kind, made) = match open {
            Open::Directory(vault) => ("directory", vault.keep(&self.root, task)?),
            Open::S3(bucket) => ("s3", bucket.keep(task)?),
            Open::Command(command) => {
                // What a command has taken cannot be read again: its proof is what there is.
                if let Some(proof) = known_proof(&self.manifest, target, task)? {
                    return Ok(proof);
                }
                ("command", command::run(command, task)?)
            }
        };
        let proof = Proof {
            target: target.clone(),
            kind: kind.to_owned(),
            place: self.manifest.places().short(&made.place).into_owned(),
            bytes: task.wanted.bytes,
            sha256: task.wanted.sha256.clone(),
            how: made.how.to_owned(),
        };
        let copy = Copy {
            target,
            place: &proof.place,
            bytes: proof.bytes,
            sha256: &proof.sha256,
        };
        let value = serde_json::to_value(&proof).map_err(Failure::halt)?;
        self.manifest
            .backed_up(task.name, &copy, &value)
            .map_err(Failure::halt)?;
        Ok(proof)
    }
}

/// Returns the proof that an earlier attempt left in the manifest, when it is of the same bytes.
fn known_proof(
    manifest: &Manifest,
    target: &str,
    task: &BackupTask<'_>,
) -> Result<Option<Proof>, Failure> {
    let copies = manifest.copies(task.name).map_err(Failure::halt)?;
    let proof = copies
        .into_iter()
        .filter(|copy| copy.kind == CopyKind::Backup && copy.target == target)
        .find_map(|copy| serde_json::from_str::<Proof>(&copy.proof?).ok());
    Ok(proof.filter(|proof| proof.kind == "command" && proof.is_of(task.wanted)))
}
