//! Guesses that lead nowhere: when a few of one pattern from one source end in 404, the rest of them are given up.
//!
//! A string in a script or a JSON document may look like a URL and be relative to something that nobody can know. One
//! that is wrong is seldom alone: a search index holds a thousand. Links that a page states are never given up. The
//! counts are in memory; after a restart a few more requests are made.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ecluse_frontier::Item;
use ecluse_scope::Limit;
use url::Url;

/// Patterns that are remembered.
const PATTERNS: usize = 50_000;
/// A whole kind of files from one source is given up after so many times as many misses as one directory of it.
const WHOLE: u32 = 4;
/// A pattern with one hit among so many misses is given up all the same.
const HITS: u32 = 20;

/// What became of guesses, by pattern.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    counts: HashMap<u64, GuessCount>,
}

#[derive(Debug, Default, Clone, Copy)]
struct GuessCount {
    hits: u32,
    misses: u32,
}

/// A URL and how it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuessWay<'a> {
    pub(crate) url: &'a str,
    pub(crate) hops: &'a str,
    pub(crate) via: &'a str,
}

impl<'a> From<&'a Item> for GuessWay<'a> {
    fn from(item: &'a Item) -> Self {
        Self {
            url: &item.url,
            hops: &item.hops,
            via: &item.via,
        }
    }
}

/// The patterns of a guess: files of its kind in its directory, and all files of its kind, from its source.
struct Patterns {
    near: u64,
    whole: u64,
}

impl Guesses {
    /// Takes note of what became of a URL.
    pub(crate) fn note(&mut self, way: GuessWay<'_>, status: i32) {
        let is_hit = (200..400).contains(&status);
        if !is_hit && !matches!(status, 404 | 410) {
            return;
        }
        let Some(patterns) = patterns(way) else {
            return;
        };
        if self.counts.len() >= PATTERNS {
            self.counts.clear();
        }
        for pattern in [patterns.near, patterns.whole] {
            let count = self.counts.entry(pattern).or_default();
            if is_hit {
                count.hits = count.hits.saturating_add(1);
            } else {
                count.misses = count.misses.saturating_add(1);
            }
        }
    }

    /// Tells whether a URL is a guess of a pattern that leads nowhere.
    pub(crate) fn are_vain(&self, way: GuessWay<'_>, limit: Limit<u32>) -> bool {
        let Some(limit) = limit.get() else {
            return false;
        };
        if self.counts.is_empty() {
            return false;
        }
        let Some(patterns) = patterns(way) else {
            return false;
        };
        let is_over = |pattern: u64, limit: u32| {
            let count = self.counts.get(&pattern).copied().unwrap_or_default();
            count.misses >= limit.max(1).max(count.hits.saturating_mul(HITS))
        };
        is_over(patterns.near, limit) || is_over(patterns.whole, limit.saturating_mul(WHOLE))
    }
}

/// Returns the patterns of a URL, if it is a guess.
fn patterns(way: GuessWay<'_>) -> Option<Patterns> {
    let hop = way.hops.bytes().rfind(|hop| *hop != b'R')?;
    if !matches!(hop, b'X' | b'L') {
        return None;
    }
    let via = Url::parse(way.via).ok()?;
    // Markup in a string is a link, but its base is a guess.
    if hop == b'L' && !matches!(extension(via.path()), "js" | "mjs" | "json") {
        return None;
    }
    let url = Url::parse(way.url).ok()?;
    let mut source = DefaultHasher::new();
    via.host_str().hash(&mut source);
    // The file itself does not count: what is beside it is of the same kind.
    let (directory, _) = via.path().rsplit_once('/').unwrap_or_default();
    for name in directory.split('/').take(3) {
        name.hash(&mut source);
    }
    url.host_str().hash(&mut source);
    extension(url.path()).hash(&mut source);
    let mut near = source.clone();
    url.path().rsplit('/').nth(1).hash(&mut near);
    Some(Patterns {
        near: near.finish(),
        whole: source.finish(),
    })
}

fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way<'a>(url: &'a str, hops: &'a str, via: &'a str) -> GuessWay<'a> {
        GuessWay { url, hops, via }
    }

    const FIVE: Limit<u32> = Limit::At(5);

    #[test]
    fn a_few_misses_of_one_pattern_end_it() {
        let mut guesses = Guesses::default();
        let via = "http://lock.example/trait.impl/core/clone/trait.Clone.js";
        let urls: Vec<String> = (0..6)
            .map(|n| format!("http://lock.example/std/core/{n}.html"))
            .collect();
        for url in &urls[..5] {
            assert!(!guesses.are_vain(way(url, "LL", via), FIVE), "{url}");
            guesses.note(way(url, "LL", via), 404);
        }
        assert!(guesses.are_vain(way(&urls[5], "LL", via), FIVE));
        assert!(!guesses.are_vain(way(&urls[5], "LL", via), Limit::None));
        // Other files, other directories, other sources and what a page says are not concerned.
        let others = [
            way("http://lock.example/std/core/5.png", "LL", via),
            way("http://lock.example/std/alloc/5.html", "LL", via),
            way(
                "http://lock.example/std/core/5.html",
                "LX",
                "http://lock.example/search/index.js",
            ),
            way(
                "http://lock.example/std/core/5.html",
                "LL",
                "http://lock.example/std/",
            ),
            way("http://lock.example/std/core/5.html", "LE", via),
        ];
        for other in others {
            assert!(!guesses.are_vain(other, FIVE), "{other:?}");
        }
        // Enough directories, and the whole kind of files is given up.
        for n in 0..15 {
            let url = format!("http://lock.example/std/{n}/a.html");
            guesses.note(way(&url, "LL", via), 404);
        }
        assert!(guesses.are_vain(others[1], FIVE));
        assert!(!guesses.are_vain(others[0], FIVE));
    }

    #[test]
    fn a_pattern_that_leads_somewhere_is_followed() {
        let mut guesses = Guesses::default();
        let via = "http://lock.example/app.js";
        let guess = way("http://lock.example/img/1.png", "LEXR", via);
        guesses.note(guess, 200);
        for _ in 1..20 {
            guesses.note(guess, 404);
            guesses.note(guess, 503);
        }
        assert!(!guesses.are_vain(guess, FIVE));
        guesses.note(guess, 404);
        assert!(guesses.are_vain(guess, FIVE));
    }
}
