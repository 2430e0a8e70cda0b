//! One page, followed through all its captures.

use std::collections::{BTreeMap, HashMap};

use ecluse_access::IndexedCapture;
use ecluse_cdx::{LookupError, cdxj};
use ecluse_changes::{
    Announcement, ArchiveTime, BlockDocument, ElementCounts, HistorySettings, PageChanges,
    PageHistory, PagePattern, ReadOutcome, VersionChange, WeightNorm, compare, simhash_distance,
};

use crate::captures::CaptureJoin;
use crate::documents::{Documents, form_of};

/// What was counted on the way; all of it stands in the receipt.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeCounts {
    /// Keys that came in.
    pub(crate) keys: u64,
    /// Of these, pages.
    pub(crate) pages: u64,
    /// Versions that were read now.
    pub(crate) versions: u64,
    /// By how they were read.
    pub(crate) outcomes: BTreeMap<ReadOutcome, u64>,
    /// Lines that tell nothing, by reason.
    pub(crate) passed_over: BTreeMap<&'static str, u64>,
}

impl ChangeCounts {
    fn pass_over(&mut self, reason: &'static str) {
        *self.passed_over.entry(reason).or_default() += 1;
    }
}

/// What is known of a page now.
pub(crate) struct FollowedPage {
    pub(crate) page: PageChanges,
    pub(crate) versions: Vec<VersionChange>,
    pub(crate) pattern: Option<PagePattern>,
}

/// How pages are followed.
pub(crate) struct Following<'a> {
    pub(crate) documents: Documents<'a>,
    pub(crate) history: HistorySettings,
    pub(crate) norm: WeightNorm,
    pub(crate) counts: ChangeCounts,
}

/// The document of the capture before, and its blocks where they were read already.
struct LastDocument {
    capture: IndexedCapture,
    time: ArchiveTime,
    blocks: Option<BlockDocument>,
}

/// A version that was read.
struct WeighedVersion {
    version: VersionChange,
    blocks: Option<BlockDocument>,
    is_document: bool,
}

impl Following<'_> {
    /// Follows the page whose key is next in `join`; none where no capture of it is one of a document.
    pub(crate) fn follow(
        &mut self,
        surt: &str,
        join: &mut CaptureJoin<'_>,
        known: Vec<VersionChange>,
        tell: &mut dyn FnMut(&Announcement) -> Result<(), LookupError>,
        tick: &dyn Fn(),
    ) -> Result<Option<FollowedPage>, LookupError> {
        let mut known: HashMap<(ArchiveTime, String), VersionChange> = known
            .into_iter()
            .map(|version| ((version.time, version.digest.clone()), version))
            .collect();
        let mut history: Option<PageHistory> = None;
        let mut versions: Vec<VersionChange> = Vec::new();
        let mut last: Option<LastDocument> = None;
        let mut status = None;
        while let Some(line) = join.next_line()? {
            tick();
            let Some((capture, time)) = self.capture(&line) else {
                continue;
            };
            status = capture.status.parse().ok().or(status);
            if let Some(history) = &mut history {
                history.note_status(status);
            }
            if !is_document(&capture) {
                continue;
            }
            if capture.digest.is_empty() {
                self.counts.pass_over("without a digest");
                continue;
            }
            if let Some(before) = &mut last
                && bare(&before.capture.digest) == bare(&capture.digest)
            {
                if let Some(history) = &mut history {
                    history.see(time, &capture.url, None);
                }
                before.time = time;
                // Of equal ones the first that is no revisit is read.
                if before.capture.is_revisit && !capture.is_revisit {
                    before.capture = capture;
                }
                continue;
            }
            let before = last
                .as_ref()
                .map(|last| (last.time, last.capture.digest.clone()));
            let same = known
                .remove(&(time, capture.digest.clone()))
                .filter(|version| version.before == before && is_settled(version.outcome));
            let (version, blocks) = match same {
                Some(version) => (version, None),
                None => {
                    self.counts.versions += 1;
                    let read = self.weigh(surt, &capture, time, last.as_mut(), tell)?;
                    // Whether a revisit is one of a document only the original says.
                    if history.is_none() && capture.is_revisit && !read.is_document {
                        self.counts.pass_over("a revisit of no document");
                        continue;
                    }
                    let outcome = read.version.outcome;
                    *self.counts.outcomes.entry(outcome).or_default() += 1;
                    (read.version, read.blocks)
                }
            };
            match &mut history {
                Some(history) => history.see(time, &capture.url, Some(&version)),
                None => {
                    let mut begun = PageHistory::begin(self.history, &capture.url, &version);
                    begun.note_status(status);
                    history = Some(begun);
                }
            }
            versions.push(version);
            last = Some(LastDocument {
                capture,
                time,
                blocks,
            });
        }
        Ok(history.map(|history| {
            let (page, pattern) = history.finish();
            FollowedPage {
                page,
                versions,
                pattern,
            }
        }))
    }

    /// Reads a line; counts one that leads nowhere.
    fn capture(&mut self, line: &[u8]) -> Option<(IndexedCapture, ArchiveTime)> {
        let Ok(parsed) = cdxj::parse(line) else {
            self.counts.pass_over("no CDXJ");
            return None;
        };
        let Some(time) = ArchiveTime::parse(parsed.time.as_str()) else {
            self.counts.pass_over("a day that never was");
            return None;
        };
        let capture = IndexedCapture::of(&parsed);
        if capture.is_none() {
            self.counts.pass_over("without a record");
        }
        Some((capture?, time))
    }

    /// Reads a version and weighs it against the one before.
    fn weigh(
        &self,
        surt: &str,
        capture: &IndexedCapture,
        time: ArchiveTime,
        last: Option<&mut LastDocument>,
        tell: &mut dyn FnMut(&Announcement) -> Result<(), LookupError>,
    ) -> Result<WeighedVersion, LookupError> {
        let mut version = VersionChange {
            surt: surt.to_owned(),
            time,
            digest: capture.digest.clone(),
            before: last
                .as_ref()
                .map(|last| (last.time, last.capture.digest.clone())),
            weight: None,
            counts: ElementCounts::default(),
            simhash: None,
            distance: None,
            text_weight: None,
            etag: None,
            last_modified: None,
            outcome: ReadOutcome::Read,
            words: None,
        };
        let read = match self.documents.read(capture, time, true) {
            Ok(read) => read,
            Err(outcome) => {
                version.outcome = outcome;
                return Ok(WeighedVersion {
                    version,
                    blocks: None,
                    is_document: false,
                });
            }
        };
        let is_document = read.is_document;
        for told in &read.told {
            tell(told)?;
        }
        version.words = read.words;
        version.etag = read.etag;
        version.last_modified = read.last_modified;
        let Some(blocks) = read.blocks else {
            version.outcome = ReadOutcome::NoText;
            return Ok(WeighedVersion {
                version,
                blocks: None,
                is_document,
            });
        };
        version.simhash = Some(blocks.simhash);
        version.text_weight = Some(blocks.text_weight);
        if let Some(last) = last {
            match self.blocks_of(last) {
                Ok(before) => {
                    let change = compare(before, &blocks, self.norm);
                    version.weight = Some(change.weight);
                    version.counts = change.counts;
                    version.distance = Some(simhash_distance(before.simhash, blocks.simhash));
                }
                Err(outcome) => version.outcome = outcome,
            }
        }
        Ok(WeighedVersion {
            version,
            blocks: Some(blocks),
            is_document,
        })
    }

    /// Returns the blocks of the document before, read now unless they were read already.
    fn blocks_of<'l>(&self, last: &'l mut LastDocument) -> Result<&'l BlockDocument, ReadOutcome> {
        if last.blocks.is_none() {
            let read = self.documents.read(&last.capture, last.time, false)?;
            last.blocks = read.blocks;
        }
        last.blocks.as_ref().ok_or(ReadOutcome::NoText)
    }
}

/// Says whether a capture is one of a document that may be looked at again.
fn is_document(capture: &IndexedCapture) -> bool {
    let is_web = ["http://", "https://"].iter().any(|scheme| {
        let start = capture.url.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    // What a revisit is one of, its own line does not say.
    let is_found = match capture.status.as_bytes() {
        [] | b"-" => true,
        [b'2', ..] => true,
        b"304" => capture.is_revisit,
        _ => false,
    };
    is_web && is_found && (capture.is_revisit || form_of(&capture.mime, &capture.url).is_some())
}

/// Says whether reading it again would tell nothing new.
fn is_settled(outcome: ReadOutcome) -> bool {
    match outcome {
        ReadOutcome::Read | ReadOutcome::NoText => true,
        ReadOutcome::Missing | ReadOutcome::Damaged | ReadOutcome::NoOriginal => false,
    }
}

/// Returns a digest without its label.
fn bare(digest: &str) -> &str {
    digest.rsplit(':').next().unwrap_or(digest)
}
