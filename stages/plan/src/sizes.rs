//! How much a domain will bring, from what it brought before.
//!
//! Two ways. NetarchiveSuite's: a tenth of the way from the last result to the limit, or half of it where the last harvest was
//! cut. And by quantiles, the default: of the domains that brought about as much as this one did, how much did nine in ten
//! bring the next time? Most domains of a nation are tiny and stay so; the first way takes them for hundreds of times their size.

use ecluse_register::StopReason;
use serde::Deserialize;

/// How the expected size is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeMethod {
    /// By quantiles of what like domains brought.
    Quantile,
    /// By NetarchiveSuite's formula.
    NetarchiveSuite,
}

/// What `[stage.plan.sizes]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SizeSettings {
    /// How it is found.
    pub method: SizeMethod,
    /// Of like domains, this share brings no more.
    pub quantile: f64,
    /// Objects of a domain of which nothing is known.
    pub unknown: u64,
    /// Bytes of an object, where nothing is known.
    pub object_bytes: u64,
    /// NetarchiveSuite: which part of what is left to the limit is added to a complete result.
    pub complete_factor: u64,
    /// NetarchiveSuite: and to one that was cut.
    pub cut_factor: u64,
}

/// One result of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PastResult {
    /// URLs that were answered.
    pub objects: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Why it stopped.
    pub stop: StopReason,
}

/// How much a domain may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SizeLimits {
    /// Objects, by the harvest.
    pub harvest_objects: Option<u64>,
    /// Bytes, by the harvest.
    pub harvest_bytes: Option<u64>,
    /// Objects, by the domain's own settings.
    pub own_objects: Option<u64>,
    /// Bytes, by the domain's own settings.
    pub own_bytes: Option<u64>,
}

/// What is expected of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedSize {
    /// Objects.
    pub objects: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Results with fewer objects say nothing of how large an object is.
const FEW_OBJECTS: u64 = 50;

impl SizeLimits {
    /// Returns how many objects they let come; none where they set no limit.
    fn most(objects: Option<u64>, bytes: Option<u64>, object_bytes: u64) -> Option<u64> {
        let by_bytes = bytes.map(|bytes| bytes / object_bytes.max(1));
        match (objects, by_bytes) {
            (Some(objects), Some(by_bytes)) => Some(objects.min(by_bytes)),
            (objects, by_bytes) => objects.or(by_bytes),
        }
    }

    fn of_harvest(&self, object_bytes: u64) -> Option<u64> {
        Self::most(self.harvest_objects, self.harvest_bytes, object_bytes)
    }

    fn own(&self, object_bytes: u64) -> Option<u64> {
        Self::most(self.own_objects, self.own_bytes, object_bytes)
    }
}

/// Returns how large an object of a domain is.
fn object_bytes(best: Option<&PastResult>, settings: &SizeSettings) -> u64 {
    let Some(best) = best.filter(|best| best.objects > 0) else {
        return settings.object_bytes;
    };
    let found = (best.bytes / best.objects).max(1);
    match found < settings.object_bytes && best.objects < FEW_OBJECTS {
        true => settings.object_bytes,
        false => found,
    }
}

/// Returns the largest of the newest results, down to the first that was complete.
fn best_of(history: &[PastResult]) -> Option<&PastResult> {
    let mut best: Option<&PastResult> = None;
    for result in history {
        if best.is_none_or(|best| best.objects <= result.objects) {
            best = Some(result);
        }
        if result.stop == StopReason::DownloadComplete {
            break;
        }
    }
    best
}

/// Returns what NetarchiveSuite expects of a domain; its history comes newest first.
pub(crate) fn netarchivesuite(
    history: &[PastResult],
    limits: SizeLimits,
    settings: &SizeSettings,
) -> ExpectedSize {
    let best = best_of(history);
    let each = object_bytes(best, settings);
    let own = limits.own(each);
    let mut most = limits.of_harvest(each).or(own).unwrap_or(settings.unknown);
    let expected = match best {
        None => settings.unknown.min(limits.own_objects.unwrap_or(u64::MAX)),
        Some(best) => {
            let factor = match best.stop == StopReason::DownloadComplete {
                true => settings.complete_factor,
                false => settings.cut_factor,
            };
            let left = i128::from(most) - i128::from(best.objects);
            let expected = i128::from(best.objects) + left / i128::from(factor.max(1));
            u64::try_from(expected.max(0)).unwrap_or(u64::MAX)
        }
    };
    most = own.map_or(most, |own| most.min(own));
    let objects = expected.min(most);
    ExpectedSize {
        objects,
        bytes: objects.saturating_mul(each),
    }
}

/// Below this many examples a class says nothing.
const EXAMPLES: u64 = 100;
/// Classes of sizes: 0, 1 to 9, 10 to 99 …
const CLASSES: usize = 12;

/// How much like domains brought: from examples, in bounded memory.
#[derive(Debug, Clone)]
pub(crate) struct SizeClasses {
    /// What came next, by the class of what came before; complete, then cut.
    next: [[Histogram; CLASSES]; 2],
    /// What came the last time, by its class.
    last: [[Histogram; CLASSES]; 2],
    /// What domains brought the first time.
    first: Histogram,
}

impl Default for SizeClasses {
    fn default() -> Self {
        let classes = || std::array::from_fn(|_| std::array::from_fn(|_| Histogram::default()));
        Self {
            next: classes(),
            last: classes(),
            first: Histogram::default(),
        }
    }
}

impl SizeClasses {
    /// Takes a domain in as an example; its history comes newest first.
    pub(crate) fn add(&mut self, history: &[PastResult]) {
        if let (Some(newest), Some(oldest)) = (history.first(), history.last()) {
            class_mut(&mut self.last, newest).add(newest.objects);
            self.first.add(oldest.objects);
        }
        for pair in history.windows(2) {
            class_mut(&mut self.next, &pair[1]).add(pair[0].objects);
        }
    }

    /// Returns what is expected of a domain; its history comes newest first.
    pub(crate) fn expected(
        &self,
        history: &[PastResult],
        limits: SizeLimits,
        settings: &SizeSettings,
    ) -> ExpectedSize {
        let newest = history.first();
        let each = object_bytes(newest, settings);
        let most = [limits.of_harvest(each), limits.own(each)];
        let most = most.into_iter().flatten().min();
        let quantile = settings.quantile;
        let expected = match newest {
            None => self.first.quantile(quantile).unwrap_or(settings.unknown),
            Some(newest) => {
                let next = class_of(&self.next, newest).quantile(quantile);
                let like = next.or_else(|| class_of(&self.last, newest).quantile(quantile));
                let expected = like.unwrap_or(newest.objects);
                // What was cut has at least what it had.
                match newest.stop == StopReason::DownloadComplete {
                    true => expected,
                    false => expected.max(newest.objects),
                }
            }
        };
        let objects = expected.min(most.unwrap_or(u64::MAX)).max(1);
        ExpectedSize {
            objects,
            bytes: objects.saturating_mul(each),
        }
    }
}

fn place(result: &PastResult) -> (usize, usize) {
    let is_cut = usize::from(result.stop != StopReason::DownloadComplete);
    let class = match result.objects {
        0 => 0,
        objects => 1 + objects.ilog10() as usize,
    };
    (is_cut, class.min(CLASSES - 1))
}

fn class_of<'a>(of: &'a [[Histogram; CLASSES]; 2], result: &PastResult) -> &'a Histogram {
    let (is_cut, class) = place(result);
    &of[is_cut][class]
}

fn class_mut<'a>(of: &'a mut [[Histogram; CLASSES]; 2], result: &PastResult) -> &'a mut Histogram {
    let (is_cut, class) = place(result);
    &mut of[is_cut][class]
}

/// Steps to a doubling: a quantile is too large by at most one in sixteen.
const STEPS: u32 = 16;
const BUCKETS: usize = 16 + 60 * 16;

/// Counts by size, finer where sizes are small.
#[derive(Debug, Clone, Default)]
struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.total += 1;
    }

    /// Returns the size that this share of the examples does not exceed; none where there are too few.
    fn quantile(&self, share: f64) -> Option<u64> {
        if self.total < EXAMPLES {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count of examples"
        )]
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Some(end_of(bucket));
            }
        }
        None
    }
}

fn bucket_of(value: u64) -> usize {
    if value < u64::from(STEPS) {
        return value as usize;
    }
    let octave = value.ilog2();
    let step = (value >> (octave - 4)) as usize & 15;
    (STEPS as usize + (octave as usize - 4) * STEPS as usize + step).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < STEPS as usize {
        return bucket as u64;
    }
    let (octave, step) = ((bucket - 16) / 16 + 4, (bucket - 16) % 16);
    ((17 + step as u64) << (octave - 4)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SizeSettings {
        SizeSettings {
            method: SizeMethod::NetarchiveSuite,
            quantile: 0.9,
            unknown: 5000,
            object_bytes: 38_000,
            complete_factor: 10,
            cut_factor: 2,
        }
    }

    fn result(objects: u64, stop: StopReason) -> PastResult {
        PastResult {
            objects,
            bytes: objects * 38_000,
            stop,
        }
    }

    const GIGABYTE: SizeLimits = SizeLimits {
        harvest_objects: None,
        harvest_bytes: Some(1_000_000_000),
        own_objects: None,
        own_bytes: None,
    };

    /// The figures of NetarchiveSuite itself, for a limit of 1 GB a domain.
    #[test]
    fn netarchivesuite_expects_what_it_expects() {
        use StopReason::{DownloadComplete, ObjectLimit, SizeLimit};
        let expected =
            |history: &[PastResult]| netarchivesuite(history, GIGABYTE, &settings()).objects;
        assert_eq!(expected(&[result(120, DownloadComplete)]), 2_739);
        assert_eq!(expected(&[result(20_000, SizeLimit)]), 23_157);
        assert_eq!(expected(&[]), 5_000);
        // The newest first, down to the first complete one, the largest counts.
        let history = [
            result(100, ObjectLimit),
            result(20_000, SizeLimit),
            result(120, DownloadComplete),
            result(26_000, DownloadComplete),
        ];
        assert_eq!(expected(&history), 23_157);
        // Ten small objects do not say that objects are small.
        let tiny = PastResult {
            objects: 10,
            bytes: 10,
            stop: DownloadComplete,
        };
        assert_eq!(expected(&[tiny]), 10 + (26_315 - 10) / 10);
        // The domain's own limit is tighter.
        let own = SizeLimits {
            own_objects: Some(1_000),
            ..GIGABYTE
        };
        let cut = [result(20_000, SizeLimit)];
        assert_eq!(netarchivesuite(&cut, own, &settings()).objects, 1_000);
        assert_eq!(netarchivesuite(&[], own, &settings()).objects, 1_000);
        // Without any limit.
        let none = SizeLimits::default();
        assert_eq!(
            netarchivesuite(&[result(120, DownloadComplete)], none, &settings()).objects,
            608
        );
    }

    /// In NetarchiveSuite `errorFactorBestGuess` is never read: 2 stands in the code.
    #[test]
    fn both_factors_are_settings() {
        let mut settings = settings();
        settings.cut_factor = 5;
        let cut = [result(20_000, StopReason::SizeLimit)];
        assert_eq!(
            netarchivesuite(&cut, GIGABYTE, &settings).objects,
            20_000 + 6_315 / 5
        );
        settings.complete_factor = 20;
        let complete = [result(120, StopReason::DownloadComplete)];
        assert_eq!(
            netarchivesuite(&complete, GIGABYTE, &settings).objects,
            120 + 26_195 / 20
        );
    }

    #[test]
    fn like_domains_tell_what_comes_next() {
        let mut classes = SizeClasses::default();
        // Tiny ones stay tiny: one in twenty grows a hundredfold.
        for n in 0..1000u64 {
            let next = if n % 20 == 0 { 400 } else { 4 + n % 3 };
            let history = [
                result(next, StopReason::DownloadComplete),
                result(4, StopReason::DownloadComplete),
            ];
            classes.add(&history);
        }
        let tiny = [result(5, StopReason::DownloadComplete)];
        let expected = classes.expected(&tiny, GIGABYTE, &settings());
        assert_eq!(expected.objects, 6);
        assert!(netarchivesuite(&tiny, GIGABYTE, &settings()).objects > 400 * expected.objects);
        // Nothing is known of this one, but what others brought at first.
        assert_eq!(classes.expected(&[], GIGABYTE, &settings()).objects, 4);
        // Of its class nothing is known: as much as it had, and never over the limit.
        let cut = [result(20_000, StopReason::SizeLimit)];
        assert_eq!(
            classes.expected(&cut, GIGABYTE, &settings()).objects,
            20_000
        );
        let small = SizeLimits {
            harvest_objects: Some(3000),
            ..SizeLimits::default()
        };
        assert_eq!(classes.expected(&cut, small, &settings()).objects, 3000);
        assert_eq!(
            SizeClasses::default()
                .expected(&[], GIGABYTE, &settings())
                .objects,
            5000
        );
    }

    #[test]
    fn a_quantile_is_too_large_by_a_sixteenth_at_most() {
        for value in (0..2_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX >> 4]) {
            let end = end_of(bucket_of(value));
            assert!(value <= end && end - value <= value / 16, "{value}: {end}");
        }
    }
}
