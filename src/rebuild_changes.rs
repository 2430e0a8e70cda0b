//! `ecluse rebuild changes`: what is known of the changes of pages, made anew from the index and the stored documents.
//!
//! What is left of the old ones is put aside, never removed.

use std::process::ExitCode;

use ecluse_access::ReadingArchive;
use ecluse_change::{ChangeStage, Settings, rebuild_changes};
use ecluse_stage::{Exit, Stage};
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::rebuild::must_be_stopped;
use crate::show;

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    must_be_stopped(context)?;
    let settings: Settings = context
        .pipeline
        .stage_settings(ChangeStage::NAME)
        .map_err(|error| Trouble::new(Exit::Config, error))?;
    let archive = &context.pipeline.archive;
    let (index, changes) = (
        context.root.join(&archive.index),
        context.root.join(&archive.changes),
    );
    let main = &context.pipeline.access.main;
    let names = ReadingArchive::new(&index, main).collections();
    if options.act.dry_run {
        let line = format!(
            "would make {} anew from {}",
            changes.display(),
            index.display()
        );
        context.say(&line)?;
        return Ok(Exit::Done.into());
    }
    let aside = jiff::Timestamp::now()
        .strftime("old-%Y%m%dT%H%M%S%3fZ")
        .to_string();
    let root = std::path::absolute(&context.root)?;
    let (mut pages, mut versions) = (0, 0);
    for name in &names {
        let collection = Some(name.as_str()).filter(|name| name != main);
        let made = rebuild_changes(
            &root,
            (&index, &changes),
            collection,
            &settings,
            &std::env::temp_dir(),
            &aside,
        );
        let made = made.map_err(|error| Trouble::new(Exit::Machine, error))?;
        if let Some(made) = made {
            pages += made.pages;
            versions += made.versions;
        }
    }
    let outcome = format!(
        "{} with {}",
        show::count(pages, "page", "pages"),
        show::count(versions, "version", "versions")
    );
    let line = Line {
        verb: "rebuild changes",
        stage: ChangeStage::NAME,
        parcel: None,
        why: options.act.why.as_deref(),
        outcome: &outcome,
    };
    audit::write(context, &line)?;
    let said = format!("made {} anew: {outcome}", changes.display());
    let told = json!({"changes": changes, "pages": pages, "versions": versions});
    context.tell(&said, told)?;
    Ok(Exit::Done.into())
}
