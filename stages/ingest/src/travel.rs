//! Files on their way from the host that harvested them to the one with the manifest.
//!
//! A copy of ingest puts a file of its host into a parcel. Ingest keeps it in its own first harvested directory, read back from
//! the disk, and finds it there like any other: what comes after that knows nothing of the other host.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use ecluse_holding::{CopyDirectory, CopyFault, Fixity, KeptCopy, PayloadSource, is_archive};
use ecluse_stage::{Failure, Outbox, Parcel, Stage};

use crate::harvested_file::{HarvestedFile, HarvestedState};
use crate::{Ingest, name, unread};

/// The kind of a parcel with a file of another host.
const SENT: &str = "harvested";

impl Ingest {
    /// Sends a file of this host to ingest.
    pub(crate) fn send(
        &mut self,
        parcel: &Parcel,
        file: &HarvestedFile,
        state: &HarvestedState,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        match state {
            HarvestedState::AsFound => {}
            HarvestedState::Gone => {
                return Err(Failure::hold(format!(
                    "{} vanished before it was sent",
                    file.shown
                )));
            }
            // It has a parcel of its own as what it has become.
            HarvestedState::Changed => {
                outbox.fact("changed", file.shown.as_str());
                return Ok(());
            }
        }
        let path = Path::new(&file.path);
        // Whose crawler keeps a file to itself does not stop the others: it is tried again later.
        File::open(path).map_err(|error| unread(file, &error))?;
        let mut sent = outbox.parcel(parcel.id().clone(), SENT)?;
        sent.bring_seen(path, &file.name, &mut |_| {})?;
        if file.state()? != HarvestedState::AsFound {
            return Err(Failure::defer(format!(
                "{} changed while it was read",
                file.shown
            )));
        }
        let entry = &sent.manifest().files[0];
        outbox.fact("source", file.path.as_str());
        outbox.fact("bytes", entry.bytes);
        outbox.fact("sha256", entry.sha256.as_str());
        outbox.emit(sent)?;
        Ok(())
    }

    /// Keeps a file that came in a parcel where it is found like any other.
    pub(crate) fn receive(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let entry = parcel.only_file()?;
        let (name, wanted) = (entry.name.as_str(), Fixity::from(entry));
        if let Some(problem) = name::problem_of(name.as_bytes()) {
            return Err(Failure::hold(format!("{name}: {problem}")));
        }
        if !is_archive(OsStr::new(name)) {
            return Err(Failure::hold(format!("{name} is no (W)ARC file")));
        }
        outbox.fact("sha256", wanted.sha256.as_str());
        // It may have come all the way before this parcel was done with: put there again, it would only have to be cleaned again.
        let known = match &self.manifest {
            Some(manifest) => manifest.file(name).map_err(Failure::halt)?,
            None => None,
        };
        if known.is_some_and(|row| row.sha256.as_deref() == Some(wanted.sha256.as_str())) {
            outbox.fact("skipped", "a file of this name and digest is known");
            return Ok(());
        }
        let source = PayloadSource::Working(parcel, name);
        let going = || {
            outbox.tick();
            !outbox.stop_asked()
        };
        let mut open = || {
            source
                .open()
                .map_err(|failure| io::Error::other(failure.reason))
        };
        let harvested = self.home.archive.crawled();
        let kept =
            CopyDirectory::open_swept(&self.home.root, harvested, Self::NAME, &mut self.swept)
                .and_then(|copies| copies.keep(name, &wanted, 0, &mut open, &going));
        let kept = kept.map_err(|fault| match &fault {
            CopyFault::Stopped => Failure::give_back(),
            CopyFault::Taken { .. } | CopyFault::Obstructed { .. } => Failure::hold(fault),
            // Opened again, it says itself who is at fault.
            CopyFault::Source(_) => match source.open() {
                Ok(_) => Failure::halt(fault),
                Err(failure) => failure,
            },
            CopyFault::Differs { .. } => match source.verify(&wanted, &going) {
                Ok(()) => Failure::defer(fault),
                Err(failure) => failure,
            },
            _ => Failure::halt(fault),
        })?;
        let place = harvested.join(name).display().to_string();
        outbox.fact("received", place);
        outbox.fact("was-there", kept == KeptCopy::Found);
        Ok(())
    }
}
