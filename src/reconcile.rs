//! `ecluse reconcile`: holds what waits in the store against the queues, and collects what nobody needs any more.

use std::process::ExitCode;

use ecluse_spool::{CollectExtent, ReconcileExtent};
use ecluse_stage::Exit;
use serde_json::json;

use crate::context::{DriverContext, Trouble};
use crate::show;

pub(crate) fn reconcile(context: &DriverContext, stages: &[String]) -> Result<ExitCode, Trouble> {
    for stage in stages {
        context.known_stage(stage)?;
    }
    if context.engine.directories().is_some() && context.engine.movable().is_none() {
        context.say("the work directories are all there is: nothing to hold against them")?;
        return Ok(Exit::Done.into());
    }
    let stages = match stages {
        [] => context.stages()?,
        named => named.to_vec(),
    };
    for stage in stages {
        let waiting = context.engine.reconcile(&stage, ReconcileExtent::All)?;
        let count = usize::try_from(waiting).unwrap_or(usize::MAX);
        let line = format!(
            "{stage}: {} told of",
            show::count(count, "parcel", "parcels")
        );
        context.tell(&line, json!({ "stage": stage, "told": waiting }))?;
    }
    Ok(Exit::Done.into())
}

pub(crate) fn collect(context: &DriverContext, is_dry: bool) -> Result<ExitCode, Trouble> {
    let extent = match is_dry {
        true => CollectExtent::Count,
        false => CollectExtent::All,
    };
    let Some(collected) = context.engine.collect(extent)? else {
        context.say("the work directories hold nothing that nobody needs: nothing to collect")?;
        return Ok(Exit::Done.into());
    };
    let line = format!(
        "{} {} ({}), {}, {} and {}; left {} of which it is not clear whose they are",
        if is_dry { "would remove" } else { "removed" },
        show::count(collected.files, "file", "files"),
        show::bytes(collected.bytes),
        show::count(collected.uploads, "unfinished upload", "unfinished uploads"),
        show::count(
            collected.sheets,
            "list of new parcels",
            "lists of new parcels"
        ),
        show::count(collected.marks, "mark", "marks"),
        show::count(collected.unclear, "object", "objects"),
    );
    let shown = json!({
        "dry-run": is_dry,
        "files": collected.files,
        "bytes": collected.bytes,
        "uploads": collected.uploads,
        "sheets": collected.sheets,
        "marks": collected.marks,
        "unclear": collected.unclear,
    });
    context.tell(&line, shown)?;
    Ok(Exit::Done.into())
}
