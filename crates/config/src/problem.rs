//! What can be wrong with a configuration, one line each.
//!
//! Names from the file are escaped here, so that a message is safe to show on a terminal.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why there is no configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", shown(&path.display().to_string()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file can be read, and is wrong; one line for each problem.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// The problems in the file; none when it could not be read.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ConfigError::Read { .. } => &[],
            ConfigError::Invalid(problems) => problems,
        }
    }
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The configuration works; someone should look.
    Warning,
    /// The configuration is refused.
    Error,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub level: Level,
    /// The file, as it was named.
    pub file: String,
    /// The line in the file, when it is about one.
    pub line: Option<u32>,
    /// The path of the key, for programs; the message names it for people.
    pub key: String,
    /// What is wrong and, where possible, what to write.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match self.level {
            Level::Warning => write!(f, ": warning: {}", self.message),
            Level::Error => write!(f, ": {}", self.message),
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// Escapes what would move a terminal's cursor, hide text or break the line.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// Appends a key to the path of its table, quoted when TOML would quote it.
pub(crate) fn join(path: &str, key: &str) -> String {
    let key = shown_key(key);
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// A key as TOML writes it.
pub(crate) fn shown_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        toml::Value::String(key.to_owned()).to_string()
    }
}

/// Says that a key or a value is unknown, and which known one was probably meant.
pub(crate) fn unknown(kind: &str, path: &str, found: &str, known: &[&str]) -> String {
    let head = format!("unknown {kind} '{}'", shown(path));
    if let Some(near) = nearest(found, known) {
        return format!("{head}; did you mean '{near}'?");
    }
    match known {
        [] => format!("{head}; no {kind} is known here"),
        known => format!("{head}; known here: {}", known.join(", ")),
    }
}

/// Returns the known name that `found` was probably meant to be.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    // A name of a kilobyte is no misspelling, and comparing it would take a while.
    if found.len() > 64 {
        return None;
    }
    let found = found.to_lowercase().replace('_', "-");
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&found, known), *known))
        .filter(|(distance, known)| *distance <= known.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["workers", "attempts", "high-mark", "low-mark", "next"];
        assert_eq!(nearest("worker", &known), Some("workers"));
        assert_eq!(nearest("High_Mark", &known), Some("high-mark"));
        assert_eq!(nearest("atempst", &known), Some("attempts"));
        assert_eq!(nearest("nxet", &known), Some("next"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest(&"workers".repeat(50), &known), None);
    }

    #[test]
    fn a_message_is_one_harmless_line() {
        let problem = Problem {
            level: Level::Error,
            file: "a\x1b[31m\n.toml".to_owned(),
            line: Some(3),
            key: String::new(),
            message: unknown("key", &join("site", "\x07\u{202e}x"), "x", &[]),
        };
        assert_eq!(
            problem.to_string(),
            "a\\u{1b}[31m\\n.toml:3: unknown key 'site.\"\\u0007\\u{202e}x\"'; no key is known here"
        );
    }
}
