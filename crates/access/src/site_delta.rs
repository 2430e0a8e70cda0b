//! What became of the URLs of a site between two dates, by the index alone.
//!
//! A URL is as its last capture up to a date says. One that was not captured between the dates is not called gone: nobody looked.

use ecluse_cdx::{KeyRange, LookupError, cdxj};

use crate::archive::OpenGeneration;
use crate::capture_list::{IndexedCapture, moment_of};
use crate::moment::Moment;
use crate::url_text::key_of;

/// URLs that are listed of each kind.
const LISTED: usize = 500;

/// What changed on a site.
#[derive(Debug, Default)]
pub(crate) struct SiteDelta {
    /// What was looked at: a host, or what is below a path.
    pub(crate) site: String,
    /// There after the first date, and not before.
    pub(crate) new: SiteList,
    /// There before and after, with another content.
    pub(crate) changed: SiteList,
    /// There before, and an error after.
    pub(crate) gone: SiteList,
    /// There before, and not captured since.
    pub(crate) unseen: SiteList,
    pub(crate) unchanged: u64,
    /// The site has more lines in the index than may be read.
    pub(crate) is_cut: bool,
}

/// URLs of one kind: all are counted, the first are listed.
#[derive(Debug, Default)]
pub(crate) struct SiteList {
    pub(crate) count: u64,
    pub(crate) entries: Vec<SiteEntry>,
}

/// A URL, with the captures that tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SiteEntry {
    pub(crate) url: String,
    pub(crate) old: Option<Moment>,
    pub(crate) new: Option<Moment>,
    /// The status, where that is what tells.
    pub(crate) status: String,
}

impl SiteList {
    fn push(&mut self, entry: SiteEntry) {
        self.count += 1;
        if self.entries.len() < LISTED {
            self.entries.push(entry);
        }
    }
}

/// The last captures of one URL up to each date.
#[derive(Default)]
struct UrlState {
    key: Vec<u8>,
    old: Option<IndexedCapture>,
    new: Option<IndexedCapture>,
}

impl SiteDelta {
    /// Reads the lines of the site of a URL: of its host, or, where it has a path, of what is below that.
    ///
    /// # Errors
    /// When the index cannot be read; `Ok(None)` for a URL that has no key.
    pub(crate) fn read(
        generation: &OpenGeneration,
        url: &str,
        from: Moment,
        to: Moment,
        most_lines: u64,
        may_list: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Self>, LookupError> {
        let Some(key) = key_of(url) else {
            return Ok(None);
        };
        let is_host = key.ends_with(b")/") || key.ends_with(b")");
        let range = match is_host {
            true => KeyRange::host(&key),
            false => KeyRange::prefix(&crate::cdx_query::as_far_as_written(key, url)),
        };
        let mut delta = Self {
            site: url.to_owned(),
            ..Self::default()
        };
        let mut lines = generation.lines.range(range)?;
        let mut state = UrlState::default();
        let mut seen = 0;
        while let Some(line) = lines.next_line()? {
            seen += 1;
            if seen > most_lines {
                delta.is_cut = true;
                break;
            }
            let blank = memchr::memchr(b' ', line).unwrap_or(line.len());
            let (key, rest) = line.split_at(blank);
            if key != state.key {
                delta.settle(std::mem::take(&mut state));
                state.key = key.to_vec();
            }
            let moment = moment_of(rest.get(1..).unwrap_or_default());
            if moment > to || !may_list(line) {
                continue;
            }
            let capture = cdxj::parse(line).ok();
            let Some(capture) = capture.and_then(|capture| IndexedCapture::of(&capture)) else {
                continue;
            };
            match moment <= from {
                true => state.old = Some(capture),
                false => state.new = Some(capture),
            }
        }
        // The last URL of a list that was cut is not known to its end.
        if !delta.is_cut {
            delta.settle(state);
        }
        Ok(Some(delta))
    }

    /// Says whether nothing is known of the site up to the later date.
    pub(crate) fn is_empty(&self) -> bool {
        let lists = [&self.new, &self.changed, &self.gone, &self.unseen];
        self.unchanged == 0 && lists.iter().all(|list| list.count == 0)
    }

    fn settle(&mut self, state: UrlState) {
        let entry = |capture: &IndexedCapture, status: &str| SiteEntry {
            url: capture.url.clone(),
            old: state.old.as_ref().map(IndexedCapture::moment),
            new: state.new.as_ref().map(IndexedCapture::moment),
            status: status.to_owned(),
        };
        match (&state.old, &state.new) {
            (None, None) => {}
            (None, Some(new)) if is_there(new) => self.new.push(entry(new, "")),
            // It was not there before and is not now.
            (None, Some(_)) => {}
            (Some(old), None) if is_there(old) => self.unseen.push(entry(old, "")),
            (Some(_), None) => {}
            (Some(old), Some(new)) => match (is_there(old), is_there(new)) {
                (true, true) if is_changed(old, new) => self.changed.push(entry(new, "")),
                (true, true) => self.unchanged += 1,
                (false, true) => self.new.push(entry(new, "")),
                (true, false) => {
                    let status = new.status.clone();
                    self.gone.push(entry(old, &status));
                }
                (false, false) => {}
            },
        }
    }
}

/// Says whether a capture found something. A revisit did, whatever its line says of the status.
fn is_there(capture: &IndexedCapture) -> bool {
    let status = capture.status.as_bytes();
    capture.is_revisit || !matches!(status.first(), Some(b'4' | b'5'))
}

/// Says whether the content is another. Where no digest tells, a revisit says that it is the same.
fn is_changed(old: &IndexedCapture, new: &IndexedCapture) -> bool {
    let bare = |capture: &IndexedCapture| {
        let digest = capture.digest.rsplit(':').next();
        digest.unwrap_or_default().to_ascii_uppercase()
    };
    let (one, other) = (bare(old), bare(new));
    match one.is_empty() || other.is_empty() {
        true => !new.is_revisit,
        false => one != other,
    }
}
