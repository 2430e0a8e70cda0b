//! `ecluse harvest`: from a URL to an archive with an index, in one command.
//!
//! It gives the crawl an order and runs the chain in this process until nothing moves. Everything it knows afterwards it reads
//! from the same directories as any other verb.

mod display;
mod draft;
mod earlier;
mod leavings;
mod outcome;
mod report;
mod run;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecluse_config::Pipeline;
use ecluse_stage::{
    Control, Exit, Progress, RunEnd, RunPlan, Stage, StageEntry, WorkerPool, must_have_files,
    start_log, supervise,
};

use crate::cli::HarvestOptions;
use crate::context::{DriverContext, Trouble, underscored};
use crate::open;
use crate::paint::Paint;

use self::display::Display;
pub(crate) use self::draft::{Draft, seeds_of};
use self::leavings::Leavings;
use self::report::{ChainRun, Report};
use self::run::{HarvestRun, REPORT};

/// What differs from the built-in settings in an archive without settings.
const PRIVATE: &str = "[stage.crawl]\nattempts = 1000\n[stage.ingest]\nsettle = \"1s\"\n";
/// How long ingest may take to see a file that was just closed.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the chain is run again for files that nobody has taken in.
const LOOKS: usize = 3;

pub(crate) fn harvest(
    context: &DriverContext,
    options: &HarvestOptions,
) -> Result<ExitCode, Trouble> {
    let draft = Draft::of(context, options)?;
    if let Some(contact) = draft::contact_of(context, options)
        && options.contact.is_none()
    {
        note(
            context,
            &format!("every request says to write to {contact}; --contact names somebody else"),
        );
    }
    let (exit, is_whole) = carry_out(context, &draft)?;
    // Where nothing came of it there is nothing to see.
    if options.open && is_whole {
        open::open(context, &draft.first)?;
    }
    Ok(exit.into())
}

/// Carries out an order and tells what came of it; says whether all of it is done.
pub(crate) fn carry_out(context: &DriverContext, draft: &Draft) -> Result<(Exit, bool), Trouble> {
    let entries = entries(context)?;
    must_have_files()?;
    // A directory that is there when the pools start rings their bell.
    let harvested = context.root.join(context.pipeline.archive.crawled());
    std::fs::create_dir_all(&harvested).map_err(|error| {
        let line = format!("cannot make {}: {error}", harvested.display());
        Trouble::new(Exit::Machine, line)
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // What the stages would say is told at the end, in other words.
    let level = context.log.clone().unwrap_or_else(|| "error".to_owned());
    start_log(&context.pipeline, Some(&level), "ecluse")?;
    let begun = Instant::now();
    let run = run::begin(context, draft)?;
    if run.goes_on {
        note(context, &format!("going on with {}", run.name()));
    }
    let leavings = Leavings::of(context, &run)?;
    let mut ended = run_chain(context, &run, &entries, &stop)?;
    // The chain may look still for a moment while a file that was just closed has not been seen yet.
    for _ in 0..LOOKS {
        let well = ended.halted.is_none() && ended.blocked.is_none();
        if stop.load(Ordering::SeqCst) || !well || !leavings.any()? {
            break;
        }
        let more = run_chain(context, &run, &entries, &stop)?;
        ended = RunEnd {
            done: ended.done + more.done,
            held: ended.held + more.held,
            ..more
        };
    }
    let chain = ChainRun {
        ended: &ended,
        stopped: stop.load(Ordering::SeqCst),
        took: begun.elapsed(),
        first: &draft.first,
    };
    let report = Report::gather(context, &run, &chain)?;
    let whole = report.is_whole(&ended);
    if whole {
        keep(context, &run, &report)?;
    }
    tell(context, &report)?;
    Ok((report.exit(&ended), whole && !report.is_in_vain()))
}

/// Tells something on the way, to whoever watches.
fn note(context: &DriverContext, line: &str) {
    if !context.quiet && std::io::stderr().is_terminal() {
        let line = ecluse_telemetry::printable(line.as_bytes());
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Runs the chain until nothing moves, or until told to stop.
fn run_chain(
    context: &DriverContext,
    run: &HarvestRun,
    entries: &[StageEntry],
    stop: &Arc<AtomicBool>,
) -> Result<RunEnd, Trouble> {
    let display = Display::begin(context, &run.dir(context)?, stop)?;
    let control = Arc::new(Control::new(pipeline(context)?));
    let plan = RunPlan {
        root: context.root.clone(),
        config: context.config.clone(),
        once: true,
        version: env!("CARGO_PKG_VERSION"),
        progress: Some(patiently(display.progress(), Leavings::of(context, run)?)),
        log: None,
    };
    let host = std::env::var("ECLUSE_HOST").ok();
    let ended = supervise(plan, &control, entries, None, host);
    drop(display);
    Ok(ended?)
}

/// Returns the settings. In an archive without any of its own nobody but the crawl puts files into `harvested/`, and it shows
/// each whole: what was there before is at rest sooner. Somebody at a terminal may kill the command as often as they like; a job
/// that kills its worker is known by the crawl itself.
fn pipeline(context: &DriverContext) -> Result<Pipeline, Trouble> {
    if context.config.is_some() {
        return Ok(context.pipeline.clone());
    }
    Pipeline::parse(PRIVATE, "the settings of a harvest")
        .map_err(|error| Trouble::new(Exit::Config, error))
}

/// Lets nothing be taken for the end while a file that the crawl has closed is on its way to ingest.
fn patiently(mut progress: Progress, leavings: Leavings) -> Progress {
    let mut crawled = 0;
    Box::new(move |pools| {
        progress(pools);
        let crawl = pools
            .iter()
            .find(|pool| pool.name == ecluse_crawl::Crawl::NAME);
        let done = crawl.map_or(0, |pool| pool.tally.done.load(Ordering::SeqCst));
        if done == crawled {
            return;
        }
        crawled = done;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && leavings.any().unwrap_or(false) {
            pools.iter().for_each(WorkerPool::wake);
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

/// Returns the stages of the chain but for clean, which looks at the whole archive and not at one harvest.
fn entries(context: &DriverContext) -> Result<Vec<StageEntry>, Trouble> {
    let mut entries = crate::run::chosen(context, &[])?;
    entries.retain(|entry| entry.name != ecluse_clean::Clean::NAME);
    if !entries
        .iter()
        .any(|entry| entry.name == ecluse_crawl::Crawl::NAME)
    {
        return Err(Trouble::new(
            Exit::Config,
            format!("{}: no crawl in [chain] stages", context.pipeline.file()),
        ));
    }
    for entry in &entries {
        entry.must_be_sound(&context.pipeline, &context.root)?;
    }
    Ok(entries)
}

/// Keeps the report beside the job's own: with it the harvest is done, and the same command begins another.
fn keep(context: &DriverContext, run: &HarvestRun, report: &Report) -> Result<(), Trouble> {
    let path = run.dir(context)?.join(REPORT);
    let value = serde_json::to_value(report).map_err(std::io::Error::from)?;
    let text = serde_json::to_vec_pretty(&underscored(value)).map_err(std::io::Error::from)?;
    std::fs::write(&path, text).map_err(|error| {
        let line = format!("cannot write {}: {error}", path.display());
        Trouble::new(Exit::Machine, line)
    })
}

fn tell(context: &DriverContext, report: &Report) -> Result<(), Trouble> {
    if context.json {
        let value = serde_json::to_value(report).map_err(std::io::Error::from)?;
        return context.print_json(value);
    }
    if context.quiet && !report.is_in_vain() {
        return Ok(());
    }
    context.print(&report.in_words(Paint {
        color: context.color,
    }))
}
