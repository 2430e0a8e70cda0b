//! `ecluse move`: moves stages from one engine to the other, one after the other, while the others work.

use std::process::ExitCode;
use std::time::Duration;

use ecluse_config::Level;
use ecluse_spool::{EngineSide, Movable, MoveRound, Signs, WorkerTerms};
use ecluse_stage::{Exit, limits_of};
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::MoveOptions;
use crate::context::{DriverContext, Trouble};
use crate::show;

/// How long is waited before those who have a parcel in hand are looked at again.
const WAIT: Duration = Duration::from_millis(300);

pub(crate) fn move_stages(
    context: &DriverContext,
    options: &MoveOptions,
) -> Result<ExitCode, Trouble> {
    let Some(movable) = context.engine.movable() else {
        let reason = "set it to true, with the servers and the bucket, and start the stages again: \
                      only then do they know of both engines";
        let problem = context
            .pipeline
            .problem(Level::Error, "engine.moving", reason);
        return Err(Trouble::new(Exit::Config, problem));
    };
    if options.act.why.is_none() && !options.act.dry_run {
        return Err(Trouble::usage("move needs --why \"…\""));
    }
    for stage in &options.stages {
        context.known_stage(stage)?;
    }
    let all = context.stages()?;
    let stages = match options.stages.as_slice() {
        [] => all.clone(),
        named => named.to_vec(),
    };
    let to = options.to.side();
    let mut exit = Exit::Done;
    for stage in &stages {
        if options.act.dry_run {
            would_move(context, movable, stage, to)?;
            continue;
        }
        if move_one(context, movable, stage, to, options.act.why.as_deref())? > 0 {
            exit = Exit::Held;
        }
    }
    if !options.act.dry_run {
        say_what_is_next(context, movable, &all, to)?;
    }
    Ok(exit.into())
}

fn would_move(
    context: &DriverContext,
    movable: &dyn Movable,
    stage: &str,
    to: EngineSide,
) -> Result<(), Trouble> {
    let standing = movable.standing(stage)?;
    let parcels = movable.count(stage, to.other())?;
    let is_there = standing.home == to && !standing.is_moving;
    let line = match is_there {
        true => format!("{stage} is on {}", to.word()),
        false => format!(
            "would move {stage} to {}, with {}",
            to.word(),
            parcels_text(parcels)
        ),
    };
    let value = json!({
        "stage": stage, "to": to.word(), "parcels": parcels, "outcome": "dry run", "is-there": is_there,
    });
    context.tell(&line, value)
}

/// Moves one stage; returns how many parcels had to be left.
fn move_one(
    context: &DriverContext,
    movable: &dyn Movable,
    stage: &str,
    to: EngineSide,
    why: Option<&str>,
) -> Result<usize, Trouble> {
    let before = movable.standing(stage)?;
    let is_there = before.home == to && !before.is_moving;
    if !is_there {
        movable.begin_move(stage, to, &audit::who(), why.unwrap_or_default())?;
        let line = format!(
            "{stage} moves to {}: it takes no work until it is there",
            to.word()
        );
        say(context, &line)?;
    }
    let moved = carry(context, movable, stage)?;
    for (parcel, reason) in &moved.left {
        context.say_to_all(&format!("{stage}: {parcel} stays, held: {reason}"))?;
    }
    let line = match is_there {
        true => format!("{stage} is on {}", to.word()),
        false => format!(
            "{stage} is on {} now, with {} and {}",
            to.word(),
            parcels_text(moved.parcels),
            show::count(
                usize::try_from(moved.receipts).unwrap_or(usize::MAX),
                "receipt",
                "receipts"
            )
        ),
    };
    let value = json!({
        "stage": stage, "to": to.word(), "parcels": moved.parcels, "receipts": moved.receipts,
        "left": moved.left.iter().map(|(parcel, _)| parcel).collect::<Vec<_>>(), "outcome": "done",
    });
    context.tell(&line, value)?;
    if !is_there {
        let line = Line {
            verb: "move",
            stage,
            parcel: None,
            why,
            outcome: to.word(),
        };
        audit::write(context, &line)?;
    }
    Ok(moved.left.len())
}

/// Carries what a stage holds until all of it is there.
fn carry(
    context: &DriverContext,
    movable: &dyn Movable,
    stage: &str,
) -> Result<MoveRound, Trouble> {
    let limits = limits_of(&context.pipeline.shell(stage));
    let terms = WorkerTerms {
        stage,
        next: &[],
        limits: &limits,
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut sum = MoveRound::default();
    let mut told = None;
    loop {
        let round = movable.move_on(&terms, &Signs::default(), &mut |_| Ok(()))?;
        sum.parcels += round.parcels;
        sum.receipts = round.receipts;
        sum.left.extend(round.left);
        if round.is_done {
            return Ok(sum);
        }
        let waits_for = match round.is_busy {
            true => format!("{stage}: another process is at it"),
            false => format!(
                "{stage}: {} still in hand; starting its workers again makes them give back what they have",
                parcels_text(round.remaining)
            ),
        };
        if told.as_ref() != Some(&waits_for) && (round.is_busy || round.remaining > 0) {
            say(context, &waits_for)?;
            told = Some(waits_for);
        }
        std::thread::sleep(WAIT);
    }
}

/// Says what is to be written into the settings when all stages are there, or that some are not.
fn say_what_is_next(
    context: &DriverContext,
    movable: &dyn Movable,
    all: &[String],
    to: EngineSide,
) -> Result<(), Trouble> {
    let mut elsewhere = Vec::new();
    let mut strays = 0;
    for stage in all {
        let standing = movable.standing(stage)?;
        if standing.home != to || standing.is_moving {
            elsewhere.push(stage.as_str());
        }
        strays += movable.count(stage, to.other())?;
    }
    let word = to.word();
    if !elsewhere.is_empty() {
        return say(context, &format!("not on {word}: {}", elsewhere.join(", ")));
    }
    if strays > 0 {
        return say(
            context,
            &format!("{} not on {word} yet", parcels_text(strays)),
        );
    }
    say(
        context,
        &format!(
            "all stages are on {word}: write kind = \"{word}\" and moving = false into [engine], and start the stages again"
        ),
    )
}

/// Says something on the way, but not into an answer as JSON.
fn say(context: &DriverContext, line: &str) -> Result<(), Trouble> {
    match context.json {
        true => Ok(()),
        false => context.say(line),
    }
}

fn parcels_text(count: u64) -> String {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    show::count(count, "parcel", "parcels")
}
