//! Where a stage that looks outside its work directory puts what it found: before itself.

use std::collections::HashSet;
use std::path::PathBuf;

use ecluse_spool::{ParcelId, WorkTree};

use crate::failure::Failure;

/// What a stage brought in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Tickets put down.
    pub tickets: usize,
    /// Files that are there and not at rest yet: ask again soon.
    pub settling: usize,
}

/// A small parcel that stands for something outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The same for the same thing, whoever finds it and however often.
    pub id: ParcelId,
    /// What kind of parcel it is.
    pub kind: &'static str,
    /// The name of its one file.
    pub name: &'static str,
    /// The bytes of that file.
    pub bytes: Vec<u8>,
}

/// The way into a stage's own `ready/`.
pub struct Collector<'a> {
    pub(crate) tree: &'a WorkTree,
    pub(crate) stage: &'a str,
    pub(crate) news: Vec<News>,
    pub(crate) deaf: bool,
}

/// Something the bell told of a path under a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// The path.
    pub path: PathBuf,
    /// It was closed by its writer or renamed in: a whole file, whatever its age.
    pub whole: bool,
}

impl Collector<'_> {
    /// Takes what the bell told of the watched directories since last asked. Some may be missing: the
    /// bell is a hint.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Tells whether there is no bell: only looking tells what is there.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Puts down those tickets that are not in the stage already and were not finished before,
    /// durably; returns how many.
    ///
    /// # Errors
    /// When the disk does not take one.
    pub fn put(&mut self, tickets: Vec<Ticket>) -> Result<usize, Failure> {
        if tickets.is_empty() {
            return Ok(0);
        }
        let mut known = HashSet::new();
        self.tree.each_place(self.stage, &mut |place| {
            known.insert(place.parcel);
        })?;
        let mut put = 0;
        for ticket in tickets {
            let Ticket {
                id,
                kind,
                name,
                bytes,
            } = ticket;
            if known.contains(&id) || self.tree.receipt(self.stage, &id)?.is_some() {
                continue;
            }
            put += usize::from(self.tree.ticket(self.stage, &id, kind, (name, &bytes))?);
        }
        Ok(put)
    }
}
