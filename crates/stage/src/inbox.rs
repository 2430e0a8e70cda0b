//! Where a stage that looks outside its work directory puts what it found: before itself.

use std::collections::HashSet;
use std::path::PathBuf;

use ecluse_spool::{Engine, ParcelId, SpoolError};

use crate::failure::Failure;

/// The way into a stage's own `ready/`.
pub struct Inbox<'a> {
    engine: &'a dyn Engine,
    stage: &'a str,
    news: Vec<News>,
    deaf: bool,
    /// What the stage has, once somebody asked.
    known: Option<HashSet<ParcelId>>,
}

/// Something the bell told of a path under a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// The path.
    pub path: PathBuf,
    /// It was closed by its writer or renamed in: a whole file, whatever its age.
    pub whole: bool,
}

impl<'a> Inbox<'a> {
    pub(crate) fn new(engine: &'a dyn Engine, stage: &'a str, news: Vec<News>, deaf: bool) -> Self {
        Self {
            engine,
            stage,
            news,
            deaf,
            known: None,
        }
    }

    /// Takes what the bell told of the watched directories since last asked. Some may be missing: the
    /// bell is a hint.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Tells whether there is no bell: only looking tells what is there.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Puts a parcel with one small file that stands for something outside, durably, unless it is in the stage already or
    /// was finished before. `id` is the same for the same thing, whoever finds it and however often.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn put(
        &mut self,
        id: &ParcelId,
        kind: &str,
        (name, bytes): (&str, &[u8]),
    ) -> Result<(), Failure> {
        if self.known.is_none() {
            let mut known = HashSet::new();
            self.engine.each_name(self.stage, &mut |parcel| {
                known.insert(parcel);
            })?;
            self.known = Some(known);
        }
        let is_known = self.known.as_ref().is_some_and(|known| known.contains(id));
        if is_known || self.engine.receipt(self.stage, id)?.is_some() {
            return Ok(());
        }
        let put = self
            .engine
            .put(self.stage, id, kind, |parcel| parcel.write(name, bytes));
        match put {
            // Another host found it too.
            Ok(_) | Err(SpoolError::Waits { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
