//! `ecluse job close`: a person says that the files of a job are complete, where no packing list does.
//!
//! The parcel that asks for the package says who and why, and so does the package.

use std::collections::BTreeSet;
use std::process::ExitCode;

use ecluse_manifest::{FileState, JobName, Manifest};
use ecluse_package::{FILE, FinishedJob, JobClosing, KIND, Package};
use ecluse_spool::ParcelState;
use ecluse_stage::{Exit, Stage};

use crate::audit::{self, Line};
use crate::cli::JobChoice;
use crate::context::{DriverContext, Trouble};

pub(crate) fn close(context: &DriverContext, choice: &JobChoice) -> Result<ExitCode, Trouble> {
    let why = match &choice.act.why {
        Some(why) => why.clone(),
        None if choice.act.dry_run => String::new(),
        None => return Err(Trouble::usage("job close needs --why \"…\"")),
    };
    context.known_stage(Package::NAME)?;
    let manifest = crate::verify::open(context)?;
    let name = find(&manifest, &choice.job)?;
    let shown = shown(&name);
    let packages = manifest.packages_of_job(&name)?;
    let mut finished = FinishedJob::next_of(&name, &packages);
    if let Some(package) = packages.first()
        && !has_late_files(&manifest, &name)?
    {
        let name = &package.package;
        return Err(Trouble::usage(format!(
            "job {shown} has a package, {name}, and no file that is not in it; where that is lost: {}",
            context.command(&format!("repair {}", crate::show::word(name)))
        )));
    }
    finished.closed = Some(JobClosing {
        by: audit::who(),
        why: why.clone(),
        at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
    });
    if choice.act.dry_run {
        let value = serde_json::json!({ "job": shown, "verb": "close", "outcome": "dry run" });
        context.tell(&format!("would close job {shown}"), value)?;
        return Ok(Exit::Done.into());
    }
    let id = finished.parcel_id();
    // It may wait or be held already, for the list that it has not.
    for place in context.engine.locate(&[Package::NAME.to_owned()], &id)? {
        let is_at_rest = [ParcelState::Ready, ParcelState::Deferred, ParcelState::Held];
        if is_at_rest.contains(&place.state) {
            context
                .engine
                .discard(&place, "closed by hand", &audit::who())?;
        } else if place.state == ParcelState::Working {
            return Err(Trouble::usage(format!("job {shown} is being packed")));
        }
    }
    context.engine.put(Package::NAME, &id, KIND, |parcel| {
        parcel.write(FILE, &finished.to_bytes())
    })?;
    audit::write(
        context,
        &Line {
            verb: "job close",
            stage: Package::NAME,
            parcel: Some(id.as_str()),
            why: Some(&why),
            outcome: "done",
        },
    )?;
    let value = serde_json::json!({ "job": shown, "verb": "close", "outcome": "done" });
    context.tell(
        &format!("job {shown} is closed: package takes it up"),
        value,
    )?;
    Ok(Exit::Done.into())
}

/// Tells whether a job that was packed has files in the index that are in no package.
fn has_late_files(manifest: &Manifest, name: &JobName) -> Result<bool, Trouble> {
    let late = manifest.late_jobs(FileState::BackedUp, "", usize::MAX)?;
    Ok(late.iter().any(|(late, _)| late == name))
}

pub(crate) fn shown(name: &JobName) -> String {
    match &name.harvest {
        Some(harvest) => format!("{}-{harvest}", name.job),
        None => name.job.clone(),
    }
}

/// Finds the job that a word means: a job of one harvest, or JOB-HARVEST.
pub(crate) fn find(manifest: &Manifest, word: &str) -> Result<JobName, Trouble> {
    let harvests_of = |job: &str| -> Result<BTreeSet<Option<String>>, Trouble> {
        let all = JobName {
            job: job.to_owned(),
            harvest: None,
        };
        let files = manifest.files_of_job(&all)?;
        Ok(files.into_iter().map(|file| file.row.harvest).collect())
    };
    let harvests = harvests_of(word)?;
    // Its metadata file may not name the harvest that its other files name.
    let named: Vec<&String> = harvests.iter().flatten().collect();
    match (harvests.is_empty(), named.as_slice()) {
        (false, []) => {
            return Ok(JobName {
                job: word.to_owned(),
                harvest: None,
            });
        }
        (false, [harvest]) => {
            return Ok(JobName {
                job: word.to_owned(),
                harvest: Some((*harvest).clone()),
            });
        }
        (false, several) => {
            let names: Vec<String> = several.iter().map(|h| format!("{word}-{h}")).collect();
            return Err(Trouble::usage(format!(
                "job {word} was harvested several times: {}",
                names.join(", ")
            )));
        }
        (true, _) => {}
    }
    for (at, _) in word.match_indices('-') {
        let (job, harvest) = (&word[..at], &word[at + 1..]);
        if harvests_of(job)?.contains(&Some(harvest.to_owned())) {
            return Ok(JobName {
                job: job.to_owned(),
                harvest: Some(harvest.to_owned()),
            });
        }
    }
    Err(Trouble::usage(format!(
        "the archive has no file of job {word:?}"
    )))
}
