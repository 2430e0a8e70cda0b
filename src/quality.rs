//! `ecluse quality JOB|HARVEST|SITE`: how much of what happened was caught, and how much of it belongs together.
//!
//! **Completeness** holds the changes that the captures saw against those the archive knows of, and against how many there must have been by
//! the pages' rates: between two captures that differ a page may have changed more than once, and what came and went then nobody has.
//! **Coherence** says of how many pages it is proved that they changed, or did not, while the others were being fetched.

use std::collections::HashSet;
use std::process::ExitCode;

use ecluse_cdx::KeyRange;
use ecluse_changes::{ArchiveTime, declared_change, expected_changes};
use ecluse_manifest::{Manifest, Term};
use ecluse_refresh::{Completeness, CompletenessOf, PageRecord};
use ecluse_stage::Exit;
use serde_json::json;

use crate::cli::QualityOptions;
use crate::context::{DriverContext, Trouble};
use crate::lookup::NONE_FOUND;
use crate::show;
use crate::site_captures::{SiteCapture, SitePage, each_page, range_of_site};

/// What a change counts that was not weighed: a text written anew.
const UNWEIGHED: f64 = 1.0 / 9.0;
/// The quality of a job is part of its summary where the index is no larger.
const BRIEF_BYTES: u64 = 64 << 20;

/// Whose captures are judged.
struct Judged {
    /// `job`, `harvest` or `site`.
    kind: &'static str,
    name: String,
    range: KeyRange,
    /// The files that hold them; none: all.
    files: Option<HashSet<String>>,
    /// The files of the job whose coherence is asked; none: those of the captures.
    together: Option<HashSet<String>>,
}

/// What became of the pages while they were being fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Coherence {
    pages: u64,
    /// Fetched more than once.
    twice: u64,
    /// Proved to have changed.
    changed: u64,
    /// Proved not to have.
    steady: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct PageFigures {
    pages: u64,
    captures: u64,
    changes: u64,
    /// How many changes there were, by the rates.
    expected: f64,
    earned: f64,
    estimated: f64,
}

pub(crate) fn quality(
    context: &DriverContext,
    options: &QualityOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let judged = judged(context, &options.what, options.collection.as_deref())?;
    match judge(context, judged, options.collection.as_deref())? {
        Ok(judgement) => judgement.tell(context)?,
        Err(judged) => {
            eprintln!("ecluse: no captures of {} in the index", judged.name);
            return Ok(NONE_FOUND.into());
        }
    }
    Ok(Exit::Done.into())
}

/// Returns a line on the quality of a job, for its summary. All lines of the index are read for that: none where there are too many, or
/// where nothing is known of changes yet.
pub(crate) fn brief(context: &DriverContext, job: &str) -> Option<String> {
    let index = context.root.join(&context.pipeline.archive.index);
    let flat = index.join("current").join(ecluse_generation::FLAT);
    let bytes = std::fs::metadata(flat).ok()?.len();
    if bytes > BRIEF_BYTES {
        return None;
    }
    let judged = judged(context, job, None)
        .ok()
        .filter(|judged| judged.kind == "job")?;
    let judgement = judge(context, judged, None).ok()?.ok()?;
    let Coherence {
        changed, steady, ..
    } = judgement.coherence;
    Some(format!(
        "{:.0} % of the changes known of were caught; of {}, {changed} changed while the others were fetched, {steady} did not, {} nobody knows",
        100.0 * judgement.known.of(CompletenessOf::Everything),
        show::count(judgement.coherence.pages, "page", "pages"),
        judgement.coherence.unknown(),
    ))
}

/// How good captures are.
struct Judgement {
    judged: Judged,
    span: (ArchiveTime, ArchiveTime),
    known: Completeness,
    figures: PageFigures,
    coherence: Coherence,
}

/// Judges captures; gives what should be judged back where there are none.
fn judge(
    context: &DriverContext,
    judged: Judged,
    collection: Option<&str>,
) -> Result<Result<Judgement, Judged>, Trouble> {
    let Some((begin, end)) = span_of(context, &judged, collection)? else {
        return Ok(Err(judged));
    };
    let mut known = Completeness::default();
    let mut figures = PageFigures::default();
    let mut coherence = Coherence::default();
    each_page(context, collection, judged.range.clone(), &mut |page| {
        let own = documents_in(page, judged.files.as_ref());
        if !own.is_empty() {
            let record = completeness_of(page, &own, &mut figures);
            known.add(&record);
        }
        let together = documents_in(page, judged.together.as_ref().or(judged.files.as_ref()));
        coherence.add(page, &together, begin, end);
        Ok(())
    })?;
    Ok(Ok(Judgement {
        judged,
        span: (begin, end),
        known,
        figures,
        coherence,
    }))
}

/// Finds what is meant: a job, a harvest, else a site.
fn judged(
    context: &DriverContext,
    what: &str,
    collection: Option<&str>,
) -> Result<Judged, Trouble> {
    let path = crate::verify::manifest_path(context);
    let manifest = match path.exists() {
        true => Some(Manifest::open_to_read(&path, &context.root)?),
        false => None,
    };
    let files_of = |terms: &[Term<'_>]| -> Result<HashSet<String>, Trouble> {
        let mut files = HashSet::new();
        if let Some(manifest) = &manifest {
            manifest.find(terms, |row| -> Result<(), Trouble> {
                files.insert(row.name);
                Ok(())
            })?;
        }
        Ok(files)
    };
    let mut asked = vec![("job", vec![Term::Job(what)])];
    // As the directory of a job is named.
    if let Some((job, harvest)) = what.rsplit_once('-') {
        asked.push(("job", vec![Term::Job(job), Term::Harvest(harvest)]));
    }
    asked.push(("harvest", vec![Term::Harvest(what)]));
    for (kind, terms) in asked {
        let files = files_of(&terms)?;
        if !files.is_empty() {
            return Ok(Judged {
                kind,
                name: what.to_owned(),
                range: KeyRange::all(),
                files: Some(files),
                together: None,
            });
        }
    }
    let range = range_of_site(what)?;
    // Of a site that was fetched many times, the last job is what should belong together.
    let mut last: Option<(ArchiveTime, String)> = None;
    each_page(context, collection, range.clone(), &mut |page| {
        if let Some(capture) = page.captures.last()
            && last.as_ref().is_none_or(|(time, _)| *time < capture.time)
        {
            last = Some((capture.time, capture.file.clone()));
        }
        Ok(())
    })?;
    let row = match (&manifest, &last) {
        (Some(manifest), Some((_, file))) => manifest.file(file)?,
        _ => None,
    };
    let together = match row.and_then(|row| Some((row.job?, row.harvest))) {
        Some((job, Some(harvest))) => Some(files_of(&[Term::Job(&job), Term::Harvest(&harvest)])?),
        Some((job, None)) => Some(files_of(&[Term::Job(&job)])?),
        None => last.map(|(_, file)| HashSet::from([file])),
    };
    Ok(Judged {
        kind: "site",
        name: what.to_owned(),
        range,
        files: None,
        together,
    })
}

/// Returns from when to when the captures were made that should belong together.
fn span_of(
    context: &DriverContext,
    judged: &Judged,
    collection: Option<&str>,
) -> Result<Option<(ArchiveTime, ArchiveTime)>, Trouble> {
    let mut span: Option<(ArchiveTime, ArchiveTime)> = None;
    let files = judged.together.as_ref().or(judged.files.as_ref());
    each_page(context, collection, judged.range.clone(), &mut |page| {
        for capture in documents_in(page, files) {
            let (begin, end) = span.get_or_insert((capture.time, capture.time));
            *begin = capture.time.min(*begin);
            *end = capture.time.max(*end);
        }
        Ok(())
    })?;
    Ok(span)
}

/// Returns the captures of a document that lie in these files, oldest first.
fn documents_in<'p>(page: &'p SitePage, files: Option<&HashSet<String>>) -> Vec<&'p SiteCapture> {
    // A page that is followed is a document; the others are images, styles and scripts.
    if page.known.is_none() {
        return Vec::new();
    }
    let is_good = |capture: &&SiteCapture| {
        capture.is_revisit || matches!(capture.status.as_bytes().first(), None | Some(b'2' | b'-'))
    };
    let is_in = |capture: &&SiteCapture| files.is_none_or(|files| files.contains(&capture.file));
    page.captures.iter().filter(is_good).filter(is_in).collect()
}

/// Returns what was caught of the changes of a page that the archive knows of, between the first and the last of the captures.
fn completeness_of(page: &SitePage, own: &[&SiteCapture], figures: &mut PageFigures) -> PageRecord {
    let (first, last) = (own[0].time, own[own.len() - 1].time);
    let weight_of = |time: ArchiveTime| {
        let version = page.version_at(time);
        version
            .and_then(|version| version.weight)
            .unwrap_or(UNWEIGHED)
    };
    let seconds = |time: ArchiveTime| time.seconds() as f64;
    let changes: Vec<(f64, f64)> = page
        .versions
        .iter()
        .filter(|version| version.before.is_some())
        .filter(|version| first < version.time && version.time <= last)
        .map(|version| (seconds(version.time), weight_of(version.time)))
        .collect();
    let captures: Vec<f64> = own.iter().map(|capture| seconds(capture.time)).collect();
    figures.pages += 1;
    figures.captures += own.len() as u64;
    let rate = page.known.as_ref().map_or(0.0, |known| known.rate);
    for pair in own.windows(2) {
        if pair[0].digest == pair[1].digest {
            continue;
        }
        let expected = expected_changes(pair[1].time.days_since(pair[0].time), rate);
        let weight = weight_of(pair[1].time);
        figures.changes += 1;
        figures.expected += expected;
        figures.earned += weight;
        figures.estimated += weight * expected;
    }
    PageRecord::of(1.0, &changes, &captures)
}

impl Coherence {
    /// Judges a page by all that is known of it.
    fn add(&mut self, page: &SitePage, own: &[&SiteCapture], begin: ArchiveTime, end: ArchiveTime) {
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            return;
        };
        self.pages += 1;
        self.twice += u64::from(own.len() > 1);
        let modified = |capture: &SiteCapture| {
            let version = page
                .versions
                .iter()
                .rfind(|version| version.time <= capture.time)?;
            declared_change(version.last_modified.as_deref(), version.time)
        };
        let is_changed = own.iter().any(|capture| capture.digest != first.digest)
            || modified(first).is_some_and(|time| begin < time && time <= first.time);
        if is_changed {
            self.changed += 1;
            return;
        }
        let is_same = |capture: &&SiteCapture| capture.digest == first.digest;
        let before = page
            .captures
            .iter()
            .rfind(|it| it.time <= begin && !it.is_error());
        let was_so = first.time == begin
            || before.as_ref().is_some_and(is_same)
            || modified(first).is_some_and(|time| time <= begin);
        let after = page
            .captures
            .iter()
            .find(|it| it.time >= end && !it.is_error());
        let stays_so = last.time == end || after.as_ref().is_some_and(is_same);
        self.steady += u64::from(was_so && stays_so);
    }

    fn unknown(&self) -> u64 {
        self.pages - self.changed - self.steady
    }
}

impl Judgement {
    fn tell(&self, context: &DriverContext) -> Result<(), Trouble> {
        let Self {
            judged,
            span: (begin, end),
            known,
            figures,
            coherence,
        } = self;
        let by_page = known.of(CompletenessOf::EachPage);
        let in_all = known.of(CompletenessOf::Everything);
        let estimated = match figures.estimated > 0.0 {
            true => figures.earned / figures.estimated,
            false => 1.0,
        };
        if context.json {
            return context.print_json(json!({
                "kind": judged.kind, "name": judged.name,
                "pages": figures.pages, "captures": figures.captures, "changes": figures.changes,
                "completeness": {
                    "by-page": by_page, "in-all": in_all, "estimated": estimated,
                    "estimated-changes": figures.expected,
                },
                "coherence": {
                    "begin": begin.to_string(), "end": end.to_string(), "pages": coherence.pages,
                    "fetched-twice": coherence.twice, "changed": coherence.changed,
                    "steady": coherence.steady, "unknown": coherence.unknown(),
                },
            }));
        }
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut text = format!(
            "{} {}: {} captured, {}, {} seen\n\n",
            judged.kind,
            ecluse_telemetry::printable(judged.name.as_bytes()),
            show::count(figures.pages, "page", "pages"),
            show::count(figures.captures, "capture", "captures"),
            show::count(figures.changes, "change", "changes"),
        );
        text += &format!(
            "completeness\n  of what the archive knows of     {} by page, {} in all\n  of what there must have been     {} of about {:.1} changes, by the pages' rates\n",
            percent(by_page),
            percent(in_all),
            percent(estimated),
            figures.expected,
        );
        text += "  What came and went between two captures nobody saw: the second figure is an estimate, and pages that were\n  \
             never captured are in neither.\n\n";
        text += &format!(
            "coherence, {begin} to {end}\n  {} while the others were being fetched\n  {} proved to have stayed as they were\n  {} of which nothing is known; a later capture would tell\n  {} fetched more than once\n",
            show::count(coherence.changed, "page that changed", "pages that changed"),
            show::count(coherence.steady, "page", "pages"),
            show::count(coherence.unknown(), "page", "pages"),
            show::count(coherence.twice, "page", "pages"),
        );
        context.print(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(digits: &str, digest: &str) -> SiteCapture {
        SiteCapture {
            time: ArchiveTime::parse(digits).unwrap(),
            url: "http://a.example/".into(),
            status: "200".into(),
            digest: digest.into(),
            file: "a".into(),
            is_revisit: false,
        }
    }

    fn coherence(captures: &[(&str, &str)], own: std::ops::Range<usize>) -> Coherence {
        let page = SitePage {
            captures: captures
                .iter()
                .map(|(time, digest)| capture(time, digest))
                .collect(),
            known: None,
            versions: Vec::new(),
        };
        let own: Vec<&SiteCapture> = page.captures[own].iter().collect();
        let time = |digits| ArchiveTime::parse(digits).unwrap();
        let mut found = Coherence::default();
        found.add(&page, &own, time("20260105000000"), time("20260106000000"));
        found
    }

    #[test]
    fn pages_are_steady_changed_or_unknown() {
        let is = |found: Coherence| (found.changed, found.steady, found.unknown(), found.twice);
        // Before, within, after: the same throughout.
        let same = [
            ("20260101000000", "A"),
            ("20260105120000", "A"),
            ("20260109000000", "A"),
        ];
        assert_eq!(is(coherence(&same, 1..2)), (0, 1, 0, 0));
        // Another before: it may have changed before the job began, or after.
        let other = [
            ("20260101000000", "B"),
            ("20260105120000", "A"),
            ("20260109000000", "A"),
        ];
        assert_eq!(is(coherence(&other, 1..2)), (0, 0, 1, 0));
        let alone = [("20260105120000", "A")];
        assert_eq!(is(coherence(&alone, 0..1)), (0, 0, 1, 0));
        let twice = [("20260105110000", "A"), ("20260105120000", "B")];
        assert_eq!(is(coherence(&twice, 0..2)), (1, 0, 0, 1));
        // The first and the last of the job are its borders.
        let borders = [("20260105000000", "A"), ("20260106000000", "A")];
        assert_eq!(is(coherence(&borders, 0..2)), (0, 1, 0, 1));
        assert_eq!(coherence(&alone, 0..0), Coherence::default());
    }
}
