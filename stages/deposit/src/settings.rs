//! What `[stage.deposit]` may say.

use std::path::{Component, PathBuf};
use std::time::Duration;

use ecluse_config::{Bytes, Free, Span};
use serde::Deserialize;

/// What `[stage.deposit]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Who takes the packages.
    pub to: ReceiverSettings,
    /// How many files are sent within an hour at most; 0 for no limit.
    pub files_an_hour: u64,
    /// How long after it was sent, and after each time, a receipt that has not come is asked for.
    pub ask_again: Span,
    /// Holds what was handed over, with the receipts, as PREMIS.
    pub receipts: PathBuf,
}

/// Who takes the packages.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "ReceiverWords")]
pub enum ReceiverSettings {
    /// Nobody: packages stay where they are.
    Nobody,
    /// A directory.
    Directory(DirectorySettings),
    /// A command of the operator's.
    Command(CommandSettings),
    /// A service that takes files by PUT.
    Http(HttpSettings),
}

/// A directory.
#[derive(Debug, Clone)]
pub struct DirectorySettings {
    /// Relative to the root and made, or absolute and there.
    pub path: PathBuf,
    /// Free space that stays in it.
    pub leave_free: Free,
}

/// A command of the operator's.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// The program that takes a file, and its arguments.
    pub command: Vec<String>,
    /// The program that says whether a file was taken, and its arguments.
    pub ask: Vec<String>,
    /// How long each may take.
    pub timeout: Duration,
}

/// A service that takes files by PUT.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The address of a file, with words in braces.
    pub url: String,
    /// A file with the word that lets us in.
    pub token_file: Option<PathBuf>,
    /// Certificate authorities to trust instead of the machine's, in PEM.
    pub ca_file: Option<PathBuf>,
    /// How long nothing may move.
    pub timeout: Duration,
}

/// A receiver as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ReceiverWords {
    kind: ReceiverKind,
    path: Option<PathBuf>,
    leave_free: Option<Free>,
    command: Option<Vec<String>>,
    ask: Option<Vec<String>>,
    url: Option<String>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    timeout: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReceiverKind {
    None,
    Directory,
    Command,
    Http,
}

impl TryFrom<ReceiverWords> for ReceiverSettings {
    type Error = String;

    fn try_from(words: ReceiverWords) -> Result<Self, String> {
        words.must_fit()?;
        match words.kind {
            ReceiverKind::None => Ok(Self::Nobody),
            ReceiverKind::Directory => words.directory().map(Self::Directory),
            ReceiverKind::Command => words.command().map(Self::Command),
            ReceiverKind::Http => words.http().map(Self::Http),
        }
    }
}

impl ReceiverWords {
    /// Refuses keys that mean nothing for this kind: somebody expects something of them.
    fn must_fit(&self) -> Result<(), String> {
        use ReceiverKind::{Command, Directory, Http};
        let keys = [
            ("path", self.path.is_some(), &[Directory][..]),
            ("leave-free", self.leave_free.is_some(), &[Directory]),
            ("command", self.command.is_some(), &[Command]),
            ("ask", self.ask.is_some(), &[Command]),
            ("url", self.url.is_some(), &[Http]),
            ("token-file", self.token_file.is_some(), &[Http]),
            ("ca-file", self.ca_file.is_some(), &[Http]),
            ("timeout", self.timeout.is_some(), &[Command, Http]),
        ];
        for (key, is_there, kinds) in keys {
            if is_there && !kinds.contains(&self.kind) {
                return Err(format!("{key} means nothing for this kind"));
            }
        }
        Ok(())
    }

    fn directory(self) -> Result<DirectorySettings, String> {
        let path = self.path.ok_or("a directory needs a path")?;
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(format!("'..' in {}", path.display()));
        }
        let leave_free = self.leave_free.unwrap_or(Free::Bytes(Bytes(1 << 30)));
        Ok(DirectorySettings { path, leave_free })
    }

    fn command(self) -> Result<CommandSettings, String> {
        let program = |words: Option<Vec<String>>, key: &str| {
            let words = words.unwrap_or_default();
            match words.first().is_none_or(String::is_empty) {
                true => Err(format!(
                    "a command needs '{key}', such as [\"/usr/local/bin/to-repository\", \"{{path}}\", \"{{sha256}}\"]"
                )),
                false => Ok(words),
            }
        };
        Ok(CommandSettings {
            command: program(self.command, "command")?,
            ask: program(self.ask, "ask")?,
            timeout: self.timeout.map_or(Duration::from_secs(7200), |it| it.0),
        })
    }

    fn http(self) -> Result<HttpSettings, String> {
        let url = self.url.ok_or("an http receiver needs a url")?;
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if !is_http || !url.contains("{file}") || !url.contains("{sha256}") {
            return Err(format!(
                "url {url:?} is no address of a file, such as \"https://repository.example.org/{{harvest}}/{{job}}/{{file}}?sha256={{sha256}}\""
            ));
        }
        Ok(HttpSettings {
            url,
            token_file: self.token_file,
            ca_file: self.ca_file,
            timeout: self.timeout.map_or(Duration::from_secs(300), |it| it.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ReceiverSettings, String> {
        let pipeline = format!("[stage.deposit]\nto = {text}\n");
        let pipeline = ecluse_config::Pipeline::parse(&pipeline, "pipeline.toml")
            .map_err(|error| error.to_string())?;
        let settings = pipeline.stage_settings::<Settings>("deposit");
        settings
            .map(|settings| settings.to)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_is_read_and_what_makes_no_sense_is_refused_by_name() {
        for text in [
            r#"{ kind = "none" }"#,
            r#"{ kind = "directory", path = "x", leave-free = "5%" }"#,
            r#"{ kind = "command", command = ["a"], ask = ["b"], timeout = "1m" }"#,
            r#"{ kind = "http", url = "https://a.example/{job}/{file}?d={sha256}", token-file = "t" }"#,
        ] {
            read(text).unwrap();
        }
        for (text, words) in [
            (r#"{ kind = "none", path = "x" }"#, "path means nothing"),
            (r#"{ kind = "directory" }"#, "needs a path"),
            (r#"{ kind = "directory", path = "../x" }"#, "'..'"),
            (r#"{ kind = "command", command = ["a"] }"#, "needs 'ask'"),
            (
                r#"{ kind = "command", command = [""], ask = ["b"] }"#,
                "needs 'command'",
            ),
            (r#"{ kind = "http" }"#, "needs a url"),
            (
                r#"{ kind = "http", url = "ftp://a/{file}/{sha256}" }"#,
                "no address",
            ),
            (
                r#"{ kind = "http", url = "https://a/{file}" }"#,
                "no address",
            ),
            (r#"{ kind = "tape" }"#, "tape"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
