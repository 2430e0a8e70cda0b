//! What there is near a URL: the same page under other addresses, and the neighbours of its name.

use ecluse_cdx::{KeyRange, LookupError, cdxj};
use serde::Serialize;

use crate::pages::Words;
use crate::site::Question;
use crate::url_text::{key_of, safe_url};

/// Names of the page that a directory shows.
const INDEXES: [&str; 8] = [
    "index.html",
    "index.htm",
    "index.php",
    "index.asp",
    "index.aspx",
    "index.jsp",
    "default.htm",
    "default.asp",
];
/// Neighbours that are shown, and lines that are read for them.
const NEAR: usize = 8;
const NEAR_LINES: usize = 2_000;
/// Captures that are counted of a variant.
const COUNTED: u64 = 10_000;

/// A URL of the archive with its address.
#[derive(Debug, Serialize)]
pub(crate) struct UrlLink {
    url: String,
    href: String,
    count: String,
}

/// Returns other addresses of a page: with and without the name of a directory's own page, and without its query.
fn variants(url: &str) -> Vec<String> {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (url, None),
    };
    let mut variants = Vec::new();
    if query.is_some() {
        variants.push(address.to_owned());
    }
    let Some(slash) = address.rfind('/') else {
        return variants;
    };
    let (directory, name) = address.split_at(slash + 1);
    let is_index = INDEXES.iter().any(|index| name.eq_ignore_ascii_case(index));
    if is_index {
        variants.push(directory.to_owned());
    }
    let directory = match name {
        "" => Some(directory.to_owned()),
        _ if is_index => Some(directory.to_owned()),
        name if !name.contains('.') => Some(format!("{address}/")),
        _ => None,
    };
    if let Some(directory) = directory {
        variants.extend(INDEXES.iter().map(|index| format!("{directory}{index}")));
    }
    variants
}

/// Looks for the variants of a URL; returns those that the archive has, and those that it has not.
pub(crate) fn tried_variants(
    question: &Question<'_>,
    url: &str,
    words: &Words<'_>,
    may_list: &dyn Fn(&[u8]) -> bool,
) -> Result<(Vec<UrlLink>, Vec<String>), LookupError> {
    let mut keys = vec![key_of(url)];
    let (mut found, mut tried) = (Vec::new(), Vec::new());
    for variant in variants(url) {
        let key = key_of(&variant);
        if keys.contains(&key) {
            continue;
        }
        keys.push(key.clone());
        let Some(key) = key else {
            continue;
        };
        let mut lines = question.generation.lines.range(KeyRange::exact(&key))?;
        let mut count = 0;
        let mut read = 0;
        while read < COUNTED
            && let Some(line) = lines.next_line()?
        {
            read += 1;
            count += u64::from(may_list(line));
        }
        match count {
            0 => tried.push(variant),
            _ => found.push(UrlLink {
                href: question.list_path(&variant),
                url: variant,
                count: words.captures(count),
            }),
        }
    }
    Ok((found, tried))
}

/// Returns URLs of the same host whose keys are next to that of a URL.
pub(crate) fn near_in_name(
    question: &Question<'_>,
    url: &str,
    may_list: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<UrlLink>, LookupError> {
    let Some(key) = key_of(url) else {
        return Ok(Vec::new());
    };
    let host = KeyRange::host(&key);
    let is_before = |line: &[u8]| line < key.as_slice();
    let before = nearest(question, host.clone(), is_before, may_list, true)?;
    let after = KeyRange {
        from: key.clone(),
        ..host
    };
    let after = nearest(question, after, |_| true, may_list, false)?;
    Ok(before.into_iter().chain(after).collect())
}

/// Returns the first URLs of a range, or the last of those that are read.
fn nearest(
    question: &Question<'_>,
    range: KeyRange,
    is_in: impl Fn(&[u8]) -> bool,
    may_list: &dyn Fn(&[u8]) -> bool,
    is_last: bool,
) -> Result<Vec<UrlLink>, LookupError> {
    let mut lines = question.generation.lines.range(range)?;
    let mut links: Vec<UrlLink> = Vec::new();
    let mut last_key = Vec::new();
    for _ in 0..NEAR_LINES {
        let Some(line) = lines.next_line()?.filter(|line| is_in(line)) else {
            break;
        };
        let key = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        if key == last_key || !may_list(line) {
            continue;
        }
        last_key = key.to_vec();
        let Ok(capture) = cdxj::parse(line) else {
            continue;
        };
        let Some(url) = capture.url.as_deref() else {
            continue;
        };
        let is_page = capture.status.as_deref().is_none_or(|s| s.starts_with('2'));
        if !is_page {
            continue;
        }
        if links.len() == NEAR / 2 {
            if !is_last {
                break;
            }
            links.remove(0);
        }
        links.push(UrlLink {
            url: url.to_owned(),
            href: format!("/{}/*/{}", question.collection, safe_url(url)),
            count: String::new(),
        });
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_other_addresses() {
        assert_eq!(
            variants("http://a/b/?x=1")[..2],
            ["http://a/b/", "http://a/b/index.html"]
        );
        assert_eq!(variants("http://a/b/Index.html")[0], "http://a/b/");
        assert_eq!(variants("http://a/b")[0], "http://a/b/index.html");
        assert!(variants("http://a/b.pdf").is_empty());
    }
}
