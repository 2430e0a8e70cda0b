//! `ecluse amend`: changes the order of a running job.
//!
//! The text is put into the job's control directory under its final name in one rename, so that the job never reads half of it. The
//! job leaves its answer in `control/done/`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ecluse_crawl::{CONTROL, JobState, JobStatus};
use ecluse_spool::{Fs, RealFs};
use ecluse_stage::{Exit, Stage};
use serde::Deserialize;

use crate::audit::{self, Line};
use crate::cli::AmendOptions;
use crate::context::{DriverContext, Trouble};
use crate::job;

/// Where a job leaves its answers, in its control directory.
const DONE: &str = "done";
/// How long a running job may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// No order is longer.
const LONGEST: u64 = 4 << 20;

/// What a job answers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Answer {
    changes: Vec<String>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn amend(context: &DriverContext, options: &AmendOptions) -> Result<ExitCode, Trouble> {
    let dir = context.job_dir(&options.job)?;
    let job = dir.file_name().unwrap_or_default().to_string_lossy();
    if let Some(status) = JobStatus::read(&dir)?
        && status.state == JobState::Finished
    {
        return Err(Trouble::usage(format!("job {job} is finished")));
    }
    let shown = options.file.display();
    let bytes = RealFs
        .read(&options.file, LONGEST)
        .map_err(|error| Trouble::usage(format!("cannot read {shown}: {error}")))?;
    if options.act.dry_run {
        context.say(&format!("would give {shown} to job {job}"))?;
        return Ok(Exit::Done.into());
    }
    let name = name_now();
    job::put(&dir, &name, &bytes).map_err(|error| {
        let line = format!("cannot give {shown} to job {job}: {error}");
        Trouble::new(Exit::Machine, line)
    })?;
    let answer = await_answer(&dir, &name, Instant::now() + PATIENCE);
    let outcome = match &answer {
        None => "given, not answered yet".to_owned(),
        Some(answer) if !answer.problems.is_empty() => answer.problems.join("; "),
        Some(_) => "done".to_owned(),
    };
    audit::write(
        context,
        &Line {
            verb: "amend",
            stage: ecluse_crawl::Crawl::NAME,
            parcel: Some(&job),
            why: options.act.why.as_deref(),
            outcome: &outcome,
        },
    )?;
    tell(context, &job, answer)
}

/// Returns a name under which no other change is put there.
pub(crate) fn name_now() -> String {
    let now = jiff::Timestamp::now();
    format!(
        "amend-{}-{:09}-{}.toml",
        now.strftime("%Y%m%d%H%M%S"),
        now.subsec_nanosecond(),
        std::process::id()
    )
}

fn await_answer(dir: &Path, name: &str, deadline: Instant) -> Option<Answer> {
    let path = dir.join(CONTROL).join(DONE).join(format!("{name}.json"));
    loop {
        if let Ok(bytes) = RealFs.read(&path, LONGEST)
            && let Ok(answer) = serde_json::from_slice(&bytes)
        {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn tell(context: &DriverContext, job: &str, answer: Option<Answer>) -> Result<ExitCode, Trouble> {
    let Some(answer) = answer else {
        let line = format!(
            "job {job} has not answered; it reads its control directory when it runs, and answers in control/done/"
        );
        return Err(Trouble::new(Exit::Deferred, line));
    };
    if context.json {
        context.print_json(serde_json::json!({
            "job": job, "changes": answer.changes, "problems": answer.problems, "warnings": answer.warnings,
        }))?;
    }
    if !answer.problems.is_empty() {
        let lines = answer.problems.iter().map(|problem| format!("{problem}\n"));
        let text: String = lines.collect();
        return Err(Trouble::usage(format!("{text}nothing was changed")));
    }
    if !context.json {
        for warning in &answer.warnings {
            context.say(&format!("note: {warning}"))?;
        }
        for change in &answer.changes {
            context.say(change)?;
        }
        if answer.changes.is_empty() {
            context.say(&format!("job {job} was so already"))?;
        }
    }
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_whole_and_its_answer_found() {
        let dir = tempfile::tempdir().unwrap();
        let name = name_now();
        job::put(dir.path(), &name, b"[scope]\nhops = 5\n").unwrap();
        let control = dir.path().join(CONTROL);
        let names: Vec<_> = std::fs::read_dir(&control)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, std::slice::from_ref(&name), "no draft stays");
        assert!(await_answer(dir.path(), &name, Instant::now()).is_none());
        std::fs::create_dir(control.join(DONE)).unwrap();
        std::fs::write(
            control.join(DONE).join(format!("{name}.json")),
            r#"{"changes": ["scope.hops: 20 is now 5"], "later": 1}"#,
        )
        .unwrap();
        let answer = await_answer(dir.path(), &name, Instant::now()).unwrap();
        assert_eq!(answer.changes, ["scope.hops: 20 is now 5"]);
        assert!(answer.problems.is_empty());
    }
}
