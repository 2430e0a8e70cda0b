//! A line of `uri-errors.log`: a URL that was given up, or failed in a way worth a look.

use std::fmt::Write;

use crate::escape::{put_phrase, put_url, put_word};
use crate::moment::Moment;

/// A URL that was given up, or failed in a way worth a look.
#[derive(Debug, Clone, Copy)]
pub struct UriError<'a> {
    /// When the line is written.
    pub logged: Moment,
    /// The HTTP status, or Heritrix's code.
    pub status: i32,
    /// The URL.
    pub url: &'a str,
    /// The queue it was in.
    pub queue: &'a str,
    /// How often it was tried.
    pub attempts: u32,
    /// What happened, in words.
    pub reason: &'a str,
}

impl UriError<'_> {
    /// Returns its line, without the end of line: five fields, and the reason as the rest.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{} {:>5} ", self.logged, self.status);
        put_url(&mut line, self.url);
        line.push(' ');
        put_word(&mut line, self.queue);
        write!(line, " {} ", self.attempts).expect("a String takes everything");
        put_phrase(&mut line, self.reason);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_rest_of_the_line() {
        let line = UriError {
            logged: Moment(1_794_790_800_123),
            status: -2,
            url: "http://a/b c",
            queue: "org,example,",
            attempts: 30,
            reason: "connection refused\nby 192.0.2.1",
        }
        .line();
        assert_eq!(
            line,
            "2026-11-16T01:00:00.123Z    -2 http://a/b%20c org,example, 30 connection refused%0Aby 192.0.2.1"
        );
    }
}
