//! Who takes the files, whatever it is: it is asked for a file, or sent one, and answers.

use std::path::Path;
use std::time::Duration;

use ecluse_holding::{Fixity, Going};
use ecluse_manifest::DepositFile;
use ecluse_stage::Failure;
use serde::Deserialize;

use crate::command::CommandReceiver;
use crate::directory::DirectoryReceiver;
use crate::http::HttpReceiver;

/// Who takes the files.
pub(crate) enum Receiver {
    Directory(DirectoryReceiver),
    Command(CommandReceiver),
    Http(Box<HttpReceiver>),
}

/// A file that is asked for or sent.
pub(crate) struct DepositTask<'a> {
    pub(crate) file: &'a DepositFile,
    /// Where it lies.
    pub(crate) path: &'a Path,
    /// Where it lies below the package.
    pub(crate) below: &'a str,
    pub(crate) wanted: Fixity,
    /// The repository's identifier of the job's metadata file, once there is one.
    pub(crate) metadata_identifier: Option<&'a str>,
    pub(crate) going: Going<'a>,
}

/// What the receiver answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has the file, and says so for good.
    Receipt(Receipt),
    /// It has the file; the receipt comes later.
    Pending,
    /// It does not have the file.
    Absent,
}

/// A receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The digest of what it has.
    pub(crate) sha256: String,
    /// What it calls the file.
    pub(crate) identifier: Option<String>,
    /// Word for word.
    pub(crate) text: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum DepositFault {
    /// It asks to be left alone, for so long if it says so. That is no error.
    Busy(String, Option<Duration>),
    /// It cannot be reached, or does not know better: later.
    Away(String),
    /// It has no room, or does not let us in: nothing can be sent until somebody has done something about that.
    Closed(String),
    /// It does not take this file, and says why.
    Refused(String),
    /// Something on this side.
    Ours(Failure),
}

impl From<Failure> for DepositFault {
    fn from(failure: Failure) -> Self {
        Self::Ours(failure)
    }
}

impl DepositFault {
    /// Returns what the receiver said.
    pub(crate) fn words(&self) -> Option<&str> {
        match self {
            Self::Busy(words, _)
            | Self::Away(words)
            | Self::Closed(words)
            | Self::Refused(words) => Some(words),
            Self::Ours(_) => None,
        }
    }
}

impl Receiver {
    /// Asks for a file by its key.
    pub(crate) fn ask(&mut self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        match self {
            Self::Directory(directory) => directory.ask(task),
            Self::Command(command) => command.ask(task),
            Self::Http(service) => service.ask(task),
        }
    }

    /// Sends a file.
    pub(crate) fn send(&mut self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        match self {
            Self::Directory(directory) => directory.send(task),
            Self::Command(command) => command.send(task),
            Self::Http(service) => service.send(task),
        }
    }
}

#[derive(Deserialize)]
struct ReceiptWords {
    sha256: String,
    #[serde(alias = "ark")]
    identifier: Option<String>,
}

/// More than any identifier has.
const IDENTIFIER_BYTES: usize = 1024;

impl Receipt {
    /// Reads a receipt: a JSON object with `sha256`, and `identifier` or `ark`; what else it has is kept as it is. None where it
    /// is something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: ReceiptWords = serde_json::from_str(text).ok()?;
        let is_plain = |identifier: &String| {
            let is_short = (1..=IDENTIFIER_BYTES).contains(&identifier.len());
            is_short && !identifier.contains(char::is_control)
        };
        Some(Self {
            sha256: words.sha256.to_ascii_lowercase(),
            identifier: words.identifier.filter(is_plain),
            text: text.to_owned(),
        })
    }
}

/// Puts the words of a file in the place of `{words}` in braces, each through `shown`. What was put in is never searched again.
pub(crate) fn fill(text: &str, task: &DepositTask<'_>, shown: &dyn Fn(&str) -> String) -> String {
    let key = &task.file.key;
    let path = task.path.to_string_lossy();
    let words = [
        ("{job}", key.job.as_str()),
        ("{harvest}", &key.harvest),
        ("{file}", &key.file),
        ("{sha256}", &key.sha256),
        ("{package}", &task.file.package),
        ("{channel}", &task.file.channel),
        ("{role}", &task.file.role),
        ("{path}", &path),
        (
            "{metadata-identifier}",
            task.metadata_identifier.unwrap_or_default(),
        ),
    ];
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        match words.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                filled.push_str(&shown(value));
                rest = &rest[name.len()..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_receipt_is_one() {
        let text = r#"{"ark": "ark:/12148/x", "sha256": "AB", "time": 7}"#;
        let receipt = Receipt::parse(text).unwrap();
        assert_eq!(receipt.sha256, "ab");
        assert_eq!(receipt.identifier.as_deref(), Some("ark:/12148/x"));
        assert_eq!(receipt.text, text);
        for text in ["", "ok", "{}", r#"{"identifier": "x"}"#, "[1]"] {
            assert_eq!(Receipt::parse(text), None, "{text}");
        }
        let hostile = Receipt::parse("{\"sha256\": \"ab\", \"identifier\": \"a\\u001b[2Jb\"}");
        assert_eq!(hostile.unwrap().identifier, None);
    }
}
