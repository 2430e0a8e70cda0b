//! The driver: one command for everything an operator does.
//!
//! It reads the same directories as the stages and moves parcels by the same renames; nothing it
//! shows is kept anywhere else. Each verb is a small file.

mod act;
mod amend;
mod audit;
mod capture;
mod check;
mod cli;
mod close;
mod containers;
mod containers_verb;
mod context;
mod delta;
mod demo;
mod deposits;
mod door;
mod explain;
mod export;
mod find;
mod harvest;
mod harvests;
mod holdings;
mod init;
mod job;
mod job_papers;
mod jobs;
mod life;
mod links;
mod lookup;
mod move_verb;
mod needs;
mod numbers;
mod open;
mod packages;
mod paint;
mod processes;
mod pywb_config;
mod quality;
mod rebuild;
mod rebuild_changes;
mod rebuild_from;
mod rebuild_index;
mod rebuild_links;
mod rebuild_path;
mod rebuild_register;
mod reconcile;
mod register;
mod repair;
mod rights;
mod run;
mod serve;
mod show;
mod simulate;
mod site_captures;
pub mod stages;
mod status;
mod stray;
mod survey;
pub mod units;
mod units_verb;
mod validate;
mod verify;
mod wacz;
mod why;
mod why_url;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use ecluse_stage::{Exit, StageEntry};

use crate::cli::{Cli, HarvestVerb, Verb};
use crate::context::{DriverContext, Trouble};

/// Runs the driver with these stages.
pub fn main(stages: &'static [StageEntry]) -> ExitCode {
    // A stage by the driver's own hand: what `run --processes` starts where no binary lies beside.
    let mut words = std::env::args().skip(1);
    let (first, second) = (words.next(), words.next());
    if first.as_deref() == Some(init::TRY_FILE_SYSTEM)
        && let Some(dir) = &second
    {
        return init::try_file_system(dir);
    }
    if first.as_deref() == Some("stage")
        && let Some(name) = second
        && let Some(entry) = stages.iter().find(|entry| entry.name == name)
    {
        return (entry.main_with)(std::env::args().skip(2).collect());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            };
            return exit.into();
        }
    };
    if cli.json
        && let Some(verb) = cli.verb.without_json()
    {
        let line = format!("--json: `ecluse {verb}` has no answer in JSON");
        return Trouble::usage(line).tell();
    }
    let result = match &cli.verb {
        Verb::Completions { shell } => {
            clap_complete::generate(
                *shell,
                &mut Cli::command(),
                "ecluse",
                &mut std::io::stdout(),
            );
            Ok(Exit::Done.into())
        }
        Verb::Man { out } => init::man(out.as_deref()),
        Verb::Init => init::init(&cli),
        Verb::Check { offline } => {
            check::check(DriverContext::open(&cli, stages), *offline, cli.json)
        }
        verb => DriverContext::open(&cli, stages).and_then(|context| {
            let exit = dispatch(&context, verb)?;
            context.show_told()?;
            Ok(exit)
        }),
    };
    result.unwrap_or_else(|trouble: Trouble| trouble.tell())
}

fn dispatch(context: &DriverContext, verb: &Verb) -> Result<ExitCode, Trouble> {
    match verb {
        Verb::Run(options) => run::run(context, options),
        Verb::Status(options) => status::status(context, options),
        Verb::Harvest(options) => match &options.verb {
            Some(HarvestVerb::Check(options)) => harvests::check(context, options),
            None => harvest::harvest(context, options),
        },
        Verb::Harvests => harvests::harvests(context),
        Verb::Plan(options) => harvests::plan(context, options),
        Verb::Demo(options) => demo::demo(context, options),
        Verb::Why(options) => match &options.job {
            Some(job) => explain::explain(context, &options.what, job),
            None if why_url::is_url(&options.what) => why_url::why_url(context, &options.what),
            None => why::why(context, &options.what),
        },
        Verb::Jobs(options) => jobs::list(context, options),
        Verb::Job(verb) => job::job(context, verb),
        Verb::Amend(options) => amend::amend(context, options),
        Verb::Find { terms } => find::find(context, terms),
        Verb::Lookup(options) => lookup::lookup(context, options),
        Verb::Links(options) => links::links(context, options),
        Verb::Register(options) => register::register(context, options),
        Verb::Delta(options) => delta::delta(context, options),
        Verb::Quality(options) => quality::quality(context, options),
        Verb::Show(options) => capture::show(context, options),
        Verb::Serve(options) => serve::serve(context, options),
        Verb::Give(options) => act::give(context, options),
        Verb::Retry(choice) => act::each(context, act::Deed::Retry, choice),
        Verb::Hold(choice) => act::each(context, act::Deed::Hold, choice),
        Verb::Release(choice) => act::each(context, act::Deed::Release, choice),
        Verb::Discard(choice) => act::each(context, act::Deed::Discard, choice),
        Verb::Pause(options) => act::pause(context, options),
        Verb::Resume(options) => act::resume(context, options),
        Verb::Deposits(options) => deposits::deposits(context, options),
        Verb::Export(options) => export::export(context, options),
        Verb::Validate(options) => validate::validate(context, options),
        Verb::Verify(options) => verify::verify(context, options),
        Verb::Rebuild(options) => match (&options.what, &options.from) {
            (Some(cli::Rebuilt::Manifest), _) => rebuild::rebuild(context, options),
            (Some(cli::Rebuilt::Path), _) => rebuild_path::rebuild(context, options),
            (Some(cli::Rebuilt::Index), _) => rebuild_index::rebuild(context, options),
            (Some(cli::Rebuilt::Register), _) => rebuild_register::rebuild(context, options),
            (Some(cli::Rebuilt::Changes), _) => rebuild_changes::rebuild(context, options),
            (Some(cli::Rebuilt::Links), _) => rebuild_links::rebuild(context, options),
            (None, Some(from)) => rebuild_from::rebuild(context, options, from),
            (None, None) => Err(Trouble::usage(
                "rebuild what? manifest, path, index, or --from PACKAGES",
            )),
        },
        Verb::Move(options) => move_verb::move_stages(context, options),
        Verb::Reconcile {
            stages,
            collect: false,
            dry_run: _,
        } => reconcile::reconcile(context, stages),
        Verb::Reconcile {
            stages: _,
            collect: true,
            dry_run,
        } => reconcile::collect(context, *dry_run),
        Verb::Repair(options) => repair::repair(context, options),
        Verb::Units(options) => units_verb::units(context, options),
        Verb::Config => {
            context.print(&context.pipeline.effective())?;
            Ok(Exit::Done.into())
        }
        Verb::Init | Verb::Check { .. } | Verb::Completions { .. } | Verb::Man { .. } => {
            Ok(Exit::Done.into())
        }
    }
}
