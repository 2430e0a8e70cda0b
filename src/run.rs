//! `ecluse run`: the whole chain in one process, or one process a stage.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ecluse_stage::{Control, Exit, Progress, RunEnd, RunPlan, StageEntry, start_log, supervise};
use ecluse_telemetry::FOOTER;

use crate::cli::RunOptions;
use crate::context::{DriverContext, Trouble};
use crate::processes;
use crate::show;

pub(crate) fn run(context: &DriverContext, options: &RunOptions) -> Result<ExitCode, Trouble> {
    if !context.root.is_dir() {
        // Made here, it would run and wait for work that goes elsewhere.
        let line = format!(
            "no directory {}: `ecluse init` makes it",
            context.root.display()
        );
        return Err(Trouble::usage(line));
    }
    let entries = chosen(context, &options.stages)?;
    for entry in &entries {
        entry.must_be_sound(&context.pipeline, &context.root)?;
    }
    if options.processes {
        return processes::run(context, options, &entries);
    }
    let interactive = std::io::stderr().is_terminal();
    let level = context
        .log
        .clone()
        .or_else(|| (interactive && options.once).then(|| "warn".to_owned()));
    let log = start_log(&context.pipeline, level.as_ref(), "ecluse")?;
    let control = Arc::new(Control::new(context.pipeline.clone()));
    let plan = RunPlan {
        root: context.root.clone(),
        config: context.config.clone(),
        once: options.once,
        version: env!("CARGO_PKG_VERSION"),
        progress: (interactive && !context.quiet).then(progress),
        log: Some(log),
    };
    let host = std::env::var("ECLUSE_HOST").ok();
    let ended = supervise(plan, &control, &entries, options.workers, host)?;
    if interactive && !context.quiet {
        draw(String::new());
    }
    tell(context, &ended)?;
    Ok(ended.exit().into())
}

/// Returns the stages to run: those asked for, else those of the chain that are programs.
pub(crate) fn chosen(
    context: &DriverContext,
    asked: &[String],
) -> Result<Vec<StageEntry>, Trouble> {
    let find = |name: &str| {
        let (stage, machine) = match name.split_once('@') {
            Some((stage, machine)) => (stage, Some(machine)),
            None => (name, None),
        };
        let entry = context.entries.iter().find(|entry| entry.name == stage)?;
        machine.map_or(Some(*entry), |machine| entry.at(machine).ok())
    };
    if !asked.is_empty() {
        return asked
            .iter()
            .map(|name| {
                find(name).ok_or_else(|| {
                    let known: Vec<&str> = context.entries.iter().map(|entry| entry.name).collect();
                    Trouble::usage(format!(
                        "no stage {name:?}; this program has: {}",
                        known.join(", ")
                    ))
                })
            })
            .collect();
    }
    let chain = &context.pipeline.chain.stages;
    let entries: Vec<StageEntry> = chain.iter().filter_map(|name| find(name)).collect();
    if entries.is_empty() {
        return Err(Trouble::new(
            Exit::Config,
            format!(
                "{}: no stage to run: name some in [chain] stages",
                context.pipeline.file()
            ),
        ));
    }
    // The last name may be a place where results are taken from; any other must be a stage.
    let unknown = chain
        .iter()
        .enumerate()
        .find(|(at, name)| find(name).is_none() && at + 1 < chain.len());
    if let Some((_, name)) = unknown {
        return Err(Trouble::new(
            Exit::Config,
            format!(
                "{}: this program has no stage {name:?}",
                context.pipeline.file()
            ),
        ));
    }
    Ok(entries)
}

/// Draws one line again and again: what waits in each stage, and what is done.
fn progress() -> Progress {
    let mut drawn: Option<Instant> = None;
    Box::new(move |pools| {
        if drawn.is_some_and(|at| at.elapsed() < Duration::from_millis(100)) {
            return;
        }
        drawn = Some(Instant::now());
        let parts: Vec<String> = pools
            .iter()
            .map(|pool| {
                let tally = &pool.tally;
                format!(
                    "{} {}/{}",
                    pool.name,
                    tally.done.load(Ordering::Relaxed),
                    tally.done.load(Ordering::Relaxed) + tally.waiting.load(Ordering::Relaxed)
                )
            })
            .collect();
        let line = show::cut(
            &parts.join("  "),
            show::columns(std::io::stderr()).saturating_sub(1),
        );
        draw(line);
    })
}

/// Draws the line; the log comes above it.
fn draw(line: String) {
    let start = "\r".to_owned();
    let _ = FOOTER.draw(&mut std::io::stderr(), "\r", line, start);
}

pub(crate) fn tell(context: &DriverContext, ended: &RunEnd) -> Result<(), Trouble> {
    if context.json {
        return context.print_json(serde_json::json!({
            "done": ended.done,
            "held": ended.held,
            "deferred": ended.deferred,
            "deferred_for": ended.deferred_for,
            "halted": ended.halted,
            "blocked": ended.blocked,
        }));
    }
    let steps = if ended.done == 1 { "step" } else { "steps" };
    let mut line = format!(
        "{} {steps} done, {} held, {} deferred",
        ended.done, ended.held, ended.deferred
    );
    if let Some(why) = ended.halted.as_ref().or(ended.blocked.as_ref()) {
        line.push_str(&format!("; stopped: {why}"));
    } else if let Some(why) = &ended.deferred_for {
        line.push_str(&format!("; tried again later: {why}"));
    } else if ended.held > 0 {
        line.push_str(&format!("; see `{}`", context.command("status")));
    }
    context.say(&line)
}
