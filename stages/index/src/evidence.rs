//! What a file tells of the sites in it: the language of their pages, the sites that these link to, and their media types.
//!
//! For the perimeter of broad harvests; `docs/formats/results.md` has the lines. A few pages of each site are looked at, and only what
//! the reader has in memory anyway. Memory is bounded whatever the file says. It decides nothing: plan does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::Read;

use ecluse_extract::{Context, Hop, Url, extract, plain_text};
use ecluse_names::{Normaliser, Registered};
use ecluse_warc::{HttpHead, Record};
use flate2::read::MultiGzDecoder;

/// So much of a page is looked at.
const PAGE_BYTES: u64 = 256 << 10;
/// So much of its text is enough to tell its language.
const TEXT_BYTES: usize = 8 << 10;
/// So many sites of a file are told of.
const SITES: usize = 100_000;
/// So many links from site to site are told of.
const LINKS: usize = 200_000;
/// So many media types of a site.
const TYPES: usize = 30;
/// A media type is no longer.
const TYPE_BYTES: usize = 60;

/// Gathers what a file tells of its sites.
pub(crate) struct EvidenceGatherer {
    /// Pages of a site that are looked at.
    pages: u32,
    sites: BTreeMap<String, SiteEvidence>,
    /// Who is linked to, by whom, and when that was seen last.
    links: BTreeMap<(String, String), String>,
    normaliser: Normaliser,
    /// The last host and its site: most records have that of the one before.
    last: (String, Option<String>),
}

#[derive(Debug, Default)]
struct SiteEvidence {
    pages: u32,
    /// The day of its last capture.
    day: String,
    /// How many bytes of text were in each language.
    languages: BTreeMap<&'static str, usize>,
    types: BTreeSet<String>,
}

impl EvidenceGatherer {
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            pages,
            sites: BTreeMap::new(),
            links: BTreeMap::new(),
            normaliser: Normaliser::new(),
            last: (String::new(), None),
        }
    }

    /// Looks at a response of which nothing was read yet.
    pub(crate) fn look<Source: Read>(&mut self, record: &Record<'_, Source>) {
        let Some(head) = record.http() else { return };
        if head.status().is_none_or(|status| status != "200") {
            return;
        }
        let (Some(uri), Ok(time)) = (record.target_uri(), record.capture_time()) else {
            return;
        };
        let Some(day) = time.as_str().get(..8) else {
            return;
        };
        let Some(host) = host_of(&uri) else { return };
        let Some(site) = self.site_of(host) else {
            return;
        };
        if !self.sites.contains_key(&site) && self.sites.len() >= SITES {
            return;
        }
        let content_type = head.text("Content-Type").unwrap_or_default();
        let known = self.sites.entry(site.clone()).or_default();
        if known.day.as_str() < day {
            known.day = day.to_owned();
        }
        if let Some(essence) = essence_of(&content_type)
            && known.types.len() < TYPES
        {
            known.types.insert(essence);
        }
        let is_page =
            content_type.starts_with("text/html") || content_type.starts_with("application/xhtml");
        if !is_page || known.pages >= self.pages {
            return;
        }
        let Some(page) = record.block().and_then(|block| body_of(block, head)) else {
            return;
        };
        known.pages += 1;
        if let Some((language, bytes)) = language_of(&page, &content_type) {
            *known.languages.entry(language).or_default() += bytes;
        }
        self.links_of(&page, &uri, &content_type, &site, day);
    }

    fn links_of(&mut self, page: &[u8], uri: &str, content_type: &str, site: &str, day: &str) {
        let Ok(url) = Url::parse(uri) else { return };
        let context = Context::new(&url, Some(content_type));
        let mut hosts = BTreeSet::new();
        // What cannot be read to its end has given the links before that.
        let _ = extract(&mut &*page, &context, &mut |link| {
            if link.hop == Hop::Navigation
                && let Some(host) = host_of(&link.url)
            {
                hosts.insert(host.to_owned());
            }
        });
        for host in hosts {
            let Some(target) = self.site_of(&host) else {
                continue;
            };
            if target == site || self.links.len() >= LINKS {
                continue;
            }
            let seen = self.links.entry((target, site.to_owned())).or_default();
            if seen.as_str() < day {
                *seen = day.to_owned();
            }
        }
    }

    fn site_of(&mut self, host: &str) -> Option<String> {
        if self.last.0 != host {
            let found = self.normaliser.read(host.as_bytes()).ok();
            let site = found.map(|found| Registered::of(found.name).site.to_owned());
            self.last = (host.to_owned(), site);
        }
        self.last.1.clone()
    }

    /// Returns the lines, sorted; none where nothing was found.
    pub(crate) fn lines(&self) -> String {
        let mut lines = Vec::new();
        for (site, found) in &self.sites {
            let day = &found.day;
            // The most text; where two have as much, always the same one.
            let language = found
                .languages
                .iter()
                .max_by_key(|(code, bytes)| (**bytes, **code));
            if let Some((language, _)) = language {
                lines.push(format!("{site}\tlanguage\t{language}\t{day}"));
            }
            if !found.types.is_empty() {
                let types: Vec<&str> = found.types.iter().map(String::as_str).collect();
                let mut told = types.join(",");
                while told.len() > 1000 {
                    told.truncate(told.rfind(',').unwrap_or(0));
                }
                lines.push(format!("{site}\tmedia\t{told}\t{day}"));
            }
        }
        for ((target, site), day) in &self.links {
            lines.push(format!("{target}\tlinked\t{site}\t{day}"));
        }
        lines.sort_unstable();
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }
}

/// Returns the host of a URL of the web, without looking at more of it.
fn host_of(url: &str) -> Option<&str> {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = host.rsplit_once(':').map_or(host, |(host, port)| {
        match port.bytes().all(|byte| byte.is_ascii_digit()) {
            true => host,
            false => authority,
        }
    });
    Some(host).filter(|host| !host.is_empty())
}

/// Returns a media type without its parameters, if it looks like one.
fn essence_of(content_type: &str) -> Option<String> {
    let essence = content_type.split(';').next()?.trim().to_ascii_lowercase();
    let is_sane = |byte: u8| byte.is_ascii_alphanumeric() || b"/+.-_".contains(&byte);
    let is_type = essence.len() <= TYPE_BYTES
        && essence.matches('/').count() == 1
        && essence.bytes().all(is_sane);
    is_type.then_some(essence)
}

/// Returns the beginning of a body, without chunks and gzip; of other encodings nothing.
fn body_of(block: &[u8], head: HttpHead<'_>) -> Option<Vec<u8>> {
    let body = block.get(head.head_bytes()?..)?;
    let unchunked;
    let body = match head.is_chunked() {
        true => {
            unchunked = without_chunks(body);
            unchunked.as_slice()
        }
        false => body,
    };
    let encoding = head.text("Content-Encoding").unwrap_or_default();
    let mut page = Vec::new();
    match encoding.trim().to_ascii_lowercase().as_str() {
        "" | "identity" | "none" => {
            body.take(PAGE_BYTES).read_to_end(&mut page).ok()?;
        }
        "gzip" | "x-gzip" => {
            // A damaged stream gives what came before the damage.
            let _ = MultiGzDecoder::new(body)
                .take(PAGE_BYTES)
                .read_to_end(&mut page);
        }
        _ => return None,
    }
    Some(page)
}

/// Returns a body without the lengths of its chunks, as far as they make sense.
pub(crate) fn without_chunks(body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut rest = body;
    while let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(256)]) {
        let line = String::from_utf8_lossy(&rest[..end]);
        let digits = line.split(';').next().unwrap_or_default().trim();
        let Ok(length) = usize::from_str_radix(digits, 16) else {
            break;
        };
        rest = &rest[end + 1..];
        let chunk = &rest[..length.min(rest.len())];
        if chunk.is_empty() {
            break;
        }
        whole.extend_from_slice(chunk);
        rest = &rest[chunk.len()..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
    match whole.is_empty() {
        // It says so and is not.
        true => body.to_vec(),
        false => whole,
    }
}

/// Returns the language of a page and how much text tells it, if that can be told.
fn language_of(page: &[u8], content_type: &str) -> Option<(&'static str, usize)> {
    let text = plain_text(page, content_type)?.text;
    let end = (0..=TEXT_BYTES.min(text.len())).rev();
    let end = end.into_iter().find(|end| text.is_char_boundary(*end))?;
    let found = whatlang::detect(&text[..end])?;
    found
        .is_reliable()
        .then(|| (short_code(found.lang().code()), end))
}

/// Returns the two letters of ISO 639-1 for the three of 639-3, where there are two.
fn short_code(code: &'static str) -> &'static str {
    const SHORT: [(&str, &str); 68] = [
        ("afr", "af"),
        ("aka", "ak"),
        ("amh", "am"),
        ("ara", "ar"),
        ("aze", "az"),
        ("bel", "be"),
        ("ben", "bn"),
        ("bul", "bg"),
        ("cat", "ca"),
        ("ces", "cs"),
        ("cmn", "zh"),
        ("cym", "cy"),
        ("dan", "da"),
        ("deu", "de"),
        ("ell", "el"),
        ("eng", "en"),
        ("epo", "eo"),
        ("est", "et"),
        ("fin", "fi"),
        ("fra", "fr"),
        ("guj", "gu"),
        ("heb", "he"),
        ("hin", "hi"),
        ("hrv", "hr"),
        ("hun", "hu"),
        ("hye", "hy"),
        ("ind", "id"),
        ("ita", "it"),
        ("jav", "jv"),
        ("jpn", "ja"),
        ("kan", "kn"),
        ("kat", "ka"),
        ("khm", "km"),
        ("kor", "ko"),
        ("lat", "la"),
        ("lav", "lv"),
        ("lit", "lt"),
        ("mal", "ml"),
        ("mar", "mr"),
        ("mkd", "mk"),
        ("mya", "my"),
        ("nep", "ne"),
        ("nld", "nl"),
        ("nob", "nb"),
        ("ori", "or"),
        ("pan", "pa"),
        ("pes", "fa"),
        ("pol", "pl"),
        ("por", "pt"),
        ("ron", "ro"),
        ("rus", "ru"),
        ("sin", "si"),
        ("slk", "sk"),
        ("slv", "sl"),
        ("sna", "sn"),
        ("spa", "es"),
        ("srp", "sr"),
        ("swe", "sv"),
        ("tam", "ta"),
        ("tel", "te"),
        ("tgl", "tl"),
        ("tha", "th"),
        ("tuk", "tk"),
        ("tur", "tr"),
        ("ukr", "uk"),
        ("urd", "ur"),
        ("uzb", "uz"),
        ("vie", "vi"),
    ];
    let known = SHORT.iter().find(|(long, _)| *long == code);
    known.map_or(code, |(_, short)| short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_of_a_page_is_told_when_it_is_sure() {
        let page = "<html><body><p>Les écluses permettent aux bateaux de franchir les dénivellations \
                    des canaux et des rivières, et l'éclusier ouvre les portes.</p></body></html>";
        let found = language_of(page.as_bytes(), "text/html; charset=utf-8");
        assert_eq!(found.map(|(language, _)| language), Some("fr"));
        assert_eq!(language_of(b"<p>ok</p>", "text/html"), None);
        assert_eq!(language_of(b"", "image/png"), None);
        assert_eq!((short_code("zul"), short_code("deu")), ("zul", "de"));
    }

    #[test]
    fn chunks_and_hosts_and_types() {
        assert_eq!(
            without_chunks(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"),
            b"abcde"
        );
        assert_eq!(without_chunks(b"not chunked"), b"not chunked");
        assert_eq!(without_chunks(b"ff\r\ncut"), b"cut");
        assert_eq!(
            host_of("https://a:b@www.exemple.fr:8080/x?y"),
            Some("www.exemple.fr")
        );
        assert_eq!(host_of("http://exemple.fr"), Some("exemple.fr"));
        assert_eq!(host_of("ftp://exemple.fr/"), None);
        assert_eq!(
            essence_of("Text/HTML; charset=x").as_deref(),
            Some("text/html")
        );
        assert_eq!(essence_of("text/html\tx"), None);
        assert_eq!(essence_of("nonsense"), None);
    }
}
