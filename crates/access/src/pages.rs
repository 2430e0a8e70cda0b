//! The archive's own pages: plain HTML from templates in files, in the reader's language.
//!
//! Whatever comes from the web is escaped by the template, and the pages' policy lets them run no script but our own.

use ecluse_config::AccessCalendar;
use hyper::StatusCode;
use hyper::header;
use minijinja::{Environment, UndefinedBehavior, context};
use serde::Serialize;
use serde_json::Value;

use crate::calendar::{MonthView, YearView, months_of, years_of};
use crate::capture_list::IndexedCapture;
use crate::link_policy::{LinkPolicy, split_policy, with_policy};
use crate::memento::MementoAddresses;
use crate::moment::Moment;
use crate::neighbours::{UrlLink, near_in_name, tried_variants};
use crate::replay::can_run_script;
use crate::replay_address::ReplayAddress;
use crate::reply::{Asked, Reply, put, redirect, whole};
use crate::shown_versions::shown_versions;
use crate::site::{AccessSite, Question, Refusal, Resolved, checked_url};
use crate::url_text::safe_url;

/// The languages of the pages.
pub(crate) const LANGUAGES: [&str; 2] = ["en", "fr"];

/// Captures of a year that are listed.
const LISTED: usize = 1_000;

const TEMPLATES: [(&str, &str); 10] = [
    ("layout.html", include_str!("../templates/layout.html")),
    (
        "search_form.html",
        include_str!("../templates/search_form.html"),
    ),
    ("home.html", include_str!("../templates/home.html")),
    ("captures.html", include_str!("../templates/captures.html")),
    ("refused.html", include_str!("../templates/refused.html")),
    ("frame.html", include_str!("../templates/frame.html")),
    ("proxy.html", include_str!("../templates/proxy.html")),
    (
        "proxy_refused.html",
        include_str!("../templates/proxy_refused.html"),
    ),
    (
        "page_delta.html",
        include_str!("../templates/page_delta.html"),
    ),
    (
        "site_delta.html",
        include_str!("../templates/site_delta.html"),
    ),
];

const WORDS: [&str; 2] = [
    include_str!("../templates/words.en.json"),
    include_str!("../templates/words.fr.json"),
];

/// Files that pages and replay need.
const ASSETS: [(&str, &str, &str); 4] = [
    (
        "ecluse.css",
        "text/css; charset=utf-8",
        include_str!("../assets/ecluse.css"),
    ),
    (
        "banner.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/banner.js"),
    ),
    (
        "replay.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/replay.js"),
    ),
    (
        "wabac.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/wabac.js"),
    ),
];

/// Pages run no script and are shown in no frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Templates and words, ready to be used.
#[derive(Debug)]
pub(crate) struct Pages {
    templates: Environment<'static>,
    words: Vec<Value>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        for (name, text) in TEMPLATES {
            templates
                .add_template(name, text)
                .expect("the templates are tested");
        }
        let read = |text| serde_json::from_str(text).expect("the words are tested");
        Self {
            templates,
            words: WORDS.into_iter().map(read).collect(),
        }
    }

    pub(crate) fn words(&self, language: &str) -> Words<'_> {
        let at = LANGUAGES.iter().position(|known| *known == language);
        Words(&self.words[at.unwrap_or(0)])
    }

    fn render(&self, name: &str, context: minijinja::Value) -> String {
        let template = self.templates.get_template(name);
        let rendered = template.and_then(|template| template.render(context));
        rendered.unwrap_or_else(|error| {
            tracing::error!(%error, name, "page cannot be written");
            String::new()
        })
    }
}

/// The words of one language.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a>(&'a Value);

impl Words<'_> {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn nth(&self, name: &str, at: usize) -> &str {
        self.0[name][at].as_str().unwrap_or_default()
    }

    pub(crate) fn month(&self, month: usize) -> &str {
        self.nth("months", month.saturating_sub(1))
    }

    pub(crate) fn captures(&self, count: u64) -> String {
        match count {
            0 => self.text("none_captures").to_owned(),
            1 => self.text("one_capture").to_owned(),
            _ => self.text("many_captures").replace("{}", &count.to_string()),
        }
    }

    fn formed(&self, form: &str, moment: Moment) -> String {
        let digits = moment.as_str();
        let number = |from: usize, to: usize| digits[from..to].trim_start_matches('0').to_owned();
        let month: usize = digits[4..6].parse().unwrap_or(1);
        self.text(form)
            .replace("{day}", &number(6, 8))
            .replace("{month}", self.month(month))
            .replace("{year}", &digits[..4])
            .replace("{hour}", &digits[8..10])
            .replace("{minute}", &digits[10..12])
            .replace("{second}", &digits[12..14])
    }

    pub(crate) fn date(&self, moment: Moment) -> String {
        self.formed("date_form", moment)
    }

    pub(crate) fn day(&self, moment: Moment) -> String {
        self.formed("day_form", moment)
    }

    fn bytes(&self, bytes: Option<u64>) -> String {
        let Some(bytes) = bytes else {
            return "–".to_owned();
        };
        let (mut value, mut unit) = (bytes as f64, 0);
        while value >= 999.5 && unit < 4 {
            value /= 1000.0;
            unit += 1;
        }
        let unit_name = self.nth("units", unit);
        match unit {
            0 => format!("{value:.0} {unit_name}"),
            _ => format!("{value:.1} {unit_name}"),
        }
    }
}

/// One capture in the list.
#[derive(Serialize)]
struct CaptureRow {
    time: String,
    href: String,
    date: String,
    iso: String,
    status: String,
    mime: String,
    size: String,
    content: String,
    /// What changed since the capture before; none where it did not, or is the first.
    delta: Option<String>,
}

/// A neighbour of a capture, in the banner.
#[derive(Serialize)]
struct NeighbourLink {
    href: String,
    date: String,
}

/// A choice of what links lead to, in the banner.
#[derive(Serialize)]
struct PolicyLink {
    href: String,
    name: String,
    is_chosen: bool,
}

impl AccessSite {
    /// Returns the language of a reader: what he chose, else the first that his browser asks for.
    pub(crate) fn language(&self, asked: &Asked) -> &'static str {
        let known = |name: &str| LANGUAGES.into_iter().find(|known| *known == name);
        let cookies = asked.header(header::COOKIE).unwrap_or_default();
        let chosen = cookies
            .split(';')
            .find_map(|cookie| known(cookie.trim().strip_prefix("lang=")?));
        let accepted = asked.header(header::ACCEPT_LANGUAGE).unwrap_or_default();
        let preferred = || {
            accepted.split(',').find_map(|one| {
                let tag = one.split(';').next().unwrap_or_default().trim();
                known(
                    &tag.split('-')
                        .next()
                        .unwrap_or_default()
                        .to_ascii_lowercase(),
                )
            })
        };
        chosen.or_else(preferred).unwrap_or(LANGUAGES[0])
    }

    pub(crate) fn page(
        &self,
        asked: &Asked,
        status: StatusCode,
        name: &str,
        more: minijinja::Value,
    ) -> Reply {
        let lang = self.language(asked);
        let main = self.archive.main();
        let common = context! {
            lang,
            t => self.pages.words(lang).0,
            site => self.settings.title,
            collections => self.archive.collections(),
            collection => main,
        };
        let text = self.pages.render(name, context! { ..more, ..common });
        let mut reply = whole(status, "text/html; charset=utf-8", text);
        put(&mut reply, header::CONTENT_SECURITY_POLICY, POLICY);
        put(&mut reply, header::X_FRAME_OPTIONS, "DENY");
        put(&mut reply, header::REFERRER_POLICY, "same-origin");
        put(&mut reply, header::VARY, "accept-language, cookie");
        put(&mut reply, header::CONTENT_LANGUAGE, lang);
        put(&mut reply, header::CACHE_CONTROL, "private, no-cache");
        reply
    }

    pub(crate) fn asset(&self, name: &str) -> Result<Reply, Refusal> {
        let asset = ASSETS.iter().find(|(known, ..)| *known == name);
        let (_, media_type, text) = asset.ok_or_else(|| Refusal::not_found(name))?;
        let mut reply = whole(StatusCode::OK, media_type, *text);
        put(&mut reply, header::CACHE_CONTROL, "public, max-age=3600");
        // Archived pages load the script of replay, and are strangers here.
        put(&mut reply, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        Ok(reply)
    }

    pub(crate) fn home(&self, asked: &Asked) -> Result<Reply, Refusal> {
        let asked_for = asked.path.trim_matches('/');
        let collection = match asked_for {
            "" => self.archive.main(),
            name => split_policy(name).0,
        };
        // A first page that says nothing of a lost index would hide it.
        self.archive.current(collection)?;
        let more = context! { collection, url => "" };
        Ok(self.page(asked, StatusCode::OK, "home.html", more))
    }

    /// Shows when a URL was captured: years, the calendar of one of them, and its list.
    pub(crate) fn calendar(
        &self,
        question: &Question<'_>,
        year: &str,
        is_all: bool,
        url: &str,
    ) -> Result<Reply, Refusal> {
        let url = checked_url(url)?;
        let mut captures = self.captures_of(question, &url)?;
        let found = captures.len();
        if !is_all {
            self.keep_shown(question, &mut captures);
        }
        let hidden = found - captures.len();
        let stars = if is_all { "**" } else { "*" };
        let (Some(first), Some(last)) = (captures.first(), captures.last()) else {
            let around = self.around(question, &url, Moment::last_of("9").expect("digits"))?;
            return Err(self.absent(&url).by_rule(around.hidden_by));
        };
        let words = self.pages.words(self.language(question.asked));
        let year = match year {
            "" => &last.time[..4],
            year => year,
        };
        let of_year: Vec<&IndexedCapture> = captures
            .iter()
            .filter(|capture| capture.time.starts_with(year))
            .collect();
        let years: Vec<YearView> = years_of(question, &captures, &url, stars);
        let months: Vec<MonthView> = months_of(question, &of_year, year, &url, &words);
        let rows: Vec<CaptureRow> = of_year
            .iter()
            .take(LISTED)
            .map(|capture| self.row(question, capture, &captures, &words))
            .collect();
        let summary = match captures.len() {
            1 => words.text("summary_one").to_owned(),
            count => words
                .text("summary_many")
                .replace("{count}", &count.to_string()),
        };
        let summary = summary
            .replace("{first}", &words.day(first.moment()))
            .replace("{last}", &words.day(last.moment()));
        let left_out = (of_year.len() > LISTED)
            .then(|| words.text("left_out").replace("{}", &LISTED.to_string()));
        let small_changes = (hidden > 0).then(|| {
            let href = format!("/{}/{year}**/{}", question.collection, safe_url(&url));
            let text = words.text("small_changes");
            (text.replace("{}", &words.captures(hidden as u64)), href)
        });
        let reader = &question.asked.reader;
        let may_list = |line: &[u8]| self.rules.keeps_from(line, reader).is_none();
        let (variants, _) = tried_variants(question, &url, &words, &may_list)?;
        let more = context! {
            url,
            shown_url => url,
            collection => question.name(),
            summary, variants, years, year, months, left_out, small_changes,
            first_day => first.moment().iso_day(),
            last_day => last.moment().iso_day(),
            captures => rows,
        };
        Ok(self.page(question.asked, StatusCode::OK, "captures.html", more))
    }

    /// Leaves out what the calendar does not show, where the settings want it and something is known of the page's changes.
    fn keep_shown(&self, question: &Question<'_>, captures: &mut Vec<IndexedCapture>) {
        let Some(changes) = &self.changes else {
            return;
        };
        if self.settings.calendar == AccessCalendar::All {
            return;
        }
        let Some(key) = captures.first().map(|capture| capture.key.clone()) else {
            return;
        };
        let collection = Some(question.name()).filter(|name| *name != self.archive.main());
        match shown_versions(changes, collection, &key) {
            Ok(Some(shown)) => captures.retain(|capture| {
                let time = capture.time.get(..14);
                time.is_none_or(|time| shown.contains(time))
            }),
            Ok(None) => {}
            // What is derived must not keep anybody from what is there.
            Err(error) => tracing::warn!(%error, "the calendar shows every capture"),
        }
    }

    fn row(
        &self,
        question: &Question<'_>,
        capture: &IndexedCapture,
        all: &[IndexedCapture],
        words: &Words<'_>,
    ) -> CaptureRow {
        let moment = capture.moment();
        let before = all.partition_point(|other| other.time < capture.time);
        let before = before.checked_sub(1).and_then(|at| all.get(at));
        let before = before.filter(|other| !capture.is_revisit && other.digest != capture.digest);
        let dash = |text: &str| match text {
            "" => "–".to_owned(),
            text => text.to_owned(),
        };
        let (mime, content) = match capture.is_revisit {
            true => ("–".to_owned(), "unchanged"),
            false => (dash(&capture.mime), "new"),
        };
        let (collection, time) = (question.collection, moment.as_str());
        CaptureRow {
            time: time.to_owned(),
            href: format!("/{collection}/{time}/{}", safe_url(&capture.url)),
            date: words.date(moment),
            iso: moment.rfc3339(),
            status: dash(&capture.status),
            mime,
            size: words.bytes(capture.length_bytes),
            content: words.text(content).to_owned(),
            delta: before.map(|other| {
                let (from, url) = (other.moment(), safe_url(&capture.url));
                format!("/{collection}/diff/{}/{time}/{url}", from.as_str())
            }),
        }
    }

    /// Shows a capture in its frame, with the banner that says when it was.
    pub(crate) fn frame(
        &self,
        question: &Question<'_>,
        url: &str,
        wanted: Moment,
        digits: &str,
    ) -> Result<Reply, Refusal> {
        let Resolved { loaded, around } = self.resolve(question, url, wanted)?;
        let capture = &loaded.capture;
        let moment = capture.moment();
        let collection = format!("/{}", question.collection);
        let address = ReplayAddress {
            collection: &collection,
            moment,
            modifier: "",
            url: url.into(),
        };
        // The address of a capture is that of its own time.
        if digits != moment.as_str() {
            return Ok(redirect(StatusCode::FOUND, &address.address_of(url, "")));
        }
        let words = self.pages.words(self.language(question.asked));
        let (before, after) = around.neighbours(moment);
        let link = |other: Option<Moment>| {
            other.map(|other| NeighbourLink {
                href: format!("{collection}/{}/{}", other.as_str(), safe_url(url)),
                date: words.date(other),
            })
        };
        let policies = LinkPolicy::ALL.map(|(policy, word)| PolicyLink {
            href: format!(
                "/{}/{}/{}",
                with_policy(question.name(), word),
                moment.as_str(),
                safe_url(url)
            ),
            name: words.text(&format!("policy_{word}")).to_owned(),
            is_chosen: policy == self.policy(question),
        });
        let more = context! {
            shown_url => url,
            collection => question.collection,
            date => words.date(moment),
            iso => moment.rfc3339(),
            before => link(before),
            after => link(after),
            all => question.list_path(url),
            policies => policies,
            count => words.captures(around.count),
            src => safe_url(&address.address_of(url, "mp_")),
            time => moment.as_str(),
            wabac => self.has_wabac() && can_run_script(&loaded.head.media_type()),
            sandboxed => loaded.head.media_type() != "application/pdf",
        };
        let mut reply = self.page(question.asked, StatusCode::OK, "frame.html", more);
        let base = &question.asked.base;
        let policy = format!(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-src {base}; form-action 'none'; base-uri 'none'; \
             frame-ancestors 'none'"
        );
        put(&mut reply, header::CONTENT_SECURITY_POLICY, &policy);
        let prefix = question.prefix();
        let addresses = MementoAddresses {
            prefix: &prefix,
            url,
        };
        let links = addresses.links_of(moment, &around, "");
        put(&mut reply, header::LINK, &links);
        let name = header::HeaderName::from_static("memento-datetime");
        put(&mut reply, name, &moment.http_date());
        Ok(reply)
    }

    /// Says why something is not shown, and what there is instead.
    /// Says why something is not shown, on a page of another server: with nothing to load.
    pub(crate) fn proxy_refusal_page(&self, asked: &Asked, refusal: &Refusal) -> Reply {
        let words = self.pages.words(self.language(asked));
        let [heading, told] = [0, 1].map(|at| words.nth(refusal.reason, at).to_owned());
        let detail = (!refusal.status.is_server_error()).then_some(refusal.detail.as_str());
        let rule = refusal.rule.as_ref().filter(|_| asked.reader.is_staff);
        let more = context! { heading, told, detail, rule };
        let mut reply = self.page(asked, refusal.status, "proxy_refused.html", more);
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        put(&mut reply, header::CONTENT_SECURITY_POLICY, policy);
        reply.headers_mut().remove(header::X_FRAME_OPTIONS);
        reply
    }

    pub(crate) fn refusal_page(&self, asked: &Asked, refusal: &Refusal) -> Reply {
        let words = self.pages.words(self.language(asked));
        let [heading, told] = [0, 1].map(|at| words.nth(refusal.reason, at).to_owned());
        let is_absent = refusal.reason == "absent";
        let collection = asked.path.split('/').nth(1).unwrap_or_default();
        let mut variants: Vec<UrlLink> = Vec::new();
        let mut tried: Vec<String> = Vec::new();
        let mut near: Vec<UrlLink> = Vec::new();
        if is_absent && let Ok(generation) = self.archive.current(collection) {
            let question = Question {
                asked,
                collection,
                generation,
            };
            let url = &refusal.detail;
            let may_list = |line: &[u8]| self.rules.keeps_from(line, &asked.reader).is_none();
            if let Ok((found, others)) = tried_variants(&question, url, &words, &may_list) {
                (variants, tried) = (found, others);
            }
            near = near_in_name(&question, url, &may_list).unwrap_or_default();
        }
        let known = self.archive.collections();
        let collection = split_policy(collection).0;
        let collection = known.iter().find(|name| *name == collection);
        let collection = collection.map_or(self.archive.main(), String::as_str);
        // What went wrong inside is for the log, not for readers.
        let detail = (!refusal.status.is_server_error()).then_some(refusal.detail.as_str());
        let more = context! {
            heading, told, variants, tried, near, detail, collection,
            rule => refusal.rule.as_ref().filter(|_| asked.reader.is_staff),
            url => if is_absent { refusal.detail.as_str() } else { "" },
        };
        self.page(asked, refusal.status, "refused.html", more)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(words: &Value) -> BTreeSet<String> {
        words.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn every_language_has_every_word_and_no_template_asks_for_another() {
        let pages = Pages::new();
        let first = keys(&pages.words[0]);
        for words in &pages.words[1..] {
            assert_eq!(keys(words), first);
        }
        for (name, text) in TEMPLATES {
            for part in text.split("{{ t.").skip(1) {
                let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '_');
                let word = &part[..end.unwrap_or(0)];
                assert!(first.contains(word), "{name}: no word {word:?}");
            }
        }
    }

    #[test]
    fn dates_are_written_in_the_readers_language() {
        let pages = Pages::new();
        let moment = Moment::first_of("20260806090405").unwrap();
        assert_eq!(pages.words("en").date(moment), "6 August 2026, 09:04:05");
        assert_eq!(pages.words("fr").date(moment), "6 août 2026 à 09:04:05");
        assert_eq!(pages.words("fr").bytes(Some(1_500_000)), "1.5 Mo");
    }
}
