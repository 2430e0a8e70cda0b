//! The rest of a command line: `--name value` and `--name`, in any order.

use std::str::FromStr;

use anyhow::{Context, bail};

/// What of the command line nobody has asked for yet.
pub(crate) struct Flags {
    words: Vec<String>,
}

impl Flags {
    pub(crate) fn new(words: impl Iterator<Item = String>) -> Self {
        Self {
            words: words.collect(),
        }
    }

    /// Tells whether `--name` stands there.
    pub(crate) fn switch(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// Returns what stands after `--name`.
    pub(crate) fn value<Value: FromStr>(&mut self, name: &str) -> anyhow::Result<Option<Value>> {
        let Some(at) = self.words.iter().position(|word| word == name) else {
            return Ok(None);
        };
        self.words.remove(at);
        if at == self.words.len() {
            bail!("{name} wants a value");
        }
        let word = self.words.remove(at);
        let value = word.parse().ok();
        Ok(Some(
            value.with_context(|| format!("{name} cannot be {word:?}"))?,
        ))
    }

    /// Returns all that nobody has asked for.
    pub(crate) fn rest(self) -> Vec<String> {
        self.words
    }

    /// Fails when something was not asked for.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        bail!("no such option: {}", self.words.join(" "))
    }
}
