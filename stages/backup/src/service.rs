//! A backup that is no directory, as `ecluse repair` uses it: a copy is read again, and a bad or missing one put back.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ecluse_holding::{Fixity, PayloadSource, Proof, ReadFault, digest_of};
use ecluse_stage::{Blame, Failure};

use crate::settings::{Command, Target, TargetKind};
use crate::{BackupTask, command, s3};

/// An object store, or a command that can bring back what it took.
pub struct BackupService {
    target: String,
    open: Open,
}

enum Open {
    S3(Box<s3::Bucket>),
    Command(Command),
}

/// A copy in a service.
pub struct ServiceCopy<'a> {
    /// The file.
    pub name: &'a str,
    /// Where the proof says it is.
    pub place: &'a str,
    /// What it must be.
    pub wanted: &'a Fixity,
}

/// What a service has of a copy.
pub enum ServiceFinding {
    /// These bytes.
    Bytes(Fixity),
    /// Nothing.
    Missing,
}

impl BackupService {
    /// Opens a target; none for a directory, and for a command that brings nothing back.
    ///
    /// # Errors
    /// When its keys cannot be read.
    pub fn open(target: Target, root: &Path) -> Result<Option<Self>, Failure> {
        let open = match target.kind {
            TargetKind::Directory(_) => return Ok(None),
            TargetKind::Command(command) if command.fetch.is_empty() => return Ok(None),
            TargetKind::Command(command) => Open::Command(command),
            TargetKind::S3(s3) => Open::S3(Box::new(s3::Bucket::open(s3, root)?)),
        };
        Ok(Some(Self {
            target: target.name,
            open,
        }))
    }

    /// Returns its name in the settings.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Opens a copy.
    ///
    /// # Errors
    /// Holds when it is not there, defers when the service does not answer.
    pub fn open_copy(&self, copy: &ServiceCopy<'_>) -> Result<Box<dyn Read>, Failure> {
        match &self.open {
            Open::S3(bucket) => bucket.open_object(copy.name),
            Open::Command(command) => command::fetch(command, copy),
        }
    }

    /// Reads a copy to its end.
    ///
    /// # Errors
    /// When the service does not answer, or breaks off.
    pub fn read(&self, copy: &ServiceCopy<'_>) -> Result<ServiceFinding, Failure> {
        let mut source = match self.open_copy(copy) {
            Err(failure) if failure.blame == Blame::Parcel => return Ok(ServiceFinding::Missing),
            source => source?,
        };
        match digest_of(&mut source, &|| true) {
            Ok(found) => Ok(ServiceFinding::Bytes(found)),
            Err(ReadFault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(ServiceFinding::Missing)
            }
            Err(fault) => Err(Failure::defer(format!("{}: {fault}", copy.place))),
        }
    }

    /// Makes the copy again from a file that was read just now, and reads it back. In an object store bad bytes are put
    /// under a key of their own first.
    ///
    /// # Errors
    /// When the service does not take it, or does not give it back as it was.
    pub fn put_back(&self, copy: &ServiceCopy<'_>, good: &Path) -> Result<Proof, Failure> {
        let source = PayloadSource::Stored(PathBuf::from(good));
        let task = BackupTask {
            name: copy.name,
            wanted: copy.wanted,
            source: &source,
            going: &|| true,
        };
        let (kind, made) = match &self.open {
            Open::S3(bucket) => {
                bucket.set_aside(copy.name)?;
                ("s3", bucket.keep(&task)?)
            }
            Open::Command(command) => ("command", command::run(command, &task)?),
        };
        let proof = Proof {
            target: self.target.clone(),
            kind: kind.to_owned(),
            place: made.place,
            bytes: copy.wanted.bytes,
            sha256: copy.wanted.sha256.clone(),
            how: made.how.to_owned(),
        };
        let again = ServiceCopy {
            place: &proof.place,
            ..*copy
        };
        match self.read(&again)? {
            ServiceFinding::Bytes(found) if found == *copy.wanted => Ok(proof),
            ServiceFinding::Bytes(found) => Err(Failure::hold(format!(
                "{} gives back {found}, it was given {}",
                proof.place, copy.wanted
            ))),
            ServiceFinding::Missing => Err(Failure::hold(format!(
                "{} is not there after it was put back",
                proof.place
            ))),
        }
    }
}
