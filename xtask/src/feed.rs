//! Gives files to the stages, in every way there is, and keeps a log of what was given.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ecluse_spool::{Engine, Fs, Gift, NewParcel, ParcelId, RealFs, SpoolError};
use ecluse_testkit::checker::{Given, GivenLog};

use crate::dice::Dice;
use crate::fleet::STAGES;

/// A file that is synced to see whether the disk lives.
const ALIVE: &str = "alive";

/// More waiting parcels than this are a crowd.
const CROWD: usize = 150;

/// The stage that gets everything.
const STAGE: &str = "relay";

/// What a file asks of the stage that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// To be held.
    Hold,
    /// To wait a second or two.
    Defer,
    /// To take long.
    Sleep,
    /// To kill its process: held once it has done so often enough.
    Die,
    /// To crash its worker: held likewise.
    Panic,
}

/// How a file is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Renamed into `drop/`, where there is one.
    Drop,
    /// By [`Engine::give`].
    Give,
    /// As a parcel built by the giver.
    Ready,
}

/// Gives files and keeps the log.
pub(crate) struct Feeder {
    engine: Arc<dyn Engine>,
    log: GivenLog,
    /// On the file system of the work directories.
    near: PathBuf,
    /// Anywhere else.
    away: PathBuf,
    dice: Dice,
    given: u64,
}

impl Feeder {
    /// Starts to give; `root` is that of the work directories, and the log and what is only read lie in `away`.
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        root: &Path,
        away: &Path,
        dice: Dice,
    ) -> anyhow::Result<Self> {
        let near = root.join("near");
        fs::create_dir_all(&near)?;
        fs::write(near.join(ALIVE), "")?;
        engine.init(STAGE)?;
        Ok(Self {
            engine,
            log: GivenLog::create(&given_log(away)).context("cannot start the log of gifts")?,
            near,
            away: away.to_owned(),
            dice,
            given: 0,
        })
    }

    /// Returns how many files were given.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Tells whether so much waits already that more would only wait.
    pub(crate) fn crowded(&self) -> anyhow::Result<bool> {
        let Some(tree) = self.engine.directories() else {
            // Behind a store the last stage may be the slowest.
            let waits = |stage| Ok::<_, SpoolError>(self.engine.depths(stage)?.ready);
            let waiting = STAGES.into_iter().map(waits).sum::<Result<usize, _>>()?;
            return Ok(waiting > CROWD);
        };
        let dir = tree.stage(STAGE);
        Ok(RealFs.list(&dir.ready())?.len() + RealFs.list(&dir.drop())?.len() > CROWD)
    }

    /// Gives one file with any wish, in any way.
    pub(crate) fn give_any(&mut self) -> anyhow::Result<()> {
        let ask = match self.dice.below(1000) {
            0..20 => Ask::Hold,
            20..80 => Ask::Defer,
            80..100 => Ask::Sleep,
            100..103 => Ask::Die,
            103..108 => Ask::Panic,
            _ => Ask::Nothing,
        };
        let way = *self
            .dice
            .pick(&[Way::Drop, Way::Drop, Way::Give, Way::Ready]);
        self.give(ask, way)
    }

    /// Gives one file, and has it in the log before and after.
    pub(crate) fn give(&mut self, ask: Ask, way: Way) -> anyhow::Result<()> {
        self.given += 1;
        let given = Given {
            stage: STAGE.to_owned(),
            name: format!("f{:06}.txt", self.given),
            text: self.text(ask),
            acknowledged: false,
        };
        self.log.give(&given)?;
        match way {
            Way::Drop => self.rename_in(&given)?,
            Way::Give => self.hand_in(&given)?,
            Way::Ready => self.put(&given)?,
        }
        // XFS that was shut down answers an fsync of a directory with success, which no disk without
        // power can: only if a file can still be synced did the answer come from a living one.
        RealFs.sync_file(&self.near.join(ALIVE))?;
        self.log.acknowledge(&given.name)?;
        Ok(())
    }

    fn text(&mut self, ask: Ask) -> String {
        let mut text = match ask {
            Ask::Nothing => "plain".to_owned(),
            Ask::Hold => "hold".to_owned(),
            Ask::Defer => format!("defer {}", now() + 1 + self.dice.next() % 2),
            Ask::Sleep => format!("sleep {}", 20 + self.dice.next() % 60),
            Ask::Die => "die".to_owned(),
            Ask::Panic => "panic".to_owned(),
        };
        for _ in 0..1 + self.dice.below(40) {
            text.push_str(&format!(" {:016x}", self.dice.next()));
        }
        text.push('\n');
        text
    }

    fn rename_in(&self, given: &Given) -> anyhow::Result<()> {
        let Some(tree) = self.engine.directories() else {
            return self.hand_in(given);
        };
        let near = self.near.join(&given.name);
        let mut file = fs::File::create_new(&near)?;
        file.write_all(given.text.as_bytes())?;
        file.sync_all()?;
        let drop = tree.stage(&given.stage).drop();
        RealFs.rename(&near, &drop.join(&given.name))?;
        RealFs.sync_dir(&drop)?;
        Ok(())
    }

    fn hand_in(&self, given: &Given) -> anyhow::Result<()> {
        let file = self.away.join(&given.name);
        fs::write(&file, &given.text)?;
        let handed = self.engine.give(&given.stage, &file, &Gift::default());
        RealFs.unlink(&file)?;
        handed?;
        Ok(())
    }

    fn put(&self, given: &Given) -> anyhow::Result<()> {
        let id = ParcelId::new(&given.id())?;
        let build = |parcel: &mut NewParcel| {
            parcel.manifest().born = format!("giver-{}", given.name);
            parcel.write(&given.name, given.text.as_bytes())
        };
        self.engine
            .put::<SpoolError>(&given.stage, &id, "file", build)?;
        Ok(())
    }
}

/// Returns where the log of gifts lies.
pub(crate) fn given_log(away: &Path) -> PathBuf {
    away.join("given.jsonl")
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}
