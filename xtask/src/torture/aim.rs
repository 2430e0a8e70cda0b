//! Where processes are to die: each start aims at the failpoints that were hit least.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::dice::Dice;

/// So many hits are plenty.
const ENOUGH: u64 = 25;

/// Where processes may die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failpoints {
    /// All of them.
    pub(crate) all: &'static [&'static str],
    /// Those that not every stage comes by, with the stages that do. The others are everybody's.
    only: &'static [(&'static str, &'static [&'static str])],
    /// Those that are reached only after a death at another.
    after: &'static [(&'static str, &'static str)],
}

/// Those of the directories.
pub(crate) const DIRECTORIES: Failpoints = Failpoints {
    all: ecluse_failpoint::ALL,
    only: ONLY,
    after: AFTER,
};

/// Those of the engine beyond one machine.
pub(crate) const JETSTREAM: Failpoints = Failpoints {
    all: &ecluse_engine::STEPS,
    only: &[
        ("sheet-put", &["split", "tally"]),
        ("member-filed", &["tally"]),
        ("mark-put", &["relay"]),
        ("set-aside", &["relay"]),
        ("let-go-on", &["relay"]),
        ("mark-removed", &["relay"]),
        ("put-back", &["relay"]),
    ],
    after: &[("settled", "claimed")],
};

const ONLY: &[(&str, &[&str])] = &[
    ("output-handed-over", &["split", "tally"]),
    ("file-attached", &["relay"]),
    ("manifest-replaced", &["relay"]),
    ("passed-on", &["relay"]),
    ("member-filed", &["tally"]),
    ("consumed", &["split", "tally"]),
    ("consumed-removed", &["split", "tally"]),
    ("why-written", &["relay"]),
    ("held", &["relay"]),
    ("trouble-written", &["relay"]),
    ("deferred", &["relay"]),
    ("undeferred", &["relay"]),
    ("given-back", &["relay"]),
    ("adopt-taken", &["relay"]),
    ("adopt-described", &["relay"]),
    ("adopted", &["relay"]),
    ("settle-adoption-returned", &["relay"]),
    ("settle-poisoned", &["relay"]),
];

const AFTER: &[(&str, &str)] = &[
    ("reap-stolen", "reap-taken"),
    ("settle-receipt", "committed"),
    ("settle-handed-over", "committed"),
    ("settle-adoption-returned", "adopt-taken"),
];

/// Counts the hits and chooses where to die next.
pub(crate) struct Aim {
    dir: PathBuf,
    at: Failpoints,
    logs: HashMap<usize, Log>,
    kills: HashMap<String, u64>,
    stops: u64,
}

/// What the processes of one place wrote before they died.
#[derive(Default)]
struct Log {
    read: u64,
    last: String,
}

impl Aim {
    /// Counts what processes write to their logs in `dir` before they die.
    pub(crate) fn new(dir: &Path, at: Failpoints) -> Self {
        Self {
            dir: dir.to_owned(),
            at,
            logs: HashMap::new(),
            kills: HashMap::new(),
            stops: 0,
        }
    }

    fn log(&self, place: usize) -> PathBuf {
        self.dir.join(format!("hits-{place}"))
    }

    /// Reads what was hit since in one place.
    pub(crate) fn read_hits(&mut self, place: usize) -> anyhow::Result<()> {
        let Ok(mut file) = fs::File::open(self.log(place)) else {
            return Ok(());
        };
        let log = self.logs.entry(place).or_default();
        file.seek(SeekFrom::Start(log.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        log.last.clear();
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        log.read += whole as u64;
        for line in text[..whole].lines() {
            match line.split_once(' ') {
                Some(("kill", name)) => {
                    *self.kills.entry(name.to_owned()).or_default() += 1;
                    name.clone_into(&mut log.last);
                }
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

    /// Returns how often the failpoint that was hit least was hit.
    pub(crate) fn fewest(&self) -> u64 {
        let hits = self.at.all.iter().map(|name| self.hits(name));
        hits.min().unwrap_or(0)
    }

    /// Returns the failpoints with fewer hits than `limit`.
    pub(crate) fn seldom(&self, limit: u64) -> Vec<(&'static str, u64)> {
        self.at
            .all
            .iter()
            .map(|name| (*name, self.hits(name)))
            .filter(|(_, hits)| *hits < limit)
            .collect()
    }

    /// Tells whether a failpoint is among those hit least.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.hits(name) < ENOUGH || self.least("").iter().take(6).any(|least| *least == name)
    }

    /// Returns the failpoints of a process about to start in a place, for `ECLUSE_FAILPOINTS`.
    pub(crate) fn failpoints(
        &self,
        place: usize,
        stage: &str,
        zombies: bool,
        dice: &mut Dice,
    ) -> String {
        let (everywhere, stop) = if zombies {
            (0.0007, 0.75)
        } else {
            (0.0015, 0.0)
        };
        let mut text = format!(
            "everywhere={everywhere} stop={stop} log={}",
            self.log(place).display()
        );
        for (name, odds) in self.focus(place, stage, dice) {
            let odds = if zombies { odds * 0.2 } else { odds };
            text.push_str(&format!(" focus={name}:{odds}"));
        }
        text
    }

    /// Returns the failpoints of a process that is to die only where fewer than `limit` did: one of
    /// those its stage comes by.
    pub(crate) fn seldom_failpoints(
        &self,
        place: usize,
        stage: &str,
        limit: u64,
        dice: &mut Dice,
    ) -> String {
        let mut text = format!("log={}", self.log(place).display());
        let mut seldom = self.least(stage);
        seldom.retain(|name| self.hits(name) < limit);
        if !seldom.is_empty() {
            let name = seldom[dice.below(seldom.len())];
            let name = self.reachable(place, name);
            text.push_str(&format!(" focus={name}:1.0"));
        }
        text
    }

    /// Returns the failpoint itself, or the one where a process must die before anybody comes by it.
    fn reachable(&self, place: usize, name: &'static str) -> &'static str {
        let last = self.logs.get(&place).map_or("", |log| log.last.as_str());
        match self.at.after.iter().find(|(after, _)| *after == name) {
            Some((_, before)) if *before != last => before,
            _ => name,
        }
    }

    fn focus(&self, place: usize, stage: &str, dice: &mut Dice) -> Vec<(&'static str, f64)> {
        // Who died there last has just made what comes after.
        let last = self.logs.get(&place).map_or("", |log| log.last.as_str());
        let follows =
            |(after, before): &&(&str, &str)| *before == last && self.hits(after) < ENOUGH;
        if let Some((after, _)) = self.at.after.iter().find(follows) {
            return vec![(after, 1.0)];
        }
        let mut least = self.least(stage);
        let short = least.iter().filter(|name| self.hits(name) < ENOUGH);
        match short.count() {
            0 => least.truncate(6),
            short => least.truncate(short.min(6)),
        }
        let mut focus = Vec::new();
        for chance in [0.6, 0.4] {
            if !dice.happens(chance) {
                continue;
            }
            // The lesser of two draws: those hit least come up most.
            let at = dice.below(least.len()).min(dice.below(least.len()));
            let name = least[at];
            let before = self.at.after.iter().find(|(after, _)| *after == name);
            focus.push(match before {
                Some((_, before)) => (*before, 1.0),
                None if self.hits(name) < ENOUGH => (name, 1.0),
                None => (name, *dice.pick(&[1.0, 0.5, 0.1])),
            });
        }
        focus
    }

    /// Returns the failpoints a stage comes by, those hit least first; all for no stage.
    fn least(&self, stage: &str) -> Vec<&'static str> {
        let mut names: Vec<&str> = self
            .at
            .all
            .iter()
            .copied()
            .filter(|name| {
                let only = self.at.only.iter().find(|(only, _)| only == name);
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
