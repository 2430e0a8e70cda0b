//! Seeds that librarians have forced out since plan made the order: weeks may lie between an order and its crawl.
//!
//! Asked once, when a job begins, so that nobody looks at thousands of them one by one. Of orders that a person gave all seeds are
//! kept, and those that are out are told as such in the reports: what is never asked for is [`crate::forced`]'s to say.

use std::io::{self, BufRead, BufReader, Read};

use ecluse_names::{ForcedRules, ForcedVerdict, Normaliser, key_of};
use ecluse_stage::{Failure, Home, Parcel};

use crate::Settings;

/// The stage whose orders are looked at.
const PLAN: &str = "plan";

/// What is forced out of an order.
#[derive(Default)]
pub(crate) struct ForcedSeeds {
    rules: Option<ForcedRules>,
}

/// How many seeds of a file stay, and how many do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeedShare {
    pub(crate) left: u64,
    pub(crate) out: u64,
}

impl ForcedSeeds {
    /// Reads the rules, where plan made the order of a parcel.
    ///
    /// # Errors
    /// When the rules make no sense.
    pub(crate) fn of(parcel: &Parcel, settings: &Settings, home: &Home) -> Result<Self, Failure> {
        if parcel.receipt_of(PLAN)?.is_none() {
            return Ok(Self::default());
        }
        let rules = ForcedRules::read(&home.path(&settings.forced)).map_err(Failure::config)?;
        Ok(Self {
            rules: Some(rules).filter(|rules| rules.text().is_some()),
        })
    }

    /// Counts the seeds of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn share(&self, from: impl Read) -> io::Result<SeedShare> {
        let mut share = SeedShare::default();
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            match self.is_out(&line) {
                true => share.out += 1,
                false => share.left += 1,
            }
            line.clear();
        }
        Ok(share)
    }

    /// Returns the file without the lines that are forced out.
    pub(crate) fn without<Source: Read>(&self, from: Source) -> SeedsLeft<'_, Source> {
        SeedsLeft {
            lines: BufReader::new(from),
            forced: self,
            line: Vec::new(),
            read: 0,
        }
    }

    fn is_out(&self, line: &[u8]) -> bool {
        let Some(rules) = &self.rules else {
            return false;
        };
        let text = String::from_utf8_lossy(line);
        let Some(seed) = text.split_whitespace().next() else {
            return false;
        };
        // With a scheme or without: plan writes whole domains as names.
        let mut normaliser = Normaliser::new();
        let Ok(found) = normaliser.read_url(seed.as_bytes()) else {
            return false;
        };
        let key = key_of(found.name);
        let of_name = rules.of_name(key.as_bytes());
        of_name.is_some_and(|(rule, _)| rule.verdict == ForcedVerdict::Out)
            || found.url.is_some_and(|url| rules.is_out(&url))
    }
}

/// A file of seeds as it is read without some of its lines.
pub(crate) struct SeedsLeft<'a, Source> {
    lines: BufReader<Source>,
    forced: &'a ForcedSeeds,
    line: Vec<u8>,
    read: usize,
}

impl<Source: Read> Read for SeedsLeft<'_, Source> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.line.len() {
            self.line.clear();
            self.read = 0;
            if self.lines.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(0);
            }
            if self.forced.is_out(&self.line) {
                self.line.clear();
            }
        }
        let count = (&self.line[self.read..]).read(into)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forced_out_is_left_out_and_counted() {
        let rule = |verdict: &str, what: &str| {
            format!(
                "[[rule]]\nverdict = '{verdict}'\n{what}\nwho = 'a'\nwhen = '2026-11-01'\nwhy = 'b'\n"
            )
        };
        let text = rule("out", "domain = 'exemple.fr'")
            + &rule("in", "domain = 'bon.exemple.fr'")
            + &rule("out", "prefix = 'http://autre.fr/blog/'");
        let forced = ForcedSeeds {
            rules: Some(ForcedRules::parse(&text).unwrap()),
        };
        let seeds = "www.exemple.fr exemple.fr\nhttp://bon.exemple.fr/ exemple.fr\n\
                     http://autre.fr/blog/a autre.fr\nhttp://autre.fr/ autre.fr\n\nhttp://[\n";
        let mut left = String::new();
        let mut reader = forced.without(seeds.as_bytes());
        reader.read_to_string(&mut left).unwrap();
        assert_eq!(
            left,
            "http://bon.exemple.fr/ exemple.fr\nhttp://autre.fr/ autre.fr\n\nhttp://[\n"
        );
        let share = forced.share(seeds.as_bytes()).unwrap();
        assert_eq!(share, SeedShare { left: 4, out: 2 });
        let none = ForcedSeeds::default();
        assert_eq!(none.share(seeds.as_bytes()).unwrap().out, 0);
    }
}
