//! Regular expressions on URLs, bounded in size.
//!
//! They see bytes: a parsed URL is ASCII, and without Unicode tables an expression is small and fast. The `regex` crate
//! never backtracks, so no expression can stall the crawl; what needs backtracking it refuses.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use thiserror::Error;

/// The memory that one expression may take.
const LARGEST: usize = 1 << 20;

/// The memory that all expressions of one rule may take.
const LARGEST_SET: usize = 16 << 20;

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegexFault {
    /// It is no regular expression, or one that would need backtracking.
    #[error("{pattern:?} is no regular expression: {why}")]
    Syntax {
        /// The expression.
        pattern: String,
        /// What the compiler says.
        why: String,
    },
    /// It needs too much memory.
    #[error("{pattern:?} is too large when compiled; use smaller repetitions")]
    TooLarge {
        /// The expression.
        pattern: String,
    },
    /// It holds letters that no URL has.
    #[error(
        "{pattern:?} can never match: a URL has {found:?} only as {escaped}, or in a host as xn--…"
    )]
    NotAscii {
        /// The expression.
        pattern: String,
        /// The letter.
        found: char,
        /// How a URL writes it.
        escaped: String,
    },
    /// It is empty, and would match everything.
    #[error("an empty expression matches every URL")]
    Empty,
}

/// What part of a URL an expression must match.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RegexReach {
    /// Any part, unless it says `^` and `$`.
    #[default]
    Anywhere,
    /// All of it, as in Heritrix.
    Whole,
}

/// Expressions of which one that matches is named.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    set: RegexSet,
    names: Vec<String>,
}

impl Patterns {
    /// Compiles expressions under their names; on an error says which one it was.
    pub(super) fn compile<'a>(
        patterns: impl IntoIterator<Item = (&'a str, &'a str)>,
        reach: RegexReach,
        ignores_case: bool,
    ) -> Result<Patterns, (usize, RegexFault)> {
        let (names, patterns): (Vec<&str>, Vec<&str>) = patterns.into_iter().unzip();
        for (index, pattern) in patterns.iter().enumerate() {
            check_text(pattern).map_err(|fault| (index, fault))?;
        }
        let reached: Vec<String> = patterns.iter().map(|text| reached(text, reach)).collect();
        let built = RegexSetBuilder::new(&reached)
            .unicode(false)
            .case_insensitive(ignores_case)
            .size_limit(LARGEST_SET)
            .build();
        let names = names.into_iter().map(str::to_owned).collect();
        let set = match built {
            Ok(set) => set,
            // The set does not say which one it was.
            Err(_) => return Err(culprit(&patterns, &reached, ignores_case)),
        };
        Ok(Patterns { set, names })
    }

    /// Returns the name of the first expression that matches.
    pub(super) fn find(&self, text: &str) -> Option<&str> {
        if self.names.is_empty() || !self.set.is_match(text.as_bytes()) {
            return None;
        }
        let first = self.set.matches(text.as_bytes()).iter().next()?;
        self.names.get(first).map(String::as_str)
    }
}

/// Compiles one expression.
pub(super) fn compile_one(pattern: &str, ignores_case: bool) -> Result<Regex, RegexFault> {
    check_text(pattern)?;
    build(pattern, pattern, ignores_case)
}

pub(super) fn reached(pattern: &str, reach: RegexReach) -> String {
    match reach {
        RegexReach::Anywhere => pattern.to_owned(),
        RegexReach::Whole => format!("^(?:{pattern})$"),
    }
}

/// Returns the first expression that does not compile, else the last, which made them too large together.
fn culprit(patterns: &[&str], reached: &[String], ignores_case: bool) -> (usize, RegexFault) {
    for (index, (pattern, reached)) in patterns.iter().zip(reached).enumerate() {
        if let Err(fault) = build(pattern, reached, ignores_case) {
            return (index, fault);
        }
    }
    let pattern = patterns.last().copied().unwrap_or_default().to_owned();
    (
        patterns.len().saturating_sub(1),
        RegexFault::TooLarge { pattern },
    )
}

fn check_text(pattern: &str) -> Result<(), RegexFault> {
    if pattern.is_empty() {
        return Err(RegexFault::Empty);
    }
    let Some(found) = pattern.chars().find(|c| !c.is_ascii()) else {
        return Ok(());
    };
    let mut buffer = [0; 4];
    let escaped = found.encode_utf8(&mut buffer).bytes();
    Err(RegexFault::NotAscii {
        pattern: pattern.to_owned(),
        found,
        escaped: escaped.map(|byte| format!("%{byte:02X}")).collect(),
    })
}

fn build(pattern: &str, anchored: &str, ignores_case: bool) -> Result<Regex, RegexFault> {
    let built = RegexBuilder::new(anchored)
        .unicode(false)
        .case_insensitive(ignores_case)
        .size_limit(LARGEST)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => RegexFault::TooLarge {
            pattern: pattern.to_owned(),
        },
        other => RegexFault::Syntax {
            pattern: pattern.to_owned(),
            why: last_line(&other.to_string()),
        },
    })
}

/// The compiler draws an arrow under the fault; what it means stands in its last line.
fn last_line(message: &str) -> String {
    let line = message.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(patterns: &[&str], reach: RegexReach) -> Result<Patterns, (usize, RegexFault)> {
        Patterns::compile(
            patterns.iter().map(|pattern| (*pattern, *pattern)),
            reach,
            false,
        )
    }

    #[test]
    fn the_first_that_matches_is_named() {
        let patterns = compile(&["b+", "a"], RegexReach::Anywhere).unwrap();
        assert_eq!(patterns.find("xabx"), Some("b+"));
        assert_eq!(patterns.find("xax"), Some("a"));
        assert_eq!(patterns.find("x"), None);
        let whole = compile(&["b+", "a|ab"], RegexReach::Whole).unwrap();
        assert_eq!(whole.find("ab"), Some("a|ab"));
        assert_eq!(whole.find("abb"), None);
        assert_eq!(compile(&[], RegexReach::Whole).unwrap().find("a"), None);
    }

    #[test]
    fn a_bad_expression_is_named() {
        for (pattern, why) in [
            ("a(b", r#""a(b" is no regular expression: unclosed group"#),
            (
                r"(a)\1",
                r#""(a)\\1" is no regular expression: backreferences are not supported"#,
            ),
            (
                "a(?=b)",
                r#""a(?=b)" is no regular expression: look-around, including look-ahead and look-behind, is not supported"#,
            ),
            ("", "an empty expression matches every URL"),
            (
                "é",
                r#""é" can never match: a URL has 'é' only as %C3%A9, or in a host as xn--…"#,
            ),
            (
                "((a{200}){200}){200}",
                r#""((a{200}){200}){200}" is too large when compiled; use smaller repetitions"#,
            ),
        ] {
            let (index, fault) = compile(&["fine", pattern], RegexReach::Anywhere).unwrap_err();
            assert_eq!((index, fault.to_string().as_str()), (1, why));
        }
    }
}
