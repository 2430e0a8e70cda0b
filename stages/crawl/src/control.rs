//! The control directory of a job: changes of the order, and questions.
//!
//! `control/NAME.toml` is read over the running order; what became of it stands in `control/done/NAME.toml.json`.
//! `control/ask/NAME` holds a URL; the answer stands in `control/answers/NAME`. While `control/PAUSED` is there nothing is
//! fetched, and `control/END` ends the job; both say who wants it and why. Writers put files there by rename, under names
//! that do not begin with a dot.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use ecluse_stage::Paused;
use serde_json::json;

use crate::explain::Explanation;
use crate::place::{JobDir, write_quick, write_whole};

/// The directory in a job's own.
pub const CONTROL: &str = "control";
/// The file in it by which a person pauses the job.
pub const PAUSE_FILE: &str = "PAUSED";
/// The file in it by which a person ends the job.
pub const END_FILE: &str = "END";

/// Requests taken at a time.
const MOST: usize = 20;
/// A longer text is no change and no URL.
const LONGEST: u64 = 4 << 20;

/// What an operator asks of a running job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To change the order.
    Amend { name: String, text: String },
    /// To change the order, in a file that cannot be read.
    Bad { name: String, problem: String },
    /// To explain a URL.
    Ask { name: String, url: String },
}

/// Returns what is asked and has no answer yet, in the order of names.
pub(crate) fn requests(dir: &JobDir) -> io::Result<Vec<Request>> {
    let control = dir.control();
    let mut found = Vec::new();
    // One that was heeded before a kill is not heeded again.
    let done = control.join("done");
    let is_heeded = |name: &str| done.join(format!("{name}.json")).exists();
    for name in names(&control, |name| name.ends_with(".toml") && !is_heeded(name))? {
        match text(&control.join(&name)) {
            Some(Ok(text)) => found.push(Request::Amend { name, text }),
            Some(Err(problem)) => found.push(Request::Bad { name, problem }),
            None => {}
        }
    }
    let (ask, answers) = (control.join("ask"), control.join("answers"));
    for name in names(&ask, |name| !answers.join(name).exists())? {
        // What is no text is no URL either, and is told so.
        if let Some(text) = text(&ask.join(&name)) {
            let url = text.unwrap_or_default().trim().to_owned();
            found.push(Request::Ask { name, url });
        }
    }
    Ok(found)
}

/// The names of the files that are wanted, in order.
fn names(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Who asked may take the question away at any moment: what is gone is no file.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && !name.starts_with('.') && is_wanted(&name) {
            names.push(name);
        }
    }
    names.sort();
    names.truncate(MOST);
    Ok(names)
}

/// Reads a file; none if it is gone, and in words why it is no text of ours.
fn text(path: &Path) -> Option<Result<String, String>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("cannot be read: {error}"))),
        Ok(_) => {}
    }
    if bytes.len() as u64 > LONGEST {
        return Some(Err(format!("is longer than {LONGEST} bytes")));
    }
    Some(String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned()))
}

/// Returns who wants a job paused or ended, and why, if one of the two files is there in its directory. What stands in it does
/// not matter: a file made with `touch` pauses too.
pub fn told(job_dir: &Path, file: &str) -> Option<Paused> {
    match text(&job_dir.join(CONTROL).join(file))? {
        Ok(text) => Some(serde_json::from_str(&text).unwrap_or_default()),
        Err(_) => Some(Paused::default()),
    }
}

/// Says who did something and why, in one line.
pub fn by_whom(deed: &str, told: &Paused) -> String {
    let why = told.why.split_whitespace().collect::<Vec<_>>().join(" ");
    match (told.who.as_str(), why.as_str()) {
        ("", _) => format!("{deed} by hand"),
        (who, "") => format!("{deed} by {who}"),
        (who, why) => format!("{deed} by {who}: {why}"),
    }
}

/// Says what became of a change.
pub(crate) fn done(
    dir: &JobDir,
    name: &str,
    changes: &[String],
    problems: &[String],
) -> io::Result<()> {
    let path = dir.control().join("done").join(format!("{name}.json"));
    let told = json!({ "changes": changes, "problems": problems });
    write_whole(&path, told.to_string().as_bytes())
}

/// Answers a question.
pub(crate) fn answer(
    dir: &JobDir,
    name: &str,
    answer: &Result<Explanation, String>,
) -> io::Result<()> {
    let told = match answer {
        Ok(explanation) => json!({ "explanation": explanation }),
        Err(problem) => json!({ "problem": problem }),
    };
    let path = dir.control().join("answers").join(name);
    write_quick(&path, told.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_heeded_once() {
        let root = tempfile::tempdir().unwrap();
        let dir = JobDir::at(root.path());
        dir.make().unwrap();
        fs::write(dir.control().join("a.toml"), "x = 1").unwrap();
        fs::write(dir.control().join(".b.toml"), "half").unwrap();
        fs::write(dir.control().join("note.txt"), "no").unwrap();
        fs::write(dir.control().join("ask").join("1"), "http://a/\n").unwrap();
        let asked = requests(&dir).unwrap();
        let amend = Request::Amend {
            name: "a.toml".to_owned(),
            text: "x = 1".to_owned(),
        };
        let ask = Request::Ask {
            name: "1".to_owned(),
            url: "http://a/".to_owned(),
        };
        assert_eq!(asked, [amend, ask]);
        done(&dir, "a.toml", &["x".to_owned()], &[]).unwrap();
        answer(&dir, "1", &Err("no".to_owned())).unwrap();
        assert_eq!(requests(&dir).unwrap(), []);
    }

    #[test]
    fn a_file_that_is_no_text_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let dir = JobDir::at(root.path());
        dir.make().unwrap();
        fs::write(dir.control().join("a.toml"), b"x = '\xff'").unwrap();
        let long = vec![b' '; usize::try_from(LONGEST).unwrap() + 1];
        fs::write(dir.control().join("b.toml"), long).unwrap();
        fs::write(dir.control().join("ask").join("1"), b"\xff").unwrap();
        let bad = |name: &str, problem: &str| Request::Bad {
            name: name.to_owned(),
            problem: problem.to_owned(),
        };
        let ask = Request::Ask {
            name: "1".to_owned(),
            url: String::new(),
        };
        let asked = requests(&dir).unwrap();
        let long = "is longer than 4194304 bytes";
        assert_eq!(
            asked,
            [bad("a.toml", "is not UTF-8"), bad("b.toml", long), ask]
        );
    }

    #[test]
    fn a_pause_is_told_with_who_and_why() {
        let root = tempfile::tempdir().unwrap();
        let dir = JobDir::at(root.path());
        dir.make().unwrap();
        assert_eq!(told(root.path(), PAUSE_FILE), None);
        let file = dir.control().join(PAUSE_FILE);
        fs::write(&file, "").unwrap();
        let paused = told(root.path(), PAUSE_FILE).unwrap();
        assert_eq!(by_whom("paused", &paused), "paused by hand");
        fs::write(&file, r#"{"who": "anne", "why": "the site\nasked"}"#).unwrap();
        let paused = told(root.path(), PAUSE_FILE).unwrap();
        assert_eq!(by_whom("paused", &paused), "paused by anne: the site asked");
    }

    #[test]
    fn a_question_that_was_taken_away_disturbs_nobody() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(text(&root.path().join("gone")), None);
    }

    #[test]
    fn what_was_answered_does_not_hide_what_was_not() {
        let root = tempfile::tempdir().unwrap();
        let dir = JobDir::at(root.path());
        dir.make().unwrap();
        for number in 0..MOST {
            let name = format!("{number:05}");
            fs::write(dir.control().join("ask").join(&name), "http://a/").unwrap();
            answer(&dir, &name, &Err("no".to_owned())).unwrap();
        }
        fs::write(dir.control().join("ask").join("99999"), "http://b/").unwrap();
        assert_eq!(requests(&dir).unwrap().len(), 1);
    }
}
