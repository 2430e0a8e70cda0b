//! Hands packages over to a preservation repository, file by file, metadata first.
//!
//! * **Reads** the manifest, and the files of a package.
//! * **Writes** each file to the receiver of the settings: a directory, a command of the operator's, or a service that takes files
//!   by PUT; what it answered into the manifest; and a PREMIS document for each package that was handed over.
//! * **Never** sends a data file before the metadata of its job has a receipt, a file that has one, or two files at once. Never
//!   changes a package.
//! * **Defers** while the receiver is away, and waits as long as it asks to be left alone, which is no error. **Holds** a package
//!   that the receiver does not take, with its words, and one that is not what was made; after two in a row the stage is paused.
//! * **Again**: what has a receipt is not sent again; what may have been sent is asked for first.

mod command;
mod directory;
mod hand_over;
mod http;
mod listing;
mod premis;
mod receiver;
mod settings;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ecluse_manifest::{DepositFile, DepositState, Manifest, PackageRow};
use ecluse_stage::{Failure, Home, Inbox, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::command::CommandReceiver;
use crate::directory::DirectoryReceiver;
use crate::http::HttpReceiver;
use crate::receiver::Receiver;

pub use crate::settings::{
    CommandSettings, DirectorySettings, HttpSettings, ReceiverSettings, Settings,
};

/// The stage.
pub struct Deposit {
    settings: Settings,
    home: Home,
    manifest: Manifest,
    receiver: Option<Receiver>,
    /// The receiver asked to be left alone until then.
    quiet_until: Option<(Instant, String)>,
    /// So many packages in a row were not taken.
    refused: u32,
}

/// The file of a parcel that asks for a hand-over.
const FILE: &str = "package.json";
/// What kind of parcel it is.
const KIND: &str = "hand-over";
/// More than any such file has.
const FILE_BYTES: u64 = 64 << 10;
/// So many packages are looked at in one go.
const PACKAGES: usize = 10_000;
/// How long the wait is when the receiver does not say.
const BUSY: Duration = Duration::from_secs(60);
/// How long a package waits that nobody takes.
const NOBODY: Duration = Duration::from_secs(3600);
/// So many packages in a row that are not taken are not the packages' fault.
const CONTRACT: u32 = 2;

/// A package that is to be handed over.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HandOver {
    package: String,
    /// Of its tag manifest: made again with other bytes, it is another package.
    sha512: String,
}

impl Stage for Deposit {
    const NAME: &'static str = "deposit";
    const ABOUT: &'static str =
        "Hands packages over to a preservation repository, file by file, metadata first";
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.directory("stage.deposit.receipts", &settings.receipts);
        let key = |key: &str| format!("stage.deposit.to.{key}");
        match &settings.to {
            ReceiverSettings::Nobody => {}
            ReceiverSettings::Directory(to) => check.directory(&key("path"), &to.path),
            ReceiverSettings::Command(to) => {
                for (name, words) in [("command", &to.command), ("ask", &to.ask)] {
                    let program = words.first().map_or("", String::as_str);
                    check.program(&key(name), program);
                }
            }
            ReceiverSettings::Http(to) => {
                if let Some(file) = &to.token_file {
                    check.secret_file(&key("token-file"), &home.path(file));
                }
                if let Some(file) = &to.ca_file {
                    check.file(&key("ca-file"), &home.path(file));
                }
            }
        }
    }

    /// Asks the receiver for a file that cannot be there: it must answer, and let us in.
    fn try_out(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        if let Err(what) = hand_over::try_receiver(settings, home) {
            check.warning("stage.deposit.to", what);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let root = std::path::absolute(&home.root)?;
        let receiver = match settings.to.clone() {
            ReceiverSettings::Nobody => None,
            ReceiverSettings::Directory(to) => {
                Some(Receiver::Directory(DirectoryReceiver::new(to, root)))
            }
            ReceiverSettings::Command(to) => Some(Receiver::Command(CommandReceiver(to))),
            ReceiverSettings::Http(to) => {
                Some(Receiver::Http(Box::new(HttpReceiver::open(to, &root)?)))
            }
        };
        Ok(Self {
            manifest: Manifest::open(&home.manifest(), &home.root).map_err(Failure::halt)?,
            home: home.clone(),
            settings,
            receiver,
            quiet_until: None,
            refused: 0,
        })
    }

    fn watched(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.packages()]
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let mut paths = vec![home.manifest_directory(), home.path(&settings.receipts)];
        if let ReceiverSettings::Directory(to) = &settings.to {
            paths.push(home.path(&to.path));
        }
        paths
    }

    /// What an operator's command does is not known here; most send the file away.
    fn needs_network(settings: &Settings) -> bool {
        match settings.to {
            ReceiverSettings::Nobody | ReceiverSettings::Directory(_) => false,
            ReceiverSettings::Command(_) | ReceiverSettings::Http(_) => true,
        }
    }

    /// Asks for the hand-over of each package that was not handed over; of those from before somebody took them too.
    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        if self.receiver.is_none() {
            return Ok(0);
        }
        let packages = self.manifest.packages_to_hand_over(PACKAGES);
        for row in packages.map_err(Failure::halt)? {
            let order = HandOver {
                package: row.package.clone(),
                sha512: row.sha512.clone(),
            };
            let id = ParcelId::for_file(row.package.as_ref(), &row.sha512);
            let bytes = serde_json::to_vec(&order).map_err(Failure::halt)?;
            inbox.put(&id, KIND, (FILE, &bytes))?;
        }
        Ok(0)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        if parcel.manifest().kind == "package" {
            // From a package stage whose `next` is this one: the manifest knows of it.
            return Ok(());
        }
        if self.refused >= CONTRACT {
            let paused = self.home.engine.paused(&self.home.stage)?;
            if paused.is_some() {
                return Err(Failure::give_back());
            }
            self.refused = 0;
        }
        let order = HandOver::read(parcel)?;
        let row = self.manifest.package(&order.package);
        let Some(row) = row.map_err(Failure::halt)? else {
            let name = &order.package;
            return Err(Failure::hold(format!(
                "the manifest knows no package {name}"
            )));
        };
        if row.sha512 != order.sha512 {
            // It was made again meanwhile, and has a parcel of its own.
            outbox.fact("replaced", row.sha512);
            return Ok(());
        }
        if self.receiver.is_none() {
            let reason = "nobody takes packages: stage.deposit.to is none";
            return Err(Failure::pause(reason, NOBODY));
        }
        if let Some((until, why)) = &self.quiet_until
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            return Err(Failure::pause(why, left));
        }
        let _one_at_a_time = self.lock(outbox)?;
        let files = self.hand_over(&row, outbox)?;
        self.keep_premis(&row, &files)?;
        self.manifest.handed_over(&row).map_err(Failure::halt)?;
        self.refused = 0;
        tell(&row, &files, outbox)
    }
}

/// Writes into the receipt what the manifest is made of again, should it be lost.
fn tell(row: &PackageRow, files: &[DepositFile], outbox: &mut Outbox) -> Result<(), Failure> {
    outbox.fact("package", row.package.as_str());
    outbox.fact("sha512", row.sha512.as_str());
    outbox.fact("job", row.job.as_str());
    outbox.fact("harvest", row.harvest.as_str());
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    outbox.fact("bytes", bytes);
    let files = serde_json::to_value(files).map_err(Failure::halt)?;
    outbox.fact("files", files);
    Ok(())
}

impl HandOver {
    fn read(parcel: &Parcel) -> Result<Self, Failure> {
        let name = &parcel.only_file()?.name;
        let mut bytes = Vec::new();
        let file = parcel.open(name)?;
        file.take(FILE_BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::hold(format!(
                "{name} does not name a package to hand over: {error}"
            ))
        })
    }
}

impl Deposit {
    /// Waits until no other worker sends.
    fn lock(&self, outbox: &Outbox) -> Result<File, Failure> {
        let receipts = self.receipts()?;
        let path = receipts.join(".one-at-a-time");
        let failed = |error: std::io::Error| {
            Failure::halt(format!("cannot lock {}: {error}", path.display()))
        };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(failed)?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(failed(error.into())),
            }
            outbox.tick();
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn receipts(&self) -> Result<PathBuf, Failure> {
        let path = self.home.path(&self.settings.receipts);
        if self.settings.receipts.is_absolute() && !path.is_dir() {
            let shown = path.display();
            return Err(Failure::defer(format!("there is no directory {shown}")));
        }
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::halt(format!("cannot make {}: {error}", path.display())))?;
        Ok(path)
    }

    /// Writes what was handed over, with the receipts; the same bytes whenever it is written.
    fn keep_premis(&self, row: &PackageRow, files: &[DepositFile]) -> Result<(), Failure> {
        let path = self.receipts()?.join(format!("{}.premis.xml", row.package));
        let failed = |error: std::io::Error| {
            Failure::halt(format!("cannot write {}: {error}", path.display()))
        };
        let text = premis::document(row, files, env!("CARGO_PKG_VERSION"));
        let temporary = path.with_extension("new");
        let mut file = File::create(&temporary).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat(cwd, &temporary, cwd, &path).map_err(|error| failed(error.into()))?;
        let directory = path.parent().unwrap_or(&path);
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed)
    }
}

/// Tells whether a file has a receipt.
fn is_done(file: &DepositFile) -> bool {
    file.state == DepositState::Receipted
}
