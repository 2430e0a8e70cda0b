//! `ecluse reconcile`: holds what waits in the store against the queues.

use std::process::ExitCode;

use ecluse_spool::ReconcileExtent;
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
