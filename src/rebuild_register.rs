//! `ecluse rebuild register`: the register of domains made anew from what came into it: names, results and evidence.
//!
//! What is left of the old one is put aside, never removed.

use std::process::ExitCode;

use ecluse_plan::{Plan, Settings, rebuild_register};
use ecluse_register::Register;
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
        .stage_settings(Plan::NAME)
        .map_err(|error| Trouble::new(Exit::Config, error))?;
    let path = context.root.join(&context.pipeline.archive.register);
    let register = Register::at(&path).map_err(|error| Trouble::new(Exit::Machine, error))?;
    let aside = jiff::Timestamp::now()
        .strftime("old-%Y%m%dT%H%M%S%3fZ")
        .to_string();
    let aside = Some(aside.as_str()).filter(|_| !options.act.dry_run);
    let temporary = std::env::temp_dir();
    let rebuilt = rebuild_register(&context.root, &settings, &register, &temporary, aside)?;
    let from = format!(
        "from {} lines in {}",
        rebuilt.lines,
        show::count(rebuilt.files, "file", "files")
    );
    let Some(update) = rebuilt.update else {
        context.say(&format!("would make {} anew {from}", path.display()))?;
        return Ok(Exit::Done.into());
    };
    let domains = usize::try_from(update.records).unwrap_or(usize::MAX);
    let outcome = format!("{} {from}", show::count(domains, "domain", "domains"));
    let line = Line {
        verb: "rebuild register",
        stage: Plan::NAME,
        parcel: None,
        why: options.act.why.as_deref(),
        outcome: &outcome,
    };
    audit::write(context, &line)?;
    let told = json!({
        "register": path, "generation": update.number, "domains": update.records,
        "lines": rebuilt.lines, "files": rebuilt.files,
    });
    let said = format!(
        "made {} anew, as generation {}: {outcome}",
        path.display(),
        update.number
    );
    context.tell(&said, told)?;
    Ok(Exit::Done.into())
}
