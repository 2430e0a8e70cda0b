//! One finished URL, and its line in `crawl.log`.
//!
//! The line is Heritrix's: twelve fields parted by blanks, a thirteenth with JSON if there is more to say. Nothing in a
//! field can part it or end the line.

use std::fmt::Write;

use serde_json::Value;

use crate::escape::{put_item, put_url, put_word};
use crate::moment::Moment;

/// What stands for a type nobody named, as in Heritrix.
pub(crate) const NO_TYPE: &str = "unknown";

/// One finished URL: a line of crawl.log, and what is counted of it.
#[derive(Debug, Clone)]
pub struct Fetched<'a> {
    /// When the line is written.
    pub logged: Moment,
    /// The HTTP status, or Heritrix's code.
    pub status: i32,
    /// The length of the content without its head.
    pub size: Option<u64>,
    /// The URL.
    pub url: &'a str,
    /// The hops from the seed to it, a letter each.
    pub hops: &'a str,
    /// Where it was found.
    pub via: &'a str,
    /// Its type as the server says, perhaps with parameters.
    pub mime: &'a str,
    /// Who fetched it.
    pub thread: u32,
    /// When the fetch began.
    pub begun: Option<Moment>,
    /// How long the fetch took.
    pub took_ms: Option<u64>,
    /// The digest of its content, `sha1:…`.
    pub digest: Option<&'a str>,
    /// The tag of the seed it descends from.
    pub source: &'a str,
    /// What else is to be told, a word each.
    pub annotations: &'a [String],
    /// What machines want to know besides.
    pub extra: Option<&'a Value>,
    /// The host it is counted for.
    pub host: &'a str,
    /// The bytes that came over the wire.
    pub wire_bytes: u64,
    /// What was kept of it.
    pub kind: Kept,
}

/// What was kept of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Stored,
    /// A reference to the same content, known by its digest.
    Revisit,
    /// The server's word that nothing has changed.
    NotModified,
    /// Nothing.
    Nothing,
}

impl Fetched<'_> {
    /// Returns its line for `crawl.log`, without the end of line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::with_capacity(160 + self.url.len() + self.via.len());
        let written =
            write!(line, "{} {:>5} ", self.logged, self.status).and_then(|()| match self.size {
                Some(size) => write!(line, "{size:>10} "),
                None => write!(line, "{:>10} ", "-"),
            });
        written.expect("a String takes everything");
        put_url(&mut line, self.url);
        line.push(' ');
        put_url(&mut line, self.hops);
        line.push(' ');
        put_url(&mut line, self.via);
        line.push(' ');
        put_url(&mut line, bare_type(self.mime));
        write!(line, " #{:03} ", self.thread).expect("a String takes everything");
        self.put_fetch(&mut line);
        line.push(' ');
        put_url(&mut line, self.digest.unwrap_or_default());
        line.push(' ');
        put_word(&mut line, self.source);
        line.push(' ');
        put_annotations(&mut line, self.annotations);
        if let Some(extra) = self.extra {
            line.push(' ');
            put_json(&mut line, extra);
        }
        line
    }

    fn put_fetch(&self, line: &mut String) {
        match (self.begun, self.took_ms) {
            (Some(begun), Some(took)) => {
                write!(line, "{}+{took}", begun.digits17()).expect("a String takes everything");
            }
            _ => line.push('-'),
        }
    }
}

/// Returns a type without its parameters.
pub(crate) fn bare_type(mime: &str) -> &str {
    let bare = mime.split([';', ',']).next().unwrap_or_default().trim();
    if bare.is_empty() { NO_TYPE } else { bare }
}

fn put_annotations(line: &mut String, annotations: &[String]) {
    let mut told = annotations
        .iter()
        .filter(|annotation| !annotation.is_empty());
    match told.next() {
        Some(first) => put_item(line, first),
        None => line.push('-'),
    }
    for annotation in told {
        line.push(',');
        put_item(line, annotation);
    }
}

/// Puts JSON without a blank: between its parts there is none, and within a text it is written `\u0020`.
fn put_json(line: &mut String, value: &Value) {
    for character in value.to_string().chars() {
        if character.is_whitespace() || character.is_control() {
            write!(line, "\\u{:04x}", u32::from(character)).expect("a String takes everything");
        } else {
            line.push(character);
        }
    }
}

/// A line of `crawl.log`, read back. Fields are as they stand there, escapes and all; `-` is nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// When it was written.
    pub logged: Moment,
    /// The HTTP status, or Heritrix's code.
    pub status: i32,
    /// The length of the content.
    pub size: Option<u64>,
    /// The URL.
    pub url: String,
    /// The hops from the seed.
    pub hops: String,
    /// Where it was found.
    pub via: String,
    /// Its type.
    pub mime: String,
    /// Who fetched it.
    pub thread: u32,
    /// When the fetch began.
    pub begun: Option<Moment>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// The digest of its content.
    pub digest: Option<String>,
    /// The tag of its seed.
    pub source: String,
    /// What else was told.
    pub annotations: Vec<String>,
    /// What was told to machines.
    pub extra: Option<Value>,
}

/// Reads a line of `crawl.log`, ours or Heritrix's; nothing if it is none.
#[must_use]
pub fn parse_line(line: &str) -> Option<LogLine> {
    let mut rest = line.trim_end_matches(['\r', '\n']);
    let mut fields = [""; 12];
    for field in &mut fields {
        rest = rest.trim_start_matches(' ');
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        if word.is_empty() {
            return None;
        }
        (*field, rest) = (word, behind);
    }
    let [
        logged,
        status,
        size,
        url,
        hops,
        via,
        mime,
        thread,
        fetch,
        digest,
        source,
        annotations,
    ] = fields;
    let (begun, took_ms) = match fetch.split_once('+') {
        Some((begun, took)) => (Moment::parse_digits17(begun), took.parse().ok()),
        None => (None, None),
    };
    let rest = rest.trim_matches(' ');
    let extra = match rest {
        "" | "-" => None,
        json => Some(serde_json::from_str(json).ok()?),
    };
    Some(LogLine {
        logged: Moment::parse_iso(logged)?,
        status: status.parse().ok()?,
        size: size.parse().ok(),
        url: url.to_owned(),
        hops: told(hops).to_owned(),
        via: told(via).to_owned(),
        mime: told(mime).to_owned(),
        thread: thread.strip_prefix('#')?.parse().ok()?,
        begun,
        took_ms,
        digest: Some(told(digest).to_owned()).filter(|digest| !digest.is_empty()),
        source: told(source).to_owned(),
        annotations: annotations_of(told(annotations)),
        extra,
    })
}

fn told(field: &str) -> &str {
    if field == "-" { "" } else { field }
}

/// Splits at commas, but for those between quotes: NetarchiveSuite writes `duplicate:"file,offset,date"`.
fn annotations_of(field: &str) -> Vec<String> {
    let mut quoted = false;
    let parts = field.split(|character| {
        quoted ^= character == '"';
        character == ',' && !quoted
    });
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fetched() -> Fetched<'static> {
        Fetched {
            logged: Moment(1_794_790_800_123),
            status: 200,
            size: Some(1403),
            url: "http://www.example.org/",
            hops: "",
            via: "",
            mime: "text/html; charset=utf-8",
            thread: 28,
            begun: Some(Moment(1_794_790_799_092)),
            took_ms: Some(65),
            digest: Some("sha1:SRUXQCLFCC4GVEDXGETBPUTUHRENTCRT"),
            source: "www.example.org",
            annotations: &[],
            extra: None,
            host: "www.example.org",
            wire_bytes: 1731,
            kind: Kept::Stored,
        }
    }

    #[test]
    fn lines_are_those_of_heritrix() {
        let annotations = [
            "content-size:1731".to_owned(),
            String::new(),
            "3t".to_owned(),
        ];
        let page = Fetched {
            annotations: &annotations,
            ..fetched()
        };
        assert_eq!(
            page.line(),
            "2026-11-16T01:00:00.123Z   200       1403 http://www.example.org/ - - text/html #028 \
             20261116005959092+65 sha1:SRUXQCLFCC4GVEDXGETBPUTUHRENTCRT www.example.org content-size:1731,3t"
        );
        let denied = Fetched {
            status: -9998,
            size: None,
            url: "http://www.example.org/private/",
            hops: "LLE",
            via: "http://www.example.org/",
            mime: "",
            thread: 1234,
            begun: None,
            took_ms: None,
            digest: None,
            source: "",
            ..fetched()
        };
        assert_eq!(
            denied.line(),
            "2026-11-16T01:00:00.123Z -9998          - http://www.example.org/private/ LLE \
             http://www.example.org/ unknown #1234 - - - -"
        );
    }

    #[test]
    fn hostile_text_stays_in_its_field() {
        let annotations = ["a b,c\nd".to_owned()];
        let extra = json!({"a key": "two words\u{2028}\n", "n": 1});
        let line = Fetched {
            url: "http://a/ b\n2026-11-16T01:00:00.123Z 200",
            hops: "L L",
            via: "http://a/\r\n\0",
            mime: "text/ht ml\u{200b};x",
            digest: Some("sha1: X"),
            source: "a tag\u{202e}",
            annotations: &annotations,
            extra: Some(&extra),
            ..fetched()
        }
        .line();
        assert_eq!(line.split_whitespace().count(), 13, "{line}");
        assert_eq!(line.lines().count(), 1);
        let read = parse_line(&line).unwrap();
        assert_eq!(read.url, "http://a/%20b%0A2026-11-16T01:00:00.123Z%20200");
        assert_eq!(read.via, "http://a/%0D%0A%00");
        assert_eq!(read.mime, "text/ht%20ml%E2%80%8B");
        assert_eq!(read.source, "a%20tag%E2%80%AE");
        assert_eq!(read.annotations, ["a%20b%2Cc%0Ad"]);
        assert_eq!(read.extra, Some(extra));
    }

    #[test]
    fn what_is_written_is_read() {
        let annotations = ["content-size:1731".to_owned(), "3t".to_owned()];
        let page = Fetched {
            annotations: &annotations,
            hops: "LE",
            via: "http://www.example.org/index",
            ..fetched()
        };
        let read = parse_line(&page.line()).unwrap();
        assert_eq!(
            (read.logged, read.status, read.size),
            (page.logged, 200, Some(1403))
        );
        assert_eq!((read.url.as_str(), read.via.as_str()), (page.url, page.via));
        assert_eq!(
            (read.hops.as_str(), read.mime.as_str()),
            ("LE", "text/html")
        );
        assert_eq!(
            (read.thread, read.begun, read.took_ms),
            (28, page.begun, Some(65))
        );
        assert_eq!(
            (read.digest.as_deref(), read.source.as_str()),
            (page.digest, page.source)
        );
        assert_eq!(
            (read.annotations.as_slice(), read.extra),
            (annotations.as_slice(), None)
        );
    }

    #[test]
    fn lines_of_netarchivesuite_are_read() {
        let read = parse_line(
            "2016-12-05T10:11:12.147Z   200       2026 http://example.org/blue E http://example.com/ \
             image/png #048 20161205101111667+248 sha1:C3PH3IWTSURQ7XILQRHDIDDGAD2ORRPH www.example.com \
             duplicate:\"2-1.arc,138604,20161205100310645\",3t {\"a\": \"b c\"}\n",
        )
        .unwrap();
        assert_eq!(
            read.annotations,
            ["duplicate:\"2-1.arc,138604,20161205100310645\"", "3t"]
        );
        assert_eq!(read.extra, Some(json!({"a": "b c"})));
        assert_eq!(read.took_ms, Some(248));
    }

    #[test]
    fn what_is_no_line_is_none() {
        let whole = fetched().line();
        assert!(parse_line(&whole).is_some());
        let eleven = whole.rsplit_once(' ').unwrap().0;
        for line in ["", "\n", "  ", eleven, "a b c d e f g h i j k l"] {
            assert_eq!(parse_line(line), None, "{line}");
        }
        assert_eq!(parse_line(&format!("{whole} {{")), None);
    }

    proptest! {
        #[test]
        fn a_line_has_twelve_fields_or_thirteen(
            url in any::<String>(),
            via in any::<String>(),
            mime in any::<String>(),
            source in any::<String>(),
            annotations in proptest::collection::vec(any::<String>(), 0..4),
            extra in proptest::option::of(any::<String>()),
            status in any::<i32>(),
            size in proptest::option::of(any::<u64>()),
        ) {
            let extra = extra.map(Value::String);
            let line = Fetched {
                url: &url,
                hops: &via,
                via: &via,
                mime: &mime,
                source: &source,
                annotations: &annotations,
                extra: extra.as_ref(),
                status,
                size,
                ..fetched()
            }
            .line();
            let fields = 12 + usize::from(extra.is_some());
            prop_assert_eq!(line.split_whitespace().count(), fields);
            prop_assert_eq!(line.split_ascii_whitespace().count(), fields);
            prop_assert_eq!(line.lines().count(), 1);
            let read = parse_line(&line);
            prop_assert!(read.is_some(), "{}", line);
            let read = read.expect("just seen");
            prop_assert_eq!((read.status, read.size, read.extra), (status, size, extra));
        }

        #[test]
        fn any_text_can_be_read(text in any::<String>()) {
            let _ = parse_line(&text);
        }
    }
}
