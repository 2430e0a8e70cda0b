//! The control directory of a job: changes of the order, and questions.
//!
//! `control/NAME.toml` is read over the running order; what became of it stands in `control/done/NAME.toml.json`.
//! `control/ask/NAME` holds a URL; the answer stands in `control/answers/NAME`. Writers put files there by rename, under
//! names that do not begin with a dot.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;

use crate::explain::Explanation;
use crate::place::{JobDir, write_quick, write_whole};

/// Requests taken at a time.
const MOST: usize = 20;
/// A longer text is no change and no URL.
const LONGEST: u64 = 4 << 20;

/// What an operator asks of a running job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To change the order.
    Amend { name: String, text: String },
    /// To explain a URL.
    Ask { name: String, url: String },
}

/// Returns what is asked, in the order of names.
pub(crate) fn requests(dir: &JobDir) -> io::Result<Vec<Request>> {
    let mut found = Vec::new();
    for (name, text) in texts(&dir.control(), Some(".toml"))? {
        // One that was heeded before a kill is not heeded again.
        if !dir
            .control()
            .join("done")
            .join(format!("{name}.json"))
            .exists()
        {
            found.push(Request::Amend { name, text });
        }
    }
    for (name, url) in texts(&dir.control().join("ask"), None)? {
        if !dir.control().join("answers").join(&name).exists() {
            let url = url.trim().to_owned();
            found.push(Request::Ask { name, url });
        }
    }
    Ok(found)
}

fn texts(dir: &Path, end: Option<&str>) -> io::Result<Vec<(String, String)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let fits = !name.starts_with('.') && end.is_none_or(|end| name.ends_with(end));
        if fits && entry.file_type()?.is_file() && entry.metadata()?.len() <= LONGEST {
            names.push(name);
        }
    }
    names.sort();
    names.truncate(MOST * 50);
    let mut texts = Vec::new();
    for name in names {
        if let Ok(text) = fs::read_to_string(dir.join(&name)) {
            texts.push((name, text));
        }
    }
    Ok(texts)
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
}
