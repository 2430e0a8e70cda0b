//! The captures of the keys that came in: their lines and those of the index, joined in one pass.

use std::fs::File;

use ecluse_cdx::{KeyRange, LineSource, Lines, Lookup, LookupError, MAX_LINE_BYTES, Matches};

/// So many lines of the index are passed over before the next key is searched for.
const PASSED_OVER: u32 = 5000;

/// Joins sorted lines that came in with the index.
pub(crate) struct CaptureJoin<'a> {
    /// What came in; none: every key of the index.
    incoming: Option<IncomingLines>,
    index: Option<IndexLines<'a>>,
    key: Vec<u8>,
}

struct IncomingLines {
    lines: Lines,
    /// The line that is next.
    next: Option<Vec<u8>>,
}

struct IndexLines<'a> {
    lookup: &'a Lookup,
    matches: Matches<'a>,
    next: Option<Vec<u8>>,
}

impl<'a> CaptureJoin<'a> {
    /// Joins lines that came in with an index.
    pub(crate) fn of(incoming: File, index: Option<&'a Lookup>) -> Result<Self, LookupError> {
        let source = LineSource::new("the captures", incoming);
        let mut lines = IncomingLines {
            lines: Lines::new(source, MAX_LINE_BYTES),
            next: None,
        };
        lines.advance()?;
        Ok(Self {
            incoming: Some(lines),
            index: index.map(IndexLines::begin).transpose()?,
            key: Vec::new(),
        })
    }

    /// Goes through all of an index.
    pub(crate) fn all(index: &'a Lookup) -> Result<Self, LookupError> {
        Ok(Self {
            incoming: None,
            index: Some(IndexLines::begin(index)?),
            key: Vec::new(),
        })
    }

    /// Returns the next key; lines of the one before that were not taken are passed over.
    pub(crate) fn next_key(&mut self) -> Result<Option<Vec<u8>>, LookupError> {
        while self.next_line()?.is_some() {}
        let next = match (&self.incoming, &self.index) {
            (Some(incoming), _) => &incoming.next,
            (None, Some(index)) => &index.next,
            (None, None) => &None,
        };
        let Some(line) = next else {
            return Ok(None);
        };
        self.key = key_of(line).to_vec();
        if let Some(index) = &mut self.index {
            index.seek(&self.key)?;
        }
        Ok(Some(self.key.clone()))
    }

    /// Returns the next line of the key.
    pub(crate) fn next_line(&mut self) -> Result<Option<Vec<u8>>, LookupError> {
        let key = &self.key;
        if key.is_empty() {
            return Ok(None);
        }
        let of_key = |line: &Option<Vec<u8>>| {
            line.as_deref()
                .filter(|line| key_of(line) == key)
                .map(<[u8]>::to_vec)
        };
        let incoming = self.incoming.as_ref().and_then(|lines| of_key(&lines.next));
        let indexed = self.index.as_ref().and_then(|lines| of_key(&lines.next));
        let line = match (&incoming, &indexed) {
            (Some(one), Some(other)) => Some(one.min(other).clone()),
            (one, other) => one.as_ref().or(other.as_ref()).cloned(),
        };
        if let Some(lines) = &mut self.incoming
            && incoming.is_some()
            && incoming == line
        {
            lines.advance()?;
        }
        if let Some(lines) = &mut self.index
            && indexed.is_some()
            && indexed == line
        {
            lines.advance()?;
        }
        Ok(line)
    }
}

impl IncomingLines {
    fn advance(&mut self) -> Result<(), LookupError> {
        self.next = self.lines.next_line()?.map(|line| line.bytes.to_vec());
        Ok(())
    }
}

impl<'a> IndexLines<'a> {
    fn begin(lookup: &'a Lookup) -> Result<Self, LookupError> {
        let mut lines = Self {
            lookup,
            matches: lookup.range(KeyRange::all())?,
            next: None,
        };
        lines.advance()?;
        Ok(lines)
    }

    fn advance(&mut self) -> Result<(), LookupError> {
        self.next = self.matches.next_line()?.map(<[u8]>::to_vec);
        Ok(())
    }

    /// Goes on to the first line that is not below a key.
    fn seek(&mut self, key: &[u8]) -> Result<(), LookupError> {
        let mut passed = 0;
        while self.next.as_deref().is_some_and(|line| key_of(line) < key) {
            if passed == PASSED_OVER {
                let from = KeyRange::exact(key).from;
                self.matches = self.lookup.range(KeyRange { from, to: None })?;
            }
            passed += 1;
            self.advance()?;
        }
        Ok(())
    }
}

fn key_of(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|byte| *byte == b' ');
    &line[..end.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    fn joined(mut join: CaptureJoin<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        while join.next_key().unwrap().is_some() {
            while let Some(line) = join.next_line().unwrap() {
                lines.push(String::from_utf8(line).unwrap());
            }
        }
        lines
    }

    #[test]
    fn every_line_of_a_key_comes_once_wherever_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.cdxj");
        let mut index: Vec<String> = (0..20_000).map(|n| format!("k{n:05} 1 {{}}")).collect();
        index.insert(3, "k00002 2 {}".into());
        std::fs::write(&path, index.join("\n") + "\n").unwrap();
        let lookup = Lookup::open(&path).unwrap();
        let incoming = "k00002 2 {}\nk00002 3 {}\nk00007x 1 {}\nk19998 0 {}\nz 1 {}\n";
        let join = CaptureJoin::of(file(incoming), Some(&lookup)).unwrap();
        assert_eq!(
            joined(join),
            [
                "k00002 1 {}",
                "k00002 2 {}",
                "k00002 3 {}",
                "k00007x 1 {}",
                "k19998 0 {}",
                "k19998 1 {}",
                "z 1 {}"
            ]
        );
        assert_eq!(joined(CaptureJoin::all(&lookup).unwrap()), index);
        let alone = CaptureJoin::of(file("a 1 {}\nb 1 {}\n"), None).unwrap();
        assert_eq!(joined(alone), ["a 1 {}", "b 1 {}"]);
        assert!(joined(CaptureJoin::of(file(""), Some(&lookup)).unwrap()).is_empty());
    }

    #[test]
    fn a_key_whose_lines_nobody_took_is_passed_over() {
        let mut join = CaptureJoin::of(file("a 1 {}\na 2 {}\nb 1 {}\n"), None).unwrap();
        assert_eq!(join.next_key().unwrap().unwrap(), b"a");
        assert_eq!(join.next_key().unwrap().unwrap(), b"b");
        assert!(join.next_key().unwrap().is_none());
    }
}
