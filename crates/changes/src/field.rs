//! The fields of a line: numbers, times, and texts from the web.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::archive_time::ArchiveTime;
use crate::error::BadLine;
use crate::words::WordMeasures;

/// Stands for what is not known.
pub(crate) const NONE: &str = "-";

/// The fields of a line, one after the other.
pub(crate) struct Fields<'a> {
    rest: std::str::Split<'a, char>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        Self {
            rest: line.split('\t'),
        }
    }

    pub(crate) fn text(&mut self, column: &'static str) -> Result<&'a str, BadLine> {
        let text = self.rest.next().filter(|text| !text.is_empty());
        text.ok_or(BadLine { column })
    }

    pub(crate) fn parsed<Value: FromStr>(
        &mut self,
        column: &'static str,
    ) -> Result<Value, BadLine> {
        self.text(column)?.parse().map_err(|_| BadLine { column })
    }

    /// A number that is neither infinite nor none.
    pub(crate) fn number(&mut self, column: &'static str) -> Result<f64, BadLine> {
        let number: f64 = self.parsed(column)?;
        number
            .is_finite()
            .then_some(number)
            .ok_or(BadLine { column })
    }

    pub(crate) fn optional<Value>(
        &mut self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Option<Value>,
    ) -> Result<Option<Value>, BadLine> {
        match self.text(column)? {
            NONE => Ok(None),
            text => parse(text).map(Some).ok_or(BadLine { column }),
        }
    }

    pub(crate) fn time(&mut self, column: &'static str) -> Result<ArchiveTime, BadLine> {
        self.optional_time(column)?.ok_or(BadLine { column })
    }

    pub(crate) fn optional_time(
        &mut self,
        column: &'static str,
    ) -> Result<Option<ArchiveTime>, BadLine> {
        self.optional(column, ArchiveTime::parse)
    }

    pub(crate) fn optional_number(&mut self, column: &'static str) -> Result<Option<f64>, BadLine> {
        self.optional(column, |text| {
            text.parse().ok().filter(|number: &f64| number.is_finite())
        })
    }

    /// A text that was written by [`push_escaped`].
    pub(crate) fn escaped(&mut self, column: &'static str) -> Result<Option<String>, BadLine> {
        self.optional(column, unescape)
    }

    /// Two numbers that lines of earlier programs end without.
    pub(crate) fn words(&mut self) -> Result<Option<WordMeasures>, BadLine> {
        if self.rest.clone().next().is_none() {
            return Ok(None);
        }
        let infrequency = self.optional_number("infrequency")?;
        let share = self.optional_number("word-share")?;
        let measures = infrequency.zip(share);
        Ok(measures.map(|(infrequency, share)| WordMeasures { infrequency, share }))
    }

    /// Fails when there is more.
    pub(crate) fn end(mut self) -> Result<(), BadLine> {
        match self.rest.next() {
            None => Ok(()),
            Some(_) => Err(BadLine { column: "end" }),
        }
    }
}

/// Appends a tab and a value, or what stands for none.
pub(crate) fn push_optional<Value>(
    line: &mut String,
    value: Option<Value>,
    push: impl FnOnce(&mut String, Value),
) {
    line.push('\t');
    match value {
        Some(value) => push(line, value),
        None => line.push_str(NONE),
    }
}

/// Appends the measures of words, as two numbers.
pub(crate) fn push_words(line: &mut String, words: Option<WordMeasures>) {
    push_optional(line, words.map(|words| words.infrequency), push_number);
    push_optional(line, words.map(|words| words.share), push_number);
}

/// Appends a number with nine digits that count, as short as they allow.
pub(crate) fn push_number(line: &mut String, number: f64) {
    let _ = write!(line, "{}", rounded(number));
}

/// Returns a number as it is written.
pub(crate) fn rounded(number: f64) -> f64 {
    format!("{number:.8e}").parse().unwrap_or(number)
}

/// Appends a text from the web in which nothing can be taken for the end of a field.
pub(crate) fn push_escaped(line: &mut String, text: &str) {
    if text == NONE || text.is_empty() {
        // An empty text is one all the same.
        line.push_str(if text.is_empty() { "%" } else { "%2D" });
        return;
    }
    for character in text.chars() {
        match character {
            ' ' | '%' | '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(line, "%{:02X}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    if text == "%" {
        return Some(String::new());
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        let code = u8::from_str_radix(after.get(..2)?, 16).ok()?;
        plain.push(code.is_ascii().then_some(char::from(code))?);
        rest = &after[2..];
    }
    plain.push_str(rest);
    Some(plain)
}

/// Returns a URL without what would end a field: such characters are none of a URL.
pub(crate) fn push_url(line: &mut String, url: &str) {
    if url.is_empty() {
        line.push_str(NONE);
        return;
    }
    for character in url.chars() {
        match character {
            ' ' | '\u{0}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(line, "%{:02X}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
}
