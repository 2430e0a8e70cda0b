//! The parcel that asks the crawl for a harvest: found again if it is unfinished, else made.
//!
//! An order counts as unfinished until its report was written into the job's directory: a command that was killed after the
//! crawl, while files were on their way through the chain, goes on with them instead of crawling again.

use std::ffi::OsStr;
use std::path::PathBuf;

use ecluse_crawl::Crawl;
use ecluse_spool::{
    FileEntry, ParcelId, ParcelManifest, ParcelPlace, ParcelState, SpoolError, WorkerId, digest,
};
use ecluse_stage::{Exit, Stage};

use super::draft::{Draft, ORDER, SEEDS};
use super::earlier;
use crate::context::{DriverContext, Trouble};

/// Where the report of a harvest is kept, in the job's directory.
pub(crate) const REPORT: &str = "harvest.json";
/// What kind of parcel it is.
const KIND: &str = "job-order";

/// A harvest on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HarvestRun {
    pub(crate) job: String,
    pub(crate) harvest: String,
    pub(crate) goes_on: bool,
}

impl HarvestRun {
    /// Returns the name of its parcel and of the job's directory.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.job, self.harvest)
    }

    /// Returns the directory of its job.
    pub(crate) fn dir(&self, context: &DriverContext) -> Result<PathBuf, Trouble> {
        Ok(context.jobs_dir()?.join(self.name()))
    }
}

/// Finds the unfinished harvest of this order, or begins a new one.
pub(crate) fn begin(context: &DriverContext, draft: &Draft) -> Result<HarvestRun, Trouble> {
    if let Some(run) = unfinished(context, draft)? {
        return Ok(run);
    }
    if let Some(run) = earlier::settle(context, draft)? {
        return Ok(run);
    }
    let mut time = jiff::Timestamp::now();
    loop {
        let harvest = time.strftime("%Y%m%d%H%M%S").to_string();
        let run = HarvestRun {
            job: draft.job.clone(),
            harvest,
            goes_on: false,
        };
        let id = id_of(&run.name())?;
        let known = run.dir(context)?.exists()
            || context.engine.receipt(Crawl::NAME, &id)?.is_some()
            || !context
                .engine
                .locate(&[Crawl::NAME.to_owned()], &id)?
                .is_empty();
        if !known {
            match give(context, draft, &run, &id) {
                // Another command was quicker by less than we could see.
                Err(SpoolError::Waits { .. }) => {}
                given => return Ok(given.map(|()| run)?),
            }
        }
        // Two harvests of one second: the later one is a second younger.
        time += jiff::SignedDuration::from_secs(1);
    }
}

/// Finds the newest harvest of this order that has no report yet.
fn unfinished(context: &DriverContext, draft: &Draft) -> Result<Option<HarvestRun>, Trouble> {
    let mut found: Vec<(String, Option<ParcelPlace>)> = Vec::new();
    let mut places = Vec::new();
    context
        .engine
        .each_place(Crawl::NAME, &mut |place| places.push(place))?;
    places.retain(|place| place.state != ParcelState::Discarded);
    for place in places {
        if let Some(harvest) = harvest_of(draft, place.parcel.as_str())
            && let Ok(manifest) = context.engine.manifest(&place)
            && manifest.content() == content_of(draft, harvest)?
        {
            found.push((harvest.to_owned(), Some(place)));
        }
    }
    let jobs = context.jobs_dir()?;
    let mut crawled = Vec::new();
    context.engine.each_receipt(Crawl::NAME, &mut |filed| {
        crawled.extend(filed.receipt.inputs);
    })?;
    for input in crawled {
        let dir = jobs.join(input.parcel.as_str());
        if let Some(harvest) = harvest_of(draft, input.parcel.as_str())
            && dir.is_dir()
            && !dir.join(REPORT).exists()
            && input.content == content_of(draft, harvest)?
        {
            found.push((harvest.to_owned(), None));
        }
    }
    let newest = found.into_iter().max_by(|a, b| a.0.cmp(&b.0));
    let Some((harvest, place)) = newest else {
        return Ok(None);
    };
    if let Some(place) = place {
        take_up(context, &place)?;
    }
    Ok(Some(HarvestRun {
        job: draft.job.clone(),
        harvest,
        goes_on: true,
    }))
}

/// Sees to it that an unfinished order is tried at once. What a worker held is tried again, since somebody asks for it; what a
/// person held stays.
pub(crate) fn take_up(context: &DriverContext, place: &ParcelPlace) -> Result<(), Trouble> {
    match place.state {
        ParcelState::Deferred => Ok(context.engine.release(place)?),
        ParcelState::Held => {
            let why = context.engine.why(place)?;
            let why = match why {
                Some(why) if WorkerId::parse(OsStr::new(&why.by)).is_some() => {
                    return Ok(context.engine.release(place)?);
                }
                Some(why) => format!("{} by {}", why.reason, why.by),
                None => "by hand".to_owned(),
            };
            let command = |verb: &str| context.command(&format!("{verb} {}", place.parcel));
            Err(Trouble::new(
                Exit::Held,
                format!(
                    "this order was given before and is held: {why}\n`{}` lets it go on, `{} --why …` drops it",
                    command("release"),
                    command("discard")
                ),
            ))
        }
        // One whose worker died is put back by the next worker.
        ParcelState::Ready | ParcelState::Working | ParcelState::Discarded => Ok(()),
    }
}

/// Returns the harvest in the name of a parcel of this job.
pub(crate) fn harvest_of<'a>(draft: &Draft, parcel: &'a str) -> Option<&'a str> {
    let (job, harvest) = parcel.rsplit_once('-')?;
    (job == draft.job).then_some(harvest)
}

fn id_of(name: &str) -> Result<ParcelId, Trouble> {
    ParcelId::new(name).map_err(|error| Trouble::usage(format!("{name:?}: {error}")))
}

/// Returns the parcel's files.
fn files_of(draft: &Draft, harvest: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = vec![(ORDER, draft.text(harvest).into_bytes())];
    if let Some(seeds) = &draft.seeds {
        files.push((SEEDS, seeds.clone()));
    }
    files
}

/// Returns the digest of what the order of a harvest says.
fn content_of(draft: &Draft, harvest: &str) -> Result<String, Trouble> {
    let id = id_of(&format!("{}-{harvest}", draft.job))?;
    let mut manifest = ParcelManifest::new(id, KIND, String::new());
    describe(&mut manifest, draft, harvest);
    for (name, bytes) in files_of(draft, harvest) {
        manifest.put(FileEntry {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            sha256: digest(&bytes),
        });
    }
    Ok(manifest.content())
}

fn describe(manifest: &mut ParcelManifest, draft: &Draft, harvest: &str) {
    manifest.job = Some(draft.job.clone());
    manifest.harvest = Some(harvest.to_owned());
}

/// Gives the order to the crawl: all of it is there at once.
fn give(
    context: &DriverContext,
    draft: &Draft,
    run: &HarvestRun,
    id: &ParcelId,
) -> Result<(), SpoolError> {
    let put = context.engine.put(Crawl::NAME, id, KIND, |parcel| {
        describe(parcel.manifest(), draft, &run.harvest);
        let files = files_of(draft, &run.harvest);
        let mut files = files.iter();
        files.try_for_each(|(name, bytes)| parcel.write(name, bytes))
    });
    put.map(drop)
}
