//! `ecluse lookup`: lines of the current index, by bisection.
//!
//! Ends with 0 when a line was found, with 1 when the index has none, and with another code when it could not be asked.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_cdx::{KeyRange, LineFault, Lookup, LookupError, cdxj};
use ecluse_generation::{FLAT, IndexDirectory, SUMMARY};
use ecluse_stage::Exit;
use ecluse_telemetry::printable;

use crate::cli::{LookupOptions, Match};
use crate::context::{DriverContext, Trouble};
use crate::show;

/// What the program ends with when nothing was found.
pub(crate) const NONE_FOUND: u8 = 1;
/// More captures of a host than this are not counted.
const COUNTED: u64 = 1_000_000;

pub(crate) fn lookup(
    context: &DriverContext,
    options: &LookupOptions,
) -> Result<ExitCode, Trouble> {
    let range = range_of(&with_scheme(&options.url), options.matches)?;
    let collection = options.collection.as_deref();
    let on_terminal = io::stdout().is_terminal();
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let table = (on_terminal && !context.json).then(|| Table {
        has_urls: options.matches != Match::Exact,
        width: show::columns(io::stdout()),
    });
    let mut found = 0;
    let mut put = |line: &[u8]| -> Result<(), Trouble> {
        found += 1;
        if context.json {
            let object = as_json(line).map_err(|fault| {
                Trouble::new(Exit::Held, format!("line {found} of the answer: {fault}"))
            })?;
            writeln!(out, "{object}")?;
        } else if let Some(table) = &table {
            if found == 1 {
                writeln!(out, "{}", table.head())?;
            }
            writeln!(out, "{}", table.row(line))?;
        } else {
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    };
    let mut result = Ok(());
    let mut left = options.limit.unwrap_or(u64::MAX);
    if left > 0 {
        each_line(context, collection, range, &mut |line| {
            result = put(line);
            left -= 1;
            result.is_ok() && left > 0
        })?;
    }
    result?;
    out.flush()?;
    drop(out);
    if found > 0 {
        return Ok(Exit::Done.into());
    }
    if on_terminal {
        tell_none(context, &options.url, collection)?;
    }
    Ok(NONE_FOUND.into())
}

/// Calls `see` with each line of the current index in a range, until it says that it has seen enough.
pub(crate) fn each_line(
    context: &DriverContext,
    collection: Option<&str>,
    range: KeyRange,
    see: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), Trouble> {
    let index = context.root.join(&context.pipeline.archive.index);
    let index = IndexDirectory::of(&index, collection).map_err(Trouble::usage)?;
    let lookup = Lookup::open(&list_of(context, collection, &index)?).map_err(unreadable)?;
    let mut matches = lookup.range(range).map_err(unreadable)?;
    while let Some(line) = matches.next_line().map_err(unreadable)? {
        if !see(line) {
            break;
        }
    }
    Ok(())
}

/// Says that nothing was found, and what there is of the host.
pub(crate) fn tell_none(
    context: &DriverContext,
    url: &str,
    collection: Option<&str>,
) -> Result<(), Trouble> {
    let range = range_of(&with_scheme(url), Match::Host)?;
    let mut captures = 0u64;
    let mut urls = 0u64;
    let mut last = Vec::new();
    each_line(context, collection, range, &mut |line| {
        let key = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        captures += 1;
        if key != last {
            urls += 1;
            last = key.to_vec();
        }
        captures < COUNTED
    })?;
    let shown = printable(url.as_bytes());
    let more = if captures >= COUNTED {
        "more than "
    } else {
        ""
    };
    let host = match captures {
        0 => "nothing of its host either".to_owned(),
        _ => format!(
            "of its host: {more}{} of {}: {}",
            show::count(captures, "capture", "captures"),
            show::count(urls, "URL", "URLs"),
            context.command(&format!("lookup {} --match host", show::word(url)))
        ),
    };
    eprintln!("ecluse: no capture of {shown}; {host}");
    Ok(())
}

/// Captures as a person reads them.
struct Table {
    /// Captures of several URLs are shown, each with its own.
    has_urls: bool,
    width: usize,
}

impl Table {
    fn head(&self) -> String {
        let url = if self.has_urls { "  URL" } else { "" };
        format!(
            "{:<19}  STATUS  {:<24}  {:>8}  {:<9}{url}",
            "DATE", "TYPE", "SIZE", ""
        )
        .trim_end()
        .to_owned()
    }

    /// Returns a line as a row; one that makes no sense as it is. Everything in it may come from the web.
    fn row(&self, line: &[u8]) -> String {
        let Ok(capture) = cdxj::parse(line) else {
            return show::cut(&printable(line), self.width);
        };
        let text =
            |field: &Option<Cow<'_, str>>| printable(field.as_deref().unwrap_or("-").as_bytes());
        let size = capture
            .length_bytes
            .map_or_else(|| "-".to_owned(), show::bytes);
        let (mime, new) = match capture.is_revisit() {
            true => ("-".to_owned(), "unchanged"),
            false => (text(&capture.mime), "new"),
        };
        let url = match self.has_urls {
            true => format!("  {}", text(&capture.url)),
            false => String::new(),
        };
        let row = format!(
            "{}  {:<6}  {:<24}  {size:>8}  {new:<9}{url}",
            date_of(capture.time.as_str()),
            show::cut(&text(&capture.status), 6),
            show::cut(&mime, 24),
        );
        // What the URL is must be seen, even if it takes another line.
        match self.has_urls {
            true => row,
            false => show::cut(row.trim_end(), self.width),
        }
    }
}

/// Returns fourteen digits as a date and a time.
fn date_of(digits: &str) -> String {
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or("??");
    format!(
        "{}-{}-{} {}:{}:{}",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    )
}

/// Returns the key of a URL as somebody types it.
pub(crate) fn key_of(url: &str) -> Result<ecluse_surt::Surt, Trouble> {
    let url = with_scheme(url);
    ecluse_surt::Surt::of(url.as_bytes())
        .map_err(|error| Trouble::usage(format!("no key for {url:?}: {error}")))
}

/// Returns a URL that begins with a host and its port with a scheme before it: `canal.example:8080/` has none, though it
/// could be read so.
pub(crate) fn with_scheme(url: &str) -> Cow<'_, str> {
    let host = url.split(['/', '?', '#']).next().unwrap_or_default();
    match host.split_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            format!("http://{url}").into()
        }
        _ => url.into(),
    }
}

pub(crate) fn range_of(url: &str, matches: Match) -> Result<KeyRange, Trouble> {
    let key = key_of(url)?;
    let key = key.as_bytes();
    Ok(match matches {
        Match::Exact => KeyRange::exact(key),
        Match::Prefix => KeyRange::prefix(&as_far_as_written(key, url)),
        Match::Host => KeyRange::host(key),
        Match::Domain => KeyRange::domain(key),
    })
}

/// Returns a key with the slash or question mark that its URL ends with: a key has none there, but whoever writes one
/// asks for what is below and not for the neighbours. pywb reads a prefix in the same way.
fn as_far_as_written(key: &[u8], url: &str) -> Vec<u8> {
    let mut key = key.to_vec();
    if let Some(last @ (b'/' | b'?')) = url.as_bytes().last()
        && key.last() != Some(last)
    {
        key.push(*last);
    }
    key
}

/// Returns the file to ask: the flat index, or the summary of a ZipNum one without it.
fn list_of(
    context: &DriverContext,
    collection: Option<&str>,
    index: &IndexDirectory,
) -> Result<PathBuf, Trouble> {
    let current = index.current().map_err(|error| {
        let line = format!("{error}; {}", context.help_for_lost("index"));
        Trouble::new(Exit::Machine, line)
    })?;
    let Some(current) = current else {
        if let Some(lost) = context.lost_index(collection) {
            return Err(Trouble::new(
                Exit::Machine,
                format!("{lost}; {}", context.help_for_lost("index")),
            ));
        }
        return Err(Trouble::usage(format!(
            "no index in {}: bigmerge has made none yet",
            index.root().display()
        )));
    };
    let lists = [FLAT, SUMMARY].map(|name| current.join(name));
    let found = lists.into_iter().find(|list| Path::exists(list));
    found.ok_or_else(|| {
        let line = format!(
            "no {FLAT} and no {SUMMARY} in {}; {}",
            current.display(),
            context.help_for_lost("index")
        );
        Trouble::new(Exit::Machine, line)
    })
}

/// Returns a line as one JSON object, as pywb answers: key and time stand first, the rest as in the line.
fn as_json(line: &[u8]) -> Result<String, LineFault> {
    let capture = cdxj::parse(line)?;
    let text = String::from_utf8_lossy(line);
    let object = text.splitn(3, ' ').nth(2).unwrap_or("{}");
    let fields = object.strip_prefix('{').unwrap_or(object);
    let comma = if fields.trim_start() == "}" { "" } else { ", " };
    let key = serde_json::Value::from(&*capture.key);
    let time = capture.time.as_str();
    Ok(format!(
        "{{\"urlkey\": {key}, \"timestamp\": \"{time}\"{comma}{fields}"
    ))
}

fn unreadable(error: LookupError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_a_row_of_a_table() {
        let table = Table {
            has_urls: false,
            width: 80,
        };
        let line = br#"org,example)/ 20260101123456 {"url": "https://example.org/", "mime": "text/html", "status": "200", "length": "1500", "offset": "0", "filename": "a.warc.gz"}"#;
        assert_eq!(
            table.row(line),
            "2026-01-01 12:34:56  200     text/html                   1.5 kB  new"
        );
        let line = br#"org,example)/ 20260101123456 {"url": "https://example.org/\u001b[2J", "mime": "warc/revisit", "status": "200", "length": "500"}"#;
        let table = Table {
            has_urls: true,
            width: 200,
        };
        let row = table.row(line);
        assert!(row.contains("unchanged  https://example.org/"), "{row}");
        assert!(!row.contains('\x1b'), "{row}");
        assert_eq!(table.row(b"no line"), "no line");
    }

    #[test]
    fn a_host_with_its_port_needs_no_scheme() {
        for (given, read) in [
            ("canal.example:8080/a", "http://canal.example:8080/a"),
            ("canal.example:8080", "http://canal.example:8080"),
            ("http://canal.example:8080/", "http://canal.example:8080/"),
            ("canal.example/a:80", "canal.example/a:80"),
            ("dns:canal.example", "dns:canal.example"),
        ] {
            assert_eq!(with_scheme(given), read);
        }
    }

    #[test]
    fn a_prefix_ends_where_its_url_does() {
        for (url, from, to) in [
            (
                "http://example.com/path/f.html",
                "com,example)/path/f.html",
                "com,example)/path/f.htmm",
            ),
            (
                "http://example.com/path/",
                "com,example)/path/",
                "com,example)/path0",
            ),
            (
                "http://example.com/path",
                "com,example)/path",
                "com,example)/pati",
            ),
            (
                "http://example.com/path?",
                "com,example)/path?",
                "com,example)/path@",
            ),
            (
                "http://example.com/path/?",
                "com,example)/path?",
                "com,example)/path@",
            ),
            ("http://example.com/", "com,example)/", "com,example)0"),
            ("http://example.com", "com,example)/", "com,example)0"),
        ] {
            let range = range_of(url, Match::Prefix).ok().unwrap();
            assert_eq!(range.from, from.as_bytes(), "{url}");
            assert_eq!(range.to.as_deref(), Some(to.as_bytes()), "{url}");
        }
    }

    #[test]
    fn a_line_as_json_has_key_and_time_first() {
        let line =
            br#"org,example)/ 20260101000000 {"url": "https://example.org/", "length": "1"}"#;
        assert_eq!(
            as_json(line).unwrap(),
            r#"{"urlkey": "org,example)/", "timestamp": "20260101000000", "url": "https://example.org/", "length": "1"}"#
        );
        assert!(as_json(b"org,example)/ 20260101000000").is_err());
    }
}
