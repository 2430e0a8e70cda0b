//! `ecluse why URL`: in which runs of which harvests a URL is visited, and why.

use std::process::ExitCode;

use ecluse_changes::{PageChanges, PatternOf, read_records};
use ecluse_generation::IndexDirectory;
use ecluse_plan::{Plan, PlannedVisit, RunDirectory, Settings, visits_of};
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::{printable, printable_text};
use serde_json::json;

use crate::context::{DriverContext, Trouble};

/// Visits that are told, the newest first.
const TOLD: usize = 10;

/// Tells whether a word is a URL and no parcel.
pub(crate) fn is_url(word: &str) -> bool {
    word.starts_with("http://") || word.starts_with("https://")
}

/// Shows why plan visits a URL.
pub(crate) fn why_url(context: &DriverContext, url: &str) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let mut key = Vec::new();
    ecluse_surt::surt_or_url(url.as_bytes(), &mut key);
    let surt = String::from_utf8_lossy(&key).into_owned();
    let settings: Settings = context
        .pipeline
        .stage_settings(Plan::NAME)
        .map_err(|error| Trouble::new(Exit::Config, error))?;
    let runs = RunDirectory::at(context.root.join(&settings.runs));
    let mut found: Vec<(String, String, PlannedVisit)> = Vec::new();
    for (harvest, run, path) in runs.all_visits()? {
        let visits = visits_of(&path, &surt).map_err(|error| Trouble::new(Exit::Machine, error))?;
        found.extend(
            visits
                .into_iter()
                .map(|visit| (harvest.clone(), run.clone(), visit)),
        );
        if found.len() >= TOLD {
            break;
        }
    }
    let page = page_of(context, &surt)?;
    if found.is_empty() && page.is_none() {
        return Err(Trouble::usage(format!(
            "no run of a harvest with [refresh] visits {url}, and nothing is known of its changes; --job JOB asks a crawl job"
        )));
    }
    if context.json {
        let visits: Vec<_> = found
            .iter()
            .map(|(harvest, run, visit)| json!({"harvest": harvest, "run": run, "visit": visit}))
            .collect();
        let changes = page.map(|page| {
            json!({"last": page.last.to_string(), "looks": page.looks, "changes": page.changes, "rate": page.rate,
                   "pattern": page.pattern.map(pattern_word)})
        });
        context
            .print_json(json!({"url": url, "surt": surt, "visits": visits, "changes": changes}))?;
        return Ok(Exit::Done.into());
    }
    let mut text = format!("{}\n", printable(url.as_bytes()));
    match &page {
        Some(page) => text += &changes_of(page),
        None => text += "  nothing is known of its changes\n",
    }
    if found.is_empty() {
        text += "\n  no run of a harvest with [refresh] visits it\n";
    }
    for (harvest, run, visit) in &found {
        text += &printable_text(&format!(
            "\n  run {run} of harvest {harvest}, job {}",
            visit.job
        ));
        text += &format!(
            "\n    {}, level {}, value {}\n",
            visit.reason.word(),
            visit.level,
            visit.value
        );
        for (what, told) in [
            ("due since", &visit.due_since),
            ("last captured", &visit.last),
            ("ETag then", &visit.etag),
            ("Last-Modified then", &visit.last_modified),
        ] {
            if let Some(told) = told {
                text += &format!("    {what} {}\n", printable_text(told));
            }
        }
        let words = format!(
            "why {} --job {}",
            crate::show::word(url),
            crate::show::word(&visit.job)
        );
        text += &format!("    {}\n", context.command(&words));
    }
    context.print(&text)?;
    Ok(Exit::Done.into())
}

/// What is known of the changes of a URL.
fn page_of(context: &DriverContext, surt: &str) -> Result<Option<PageChanges>, Trouble> {
    let machine = |error: &dyn std::fmt::Display| Trouble::new(Exit::Machine, error.to_string());
    let directory = context.root.join(&context.pipeline.archive.changes);
    let directory = IndexDirectory::of(&directory, None).map_err(|error| machine(&error))?;
    let Some(current) = directory.current().map_err(|error| machine(&error))? else {
        return Ok(None);
    };
    let mut found = read_records::<PageChanges>(&current, surt).map_err(|error| machine(&error))?;
    Ok(found.pop())
}

fn changes_of(page: &PageChanges) -> String {
    let mut text = format!(
        "  seen {} times since {}, changed {} times, last seen {}\n  about {:.3} changes a day",
        page.looks, page.first, page.changes, page.last, page.rate
    );
    if let Some(pattern) = page.pattern {
        text += match pattern {
            PatternOf::Page => "; the hours at which it changes are known",
            PatternOf::Site => "; at the hours of its site",
        };
    }
    if let Some((_, time)) = page.signal.filter(|(_, time)| *time > page.last) {
        text += &format!("; a change of {time} was announced");
    }
    text + "\n"
}

fn pattern_word(pattern: PatternOf) -> &'static str {
    match pattern {
        PatternOf::Page => "own",
        PatternOf::Site => "site",
    }
}
