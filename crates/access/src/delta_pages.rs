//! What changed: between two captures of a page, and on a site between two dates.

use hyper::StatusCode;
use minijinja::context;
use serde::Serialize;

use crate::capture_list::IndexedCapture;
use crate::moment::Moment;
use crate::page_text::{TextLines, is_text, lines_of};
use crate::query_string::Parameters;
use crate::reply::{Asked, Reply, redirect};
use crate::site::{AccessSite, Question, Refusal, Resolved, checked_url};
use crate::site_delta::{SiteDelta, SiteEntry};
use crate::text_delta::text_delta;
use crate::url_text::safe_url;

/// Of each text so much is compared, and of the comparison so much is shown.
const TEXT_BYTES: usize = 2 << 20;
const TEXT_LINES: usize = 20_000;
const SHOWN_LINES: usize = 2_000;

/// One side of a comparison.
#[derive(Serialize)]
struct DeltaSide {
    href: String,
    date: String,
    iso: String,
    status: u16,
    mime: String,
}

/// A URL in a list of the site's changes.
#[derive(Serialize)]
struct EntryRow {
    url: String,
    href: String,
    note: String,
}

impl AccessSite {
    /// Leads from the form of the list of captures to a comparison.
    pub(crate) fn compare(&self, asked: &Asked) -> Result<Reply, Refusal> {
        let parameters = Parameters::parse(asked.query.as_deref().unwrap_or_default());
        let url = checked_url(parameters.get("url").unwrap_or_default())?;
        let collection = parameters.get("collection").unwrap_or(self.archive.main());
        self.archive.current(collection)?;
        let time = |name: &str| {
            let text = parameters.get(name).unwrap_or_default();
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let is_time = Moment::first_of(&digits).is_some() && digits.len() <= 14;
            match is_time {
                true => Ok(digits),
                false => Err(Refusal::bad_request(format!("{name}={text}"))),
            }
        };
        let what = match parameters.get("what") {
            Some("site") => "site",
            _ => "diff",
        };
        let (from, to) = (time("from")?, time("to")?);
        let to = format!("/{collection}/{what}/{from}/{to}/{url}");
        Ok(redirect(StatusCode::FOUND, &to))
    }

    /// Shows what changed in the text of a page between two captures.
    pub(crate) fn page_delta(&self, question: &Question<'_>, rest: &str) -> Result<Reply, Refusal> {
        let (from, to, url) = parts_of(question, rest)?;
        let sides = [from, to].map(|moment| self.resolve(question, &url, moment));
        let [old, new] = sides;
        let (old, new) = (old?, new?);
        let moments = [&old, &new].map(|side| side.loaded.capture.moment());
        // The address of a comparison is that of its two captures.
        if moments != [from, to] {
            let [from, to] = moments.map(|moment| moment.as_str().to_owned());
            let to = format!("/{}/diff/{from}/{to}/{url}", question.collection);
            return Ok(redirect(StatusCode::FOUND, &to));
        }
        let words = self.pages.words(self.language(question.asked));
        let side = |side: &Resolved| {
            let moment = side.loaded.capture.moment();
            DeltaSide {
                href: format!(
                    "/{}/{}/{}",
                    question.collection,
                    moment.as_str(),
                    safe_url(&url)
                ),
                date: words.date(moment),
                iso: moment.rfc3339(),
                status: side.loaded.head.status,
                mime: side.loaded.head.media_type(),
            }
        };
        let shown = [side(&old), side(&new)];
        let is_same = same_payload(&old.loaded.stored, &new.loaded.stored);
        let texts = match is_same {
            true => None,
            false => self.text_of(&old)?.zip(self.text_of(&new)?),
        };
        let delta = texts
            .as_ref()
            .map(|(old, new)| text_delta(&old.lines, &new.lines, SHOWN_LINES));
        let is_cut = texts.is_some_and(|(old, new)| old.is_cut || new.is_cut);
        let is_cut = is_cut || delta.as_ref().is_some_and(|delta| delta.is_cut);
        let count = |name: &str, count: usize| words.text(name).replace("{}", &count.to_string());
        let verdict = match &delta {
            _ if is_same => words.text("delta_same").to_owned(),
            None => words.text("delta_no_text").to_owned(),
            Some(delta) if delta.lines.is_empty() => words.text("delta_same_text").to_owned(),
            Some(delta) => format!(
                "{} {}",
                count("delta_gone", delta.gone),
                count("delta_new", delta.new)
            ),
        };
        let more = context! {
            shown_url => url, url,
            collection => question.name(),
            old => shown[0], new => shown[1],
            verdict, is_cut,
            lines => delta.map(|delta| delta.lines).unwrap_or_default(),
            all => question.list_path(&url),
        };
        Ok(self.page(question.asked, StatusCode::OK, "page_delta.html", more))
    }

    /// Returns the text of a capture; none where it has none, or is larger than what is looked into.
    fn text_of(&self, side: &Resolved) -> Result<Option<TextLines>, Refusal> {
        let media_type = side.loaded.head.media_type();
        if !is_text(&media_type) {
            return Ok(None);
        }
        let Some(plain) = self.plain_body(&side.loaded)? else {
            return Ok(None);
        };
        let content_type = side.loaded.head.text("Content-Type").unwrap_or_default();
        let is_html = media_type.contains("html");
        let lines = lines_of(&plain, &content_type, is_html, TEXT_BYTES, TEXT_LINES);
        Ok(Some(lines))
    }

    /// Shows what is new, changed and gone on a site between two dates.
    pub(crate) fn site_delta(&self, question: &Question<'_>, rest: &str) -> Result<Reply, Refusal> {
        let (from, to, url) = parts_of(question, rest)?;
        let reader = &question.asked.reader;
        let may_list = |line: &[u8]| self.rules.keeps_from(line, reader).is_none();
        let lines = self.settings.scan_lines;
        let delta = SiteDelta::read(&question.generation, &url, from, to, lines, &may_list)?;
        let delta = delta.ok_or_else(|| Refusal::bad_request(format!("no key for {url}")))?;
        if delta.is_empty() {
            return Err(self.absent(&url));
        }
        let words = self.pages.words(self.language(question.asked));
        let collection = question.collection;
        let row = |entry: &SiteEntry| {
            let safe = safe_url(&entry.url);
            let (href, note) = match (&entry.old, &entry.new) {
                (Some(old), Some(new)) => (
                    format!(
                        "/{collection}/diff/{}/{}/{safe}",
                        old.as_str(),
                        new.as_str()
                    ),
                    words.day(*new),
                ),
                (Some(one), None) | (None, Some(one)) => (
                    format!("/{collection}/{}/{safe}", one.as_str()),
                    words.day(*one),
                ),
                (None, None) => (question.list_path(&entry.url), String::new()),
            };
            let note = match entry.status.as_str() {
                "" => note,
                status => format!("{note}, {status}"),
            };
            EntryRow {
                url: entry.url.clone(),
                href,
                note,
            }
        };
        let list = |name: &str, found: &crate::site_delta::SiteList| {
            let rows: Vec<EntryRow> = found.entries.iter().map(row).collect();
            context! {
                id => name,
                title => words.text(&format!("site_{name}")),
                lead => words.text(&format!("site_{name}_lead")),
                count => found.count,
                left_out => found.count > rows.len() as u64,
                rows,
            }
        };
        let lists = vec![
            list("new", &delta.new),
            list("changed", &delta.changed),
            list("gone", &delta.gone),
            list("unseen", &delta.unseen),
        ];
        let more = context! {
            shown_url => delta.site, url,
            collection => question.name(),
            from => words.day(from), to => words.day(to),
            from_iso => from.rfc3339(), to_iso => to.rfc3339(),
            unchanged => words.text("site_unchanged").replace("{}", &delta.unchanged.to_string()),
            is_cut => delta.is_cut,
            lists,
        };
        Ok(self.page(question.asked, StatusCode::OK, "site_delta.html", more))
    }
}

/// Reads `FROM/TO/URL`. Dates that are cut short begin and end as they are read; the earlier comes first.
fn parts_of(question: &Question<'_>, rest: &str) -> Result<(Moment, Moment, String), Refusal> {
    let lost = || Refusal::not_found(&question.asked.path);
    let (from, rest) = rest.split_once('/').ok_or_else(lost)?;
    let (to, url) = rest.split_once('/').ok_or_else(lost)?;
    let is_short = |digits: &str| digits.len() <= 14;
    if !is_short(from) || !is_short(to) {
        return Err(lost());
    }
    let from = Moment::first_of(from).ok_or_else(lost)?;
    let to = Moment::last_of(to).ok_or_else(lost)?;
    Ok((from.min(to), from.max(to), checked_url(url)?))
}

/// Says whether two captures are of one payload, as far as the index knows.
fn same_payload(one: &IndexedCapture, other: &IndexedCapture) -> bool {
    let is_one_record = (&one.filename, one.offset) == (&other.filename, other.offset);
    is_one_record || !one.digest.is_empty() && one.digest == other.digest
}
