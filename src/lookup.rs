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
use crate::desk::{Desk, Trouble};

/// What the program ends with when nothing was found.
const NONE_FOUND: u8 = 1;

pub(crate) fn lookup(desk: &Desk, options: &LookupOptions) -> Result<ExitCode, Trouble> {
    let range = range_of(&with_scheme(&options.url), options.matches)?;
    let index = desk.root.join(&desk.pipeline.archive.index);
    let shelf =
        IndexDirectory::of(&index, options.collection.as_deref()).map_err(Trouble::usage)?;
    let lookup = Lookup::open(&list_of(&shelf)?).map_err(unreadable)?;
    let mut matches = lookup.range(range).map_err(unreadable)?;

    // A key may be a URL as the web gave it.
    let on_terminal = io::stdout().is_terminal();
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut found = 0;
    while options.limit.is_none_or(|limit| found < limit)
        && let Some(line) = matches.next_line().map_err(unreadable)?
    {
        found += 1;
        if desk.json {
            let object = as_json(line).map_err(|fault| {
                Trouble::new(Exit::Held, format!("line {found} of the answer: {fault}"))
            })?;
            writeln!(out, "{object}")?;
        } else {
            match on_terminal {
                true => out.write_all(printable(line).as_bytes())?,
                false => out.write_all(line)?,
            }
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    if found == 0 && on_terminal {
        eprintln!("nothing found for {}", printable(options.url.as_bytes()));
    }
    Ok(if found > 0 {
        Exit::Done.into()
    } else {
        NONE_FOUND.into()
    })
}

/// Returns a URL that begins with a host and its port with a scheme before it: `canal.example:8080/` has none, though it
/// could be read so.
fn with_scheme(url: &str) -> Cow<'_, str> {
    let host = url.split(['/', '?', '#']).next().unwrap_or_default();
    match host.split_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            format!("http://{url}").into()
        }
        _ => url.into(),
    }
}

fn range_of(url: &str, matches: Match) -> Result<KeyRange, Trouble> {
    let key = ecluse_surt::Surt::of(url.as_bytes())
        .map_err(|error| Trouble::usage(format!("no key for {url:?}: {error}")))?;
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
fn list_of(shelf: &IndexDirectory) -> Result<PathBuf, Trouble> {
    let current = shelf
        .current()
        .map_err(|error| Trouble::new(Exit::Machine, error))?;
    let Some(current) = current else {
        return Err(Trouble::usage(format!(
            "no index in {}: bigmerge has made none yet",
            shelf.root().display()
        )));
    };
    let lists = [FLAT, SUMMARY].map(|name| current.join(name));
    let found = lists.into_iter().find(|list| Path::exists(list));
    found.ok_or_else(|| {
        Trouble::new(
            Exit::Machine,
            format!("no {FLAT} and no {SUMMARY} in {}", current.display()),
        )
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
