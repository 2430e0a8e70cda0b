//! `ecluse job`: pauses a job of the crawl, lets it go on, or ends it.
//!
//! A job is told by a file in its control directory, which stays there: one that is stopped meanwhile heeds it when it is taken up
//! again.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use ecluse_crawl::{CONTROL, Crawl, END_FILE, JobState, JobStatus, PAUSE_FILE, by_whom, told};
use ecluse_spool::{Fs, Paused, RealFs};
use ecluse_stage::{Exit, Stage};

use crate::audit::{self, Line};
use crate::cli::{JobChoice, JobVerb};
use crate::context::{DriverContext, Trouble};

pub(crate) fn job(context: &DriverContext, verb: &JobVerb) -> Result<ExitCode, Trouble> {
    let (word, choice) = match verb {
        JobVerb::Pause(choice) => ("pause", choice),
        JobVerb::Resume(choice) => ("resume", choice),
        JobVerb::End(choice) => ("end", choice),
        JobVerb::Close(choice) => return crate::close::close(context, choice),
    };
    context.must_be_archive()?;
    let dir = context.job_dir(&choice.job)?;
    let job = dir.file_name().unwrap_or_default().to_string_lossy();
    if let Some(status) = JobStatus::read(&dir)?
        && status.state == JobState::Finished
    {
        return Err(Trouble::usage(format!("job {job} is finished")));
    }
    if choice.act.dry_run {
        let value = serde_json::json!({ "job": job, "verb": word, "outcome": "dry run" });
        context.tell(&format!("would {word} job {job}"), value)?;
        return Ok(Exit::Done.into());
    }
    let done = match verb {
        JobVerb::Pause(_) => pause(&dir, choice),
        JobVerb::Resume(_) => resume(context, &dir),
        JobVerb::End(_) | JobVerb::Close(_) => end(context, &dir, choice),
    };
    let said = done.map_err(|error| {
        let line = format!("cannot {word} job {job}: {error}");
        Trouble::new(Exit::Machine, line)
    })?;
    audit::write(
        context,
        &Line {
            verb: &format!("job {word}"),
            stage: Crawl::NAME,
            parcel: Some(&job),
            why: choice.act.why.as_deref(),
            outcome: "done",
        },
    )?;
    let value = serde_json::json!({ "job": job, "verb": word, "outcome": "done" });
    context.tell(&format!("job {job} {said}"), value)?;
    Ok(Exit::Done.into())
}

fn pause(dir: &Path, choice: &JobChoice) -> io::Result<String> {
    let before = told(dir, PAUSE_FILE);
    let before = before.map_or_else(String::new, |before| {
        format!("; before this it was {}", by_whom("paused", &before))
    });
    put(dir, PAUSE_FILE, &reason(choice))?;
    Ok(format!(
        "pauses: what is being fetched is taken in, nothing more is asked for{before}"
    ))
}

fn resume(context: &DriverContext, dir: &Path) -> io::Result<String> {
    let file = dir.join(CONTROL).join(PAUSE_FILE);
    match RealFs.unlink(&file) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok("was not paused by itself".to_owned());
        }
        Err(error) => return Err(error),
    }
    let paused = context.engine.paused(Crawl::NAME).ok().flatten();
    Ok(match paused {
        Some(_) => format!(
            "is no longer paused, but the crawl is: `{}`",
            context.command("resume crawl")
        ),
        None => format!("goes on{}", when_it_runs(context)),
    })
}

fn end(context: &DriverContext, dir: &Path, choice: &JobChoice) -> io::Result<String> {
    put(dir, END_FILE, &reason(choice))?;
    Ok(match context.is_crawling() {
        true => "ends: what is being fetched is taken in, then its reports are written".to_owned(),
        false => format!("ends{}", when_it_runs(context)),
    })
}

/// Says what a job waits for where nobody works in the crawl.
fn when_it_runs(context: &DriverContext) -> String {
    if context.is_crawling() {
        return String::new();
    }
    let run = context.command("run crawl");
    format!(
        " when the crawl stage runs, which it does not: systemctl start ecluse@crawl  or  {run}"
    )
}

fn reason(choice: &JobChoice) -> Vec<u8> {
    let paused = Paused {
        who: audit::who(),
        when: jiff::Timestamp::now().to_string(),
        why: choice.act.why.clone().unwrap_or_default(),
    };
    serde_json::to_vec_pretty(&paused).unwrap_or_default()
}

/// Shows a file in a job's control directory in one step.
pub(crate) fn put(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let control = dir.join(CONTROL);
    RealFs.ensure_dir(&control)?;
    let draft = control.join(format!(".{name}.{}.tmp", std::process::id()));
    RealFs.write_durable(&draft, bytes)?;
    RealFs.rename(&draft, &control.join(name))?;
    RealFs.sync_dir(&control)
}
