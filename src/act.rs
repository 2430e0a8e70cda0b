//! The verbs that change something: each says what it did, and is written to the audit log.

use std::path::Path;
use std::process::ExitCode;

use ecluse_crawl::Crawl;
use ecluse_index::Index;
use ecluse_manifest::FileRow;
use ecluse_spool::{Blocked, Gift, ParcelPlace, ParcelState};
use ecluse_stage::{Exit, Stage, say_blocked};

use serde_json::{Value, json};

use crate::audit::{self, Line};
use crate::cli::{Choice, GiveOptions, StageChoice};
use crate::context::{DriverContext, Trouble};
use crate::door;
use crate::needs::Need;
use crate::show;
use crate::stray;

/// What is done to parcels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Retry,
    Hold,
    Release,
    Discard,
}

impl Deed {
    fn verb(self) -> &'static str {
        match self {
            Deed::Retry => "retry",
            Deed::Hold => "hold",
            Deed::Release => "release",
            Deed::Discard => "discard",
        }
    }

    fn done(self, place: &ParcelPlace) -> String {
        let stage = &place.stage;
        match self {
            Deed::Retry | Deed::Release => format!("waits to be tried again in {stage}"),
            Deed::Hold => format!("is held in {stage}"),
            Deed::Discard => format!("is out of the chain, under work/{stage}/discarded/"),
        }
    }

    /// What a command must say besides: work that stops has a reason.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Deed::Retry | Deed::Release => "",
            Deed::Hold | Deed::Discard => " --why \"…\"",
        }
    }

    /// The states in which it is legal.
    pub(crate) fn states(self) -> &'static [ParcelState] {
        match self {
            Deed::Retry => &[ParcelState::Deferred, ParcelState::Held],
            Deed::Hold => &[ParcelState::Ready, ParcelState::Deferred],
            Deed::Release => &[
                ParcelState::Held,
                ParcelState::Deferred,
                ParcelState::Discarded,
            ],
            Deed::Discard => &[ParcelState::Held, ParcelState::Ready, ParcelState::Deferred],
        }
    }
}

pub(crate) fn each(
    context: &DriverContext,
    deed: Deed,
    choice: &Choice,
) -> Result<ExitCode, Trouble> {
    if !deed.reason().is_empty() && choice.act.why.is_none() && !choice.act.dry_run {
        return Err(Trouble::usage(format!(
            "{} needs{}",
            deed.verb(),
            deed.reason()
        )));
    }
    context.must_be_archive()?;
    let places = chosen(context, deed, choice)?;
    if places.is_empty() {
        return Err(Trouble::usage(
            "nothing fits: `ecluse status` and `ecluse find` show what there is",
        ));
    }
    let mut exit = Exit::Done;
    for place in &places {
        if choice.act.dry_run {
            let line = format!(
                "would {} {} ({} in {})",
                deed.verb(),
                place.parcel,
                place.state.word(),
                place.stage
            );
            context.tell(&line, told(deed, place, "dry run"))?;
            continue;
        }
        let result = carry_out(context, deed, place, choice.act.why.as_deref());
        let outcome = match &result {
            Ok(()) => "done".to_owned(),
            Err(trouble) => trouble.line.clone(),
        };
        audit::write(
            context,
            &Line {
                verb: deed.verb(),
                stage: &place.stage,
                parcel: Some(place.parcel.as_str()),
                why: choice.act.why.as_deref(),
                outcome: &outcome,
            },
        )?;
        match result {
            Ok(()) => {
                let line = format!("{} {}", place.parcel, deed.done(place));
                context.tell(&line, told(deed, place, &outcome))?;
            }
            Err(trouble) => {
                if context.json {
                    context.tell("", told(deed, place, &outcome))?;
                }
                exit = trouble.exit;
                let _ = trouble.tell();
            }
        }
    }
    Ok(exit.into())
}

fn told(deed: Deed, place: &ParcelPlace, outcome: &str) -> Value {
    json!({ "verb": deed.verb(), "stage": place.stage, "parcel": place.parcel, "outcome": outcome })
}

fn carry_out(
    context: &DriverContext,
    deed: Deed,
    place: &ParcelPlace,
    why: Option<&str>,
) -> Result<(), Trouble> {
    let reason = why.unwrap_or("by hand");
    match deed {
        Deed::Retry | Deed::Release => context.engine.release(place)?,
        Deed::Hold => context.engine.hold(place, reason, &audit::who())?,
        Deed::Discard => context
            .engine
            .discard(place, reason, &audit::who())
            .map(drop)?,
    }
    Ok(())
}

/// Finds the parcels meant: by name or number, or all of a stage that fit.
fn chosen(
    context: &DriverContext,
    deed: Deed,
    choice: &Choice,
) -> Result<Vec<ParcelPlace>, Trouble> {
    let mut chosen = Vec::new();
    for word in &choice.parcels {
        if let Ok(number) = word.parse()
            && let need = context.numbered(number)?
            && need.count > 1
        {
            return Err(Trouble::usage(for_all_of(context, deed, number, &need)));
        }
        let places = context.places(word)?;
        let names: std::collections::BTreeSet<_> = places.iter().map(|p| &p.parcel).collect();
        if names.len() > 1 {
            let names: Vec<&str> = names.iter().take(5).map(|id| id.as_str()).collect();
            return Err(Trouble::usage(format!(
                "{word:?} may be {} …; say more of it",
                names.join(", ")
            )));
        }
        let legal: Vec<ParcelPlace> = places
            .iter()
            .filter(|place| deed.states().contains(&place.state))
            .cloned()
            .collect();
        if legal.is_empty() {
            return Err(Trouble::usage(match places.first() {
                Some(place) => format!(
                    "cannot {} {}: it is {} in {}",
                    deed.verb(),
                    place.parcel,
                    place.state.word(),
                    place.stage
                ),
                None => format!("no parcel {word:?} in the chain"),
            }));
        }
        chosen.extend(legal);
    }
    if let Some(stage) = &choice.stage {
        context.known_stage(stage)?;
        if !choice.all && choice.reason.is_none() {
            return Err(Trouble::usage("--stage needs --all or --reason"));
        }
        let mut places = Vec::new();
        context.engine.each_place(stage, &mut |place| {
            if deed.states().contains(&place.state) && place.state != ParcelState::Discarded {
                places.push(place);
            }
        })?;
        for place in places {
            let reason = context.engine.why(&place)?.map(|why| why.reason);
            let trouble = context.engine.trouble(&place).map(|trouble| trouble.reason);
            let fits = choice.reason.as_ref().is_none_or(|part| {
                reason
                    .iter()
                    .chain(&trouble)
                    .any(|reason| show::one_line(reason).contains(part) || reason.contains(part))
            });
            if fits {
                chosen.push(place);
            }
        }
    } else if choice.parcels.is_empty() {
        return Err(Trouble::usage(
            "which? a parcel, a number of `ecluse status`, or --stage S --all",
        ));
    }
    Ok(chosen)
}

/// Says how the deed is done to all that a number stands for, and whether it can help.
fn for_all_of(context: &DriverContext, deed: Deed, number: usize, need: &Need) -> String {
    let Some(choice) = &need.choice else {
        let what = format!("number {number} stands for {} parcels", need.count);
        return format!("{what}: name them one by one");
    };
    let all = |deed: Deed| {
        let words = format!("{} {choice}{}", deed.verb(), deed.reason());
        format!("`{}`", context.command(&words))
    };
    let help = match deed {
        Deed::Retry | Deed::Release if need.is_at_fault => format!(
            "they are at fault themselves and would be held again: {} takes them out of the chain, {} tries all of them again",
            all(Deed::Discard),
            all(deed)
        ),
        _ => format!("for all of them: {}", all(deed)),
    };
    format!("number {number} stands for {} parcels; {help}", need.count)
}

pub(crate) fn give(context: &DriverContext, options: &GiveOptions) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    context.known_stage(&options.stage)?;
    let mut exit = Exit::Done;
    let mut files = options.files.clone();
    if options.lost {
        if ecluse_config::base_of(&options.stage) != Index::NAME {
            return Err(Trouble::usage("--lost gives files to index"));
        }
        let manifest = crate::verify::open(context)?;
        for name in context.stray_files(&manifest)? {
            match stray::copy_of(&manifest, &name)? {
                Some(copy) => files.push(copy),
                None => {
                    exit = Exit::Held;
                    let _ = Trouble::new(exit, format!("{name}: no copy of it is there")).tell();
                }
            }
        }
        if files.is_empty() && exit == Exit::Done {
            context.say("every file that is not in the index yet is on a stage")?;
        }
    }
    for file in &files {
        if let Err(trouble) = give_one(context, options, file) {
            exit = trouble.exit;
            let _ = trouble.tell();
        }
    }
    Ok(exit.into())
}

fn give_one(context: &DriverContext, options: &GiveOptions, file: &Path) -> Result<(), Trouble> {
    let shown = file.display().to_string();
    let row = door::must_fit(context, &options.stage, file)?;
    if options.act.dry_run {
        let line = format!("would give {shown} to {}", options.stage);
        let value = json!({ "file": shown, "stage": options.stage, "outcome": "dry run" });
        return context.tell(&line, value);
    }
    // A file of the archive stays what it is there, in the index of its collection too.
    let known = |of: fn(FileRow) -> Option<String>| row.clone().and_then(of);
    let gift = Gift {
        kind: (options.kind.clone())
            .or_else(|| known(|row| row.kind))
            .unwrap_or_default(),
        harvest: (options.harvest.clone()).or_else(|| known(|row| row.harvest)),
        job: (options.job.clone()).or_else(|| known(|row| row.job)),
        collection: known(|row| row.collection),
        again: options.again || options.lost,
    };
    let id = context.engine.give(&options.stage, file, &gift)?;
    audit::write(
        context,
        &Line {
            verb: "give",
            stage: &options.stage,
            parcel: Some(id.as_str()),
            why: options.act.why.as_deref(),
            outcome: "done",
        },
    )?;
    let again = match context.engine.receipt(&options.stage, &id)? {
        Some(_) => "; it was finished before and will be dropped as a copy (--again does it over)",
        None => "",
    };
    let line = format!("{shown} waits in {} as {id}{again}", options.stage);
    let value = json!({
        "file": shown,
        "stage": options.stage,
        "parcel": id,
        "outcome": "done",
        "finished_before": !again.is_empty(),
    });
    context.tell(&line, value)
}

pub(crate) fn pause(context: &DriverContext, options: &StageChoice) -> Result<ExitCode, Trouble> {
    for stage in stages_of(context, &options.stage)? {
        if options.act.dry_run {
            let value = json!({ "stage": stage, "outcome": "dry run" });
            context.tell(&format!("would pause {stage}"), value)?;
            continue;
        }
        let why = options.act.why.as_deref().unwrap_or("by hand");
        let before = context.engine.paused(&stage)?;
        context.engine.pause(&stage, &audit::who(), why)?;
        note(context, "pause", &stage, options)?;
        let before = before.map_or_else(String::new, |paused| {
            let said = say_blocked(&Blocked::Paused(paused));
            format!("; before this it was {said}")
        });
        let in_hand = match ecluse_config::base_of(&stage) == Crawl::NAME {
            true => "running jobs pause too",
            false => "what is in hand is finished",
        };
        let line = format!("{stage} is paused: {in_hand}, nothing new is taken{before}");
        context.tell(&line, json!({ "stage": stage, "paused": true }))?;
    }
    Ok(Exit::Done.into())
}

pub(crate) fn resume(context: &DriverContext, options: &StageChoice) -> Result<ExitCode, Trouble> {
    for stage in stages_of(context, &options.stage)? {
        if options.act.dry_run {
            let value = json!({ "stage": stage, "outcome": "dry run" });
            context.tell(&format!("would resume {stage}"), value)?;
            continue;
        }
        if context.engine.resume(&stage)? {
            note(context, "resume", &stage, options)?;
            let value = json!({ "stage": stage, "paused": false });
            context.tell(&format!("{stage} takes work again"), value)?;
        } else {
            let value = json!({ "stage": stage, "paused": false, "was_paused": false });
            context.tell(&format!("{stage} was not paused"), value)?;
        }
    }
    Ok(Exit::Done.into())
}

fn note(
    context: &DriverContext,
    verb: &str,
    stage: &str,
    options: &StageChoice,
) -> Result<(), Trouble> {
    audit::write(
        context,
        &Line {
            verb,
            stage,
            parcel: None,
            why: options.act.why.as_deref(),
            outcome: "done",
        },
    )
}

fn stages_of(context: &DriverContext, word: &str) -> Result<Vec<String>, Trouble> {
    context.must_be_archive()?;
    if word == "all" {
        return context.stages();
    }
    context.known_stage(word)?;
    Ok(vec![word.to_owned()])
}
