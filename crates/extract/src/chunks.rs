//! The tables by which bundlers name their files.
//!
//! A site that was built with webpack holds no name of a part that is loaded later, but a sum that makes them:
//! `"js/" + ({1:"home"}[e] || e) + "." + {1:"a1b2", 2:"c3d4"}[e] + ".js"`. [`ChunkSum`] reads such a sum from the tokens of a script and
//! says every name it can make. VitePress has a table of pages and hashes instead; [`vitepress_names`] reads that.

use crate::json;

/// Entries of all tables of a sum.
const ENTRIES: usize = 20_000;
/// Parts of a sum.
const PARTS: usize = 24;
/// Bytes of a part, a key or a value.
const PART_BYTES: usize = 200;
/// Bytes of all names that a sum makes.
const NAME_BYTES: usize = 4 << 20;

/// What a token did to a sum.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More may follow.
    Open,
    /// It has ended, whatever the token begins.
    Ended,
}

/// A sum of strings and tables being read.
#[derive(Debug)]
pub(crate) struct ChunkSum {
    parts: Vec<Part>,
    expects: Expects,
    open: u32,
    key: String,
    entries: usize,
}

#[derive(Debug)]
enum Part {
    Text(String),
    /// The number or name of the part that is asked for.
    Id,
    Table {
        entries: Vec<(String, String)>,
        /// Whether what is not in it stands for itself: `{…}[e] || e`.
        or_id: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    Part,
    Key,
    Colon,
    Value,
    Comma,
    Index,
    IndexId,
    IndexEnd,
    Sum,
    SecondBar,
    OrId,
}

impl ChunkSum {
    /// Begins a sum of which the first part and a plus sign have been read.
    pub(crate) fn new(first: &str) -> Self {
        Self {
            parts: vec![Part::Text(first.to_owned())],
            expects: Expects::Part,
            open: 0,
            key: String::new(),
            entries: 0,
        }
    }

    /// Begins a sum whose first part is a table, behind so many open parentheses.
    pub(crate) fn of_table(open: u32) -> Self {
        Self {
            open,
            ..Self::new("")
        }
    }

    /// Tells whether a string may be the first part of such a sum: a directory, or nothing.
    pub(crate) fn may_begin(text: &str) -> bool {
        text.len() <= PART_BYTES
            && (text.is_empty() || text.ends_with(['/', '.', '-', '~']) && text.contains('/'))
    }

    /// Takes a string.
    pub(crate) fn text(&mut self, text: &str) -> Progress {
        if text.len() > PART_BYTES {
            return self.give_up();
        }
        match self.expects {
            Expects::Part => self.part(Part::Text(text.to_owned())),
            Expects::Key => self.key(text),
            Expects::Value if self.entries < ENTRIES => {
                self.entries += 1;
                let key = std::mem::take(&mut self.key);
                if let Some(Part::Table { entries, .. }) = self.parts.last_mut() {
                    entries.push((key, text.to_owned()));
                }
                self.then(Expects::Comma)
            }
            _ => Progress::Ended,
        }
    }

    /// Takes a word or a number.
    pub(crate) fn word(&mut self, word: &[u8]) -> Progress {
        if word.len() > PART_BYTES {
            return self.give_up();
        }
        match self.expects {
            Expects::Part => self.part(Part::Id),
            Expects::Key => match str::from_utf8(word) {
                Ok(word) => self.key(word),
                Err(_) => Progress::Ended,
            },
            Expects::IndexId => self.then(Expects::IndexEnd),
            Expects::OrId => {
                if let Some(Part::Table { or_id, .. }) = self.parts.last_mut() {
                    *or_id = true;
                }
                self.then(Expects::Sum)
            }
            _ => Progress::Ended,
        }
    }

    /// Takes a byte that is neither.
    pub(crate) fn punctuation(&mut self, byte: u8) -> Progress {
        match (self.expects, byte) {
            (Expects::Part, b'(') => {
                self.open += 1;
                Progress::Open
            }
            (Expects::Part, b'{') => {
                let table = Part::Table {
                    entries: Vec::new(),
                    or_id: false,
                };
                self.part(table);
                self.then(Expects::Key)
            }
            (Expects::Colon, b':') => self.then(Expects::Value),
            (Expects::Comma, b',') => self.then(Expects::Key),
            (Expects::Key | Expects::Comma, b'}') => self.then(Expects::Index),
            (Expects::Index, b'[') => self.then(Expects::IndexId),
            (Expects::IndexEnd, b']') => self.then(Expects::Sum),
            (Expects::Sum, b'+') => self.then(Expects::Part),
            (Expects::Sum, b'|') if matches!(self.parts.last(), Some(Part::Table { .. })) => {
                self.then(Expects::SecondBar)
            }
            (Expects::SecondBar, b'|') => self.then(Expects::OrId),
            (Expects::Sum | Expects::Index, b')') if self.open > 0 => {
                self.open -= 1;
                Progress::Open
            }
            _ => Progress::Ended,
        }
    }

    /// Returns the names that the sum makes, if it is one that ended well.
    pub(crate) fn names(&self) -> Vec<String> {
        let is_file = matches!(self.parts.last(), Some(Part::Text(end))
            if [".js", ".mjs", ".css"].iter().any(|kind| end.split('?').next().unwrap_or(end).ends_with(kind)));
        if self.expects != Expects::Sum || self.open > 0 || !is_file {
            return Vec::new();
        }
        let mut keys: Vec<&str> = Vec::new();
        for part in &self.parts {
            if let Part::Table { entries, .. } = part {
                keys.extend(entries.iter().map(|(key, _)| key.as_str()));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let tables: Vec<Option<Table<'_>>> = self.parts.iter().map(Part::table).collect();
        let mut bytes = 0;
        keys.iter()
            .filter_map(|key| self.name(&tables, key))
            .take_while(|name| {
                bytes += name.len();
                bytes <= NAME_BYTES
            })
            .collect()
    }

    /// Ends the sum as none.
    fn give_up(&mut self) -> Progress {
        self.parts.clear();
        Progress::Ended
    }

    fn name(&self, tables: &[Option<Table<'_>>], key: &str) -> Option<String> {
        let mut name = String::new();
        for (part, table) in self.parts.iter().zip(tables) {
            let found = table.as_ref().and_then(|table| table.get(key).copied());
            name.push_str(match part {
                Part::Text(text) => text,
                Part::Id => key,
                Part::Table { or_id: true, .. } => found.unwrap_or(key),
                Part::Table { or_id: false, .. } => found?,
            });
        }
        Some(name)
    }

    fn key(&mut self, key: &str) -> Progress {
        self.key.clear();
        self.key.push_str(key);
        self.then(Expects::Colon)
    }

    fn part(&mut self, part: Part) -> Progress {
        if self.parts.len() >= PARTS {
            return Progress::Ended;
        }
        self.parts.push(part);
        self.then(Expects::Sum)
    }

    fn then(&mut self, expects: Expects) -> Progress {
        self.expects = expects;
        Progress::Open
    }
}

type Table<'a> = std::collections::HashMap<&'a str, &'a str>;

impl Part {
    fn table(&self) -> Option<Table<'_>> {
        match self {
            Part::Table { entries, .. } => Some(
                entries
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect(),
            ),
            Part::Text(_) | Part::Id => None,
        }
    }
}

/// The global variable of VitePress with its table of pages.
pub(crate) const VITEPRESS_PAGES: &[u8] = b"__VP_HASH_MAP__";

/// Returns the names of the files in VitePress's table: `{"guide_x.md":"a1b2"}` is `assets/guide_x.md.a1b2.js`.
pub(crate) fn vitepress_names(table: &str) -> Vec<String> {
    json::pairs(table)
        .filter(|(page, hash)| {
            page.ends_with(".md") && !hash.is_empty() && !hash.contains(['/', ' '])
        })
        .take(ENTRIES)
        .map(|(page, hash)| format!("assets/{page}.{hash}.js"))
        .collect()
}

/// Returns the directory in which a VitePress site lies, from its data.
pub(crate) fn vitepress_base(data: &str) -> Option<String> {
    json::pairs(data)
        .find(|(key, base)| key == "base" && base.starts_with('/') && base.ends_with('/'))
        .map(|(_, base)| base)
}
