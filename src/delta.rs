//! `ecluse delta SITE`: what became of the pages of a site, as a site-delta in XML, or in JSON.
//!
//! Pages are in the order of the index, their documents newest first. With `--at`, one document of each page: the last before that moment,
//! the first after it, or the one that stood then most likely. Everything that came from the web is escaped.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use ecluse_changes::{ArchiveTime, declared_change, standing_chances};
use ecluse_stage::Exit;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, Event};
use serde_json::{Value, json};

use crate::cli::{DeltaOptions, DeltaWhich};
use crate::context::{DriverContext, Trouble};
use crate::lookup::{self, NONE_FOUND};
use crate::site_captures::{
    CaptureStatus, SiteCapture, SitePage, each_page, moment, range_of_site,
};

/// Jobs whose orders are read for mirrors.
const JOBS: usize = 10_000;
/// The rate of a page of which nothing is known: what is taken for granted of every page.
const UNKNOWN_RATE: f64 = 2.0 * std::f64::consts::LN_2;

/// One document of a page, as it is told.
struct DeltaDocument<'p> {
    capture: &'p SiteCapture,
    status: CaptureStatus,
    /// How much its change weighs.
    weight: Option<f64>,
    /// How likely it stood at the moment that was asked for.
    chance: Option<f64>,
}

pub(crate) fn delta(context: &DriverContext, options: &DeltaOptions) -> Result<ExitCode, Trouble> {
    let range = range_of_site(&options.site)?;
    let from = options
        .from
        .as_deref()
        .map(|date| moment(date, false))
        .transpose()?;
    let to = options
        .to
        .as_deref()
        .map(|date| moment(date, true))
        .transpose()?;
    let at = options
        .at
        .as_deref()
        .map(|date| moment(date, false))
        .transpose()?;
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        return Err(Trouble::usage("--from is later than --to"));
    }
    let is_within =
        |time: ArchiveTime| from.is_none_or(|from| from <= time) && to.is_none_or(|to| time <= to);
    let mirrors = mirrors(context, &options.site)?;
    let mut out = DeltaOut::begin(context.json, &options.site, from, to, at)?;
    let mut pages = 0u64;
    each_page(context, options.collection.as_deref(), range, &mut |page| {
        let documents = match at {
            Some(at) => standing(page, at, options.which).into_iter().collect(),
            None => listed(page, &is_within),
        };
        let Some(newest) = documents.first() else {
            return Ok(());
        };
        pages += 1;
        out.page(&newest.capture.url, &documents)?;
        Ok(())
    })?;
    out.end(&mirrors)?;
    if pages > 0 {
        return Ok(Exit::Done.into());
    }
    lookup::tell_none(context, &options.site, options.collection.as_deref())?;
    Ok(NONE_FOUND.into())
}

/// Returns the documents of a page between two moments, newest first.
fn listed<'p>(
    page: &'p SitePage,
    is_within: &dyn Fn(ArchiveTime) -> bool,
) -> Vec<DeltaDocument<'p>> {
    let captures = page.captures.iter().zip(page.statuses());
    let within = captures.filter(|(capture, _)| is_within(capture.time));
    let mut documents: Vec<DeltaDocument<'_>> = within
        .map(|(capture, status)| document(page, capture, status))
        .collect();
    documents.reverse();
    documents
}

fn document<'p>(
    page: &'p SitePage,
    capture: &'p SiteCapture,
    status: CaptureStatus,
) -> DeltaDocument<'p> {
    let version = page.version_at(capture.time);
    DeltaDocument {
        capture,
        status,
        weight: version.and_then(|version| version.weight),
        chance: None,
    }
}

/// Returns the document that stands for a moment. Errors stand for nothing.
fn standing(page: &SitePage, at: ArchiveTime, which: DeltaWhich) -> Option<DeltaDocument<'_>> {
    let good: Vec<(&SiteCapture, CaptureStatus)> = page
        .captures
        .iter()
        .zip(page.statuses())
        .filter(|(_, status)| *status != CaptureStatus::Error)
        .collect();
    let after = good.partition_point(|(capture, _)| capture.time <= at);
    let before = after.checked_sub(1).and_then(|at| good.get(at));
    let after = good.get(after);
    match which {
        DeltaWhich::LastBefore => before.map(|found| document(page, found.0, found.1)),
        DeltaWhich::FirstAfter => match before {
            Some(found) if found.0.time == at => Some(document(page, found.0, found.1)),
            _ => after.map(|found| document(page, found.0, found.1)),
        },
        DeltaWhich::Likeliest => {
            let rate = page.known.as_ref().map_or(UNKNOWN_RATE, |known| known.rate);
            match (before, after) {
                (Some(one), Some(other)) if one.0.digest == other.0.digest => {
                    Some(with_chance(page, one, Some(1.0)))
                }
                (Some(one), Some(other)) => {
                    // Where the server told when it changed for the last time, nothing is to be guessed from then on.
                    let version = page.version_at(other.0.time);
                    let declared = version.and_then(|version| {
                        declared_change(version.last_modified.as_deref(), version.time)
                    });
                    if declared.is_some_and(|declared| one.0.time < declared && declared <= at) {
                        return Some(with_chance(page, other, Some(1.0)));
                    }
                    let chances = standing_chances(one.0.time, at, other.0.time, rate);
                    match chances.before >= chances.after {
                        true => Some(with_chance(page, one, Some(chances.before))),
                        false => Some(with_chance(page, other, Some(chances.after))),
                    }
                }
                (Some(one), None) => {
                    let still = (-rate * at.days_since(one.0.time)).exp();
                    Some(with_chance(page, one, Some(still)))
                }
                // Before the first capture it may not have been there.
                (None, Some(other)) => Some(with_chance(page, other, None)),
                (None, None) => None,
            }
        }
    }
}

fn with_chance<'p>(
    page: &'p SitePage,
    (capture, status): &(&'p SiteCapture, CaptureStatus),
    chance: Option<f64>,
) -> DeltaDocument<'p> {
    DeltaDocument {
        chance,
        ..document(page, capture, *status)
    }
}

/// Where a harvest of the site began, how deep it went, and what it left out.
struct DeltaMirror {
    url: String,
    depth: Option<i64>,
    job: String,
    exclusions: Vec<String>,
}

/// Returns the mirrors that the orders in `jobs/` tell of.
fn mirrors(context: &DriverContext, site: &str) -> Result<Vec<DeltaMirror>, Trouble> {
    let own = lookup::key_of(site)?;
    let host = host_of(&text_of(&own)).to_owned();
    let mut mirrors = Vec::new();
    let mut jobs: Vec<_> = fs::read_dir(context.jobs_dir()?)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    jobs.sort_by_key(fs::DirEntry::file_name);
    for job in jobs.into_iter().take(JOBS) {
        let texts = ["order.toml", "order-given.toml"]
            .map(|name| fs::read_to_string(job.path().join(name)));
        let Some(text) = texts.into_iter().find_map(Result::ok) else {
            continue;
        };
        let Ok(order) = text.parse::<toml::Table>() else {
            continue;
        };
        let job = job.file_name().to_string_lossy().into_owned();
        mirrors.extend(mirrors_of(&order, &host, &job));
    }
    Ok(mirrors)
}

fn mirrors_of(order: &toml::Table, host: &str, job: &str) -> Vec<DeltaMirror> {
    let texts = |value: Option<&toml::Value>| -> Vec<String> {
        let listed = value.and_then(toml::Value::as_array).into_iter().flatten();
        listed
            .filter_map(toml::Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let scope = order.get("scope").and_then(toml::Value::as_table);
    let in_scope = |key: &str| scope.and_then(|scope| scope.get(key));
    let mut exclusions = texts(in_scope("reject-surts"));
    // What begins with another host leaves nothing out here.
    exclusions.retain(|surt| !surt.contains(')') || host_of(surt) == host);
    exclusions.extend(texts(in_scope("reject-regexes")));
    let seeds = order.get("seeds").and_then(toml::Value::as_array);
    let seeds = seeds.into_iter().flatten();
    let urls = seeds.flat_map(|seeds| texts(seeds.get("urls")));
    let is_own =
        |url: &String| lookup::key_of(url).is_ok_and(|key| host_of(&text_of(&key)) == host);
    urls.filter(is_own)
        .map(|url| DeltaMirror {
            url,
            depth: in_scope("depth").and_then(toml::Value::as_integer),
            job: job.to_owned(),
            exclusions: exclusions.clone(),
        })
        .collect()
}

fn text_of(key: &ecluse_surt::Surt) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

fn host_of(key: &str) -> &str {
    key.split(')').next().unwrap_or(key)
}

/// Where the delta goes, page by page.
enum DeltaOut {
    Xml(Writer<BufWriter<io::Stdout>>),
    Json {
        out: BufWriter<io::Stdout>,
        pages: u64,
    },
}

impl DeltaOut {
    fn begin(
        is_json: bool,
        site: &str,
        from: Option<ArchiveTime>,
        to: Option<ArchiveTime>,
        at: Option<ArchiveTime>,
    ) -> Result<Self, Trouble> {
        let mut out = BufWriter::with_capacity(64 << 10, io::stdout());
        let times = [("from", from), ("to", to), ("at", at)];
        if is_json {
            write!(out, "{{\"schema\":1,\"site\":{}", json!(site))?;
            for (name, time) in times {
                write!(
                    out,
                    ",\"{name}\":{}",
                    json!(time.map(|time| time.to_string()))
                )?;
            }
            write!(out, ",\"pages\":[")?;
            return Ok(Self::Json { out, pages: 0 });
        }
        let mut xml = Writer::new_with_indent(out, b' ', 2);
        xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let mut website = BytesStart::new("website");
        website.push_attribute(("url", xml_text(site).as_str()));
        for (name, time) in times {
            if let Some(time) = time {
                website.push_attribute((name, time.to_string().as_str()));
            }
        }
        xml.write_event(Event::Start(website))?;
        Ok(Self::Xml(xml))
    }

    fn page(&mut self, url: &str, documents: &[DeltaDocument<'_>]) -> io::Result<()> {
        match self {
            Self::Xml(xml) => xml_page(xml, url, documents),
            Self::Json { out, pages } => {
                let told: Vec<Value> = documents.iter().map(as_json).collect();
                let comma = if *pages > 0 { "," } else { "" };
                *pages += 1;
                write!(out, "{comma}\n{}", json!({"url": url, "documents": told}))
            }
        }
    }

    fn end(&mut self, mirrors: &[DeltaMirror]) -> io::Result<()> {
        match self {
            Self::Xml(xml) => {
                for mirror in mirrors {
                    xml_mirror(xml, mirror)?;
                }
                xml.write_event(Event::End(BytesEnd::new("website")))?;
                writeln!(xml.get_mut())?;
                xml.get_mut().flush()
            }
            Self::Json { out, .. } => {
                let told: Vec<Value> = mirrors
                    .iter()
                    .map(|mirror| {
                        json!({
                            "url": mirror.url, "depth": mirror.depth, "job": mirror.job,
                            "exclusions": mirror.exclusions,
                        })
                    })
                    .collect();
                writeln!(out, "\n],\"mirrors\":{}}}", Value::Array(told))?;
                out.flush()
            }
        }
    }
}

fn as_json(document: &DeltaDocument<'_>) -> Value {
    let capture = document.capture;
    let mut told = json!({
        "date": capture.time.to_string(), "status": document.status.word(), "file": capture.file,
    });
    if document.status == CaptureStatus::Error {
        told["httperror"] = json!(capture.status);
    }
    if let Some(weight) = document.weight {
        told["weight"] = json!(weight);
    }
    if let Some(chance) = document.chance {
        told["chance"] = json!(chance);
    }
    told
}

fn xml_page<Out: Write>(
    xml: &mut Writer<Out>,
    url: &str,
    documents: &[DeltaDocument<'_>],
) -> io::Result<()> {
    let mut start = BytesStart::new("page");
    start.push_attribute(("url", xml_text(url).as_str()));
    xml.write_event(Event::Start(start))?;
    for document in documents {
        let capture = document.capture;
        let mut element = BytesStart::new("document");
        element.push_attribute(("date", capture.time.to_string().as_str()));
        element.push_attribute(("status", document.status.word()));
        element.push_attribute(("file", xml_text(&capture.file).as_str()));
        if let Some(weight) = document.weight {
            element.push_attribute(("weight", weight.to_string().as_str()));
        }
        if let Some(chance) = document.chance {
            element.push_attribute(("chance", chance.to_string().as_str()));
        }
        if document.status == CaptureStatus::Error {
            xml.write_event(Event::Start(element))?;
            let mut error = BytesStart::new("error");
            error.push_attribute(("httperror", xml_text(&capture.status).as_str()));
            xml.write_event(Event::Empty(error))?;
            xml.write_event(Event::End(BytesEnd::new("document")))?;
        } else {
            xml.write_event(Event::Empty(element))?;
        }
    }
    xml.write_event(Event::End(BytesEnd::new("page")))
}

fn xml_mirror<Out: Write>(xml: &mut Writer<Out>, mirror: &DeltaMirror) -> io::Result<()> {
    let mut start = BytesStart::new("mirror");
    start.push_attribute(("url", xml_text(&mirror.url).as_str()));
    if let Some(depth) = mirror.depth {
        start.push_attribute(("depth", depth.to_string().as_str()));
    }
    start.push_attribute(("job", xml_text(&mirror.job).as_str()));
    if mirror.exclusions.is_empty() {
        return xml.write_event(Event::Empty(start));
    }
    xml.write_event(Event::Start(start))?;
    for path in &mirror.exclusions {
        let mut exclusion = BytesStart::new("exclusion");
        exclusion.push_attribute(("path", xml_text(path).as_str()));
        xml.write_event(Event::Empty(exclusion))?;
    }
    xml.write_event(Event::End(BytesEnd::new("mirror")))
}

/// Returns a text without the characters that no XML document may hold; the writer escapes the others.
fn xml_text(text: &str) -> String {
    let fit = |character: char| match character {
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
            '\u{fffd}'
        }
        // A parser makes blanks of them.
        '\t' | '\n' | '\r' => ' ',
        other => other,
    };
    text.chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use quick_xml::Reader;

    use super::*;

    fn capture(digits: &str, digest: &str, status: &str) -> SiteCapture {
        SiteCapture {
            time: ArchiveTime::parse(digits).unwrap(),
            url: "http://a.example/?x=1&y=<\"'\u{1}\u{ffff}>".into(),
            status: status.into(),
            digest: digest.into(),
            file: "a&b.warc.gz".into(),
            is_revisit: false,
        }
    }

    fn page() -> SitePage {
        SitePage {
            captures: vec![
                capture("20260101000000", "A", "200"),
                capture("20260102000000", "", "404"),
                capture("20260111000000", "B", "200"),
                capture("20260112000000", "B", "200"),
            ],
            known: None,
            versions: Vec::new(),
        }
    }

    #[test]
    fn a_delta_is_well_formed_whatever_the_web_says() {
        let page = page();
        let documents = listed(&page, &|_| true);
        let mut xml = Writer::new(Vec::new());
        xml_page(&mut xml, &documents[0].capture.url, &documents).unwrap();
        let mirror = DeltaMirror {
            url: "http://a.example/\u{0}<".into(),
            depth: Some(3),
            job: "1-2".into(),
            exclusions: vec!["^.*[<&\"].*$".into()],
        };
        xml_mirror(&mut xml, &mirror).unwrap();
        let text = String::from_utf8(xml.into_inner()).unwrap();
        let mut reader = Reader::from_str(&text);
        let (mut statuses, mut urls) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                Event::Start(element) | Event::Empty(element) => {
                    for attribute in element.attributes() {
                        let attribute = attribute.unwrap();
                        let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0);
                        let value = value.unwrap().into_owned();
                        match attribute.key.as_ref() {
                            b"status" => statuses.push(value),
                            b"url" => urls.push(value),
                            _ => {}
                        }
                    }
                }
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(statuses, ["unchanged", "updated", "error", "new"]);
        assert_eq!(
            urls,
            [
                "http://a.example/?x=1&y=<\"'\u{fffd}\u{fffd}>",
                "http://a.example/\u{fffd}<"
            ]
        );
    }

    #[test]
    fn one_document_stands_for_a_moment() {
        let page = page();
        let at = |digits: &str, which| {
            let found = standing(&page, ArchiveTime::parse(digits).unwrap(), which);
            found.map(|found| found.capture.time.to_string())
        };
        let time = |digits: &str| Some(digits.to_owned());
        assert_eq!(
            at("20260103000000", DeltaWhich::LastBefore),
            time("20260101000000")
        );
        assert_eq!(
            at("20260103000000", DeltaWhich::FirstAfter),
            time("20260111000000")
        );
        assert_eq!(
            at("20260111000000", DeltaWhich::FirstAfter),
            time("20260111000000")
        );
        assert_eq!(
            at("20260103000000", DeltaWhich::Likeliest),
            time("20260101000000")
        );
        assert_eq!(
            at("20260109000000", DeltaWhich::Likeliest),
            time("20260111000000")
        );
        assert_eq!(at("20251231000000", DeltaWhich::LastBefore), None);
        assert_eq!(at("20270101000000", DeltaWhich::FirstAfter), None);
        assert_eq!(
            at("20270101000000", DeltaWhich::Likeliest),
            time("20260112000000")
        );
        let unchanged = standing(
            &page,
            ArchiveTime::parse("20260111120000").unwrap(),
            DeltaWhich::Likeliest,
        );
        assert_eq!(unchanged.unwrap().chance, Some(1.0));
    }

    #[test]
    fn orders_tell_of_mirrors_and_exclusions() {
        let order: toml::Table = "job = '1'\n[[seeds]]\nurls = ['http://a.example/', 'http://b.example/']\n\
            [scope]\ndepth = 3\nreject-surts = ['example,a)/private/', 'example,b)/x']\nreject-regexes = ['\\.zip$']\n"
            .parse()
            .unwrap();
        let found = mirrors_of(&order, "example,a", "1-x");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].url.as_str(), found[0].depth),
            ("http://a.example/", Some(3))
        );
        assert_eq!(found[0].exclusions, ["example,a)/private/", "\\.zip$"]);
    }
}
