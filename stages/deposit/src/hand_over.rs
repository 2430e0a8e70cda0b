//! One package on its way: each file is asked for, sent if it is not there, and receipted.

use std::path::Path;
use std::time::{Duration, Instant};

use ecluse_holding::Fixity;
use ecluse_manifest::{DepositFile, DepositKey, DepositState, Manifest, PackageRow};
use ecluse_stage::{Failure, Home, Outbox};
use jiff::Timestamp;

use crate::command::CommandReceiver;
use crate::directory::package_in;
use crate::http::HttpReceiver;
use crate::listing::{ListedFile, Role, list};
use crate::receiver::{Answer, DepositFault, DepositTask, Receipt, Receiver};
use crate::settings::{ReceiverSettings, Settings};
use crate::{BUSY, CONTRACT, Deposit, is_done};

/// How often a file is sent whose receipt speaks of other bytes: once more, then a person looks.
const SENDINGS: u64 = 2;
/// The hour of `files-an-hour`.
const HOUR: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// A file that has a receipt; none while that is awaited.
type Receipted = Option<DepositFile>;

impl Deposit {
    /// Hands a package over; returns its files once all have receipts.
    pub(crate) fn hand_over(
        &mut self,
        row: &PackageRow,
        outbox: &Outbox,
    ) -> Result<Vec<DepositFile>, Failure> {
        let listed = list(&self.manifest, &self.home.packages(), row)?;
        let files: Vec<DepositFile> = listed.iter().map(|file| file.file.clone()).collect();
        self.manifest.to_deposit(&files).map_err(Failure::halt)?;
        let mut done: Vec<DepositFile> = Vec::new();
        let mut pending: Vec<String> = Vec::new();
        let mut metadata = None;
        for file in &listed {
            outbox.tick();
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            match self.step(file, metadata.as_deref(), outbox)? {
                Some(file) => {
                    if file.role == Role::Metadata.word() && metadata.is_none() {
                        metadata.clone_from(&file.identifier);
                    }
                    if file.package == row.package {
                        done.push(file);
                    }
                }
                None => {
                    let name = file.file.key.file.clone();
                    if file.file.role == Role::Metadata.word() {
                        let reason = format!("the receipt of the metadata file {name} is awaited");
                        return Err(Failure::pause(reason, self.settings.ask_again.0));
                    }
                    pending.push(name);
                }
            }
        }
        match pending.first() {
            None => Ok(done),
            Some(first) => Err(Failure::pause(
                format!(
                    "package {}: {} files wait for a receipt, such as {first}",
                    row.package,
                    pending.len()
                ),
                self.settings.ask_again.0,
            )),
        }
    }

    fn step(
        &mut self,
        listed: &ListedFile,
        metadata: Option<&str>,
        outbox: &Outbox,
    ) -> Result<Receipted, Failure> {
        let key = &listed.file.key;
        let known = self.known(key)?;
        if is_done(&known) {
            return Ok(Some(known));
        }
        if let Some(Receiver::Directory(directory)) = &mut self.receiver {
            directory.must_be_mounted(&self.manifest)?;
        }
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let task = DepositTask {
            file: &listed.file,
            path: &listed.path,
            below: &listed.below,
            wanted: Fixity {
                bytes: listed.file.bytes,
                sha256: key.sha256.clone(),
            },
            metadata_identifier: metadata,
            going: &going,
        };
        // Nobody knows here what a killed worker's last request came to, nor what a lost manifest knew.
        match self.exchange(&task, Receiver::ask)? {
            Answer::Receipt(receipt) => {
                if let Some(file) = self.take(&task, &receipt)? {
                    return Ok(Some(file));
                }
            }
            Answer::Pending => {
                self.manifest.known_there(key).map_err(Failure::halt)?;
                return Ok(None);
            }
            Answer::Absent => {}
        }
        self.send(&task)
    }

    fn send(&mut self, task: &DepositTask<'_>) -> Result<Receipted, Failure> {
        loop {
            self.must_be_within_limit()?;
            let key = &task.file.key;
            self.manifest.sending(key).map_err(Failure::halt)?;
            let answer = self.exchange(task, Receiver::send);
            if answer.is_err() && matches!(self.receiver, Some(Receiver::Directory(_))) {
                // Nothing is left there of what was not copied whole.
                self.manifest.not_sent(key).map_err(Failure::halt)?;
            }
            match answer? {
                Answer::Receipt(receipt) => {
                    if let Some(file) = self.take(task, &receipt)? {
                        return Ok(Some(file));
                    }
                }
                Answer::Pending => return Ok(None),
                Answer::Absent => {
                    let file = &key.file;
                    return Err(Failure::defer(format!(
                        "{file} was taken, and is not there"
                    )));
                }
            }
        }
    }

    /// Keeps a receipt. None when it speaks of other bytes and the file may be sent once more.
    fn take(&mut self, task: &DepositTask<'_>, receipt: &Receipt) -> Result<Receipted, Failure> {
        let key = &task.file.key;
        if receipt.sha256 != key.sha256 {
            let words = format!(
                "the repository has {} with sha256 {}, the package has it with {}: {}",
                key.file, receipt.sha256, key.sha256, receipt.text
            );
            let noted = self.manifest.deposit_said(key, &words);
            noted.map_err(Failure::halt)?;
            let tries = self.known(key)?.tries;
            if tries > 0 && tries < SENDINGS {
                tracing::warn!(file = key.file, "the receipt is of other bytes: sent again");
                return Ok(None);
            }
            return Err(self.refused(words));
        }
        let identifier = receipt.identifier.as_deref();
        let kept = self.manifest.receipted(key, identifier, &receipt.text);
        match kept.map_err(Failure::halt)? {
            Ok(()) => self.known(key).map(Some),
            Err(conflict) => Err(self.refused(conflict.what)),
        }
    }

    fn known(&self, key: &DepositKey) -> Result<DepositFile, Failure> {
        let known = self.manifest.deposit(key).map_err(Failure::halt)?;
        known.ok_or_else(|| {
            let file = &key.file;
            Failure::halt(format!("the manifest has forgotten {file}"))
        })
    }

    /// Asks or sends; says who is at fault where there is no answer.
    fn exchange(
        &mut self,
        task: &DepositTask<'_>,
        how: fn(&mut Receiver, &DepositTask<'_>) -> Result<Answer, DepositFault>,
    ) -> Result<Answer, Failure> {
        let Some(receiver) = &mut self.receiver else {
            return Err(Failure::config("stage.deposit.to is none"));
        };
        let fault = match how(receiver, task) {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        let key = &task.file.key;
        if let Some(words) = fault.words() {
            let noted = self.manifest.deposit_said(key, words);
            noted.map_err(Failure::halt)?;
        }
        let file = &key.file;
        Err(match fault {
            DepositFault::Busy(words, wait) => {
                let wait = wait.unwrap_or(BUSY).max(Duration::from_secs(1));
                let reason = format!("{words}: it asks for a pause of {}s", wait.as_secs());
                self.quiet_until = Some((Instant::now() + wait, reason.clone()));
                Failure::pause(reason, wait)
            }
            DepositFault::Away(words) => Failure::defer(format!("{file}: {words}")),
            DepositFault::Closed(words) => Failure::halt(words),
            DepositFault::Refused(words) => self.refused(format!("{file}: {words}")),
            DepositFault::Ours(failure) => failure,
        })
    }

    /// A person has to look. What happens to two packages in a row is not the packages' fault: then no more is sent.
    fn refused(&mut self, words: String) -> Failure {
        self.refused += 1;
        if self.refused >= CONTRACT {
            let why = format!("{CONTRACT} packages in a row were not taken: {words}");
            let stage = &self.home.stage;
            if let Err(error) = self.home.engine.pause(stage, "ecluse-deposit", &why) {
                tracing::error!(%error, "cannot pause");
            }
        }
        Failure::hold(words)
    }

    fn must_be_within_limit(&self) -> Result<(), Failure> {
        let limit = self.settings.files_an_hour;
        if limit == 0 {
            return Ok(());
        }
        let now = Timestamp::now();
        let since = (now - HOUR).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (count, first) = self.manifest.sent_since(&since).map_err(Failure::halt)?;
        if count < limit {
            return Ok(());
        }
        let first = first.and_then(|first| first.parse::<Timestamp>().ok());
        let free = first.unwrap_or(now) + HOUR;
        let left = Duration::try_from(free.duration_since(now)).unwrap_or_default();
        Err(Failure::pause(
            format!("{limit} files were sent within the last hour (files-an-hour)"),
            left.max(Duration::from_secs(1)),
        ))
    }
}

/// Asks a receiver for a file that cannot be there.
pub(crate) fn try_receiver(settings: &Settings, home: &Home) -> Result<(), String> {
    let root = home.root.as_path();
    let mut receiver = match settings.to.clone() {
        ReceiverSettings::Nobody => return Ok(()),
        ReceiverSettings::Directory(to) => {
            let path = root.join(&to.path);
            let is_missing = to.path.is_absolute() && !path.is_dir();
            let may_write = rustix::fs::access(&path, rustix::fs::Access::WRITE_OK);
            return match (is_missing, may_write) {
                (true, _) => Err(format!("there is no directory {}", path.display())),
                (false, Err(error)) if path.is_dir() => {
                    Err(format!("{} cannot be written: {error}", path.display()))
                }
                _ => match Manifest::open_to_read(&home.manifest(), root) {
                    Ok(manifest) => package_in(&to, root, &manifest).map(drop),
                    // Nothing was handed over yet, or whoever needs it says what is wrong with it.
                    Err(_) => Ok(()),
                },
            };
        }
        ReceiverSettings::Command(to) => Receiver::Command(CommandReceiver(to)),
        ReceiverSettings::Http(to) => {
            let open = HttpReceiver::open(to, root).map_err(|failure| failure.reason)?;
            Receiver::Http(Box::new(open))
        }
    };
    let sha256 = "0".repeat(64);
    let file = DepositFile {
        key: DepositKey {
            job: "check".into(),
            harvest: "check".into(),
            file: "check".into(),
            sha256: sha256.clone(),
        },
        package: "check".into(),
        channel: "check".into(),
        role: Role::Tag.word().into(),
        bytes: 0,
        state: DepositState::Built,
        tries: 0,
        sent: None,
        receipted: None,
        identifier: None,
        receipt: None,
        said: None,
    };
    let task = DepositTask {
        file: &file,
        path: Path::new("/dev/null"),
        below: "check",
        wanted: Fixity { bytes: 0, sha256 },
        metadata_identifier: None,
        going: &|| true,
    };
    match receiver.ask(&task) {
        Ok(_) | Err(DepositFault::Busy(..)) => Ok(()),
        Err(DepositFault::Ours(failure)) => Err(failure.reason),
        Err(fault) => Err(fault.words().unwrap_or_default().to_owned()),
    }
}
