//! `ecluse rebuild links`: links and ranks made anew from the archive's files.
//!
//! Every file that the manifest has as published is read from a copy that is what ingest took, and its links are taken as index takes them. What was
//! there before is put aside, never removed.

use std::fs::File;
use std::process::ExitCode;

use ecluse_cdx::Capture;
use ecluse_index::{Index, write_links};
use ecluse_rank::{LinkPiece, Rank, RankError, RankSources};
use ecluse_stage::{Exit, Stage};
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::rebuild::must_be_stopped;
use crate::rebuild_index::each_published;
use crate::show;

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    must_be_stopped(context)?;
    let config = |error: &dyn std::fmt::Display| Trouble::new(Exit::Config, error.to_string());
    let index: ecluse_index::Settings = context
        .pipeline
        .stage_settings(Index::NAME)
        .map_err(|error| config(&error))?;
    let rank: ecluse_rank::Settings = context
        .pipeline
        .stage_settings(Rank::NAME)
        .map_err(|error| config(&error))?;
    let path = std::path::absolute(&context.root)?.join(&context.pipeline.archive.links);
    let manifest = crate::verify::open(context)?;
    let mut names = Vec::new();
    each_published(&manifest, |row| {
        names.push(row);
        Ok(())
    })?;
    let files = show::count(names.len(), "file", "files");
    if options.act.dry_run {
        context.say(&format!("would make {} anew from {files}", path.display()))?;
        return Ok(Exit::Done.into());
    }
    // The lists of single files lie here until they are merged.
    let temporary = tempfile::tempdir()?;
    let mut lists = Vec::new();
    let mut unread = 0;
    for row in &names {
        let copy = match context.good_copy(&manifest, row) {
            Ok(copy) => copy,
            Err(trouble) => {
                unread += 1;
                if !context.json {
                    context.say(&format!("{}: {}", row.name, trouble.line))?;
                }
                continue;
            }
        };
        let list = temporary.path().join(format!("{}.links.zst", lists.len()));
        let mut out = File::create(&list)?;
        let mut no_lines = |_: &Capture<'_>| Ok(Ok(()));
        write_links(&copy, &index, temporary.path(), &mut no_lines, &mut out)?;
        lists.push(list);
    }
    let pieces: Vec<LinkPiece<'_>> = lists
        .iter()
        .map(|list| LinkPiece {
            name: list.display().to_string(),
            open: Box::new(move || {
                let file = File::open(list).map_err(|source| RankError::Io {
                    step: "open",
                    path: list.clone(),
                    source,
                })?;
                Ok(Box::new(file))
            }),
        })
        .collect();
    let aside = jiff::Timestamp::now()
        .strftime("old-%Y%m%dT%H%M%S%3fZ")
        .to_string();
    let archive = &context.pipeline.archive;
    let sources = RankSources::of(
        &rank.perimeter,
        &context.root,
        &archive.changes,
        &archive.register,
    );
    let rebuilt = ecluse_rank::rebuild(&rank, &path, &sources, &pieces, &aside);
    let (number, urls) = rebuilt.map_err(|error| match error {
        RankError::Busy => Trouble::new(Exit::Deferred, error),
        error => Trouble::new(Exit::Machine, error),
    })?;
    let outcome = format!("{urls} URLs of {files}; {unread} have no good copy");
    let line = Line {
        verb: "rebuild links",
        stage: Rank::NAME,
        parcel: None,
        why: options.act.why.as_deref(),
        outcome: &outcome,
    };
    audit::write(context, &line)?;
    let told = json!({
        "links": path, "generation": number, "urls": urls, "files": names.len(), "unread": unread,
    });
    let said = format!(
        "made {} anew, as generation {number}: {outcome}",
        path.display()
    );
    context.tell(&said, told)?;
    Ok(match unread {
        0 => Exit::Done.into(),
        _ => Exit::Held.into(),
    })
}
