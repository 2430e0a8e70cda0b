//! `ecluse why`: the life of one file, what happens next, and what can be done.

use std::process::ExitCode;

use ecluse_manifest::Damage;
use ecluse_spool::{Filed, ParcelId, ParcelPlace, ParcelState};
use ecluse_stage::Exit;
use ecluse_telemetry::printable_text;

use crate::act::Deed;
use crate::context::{DriverContext, Trouble, stem_of};
use crate::life::deed;
use crate::needs::Help;
use crate::show;
use crate::survey::Condition;

pub(crate) fn why(context: &DriverContext, what: &str) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let id = identify(context, what)?;
    let stages = context.stages()?;
    let places = context.engine.locate(&stages, &id)?;
    let life = context.life(&id)?;
    if places.is_empty() && life.is_empty() {
        return Err(Trouble::usage(format!(
            "no parcel {what:?}, and no receipt of one"
        )));
    }
    if context.json {
        let receipts: Vec<_> = life.iter().map(|filed| &filed.receipt).collect();
        context.print_json(serde_json::json!({
            "parcel": id,
            "places": places,
            "receipts": receipts,
            "held": places.iter().find_map(|place| context.engine.why(place).ok().flatten()),
        }))?;
        return Ok(Exit::Done.into());
    }
    let mut text = format!("{id}\n");
    for place in &places {
        describe(context, place, &mut text)?;
    }
    if places.is_empty() {
        text.push_str("  is in no stage: it went through the chain\n");
    }
    text.push_str("\n  its life\n");
    for filed in &life {
        let receipt = &filed.receipt;
        text.push_str(&format!(
            "    {}  {:<10} {}\n",
            show::local(&receipt.finished),
            receipt.stage,
            deed(receipt)
        ));
        text.push_str(&format!(
            "      {} on {}, attempt {}, receipt {}\n",
            receipt.work,
            receipt.worker,
            receipt.attempt,
            &filed.digest[..16]
        ));
    }
    if life.is_empty() {
        text.push_str("    no stage has finished it yet\n");
    }
    damage(&life, &mut text);
    for place in &places {
        next_and_help(context, place, &mut text)?;
    }
    let shown: Vec<String> = text.lines().map(printable_text).collect();
    context.print(&format!("{}\n", shown.join("\n")))?;
    Ok(Exit::Done.into())
}

/// Returns the one parcel meant.
fn identify(context: &DriverContext, what: &str) -> Result<ParcelId, Trouble> {
    let places = match context.places(what) {
        Ok(places) => places,
        // No number that was shown: a name may begin with one. To look is no risk.
        Err(trouble) => {
            let named = context.named(what)?;
            if named.is_empty() {
                return Err(trouble);
            }
            named
        }
    };
    let mut names: Vec<ParcelId> = places.into_iter().map(|place| place.parcel).collect();
    names.sort();
    names.dedup();
    if let [one] = names.as_slice() {
        return Ok(one.clone());
    }
    if names.len() > 1 {
        let some: Vec<&str> = names.iter().take(5).map(ParcelId::as_str).collect();
        return Err(Trouble::usage(format!(
            "{what:?} may be {} …; say more of it",
            some.join(", ")
        )));
    }
    let stages = context.stages()?;
    if let Ok(id) = ParcelId::new(what) {
        for stage in &stages {
            if context.engine.receipt(stage, &id)?.is_some() {
                return Ok(id);
            }
        }
    }
    let stem = stem_of(what)?;
    // Finished and gone: its name may be the beginning of one that a receipt knows.
    let mut known = std::collections::BTreeSet::new();
    context.engine.each_finished(&stages, &mut |_, name| {
        if name.starts_with(&stem) && known.len() < 6 {
            known.extend(ParcelId::new(name).ok());
        }
    })?;
    if let Some(first) = known.first().cloned()
        && known
            .iter()
            .all(|id| id.as_str().starts_with(first.as_str()))
    {
        return Ok(first);
    }
    match known.len() {
        0 => Err(Trouble::usage(format!(
            "no parcel {what:?}, and no receipt of one"
        ))),
        _ => {
            let some: Vec<&str> = known.iter().map(ParcelId::as_str).collect();
            Err(Trouble::usage(format!(
                "{what:?} may be {} …; say more of it",
                some.join(", ")
            )))
        }
    }
}

fn describe(
    context: &DriverContext,
    place: &ParcelPlace,
    text: &mut String,
) -> Result<(), Trouble> {
    text.push_str(&format!("  is {} in {}", place.state.word(), place.stage));
    if let Some(worker) = &place.worker {
        text.push_str(&format!(", claimed by {worker}"));
    }
    let tries = if place.attempts == 1 {
        "attempt"
    } else {
        "attempts"
    };
    text.push_str(&format!(", {} {tries} begun\n", place.attempts));
    if let Ok(manifest) = context.engine.manifest(place) {
        for (what, value) in [
            ("original name", manifest.original.clone()),
            ("harvest", manifest.harvest.clone()),
            ("job", manifest.job.clone()),
            (
                "does over",
                manifest.replaces.as_ref().map(ToString::to_string),
            ),
        ] {
            if let Some(value) = value {
                text.push_str(&format!("  {what} {value}\n"));
            }
        }
        for file in &manifest.files {
            text.push_str(&format!(
                "  {}  {}  sha256 {}\n",
                file.name,
                show::bytes(file.bytes),
                file.sha256
            ));
        }
    }
    Ok(())
}

/// Tells what of the file could not be read, as the last indexing found it.
fn damage(life: &[Filed], text: &mut String) {
    let facts = life.iter().rev().map(|filed| &filed.receipt.facts);
    let Some((count, facts)) = facts
        .filter_map(|facts| Some((facts.get("damages")?.as_u64()?, facts)))
        .next()
    else {
        return;
    };
    if count == 0 {
        return;
    }
    let list: Vec<Damage> = facts
        .get("damage")
        .and_then(|list| serde_json::from_value(list.clone()).ok())
        .unwrap_or_default();
    let places = if count == 1 { "place" } else { "places" };
    text.push_str(&format!(
        "\n  damaged in {count} {places}; the rest can be read\n"
    ));
    for damage in &list {
        text.push_str(&format!("    {damage}\n"));
    }
    if count > list.len() as u64 {
        text.push_str(&format!("    and {} more\n", count - list.len() as u64));
    }
}

fn next_and_help(
    context: &DriverContext,
    place: &ParcelPlace,
    text: &mut String,
) -> Result<(), Trouble> {
    if let Some(trouble) = context.engine.trouble(place) {
        text.push_str(&format!(
            "\n  last trouble\n    {} (deferred {} since {})\n",
            trouble.reason,
            match trouble.deferrals {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            },
            show::clock(trouble.since)
        ));
    }
    if let Some(why) = context.engine.why(place)? {
        let state = match place.state {
            ParcelState::Discarded => "discarded",
            _ => "held since",
        };
        text.push_str(&format!(
            "\n  {state} {} by {}\n    {}\n",
            show::local(&why.when),
            why.by,
            why.reason.trim_end().replace('\n', "\n    ")
        ));
        if let Some(before) = why.held_for {
            let before = before.trim_end().replace('\n', "\n    ");
            text.push_str(&format!("    it was held for: {before}\n"));
        }
    }
    let next = match (place.state, place.due) {
        (ParcelState::Ready, _) => what_waits_for(context, &place.stage)?,
        (ParcelState::Working, _) => {
            "it is handed over when the work is committed; if its worker dies, it is tried again"
                .into()
        }
        (ParcelState::Deferred, Some(due)) => format!("tried again at {}", show::clock(due)),
        (ParcelState::Deferred, None) => "tried again when due".into(),
        (ParcelState::Held, _) => "nothing until a person decides".into(),
        (ParcelState::Discarded, _) => "nothing: a person took it out of the chain".into(),
    };
    text.push_str(&format!("\n  what happens next\n    {next}\n"));
    let mut help = Vec::new();
    let is_at_fault = place.state == ParcelState::Held
        && Help::of(&place.stage, context.engine.why(place)?.as_ref()) == Help::Discard;
    let mut deeds = [
        (Deed::Release, "release", "lets it be tried again at once"),
        (Deed::Hold, "hold", "sets it aside"),
        (Deed::Discard, "discard", "takes it out of the chain"),
    ];
    if is_at_fault {
        // What can help comes first.
        deeds.reverse();
        deeds[2].2 = "tries it again: it is at fault itself and would be held again";
    }
    for (deed, command, why) in deeds {
        if deed.states().contains(&place.state) {
            let words = format!("{command} {}{}", place.parcel, deed.reason());
            help.push(format!("    {}   {why}\n", context.command(&words)));
        }
    }
    if !help.is_empty() {
        text.push_str(&format!("\n  what you can do\n{}", help.concat()));
    }
    Ok(())
}

/// Says what a waiting parcel of a stage waits for.
fn what_waits_for(context: &DriverContext, stage: &str) -> Result<String, Trouble> {
    let view = context.view(stage)?;
    Ok(match view.state {
        _ if view.is_end => "somebody takes it from here: this is the end of the chain".to_owned(),
        Condition::Ok => format!("the next free worker of {stage} takes it"),
        Condition::Stopped => format!("waits: no worker of {stage} runs"),
        Condition::Halted => format!("waits: {stage} is halted: {}", view.why),
        Condition::Paused | Condition::Blocked | Condition::Silent => {
            format!("waits: {stage}: {}", view.why)
        }
    })
}
