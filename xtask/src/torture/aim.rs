//! Where processes are to die: each start aims at the failpoints that were hit least.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ecluse_spool::failpoint;

use crate::dice::Dice;

/// So many hits are plenty.
const ENOUGH: u64 = 25;

/// Failpoints that not every stage comes by, with those that do. The others are everybody's.
const ONLY: &[(&str, &[&str])] = &[
    ("output-handed-over", &["drip", "split", "tally"]),
    ("file-attached", &["relay"]),
    ("manifest-replaced", &["relay"]),
    ("passed-on", &["relay"]),
    ("member-filed", &["tally"]),
    ("consumed", &["drip", "split", "tally"]),
    ("consumed-removed", &["drip", "split", "tally"]),
    ("part-committed", &["drip"]),
    ("why-written", &["drip", "relay"]),
    ("held", &["drip", "relay"]),
    ("trouble-written", &["relay"]),
    ("deferred", &["relay"]),
    ("undeferred", &["relay"]),
    ("given-back", &["relay"]),
    ("adopt-taken", &["drip", "relay"]),
    ("adopt-described", &["drip", "relay"]),
    ("adopted", &["drip", "relay"]),
    ("settle-adoption-returned", &["drip", "relay"]),
    ("settle-poisoned", &["drip"]),
];

/// Failpoints that are reached only after a death at another.
const AFTER: &[(&str, &str)] = &[
    ("reap-stolen", "reap-taken"),
    ("settle-receipt", "committed"),
    ("settle-adoption-returned", "adopt-taken"),
];

/// Counts the hits and chooses where to die next.
pub(crate) struct Aim {
    log: PathBuf,
    read: u64,
    kills: HashMap<String, u64>,
    stops: u64,
}

impl Aim {
    /// Counts what processes write to `log` before they die.
    pub(crate) fn new(log: &Path) -> Self {
        Self {
            log: log.to_owned(),
            read: 0,
            kills: HashMap::new(),
            stops: 0,
        }
    }

    /// Reads what was hit since.
    pub(crate) fn read_hits(&mut self) -> anyhow::Result<()> {
        let Ok(mut file) = fs::File::open(&self.log) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        for line in text[..whole].lines() {
            match line.split_once(' ') {
                Some(("kill", name)) => *self.kills.entry(name.to_owned()).or_default() += 1,
                Some(("stop", _)) => self.stops += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns how often processes stopped themselves.
    pub(crate) fn stops(&self) -> u64 {
        self.stops
    }

    /// Returns the failpoints with fewer hits than `limit`.
    pub(crate) fn seldom(&self, limit: u64) -> Vec<(&'static str, u64)> {
        failpoint::ALL
            .iter()
            .map(|name| (*name, self.hits(name)))
            .filter(|(_, hits)| *hits < limit)
            .collect()
    }

    /// Tells whether a failpoint is among those hit least.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.hits(name) < ENOUGH || self.least("").iter().take(6).any(|least| *least == name)
    }

    /// Returns the failpoints of a process about to start, for `ECLUSE_FAILPOINTS`.
    pub(crate) fn failpoints(&self, stage: &str, zombies: bool, dice: &mut Dice) -> String {
        let (everywhere, stop) = if zombies { (0.002, 0.75) } else { (0.004, 0.0) };
        let mut text = format!(
            "everywhere={everywhere} stop={stop} log={}",
            self.log.display()
        );
        let mut least = self.least(stage);
        let short = least.iter().filter(|name| self.hits(name) < ENOUGH);
        match short.count() {
            0 => least.truncate(6),
            short => least.truncate(short.min(6)),
        }
        for _ in 0..2 {
            if dice.happens(0.7) {
                let mut name = *dice.pick(&least);
                let mut odds = *dice.pick(&[1.0, 0.5, 0.1]);
                if self.hits(name) < ENOUGH {
                    odds = 1.0;
                }
                if let Some((_, before)) = AFTER.iter().find(|(after, _)| *after == name)
                    && dice.happens(0.5)
                {
                    name = before;
                }
                let odds = if zombies { odds * 0.2 } else { odds };
                text.push_str(&format!(" focus={name}:{odds}"));
            }
        }
        text
    }

    /// Returns the failpoints a stage comes by, those hit least first; all for no stage.
    fn least(&self, stage: &str) -> Vec<&'static str> {
        let mut names: Vec<&str> = failpoint::ALL
            .iter()
            .copied()
            .filter(|name| {
                let only = ONLY.iter().find(|(only, _)| only == name);
                stage.is_empty() || only.is_none_or(|(_, stages)| stages.contains(&stage))
            })
            .collect();
        names.sort_by_key(|name| self.hits(name));
        names
    }

    fn hits(&self, name: &str) -> u64 {
        self.kills.get(name).copied().unwrap_or(0)
    }
}
