//! An earlier harvest of the same site that is not finished, and was asked for with other words than this one.
//!
//! Two harvests of one site side by side are never what somebody wants: the earlier one is finished as it was ordered, changed, or
//! ended, and whoever asks says which.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use ecluse_crawl::{Crawl, END_FILE, JobStatus};
use ecluse_scope::Order;
use ecluse_spool::{ParcelPlace, ParcelState, Paused};
use ecluse_stage::{Exit, Stage};

use super::draft::Draft;
use super::run::{HarvestRun, harvest_of, take_up};
use crate::audit;
use crate::cli::Unfinished;
use crate::context::{DriverContext, Trouble};
use crate::job;

/// Where a job has its order as it came, and as it was changed.
const ORDERS: [&str; 2] = ["order.toml", "order-given.toml"];

/// Does with an earlier harvest what is asked for; returns it if it goes on.
pub(crate) fn settle(
    context: &DriverContext,
    draft: &Draft,
) -> Result<Option<HarvestRun>, Trouble> {
    let mut newest: Option<ParcelPlace> = None;
    context.engine.each_place(Crawl::NAME, &mut |place| {
        let is_of_job = harvest_of(draft, place.parcel.as_str()).is_some();
        let is_newer = newest
            .as_ref()
            .is_none_or(|newest| newest.parcel < place.parcel);
        if is_of_job && place.state != ParcelState::Discarded && is_newer {
            newest = Some(place);
        }
    })?;
    let Some(place) = newest else {
        return Ok(None);
    };
    must_not_be_at_work(context, &place)?;
    let dir = context.jobs_dir()?.join(place.parcel.as_str());
    let how = match draft.unfinished {
        Some(how) => how,
        None => ask(context, &place, &dir)?,
    };
    match how {
        Unfinished::GoOn => {}
        Unfinished::Amend => amend(context, draft, &place, &dir)?,
        Unfinished::Drop => return end(context, &place, &dir).map(|()| None),
    }
    take_up(context, &place)?;
    Ok(
        harvest_of(draft, place.parcel.as_str()).map(|harvest| HarvestRun {
            job: draft.job.clone(),
            harvest: harvest.to_owned(),
            goes_on: true,
        }),
    )
}

fn must_not_be_at_work(context: &DriverContext, place: &ParcelPlace) -> Result<(), Trouble> {
    let lease = context.pipeline.shell(Crawl::NAME).lease.0;
    let workers = context.engine.workers(Crawl::NAME, lease)?;
    let lives = |worker: &String| workers.iter().any(|one| one.alive && one.id == *worker);
    if !place.worker.as_ref().is_some_and(lives) {
        return Ok(());
    }
    let parcel = &place.parcel;
    Err(Trouble::usage(format!(
        "{parcel} is at work: `{}` changes it, `{} --why …` ends it",
        context.command(&format!("amend {parcel} FILE")),
        context.command(&format!("job end {parcel}"))
    )))
}

/// Asks whoever sits at a terminal; elsewhere the command must say it.
fn ask(context: &DriverContext, place: &ParcelPlace, dir: &Path) -> Result<Unfinished, Trouble> {
    let status = JobStatus::read(dir).ok().flatten().unwrap_or_default();
    let how_far = format!(
        "{} done, {} queued",
        crate::show::count(status.done, "URL", "URLs"),
        status.queued
    );
    let parcel = &place.parcel;
    let is_asked = io::stdin().is_terminal() && io::stderr().is_terminal() && !context.json;
    if !is_asked {
        return Err(Trouble::usage(format!(
            "{parcel} is not finished ({how_far}) and was asked for with other options; say\n  \
             --unfinished go-on   to finish it as it was ordered\n  \
             --unfinished amend   to go on with the options of this command\n  \
             --unfinished drop    to end it, keep what it has, and begin anew"
        )));
    }
    eprintln!(
        "{parcel} is not finished ({how_far}) and was asked for with other options:\n  \
         g  go on with it as it was ordered\n  a  go on with it, with the options of this command\n  \
         d  end it, keep what it has, and begin anew\n  q  do nothing"
    );
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "g" => return Ok(Unfinished::GoOn),
            "a" => return Ok(Unfinished::Amend),
            "d" => return Ok(Unfinished::Drop),
            "q" => break,
            _ => eprint!("g, a, d or q? "),
        }
        io::stderr().flush()?;
    }
    Err(Trouble::new(Exit::Usage, "nothing was done"))
}

/// Gives the job the options of this command; its seeds stay.
fn amend(
    context: &DriverContext,
    draft: &Draft,
    place: &ParcelPlace,
    dir: &Path,
) -> Result<(), Trouble> {
    let text = ORDERS
        .iter()
        .find_map(|name| std::fs::read_to_string(dir.join(name)).ok());
    let Some(text) = text else {
        return Err(Trouble::usage(format!(
            "{} has not begun and cannot be changed: --unfinished drop takes its place",
            place.parcel
        )));
    };
    let contact = &context.pipeline.site.contact;
    let changes = draft.without_seeds();
    Order::parse(&text, "its order", contact)
        .and_then(|given| given.order.amend(changes, "this command", contact))
        .map_err(Trouble::usage)?;
    let name = crate::amend::name_now();
    Ok(job::put(dir, &name, changes.as_bytes())?)
}

/// Ends a job that has begun, with its files and reports; takes out an order that has not.
fn end(context: &DriverContext, place: &ParcelPlace, dir: &Path) -> Result<(), Trouble> {
    let why = "another harvest of this site was asked for";
    if !ORDERS.iter().any(|name| dir.join(name).exists()) {
        context.engine.discard(place, why, &audit::who())?;
        return Ok(());
    }
    let told = Paused {
        who: audit::who(),
        when: jiff::Timestamp::now().to_string(),
        why: why.to_owned(),
    };
    let told = serde_json::to_vec(&told).map_err(io::Error::from)?;
    job::put(dir, END_FILE, &told)?;
    take_up(context, place)
}
