//! Ranges of a generation: where the last one is cut, and the parcels that ask other machines for them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ecluse_cdx::{LineShape, PartedFile, split_points};
use ecluse_generation::{
    BuilderLock, FLAT, FileSum, IndexDirectory, IndexGeneration, LastGeneration, NEW_LINES,
    RangeOrder, RangePart, RangePlan, SummedFile, block_bytes,
};
use ecluse_holding::pieces_of;
use ecluse_spool::{Engine, ParcelPlace, ParcelState, SpoolError};
use ecluse_stage::{Failure, Outbox, Parcel, ParcelId};

use crate::building::{bytes_of, cannot, join};
use crate::{Bigmerge, blame, days, must_not_be_fenced};

/// The stage that builds ranges.
pub(crate) const STAGE: &str = "range";
/// How long to leave a generation alone that others are at work on.
const PAUSE: Duration = Duration::from_secs(10);
/// How often to look whether every range was asked for and somebody builds them.
const LOOK: Duration = Duration::from_secs(10);

/// A generation that is built in ranges.
pub(crate) struct Planned<'a> {
    pub(crate) plan: RangePlan,
    name: ParcelId,
    collection: Option<&'a str>,
    bigmerge: &'a Bigmerge,
}

impl Bigmerge {
    /// Tells whether new days are to be gathered, so that their generation can be built in ranges.
    pub(crate) fn gathers(&self, collection: Option<&str>) -> Result<bool, Failure> {
        // A bad name is told of where the index is needed.
        let Ok(index) = IndexDirectory::of(&self.index, collection) else {
            return Ok(false);
        };
        if self.settings.ranges.get() < 2 {
            return Ok(false);
        }
        let Some(number) = index.current_number().map_err(blame)? else {
            return Ok(false);
        };
        let last = index.describe(number).map_err(blame)?;
        Ok(last.is_some_and(|last| self.can_be_cut(&last)))
    }

    /// Tells whether a generation is large enough, and parts of it can be vouched for.
    fn can_be_cut(&self, last: &IndexGeneration) -> bool {
        let flat = last.file(FLAT);
        flat.is_some_and(|flat| flat.blocks.is_some() && flat.bytes >= self.settings.ranges_from.0)
    }

    /// Returns how the next generation is built in ranges; none: here, and at once. One that was begun is gone on with.
    ///
    /// # Errors
    /// Defers while the next generation is being built of other days.
    pub(crate) fn plan<'a>(
        &'a self,
        (index, collection): (&IndexDirectory, Option<&'a str>),
        lock: &BuilderLock,
        last: Option<&LastGeneration>,
        fresh: &[&Parcel],
        outbox: &Outbox,
    ) -> Result<Option<Planned<'a>>, Failure> {
        let Some(last) = last else { return Ok(None) };
        index
            .drop_plans(lock, |plan| plan.previous == last.number)
            .map_err(blame)?;
        let planned = |plan: RangePlan| {
            Ok(Some(Planned {
                name: plan.name().map_err(Failure::halt)?,
                plan,
                collection,
                bigmerge: self,
            }))
        };
        for plan in index.plans().map_err(blame)? {
            if matches!(fresh, [parcel] if parcel.id() == &plan.parcel) {
                return planned(plan);
            }
            let stage = [self.home.stage.clone()];
            let places = self.home.engine.locate(&stage, &plan.parcel)?;
            let is_alive = |place: &ParcelPlace| place.state != ParcelState::Discarded;
            if places.iter().any(is_alive) {
                let name = plan.name().map_err(Failure::halt)?;
                return Err(Failure::pause(how_far(index, &name, &plan)?, PAUSE));
            }
            let parcel = plan.parcel.as_str();
            tracing::warn!(parcel, "the parcel of a generation in building is gone");
        }
        index.drop_plans(lock, |_| false).map_err(blame)?;
        let described = last.described.as_ref();
        match (fresh, described) {
            ([parcel], Some(described))
                if self.settings.ranges.get() > 1
                    && days::is_gathered(parcel)
                    && self.can_be_cut(described) =>
            {
                let plan = self.make_plan(index, lock, described, parcel, outbox)?;
                plan.map_or(Ok(None), planned)
            }
            _ => Ok(None),
        }
    }

    /// Cuts the last generation and the new lines; none where one key has nearly all lines.
    fn make_plan(
        &self,
        index: &IndexDirectory,
        lock: &BuilderLock,
        last: &IndexGeneration,
        parcel: &Parcel,
        outbox: &Outbox,
    ) -> Result<Option<RangePlan>, Failure> {
        let path = index.generation(last.number).join(FLAT);
        let Some(flat) = last.file(FLAT) else {
            return Ok(None);
        };
        let ranges = self.settings.ranges.get() as usize;
        let splits = split_points(&path, ranges).map_err(Failure::halt)?;
        if splits.is_empty() {
            return Ok(None);
        }
        let number = last.number + 1;
        let begun = index.begin_plan(lock, number).map_err(blame)?;
        let made = (|| {
            let new_path = begun.join(NEW_LINES);
            let pieces = pieces_of(&[parcel], ".cdxj");
            let sum = FileSum::in_blocks(block_bytes(bytes_of(&pieces)));
            let mut out = SummedFile::create(&new_path, sum, outbox.signs())
                .map_err(|error| cannot("make", &new_path, &error))?;
            let options = self.settings.options(LineShape::Capture);
            let joined = join(&pieces, &mut out, &self.temporary, &options, outbox)?;
            let mut new = out
                .finish(NEW_LINES)
                .map_err(|error| cannot("sync", &new_path, &error))?;
            new.lines = Some(joined.lines_written);
            let cut = |path| PartedFile::open(path, &splits).map_err(Failure::halt);
            let plan = RangePlan {
                number,
                previous: last.number,
                parcel: parcel.id().clone(),
                last: ecluse_generation::IndexFile {
                    blocks: None,
                    lines: last.lines_of(FLAT),
                    ..flat.clone()
                },
                last_cuts: cut(&path)?.cuts().to_vec(),
                new,
                new_cuts: cut(&new_path)?.cuts().to_vec(),
                zipnum_lines: self.settings.zipnum.then_some(self.settings.zipnum_lines),
                recheck: self.settings.recheck,
            };
            let name = plan.name().map_err(Failure::halt)?;
            index.show_plan(lock, &begun, &name, &plan).map_err(blame)?;
            Ok(plan)
        })();
        match made {
            Ok(plan) => Ok(Some(plan)),
            Err(failure) => {
                // What is left all the same is removed with the next plan.
                let _ = index.abandon(&begun);
                Err(failure)
            }
        }
    }
}

impl Planned<'_> {
    /// Waits for a part. Others build it, and may be killed: what was lost is asked for again.
    pub(crate) fn wait_for(
        &self,
        index: &IndexDirectory,
        range: usize,
        members: &[&Parcel],
        outbox: &Outbox,
    ) -> Result<(PathBuf, RangePart), Failure> {
        let mut looked: Option<Instant> = None;
        loop {
            if let Some(part) = index.part(&self.name, range).map_err(blame)? {
                return Ok(part);
            }
            if outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            outbox.tick();
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                must_not_be_fenced(members)?;
                self.ask(index)?;
                let how_far = how_far(index, &self.name, &self.plan)?;
                outbox.say(&how_far);
                self.must_be_worked_on(&how_far)?;
                looked = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for every range that is not there and that nobody was asked for, or that was lost.
    fn ask(&self, index: &IndexDirectory) -> Result<(), Failure> {
        let ranges = self.plan.ranges();
        let missing = index.missing_parts(&self.name, ranges).map_err(blame)?;
        if missing.is_empty() {
            return Ok(());
        }
        let engine = &*self.bigmerge.home.engine;
        engine.init(STAGE)?;
        let mut known = HashSet::new();
        engine.each_name(STAGE, &mut |parcel| {
            known.insert(parcel);
        })?;
        for range in missing {
            let id = ParcelId::new(&format!("{}-{range:05}", self.name)).map_err(Failure::halt)?;
            let id = self.not_answered(engine, index, range, id)?;
            let Some(id) = id.filter(|id| !known.contains(id)) else {
                continue;
            };
            let order = RangeOrder {
                collection: self.collection.map(str::to_owned),
                plan: self.name.clone(),
                range,
            };
            let bytes = serde_json::to_vec_pretty(&order).map_err(Failure::halt)?;
            let put = engine.put(STAGE, &id, RangeOrder::KIND, |parcel| {
                parcel.manifest().collection.clone_from(&order.collection);
                parcel.write(RangeOrder::FILE, &bytes)
            });
            match put {
                Ok(_) | Err(SpoolError::Waits { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the name under which a range is to be asked for: who has a receipt for one and made no part, or lost it, is
    /// asked under the next. None where the part came meanwhile.
    fn not_answered(
        &self,
        engine: &dyn Engine,
        index: &IndexDirectory,
        range: usize,
        mut id: ParcelId,
    ) -> Result<Option<ParcelId>, Failure> {
        while engine.receipt(STAGE, &id)?.is_some() {
            if index.part(&self.name, range).map_err(blame)?.is_some() {
                return Ok(None);
            }
            id = id.again();
        }
        Ok(Some(id))
    }

    /// Gives the generation up for a while when no machine builds ranges.
    fn must_be_worked_on(&self, how_far: &str) -> Result<(), Failure> {
        let home = &self.bigmerge.home;
        let workers = home.engine.workers(STAGE, home.shell.lease.0)?;
        if workers.iter().any(|worker| worker.alive) {
            return Ok(());
        }
        let reason = format!(
            "{how_far}, and no machine runs the stage {STAGE}: what was begun is finished so, with `ecluse run {STAGE}`"
        );
        Err(Failure::pause(reason, PAUSE))
    }
}

/// Says how far a generation in building is.
fn how_far(index: &IndexDirectory, name: &ParcelId, plan: &RangePlan) -> Result<String, Failure> {
    let missing = index.missing_parts(name, plan.ranges()).map_err(blame)?;
    let (number, ranges) = (plan.number, plan.ranges());
    let there = ranges - missing.len();
    Ok(format!(
        "generation {number} is being built in ranges: {there} of {ranges} are there"
    ))
}
