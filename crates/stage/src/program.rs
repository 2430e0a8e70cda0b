//! The program of a stage: its command line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ecluse_config::{LogFormat, Pipeline};
use ecluse_telemetry as telemetry;

use crate::control::Control;
use crate::entry::StageEntry;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::stage::Stage;
use crate::supervise::{RunPlan, supervise};

/// Runs a stage as a program of its own.
pub fn main<Kind: Stage + 'static>() -> ExitCode {
    main_with::<Kind>(std::env::args().collect())
}

/// Runs a stage with these arguments, the first being the program's name.
pub(crate) fn main_with<Kind: Stage + 'static>(arguments: Vec<String>) -> ExitCode {
    let mut entry = StageEntry::of::<Kind>();
    let matches = match command(&entry).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    let root = matches
        .get_one::<PathBuf>("root")
        .cloned()
        .unwrap_or_default();
    let asked = matches.get_one::<PathBuf>("config").cloned();
    let config = Pipeline::locate(asked.as_deref(), &root);
    let pipeline = match Pipeline::load(config.as_deref()) {
        Ok(pipeline) => pipeline,
        Err(error) => return complain(Exit::Config, &error.to_string()),
    };
    if let Err(failure) = entry.must_be_sound(&pipeline, &root) {
        return complain(failure.exit(), &failure.reason);
    }
    if let Some(machine) = matches.get_one::<String>("instance") {
        entry = match entry.at(machine) {
            Ok(entry) => entry,
            Err(failure) => return complain(Exit::Usage, &failure.reason),
        };
    }
    if matches.get_flag("check") {
        let mut problems = (entry.check)(&pipeline, &root);
        problems.extend((entry.try_out)(&pipeline, &root));
        for problem in problems {
            complain(Exit::Done, &problem.to_string());
        }
        return Exit::Done.into();
    }
    if let Ok(Some(files)) = matches.try_get_many::<PathBuf>("files") {
        let files: Vec<PathBuf> = files.cloned().collect();
        let reports = matches.try_get_one::<PathBuf>("reports").ok().flatten();
        return filter::<Kind>(&pipeline, &files, reports.map(PathBuf::as_path));
    }
    if entry.filter.is_some() && is_filter(&matches) {
        return filter::<Kind>(&pipeline, &[PathBuf::from("-")], None);
    }
    if matches.get_flag("dry-run") {
        return dry_run(&entry, &root, &pipeline);
    }
    let log = match start_log(
        &pipeline,
        matches.get_one::<String>("log"),
        &format!("ecluse-{}", entry.name),
    ) {
        Ok(log) => log,
        Err(failure) => return complain(failure.exit(), &failure.reason),
    };
    let once = matches.get_flag("once");
    let control = Arc::new(Control::new(pipeline));
    let plan = RunPlan {
        root,
        config,
        once,
        version: env!("CARGO_PKG_VERSION"),
        progress: None,
        log: Some(log),
    };
    let workers = matches.get_one::<u32>("workers").copied();
    let host = matches.get_one::<String>("host").cloned();
    match supervise(plan, &control, &[entry], workers, host) {
        Ok(ended) => {
            if let Some(why) = ended.halted.as_ref().or(ended.blocked.as_ref()) {
                return complain(ended.exit(), why);
            }
            ended.exit().into()
        }
        Err(failure) => complain(failure.exit(), &failure.reason),
    }
}

/// Tells whether something is piped into a program that is told nothing of a stage to run. Services have no input, or
/// `/dev/null`; cron gives its programs a pipe, but these say `--once` or `--root`.
fn is_filter(matches: &ArgMatches) -> bool {
    const OF_A_RUN: [&str; 6] = ["root", "once", "dry-run", "workers", "instance", "host"];
    let is_said = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    if OF_A_RUN.iter().any(is_said) {
        return false;
    }
    let kind = rustix::fs::fstat(std::io::stdin())
        .map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(kind) if kind.is_fifo() || kind.is_file())
}

/// Works on files named on the command line; what comes out goes to standard output.
fn filter<Kind: Stage>(pipeline: &Pipeline, files: &[PathBuf], reports: Option<&Path>) -> ExitCode {
    let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    let worked = pipeline
        .stage_settings::<Kind::Settings>(Kind::NAME)
        .map_err(Failure::config)
        .and_then(|settings| match reports {
            Some(reports) => Kind::filter_with_reports(settings, files, &mut out, reports),
            None => Kind::filter(settings, files, &mut out),
        });
    // What was written before a failure is good: it goes out first.
    let flushed = out.flush();
    match (worked, flushed) {
        (_, Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done.into(),
        (Ok(_), Err(error)) => complain(Exit::Machine, &format!("cannot write: {error}")),
        (Ok(exit), Ok(())) => exit.into(),
        (Err(failure), _) => complain(failure.exit(), &failure.reason),
    }
}

fn command(entry: &StageEntry) -> Command {
    let mut command = plain_command(entry);
    if let Some(about) = entry.filter {
        command = command.arg(
            Arg::new("files")
                .value_name("FILE")
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .help(about),
        );
    }
    if let Some(about) = entry.filter_reports {
        command = command.arg(
            Arg::new("reports")
                .long("reports")
                .value_name("NEW-DIR")
                .requires("files")
                .value_parser(value_parser!(PathBuf))
                .help(about),
        );
    }
    command
}

fn plain_command(entry: &StageEntry) -> Command {
    Command::new(entry.name)
        .bin_name(format!("ecluse-{}", entry.name))
        .display_name(format!("ecluse-{}", entry.name))
        .version(env!("CARGO_PKG_VERSION"))
        .about(entry.about)
        .arg(
            Arg::new("root")
                .long("root")
                .env("ECLUSE_ROOT")
                .value_name("DIR")
                .default_value(".")
                .value_parser(value_parser!(PathBuf))
                .help("The archive's directory"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .env("ECLUSE_CONFIG")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The settings file (default: pipeline.toml in the archive's directory, if there is one)"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Stops when nothing is left to do"),
        )
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Says what is wrong with the settings on this machine, and touches nothing"),
        )
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .short('n')
                .action(ArgAction::SetTrue)
                .help("Says what waits, and touches nothing"),
        )
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=1024))
                .help("Workers, instead of the settings' number"),
        )
        .arg(
            Arg::new("log")
                .long("log")
                .env("ECLUSE_LOG")
                .value_name("LEVEL")
                .help("What is logged: error, warn, info, debug, trace"),
        )
        .arg(
            Arg::new("instance")
                .long("instance")
                .value_name("MACHINE")
                .help(
                    "Works in work/<stage>@<MACHINE>, where another stage's `next` sends its share",
                ),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .env("ECLUSE_HOST")
                .value_name("NAME")
                .help("The name this host goes by in leases, where host names are not unique"),
        )
        .after_help(exit_help())
}

fn exit_help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (exit, meaning) in Exit::TABLE {
        text.push_str(&format!("  {:>2}  {meaning}\n", exit as u8));
    }
    text
}

fn dry_run(entry: &StageEntry, root: &std::path::Path, pipeline: &Pipeline) -> ExitCode {
    let depths = match crate::engine::looking_engine(pipeline, root, entry.name)
        .and_then(|engine| Ok(engine.depths(entry.name)?))
    {
        Ok(depths) => depths,
        Err(failure) => return complain(failure.exit(), &failure.reason),
    };
    let next = pipeline.next_of(entry.name);
    let to = if next.is_empty() {
        "nowhere".to_owned()
    } else {
        next.join(", ")
    };
    let line = format!(
        "would take {} waiting and {} dropped, and send results to {to}; {} deferred, {} held\n",
        depths.ready, depths.dropped, depths.deferred, depths.held
    );
    let _ = std::io::stdout().write_all(line.as_bytes());
    Exit::Done.into()
}

/// Starts the log as the settings and the command line say.
pub fn start_log(
    pipeline: &Pipeline,
    level: Option<&String>,
    identifier: &str,
) -> Result<telemetry::log::Handle, Failure> {
    let format = match pipeline.log.format {
        LogFormat::Auto => telemetry::log::LogOutput::Auto,
        LogFormat::Journald => telemetry::log::LogOutput::Journald,
        LogFormat::Json => telemetry::log::LogOutput::Json,
        LogFormat::Text => telemetry::log::LogOutput::Text,
    };
    let options = telemetry::log::LogOptions {
        format,
        filter: level.map_or_else(|| pipeline.log.level.as_str().to_owned(), Clone::clone),
        identifier: identifier.to_owned(),
        journal_stream: std::env::var("JOURNAL_STREAM").ok(),
        color: std::env::var_os("NO_COLOR").is_none(),
    };
    let handle = telemetry::log::init(&options).map_err(Failure::config)?;
    // A panic is caught and told as a failure of its parcel; its backtrace is no operator's business.
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a piece of work crashed");
    }));
    Ok(handle)
}

fn complain(exit: Exit, reason: &str) -> ExitCode {
    // One mistake a line: line ends are ours, everything else may come from outside.
    for line in reason.lines() {
        let shown = telemetry::printable(line.as_bytes());
        let _ = writeln!(std::io::stderr(), "{shown}");
    }
    exit.into()
}
