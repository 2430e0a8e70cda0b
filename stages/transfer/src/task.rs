//! One file on its way to a location.

use std::cmp::Reverse;
use std::io;
use std::path::PathBuf;

use ecluse_config::Location;
use ecluse_holding::{CopyDirectory, CopyFault, Fixity, Going, KeptCopy, PayloadSource};
use ecluse_stage::Failure;

use crate::settings::Choose;

/// A location that is well.
pub(crate) struct Open<'a> {
    pub(crate) location: &'a Location,
    pub(crate) copies: CopyDirectory,
    pub(crate) free: u64,
    /// Free space that must stay.
    pub(crate) leave: u64,
}

/// A verified copy.
pub(crate) struct Stored {
    pub(crate) location: String,
    pub(crate) place: PathBuf,
}

/// One file on its way.
pub(crate) struct TransferTask<'a> {
    pub(crate) name: &'a str,
    pub(crate) folder: &'a str,
    pub(crate) wanted: &'a Fixity,
    pub(crate) source: PayloadSource<'a>,
}

impl TransferTask<'_> {
    /// Returns the copies that are there, each read from the disk; the one at `known` was read just
    /// now.
    ///
    /// # Errors
    /// Holds the parcel when another file has its name.
    pub(crate) fn copies(
        &self,
        open: &[Open<'_>],
        known: Option<usize>,
        complaints: &mut Vec<String>,
        going: Going<'_>,
    ) -> Result<Vec<Stored>, Failure> {
        let mut copies = Vec::new();
        for (number, place) in open.iter().enumerate() {
            let there = match place.copies.find_folder(self.folder) {
                Ok(None) => Ok(false),
                Ok(Some(_)) if known == Some(number) => Ok(true),
                Ok(Some(folder)) => folder.has(self.name, self.wanted, going),
                Err(fault) => Err(fault),
            };
            match there {
                Ok(true) => copies.push(self.stored(place)),
                Ok(false) => {}
                Err(fault) => self.complain(place, fault, complaints, going)?,
            }
        }
        Ok(copies)
    }

    /// Stores the file in the first of these locations that takes it, and says in which.
    ///
    /// # Errors
    /// Defers with what is wrong with each when none does.
    pub(crate) fn store(
        &self,
        open: &[Open<'_>],
        order: &[usize],
        complaints: &mut Vec<String>,
        going: Going<'_>,
    ) -> Result<usize, Failure> {
        for &number in order {
            let place = &open[number];
            let kept = place.copies.folder(self.folder).and_then(|folder| {
                let mut source = || self.source.open().map_err(io::Error::other);
                folder.keep(self.name, self.wanted, place.leave, &mut source, going)
            });
            match kept {
                Ok(KeptCopy::Copied | KeptCopy::Found) => return Ok(number),
                Err(fault) => self.complain(place, fault, complaints, going)?,
            }
        }
        Err(Failure::defer(format!(
            "no location takes {} ({} bytes): {}",
            self.name,
            self.wanted.bytes,
            complaints.join("; ")
        )))
    }

    /// Tells the location's faults, which another location may not have, from the parcel's.
    fn complain(
        &self,
        place: &Open<'_>,
        fault: CopyFault,
        complaints: &mut Vec<String>,
        going: Going<'_>,
    ) -> Result<(), Failure> {
        match &fault {
            CopyFault::Stopped => return Err(Failure::give_back()),
            CopyFault::Taken { .. } | CopyFault::Obstructed { .. } => {
                return Err(Failure::hold(fault));
            }
            CopyFault::Source(_) => {
                // Opened again, it says itself who is at fault.
                self.source.open()?;
                return Err(Failure::halt(fault));
            }
            // Either the working copy is not what ingest took, or the location does not keep what it
            // is given.
            CopyFault::Differs { .. } => {
                self.source.verify(self.wanted, going)?;
                let location = &place.location.name;
                tracing::error!(location, %fault, "a location gives back other bytes than it took");
            }
            _ => {
                let location = &place.location.name;
                tracing::warn!(location, %fault, "location skipped");
            }
        }
        complaints.push(format!("{}: {fault}", place.location.name));
        Ok(())
    }

    fn stored(&self, place: &Open<'_>) -> Stored {
        Stored {
            location: place.location.name.clone(),
            place: place.copies.path().join(self.folder).join(self.name),
        }
    }
}

/// Returns the order in which locations are tried.
pub(crate) fn order(choose: Choose, turn: &mut usize, open: &[Open<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..open.len()).collect();
    match choose {
        Choose::FirstFit => {}
        Choose::MostFree => order.sort_by_key(|&number| Reverse(open[number].free)),
        Choose::RoundRobin => {
            order.rotate_left(*turn % open.len().max(1));
            *turn = turn.wrapping_add(1);
        }
    }
    order
}
