//! A worker that is taken for dead while its stage works, and learns of it when the stage asks.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ecluse_config::Pipeline;
use ecluse_spool::{
    Engine, FileEntry, Parcel, ParcelId, ParcelSource, Receipt, Result, SpoolError, WorkTree,
    WorkerLimits, WorkerTerms,
};
use ecluse_stage::{Failure, Home, Stage};

use crate::root::{Root, until};

/// How it goes with the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerFate {
    /// It lives.
    Lives,
    /// It was taken for dead, and can still read what it has.
    IsFenced,
}

/// The parcel in the hands of a worker.
struct InHand {
    source: Parcel,
    fate: WorkerFate,
    /// How often the stage asked.
    asked: Arc<AtomicUsize>,
}

impl ParcelSource for InHand {
    fn fetch(&self, file: &FileEntry, path: &Path) -> Result<()> {
        let fault = |source| SpoolError::Io {
            step: "copy",
            path: path.to_owned(),
            source,
        };
        let mut out = File::create(path).map_err(fault)?;
        io::copy(&mut self.source.open(&file.name)?, &mut out).map_err(fault)?;
        Ok(())
    }

    fn receipt_of(&self, stage: &str) -> Result<Option<Receipt>> {
        self.source.receipt_of(stage)
    }

    fn must_be_in_hand(&self) -> Result<()> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.fate {
            WorkerFate::Lives => Ok(()),
            WorkerFate::IsFenced => Err(SpoolError::Fenced {
                worker: "a test's".to_owned(),
            }),
        }
    }
}

/// Lets a stage of a root work on the parcel that waits for it, up to its commit. Returns what it says, and how often it asked
/// whether the parcel is still its own.
///
/// # Panics
/// When the root has no such parcel, or settings that do not suit.
pub fn work_on<Kind: Stage>(
    root: &Root,
    id: &str,
    fate: WorkerFate,
) -> (std::result::Result<(), Failure>, usize) {
    let path = root.path().join("pipeline.toml");
    let pipeline = Pipeline::load(Some(&path)).expect("the settings are good");
    let settings = pipeline
        .stage_settings(Kind::NAME)
        .expect("the settings are good");
    let tree = WorkTree::open(&root.path().join("work"));
    let limits = WorkerLimits::default();
    let terms = WorkerTerms {
        stage: Kind::NAME,
        next: &["sink".to_owned()],
        limits: &limits,
        version: "0",
    };
    let mut worker = tree.open_worker(&terms).expect("a worker can be opened");
    let id = ParcelId::new(id).expect("a test names its parcels well");
    let source = until("the parcel", || {
        let waiting = worker.scan().expect("it can be scanned").waiting;
        let found = waiting.iter().find(|waiting| waiting.entry.id == id)?;
        worker.claim(found).expect("it can be claimed")
    });
    let dir = root.path().join("in-hand");
    let _ = fs::create_dir(&dir);
    let asked = Arc::new(AtomicUsize::new(0));
    let parcel = Parcel::claimed_elsewhere(
        dir,
        source.manifest().clone(),
        source.attempt(),
        String::new(),
        Arc::new(InHand {
            source,
            fate,
            asked: Arc::clone(&asked),
        }),
        worker.signs(),
    );
    let home = Home {
        engine: Arc::new(tree),
        ..Home::of(&pipeline, Kind::NAME, root.path())
    };
    let mut stage = Kind::open(settings, &home).unwrap_or_else(|failure| panic!("{failure:?}"));
    let parcels = [parcel];
    let mut outbox = worker.outbox(&parcels);
    let done = stage.process_batch(&parcels, &mut outbox);
    (done, asked.load(Ordering::SeqCst))
}
