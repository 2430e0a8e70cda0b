//! The captures of one URL: read from the index, and one of them chosen for a moment.

use ecluse_cdx::{Capture, KeyRange, LookupError, cdxj};
use ecluse_config::AccessPolicy;

use crate::archive::OpenGeneration;
use crate::moment::Moment;

/// One capture as the index has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedCapture {
    /// Its key.
    pub key: String,
    /// When it was made, in 14 or 17 digits.
    pub time: String,
    /// The URL as it was asked for.
    pub url: String,
    /// The media type; empty where none is known.
    pub mime: String,
    /// The HTTP status; empty where none is known.
    pub status: String,
    /// The digest of the payload, with its label.
    pub digest: String,
    /// How many bytes the record takes.
    pub length_bytes: Option<u64>,
    /// Where the record begins.
    pub offset: u64,
    /// The (W)ARC file.
    pub filename: String,
    /// The record says that the payload was the same as another's.
    pub is_revisit: bool,
}

impl IndexedCapture {
    /// Takes what an index line says; none of a line that leads to no record.
    pub fn of(capture: &Capture<'_>) -> Option<Self> {
        let text = |field: &Option<std::borrow::Cow<'_, str>>| {
            field.as_deref().unwrap_or_default().to_owned()
        };
        Some(Self {
            key: capture.key.clone().into_owned(),
            time: capture.time.as_str().to_owned(),
            url: text(&capture.url),
            mime: text(&capture.mime),
            status: text(&capture.status),
            digest: text(&capture.digest),
            length_bytes: capture.length_bytes.filter(|length| *length > 0),
            offset: capture.offset?,
            filename: capture.filename.as_deref()?.to_owned(),
            is_revisit: capture.is_revisit(),
        })
    }

    pub(crate) fn moment(&self) -> Moment {
        moment_of(self.time.as_bytes())
    }
}

/// The captures of one URL around a moment.
#[derive(Debug, Default)]
pub(crate) struct CapturesAround {
    /// Those that may be meant, the likeliest first.
    pub(crate) candidates: Vec<IndexedCapture>,
    /// How many the index has.
    pub(crate) count: u64,
    /// The first and the last of all.
    pub(crate) first: Option<Moment>,
    pub(crate) last: Option<Moment>,
    /// The rule that hides captures of the URL, where it was asked for.
    pub(crate) hidden_by: Option<String>,
    /// All times, for those who look for the one before and the one after; no more than [`TIMES`].
    times: Vec<Moment>,
}

/// So many captures that may be meant are kept.
const CANDIDATES: usize = 24;
/// So many times are remembered.
const TIMES: usize = 100_000;

impl CapturesAround {
    /// Returns the times of the captures next to one.
    pub(crate) fn neighbours(&self, moment: Moment) -> (Option<Moment>, Option<Moment>) {
        let before = self.times.partition_point(|time| *time < moment);
        let after = self.times.partition_point(|time| *time <= moment);
        let before = before.checked_sub(1).and_then(|at| self.times.get(at));
        (before.copied(), self.times.get(after).copied())
    }
}

/// Reads the captures of a key around a moment, at most `most_lines` of them.
///
/// # Errors
/// When the index cannot be read.
pub(crate) fn captures_around(
    generation: &OpenGeneration,
    key: &[u8],
    wanted: Moment,
    policy: AccessPolicy,
    most_lines: u64,
    may_list: &dyn Fn(Moment) -> bool,
) -> Result<CapturesAround, LookupError> {
    let mut found = generation.lines.range(KeyRange::exact(key))?;
    let mut around = CapturesAround::default();
    let mut nearest: Vec<((bool, u64), Vec<u8>)> = Vec::with_capacity(CANDIDATES + 1);
    let mut seen = 0;
    while seen < most_lines
        && let Some(line) = found.next_line()?
    {
        seen += 1;
        let moment = moment_of(line.get(key.len() + 1..).unwrap_or_default());
        if !may_list(moment) {
            continue;
        }
        around.count += 1;
        around.first.get_or_insert(moment);
        around.last = Some(moment);
        if around.times.len() < TIMES {
            around.times.push(moment);
        }
        let rank = rank(moment, wanted, policy);
        if nearest.len() == CANDIDATES && nearest.last().is_some_and(|(last, _)| *last <= rank) {
            continue;
        }
        let at = nearest.partition_point(|(other, _)| *other <= rank);
        nearest.insert(at, (rank, line.to_vec()));
        nearest.truncate(CANDIDATES);
    }
    around.times.dedup();
    around.candidates = nearest
        .iter()
        .filter_map(|(_, line)| IndexedCapture::of(&cdxj::parse(line).ok()?))
        .collect();
    Ok(around)
}

/// How far a capture is from what was asked: less is better.
fn rank(moment: Moment, wanted: Moment, policy: AccessPolicy) -> (bool, u64) {
    let distance = moment.seconds().abs_diff(wanted.seconds());
    let is_wrong_side = match policy {
        AccessPolicy::Closest => false,
        AccessPolicy::Before => moment > wanted,
        AccessPolicy::After => moment < wanted,
    };
    (is_wrong_side, distance)
}

/// Reads the time at the beginning of what follows a key.
pub(crate) fn moment_of(rest: &[u8]) -> Moment {
    let digits = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .map_or(rest, |end| &rest[..end]);
    let digits = str::from_utf8(&digits[..digits.len().min(14)]).unwrap_or_default();
    Moment::first_of(digits).unwrap_or(Moment::of_seconds(0))
}
