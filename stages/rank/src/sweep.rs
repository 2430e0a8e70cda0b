//! Sweeps over the slices of a graph: ranks by Gauss-Seidel inside of each slice, and series term by term.
//!
//! Two pairs of vectors lie on disk: `p`, the value of each URL, and `x`, what each of its links passes on. A sweep reads the pair of
//! the sweep before and writes the other one. A slice reads new values of slices that are surely done (those `LAG` places before it) and old ones of all others; so
//! what comes out does not depend on which thread was faster, and a slice that is done again after a kill gives the same bytes.
//!
//! Ranks are centred on 1 and kept in units of `1/scale`: nothing is written again to rescale it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use ecluse_links::{FAR, HEAD_WORDS, OFFSET_MASK, SLICE_PAGES, SlicePart};

use crate::error::RankError;
use crate::graph::GraphFiles;
use crate::state::StateLog;
use crate::vector::{BLOCK, Vector};

/// What becomes of the rank of pages that link to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DanglingRule {
    /// It goes to all URLs as the preference vector says.
    Prefer,
    /// Nothing: ranks are only rescaled, as the paper has it. That changes the damping. Sweeps read old values only: new ones are
    /// not rescaled yet, and would lead elsewhere.
    Scale,
}

/// What a sweep computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SweepRule {
    /// PageRank, or on a graph turned around the inverse rank.
    Rank {
        /// `c`.
        damping: f64,
        /// What becomes of dangling pages.
        dangling: DanglingRule,
        /// How often a slice is gone through with the links inside of it, before it is written.
        inner: u32,
        /// It ends when `c/(1-c)·‖Δ‖₁` is below this.
        tolerance: f64,
    },
    /// One term of a series: `v = decay · Σ x`, and `p` is the sum of all terms.
    Series {
        /// What each term is multiplied with.
        decay: f64,
    },
}

/// A computation over a graph.
pub struct Sweeps<'a> {
    /// The graph.
    pub graph: &'a GraphFiles,
    /// What the vectors and the lines of the state begin with.
    pub name: &'a str,
    /// What of its value a URL passes on over each link; 0 for a page that links to nothing. None: all of it.
    pub source_weight: Option<&'a Path>,
    /// What is made of the sum that comes to a URL. None: nothing.
    pub target_weight: Option<&'a Path>,
    /// The preference vector, centred on 1. None: all URLs alike.
    pub preference: Option<&'a Path>,
    /// What is computed.
    pub rule: SweepRule,
    /// Threads.
    pub threads: u32,
    /// No more sweeps than this.
    pub most: u32,
}

/// Where a computation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    /// The vector of values.
    pub values: PathBuf,
    /// What they are multiplied with so that they are centred on 1.
    pub scale: f64,
    /// How many sweeps it took.
    pub sweeps: u32,
    /// How far it is from its end, by the rule of thumb.
    pub bound: f64,
}

/// What one slice came to in one sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct SliceSum {
    sum: f64,
    dangling: f64,
    change: f64,
}

impl SliceSum {
    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.dangling += other.dangling;
        self.change += other.change;
    }

    fn line(&self, name: &str, sweep: u32, slice: u32) -> String {
        let Self {
            sum,
            dangling,
            change,
        } = self;
        let bits = [sum, dangling, change].map(|number| format!("{:016x}", number.to_bits()));
        format!("{name} {sweep} {slice} {}", bits.join(" "))
    }

    /// Reads what follows the name in such a line.
    fn parse(rest: &str) -> Option<(u32, u32, Self)> {
        let mut words = rest.split(' ');
        let sweep = words.next()?.parse().ok()?;
        let slice = words.next()?.parse().ok()?;
        let mut number = || {
            let bits = u64::from_str_radix(words.next()?, 16).ok()?;
            Some(f64::from_bits(bits))
        };
        let sums = Self {
            sum: number()?,
            dangling: number()?,
            change: number()?,
        };
        Some((sweep, slice, sums))
    }
}

impl Sweeps<'_> {
    /// Writes the vectors that the first sweep reads, from a vector of values; values of 0 or less and, without a vector, all are 1.
    /// They are centred on 1 unless a series begins with them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn prepare(&self, start: Option<&Path>) -> Result<(), RankError> {
        let urls = self.graph.urls;
        let is_series = matches!(self.rule, SweepRule::Series { .. });
        let start = start.map(Vector::open).transpose()?;
        let weights = self.source_weight.map(Vector::open).transpose()?;
        let value = |number: f32| match is_series || (number > 0.0 && number.is_finite()) {
            true => number,
            false => 1.0,
        };
        let mut sum = 0.0;
        if let Some(start) = &start {
            start.for_each_block(urls, |_, numbers| {
                sum += numbers.iter().map(|n| f64::from(value(*n))).sum::<f64>();
                Ok(())
            })?;
        }
        let factor = match is_series || start.is_none() {
            true => 1.0,
            false => f64::from(urls) / sum,
        };
        let (values, passed) = (self.vector("p", 0)?, self.vector("x", 0)?);
        let (mut block, mut bytes) = (vec![1.0f32; BLOCK], Vec::new());
        let mut weight = vec![1.0f32; BLOCK];
        let mut at = 0;
        while at < urls {
            let length = (urls - at).min(BLOCK as u32) as usize;
            let (block, weight) = (&mut block[..length], &mut weight[..length]);
            block.fill(1.0);
            if let Some(start) = &start {
                start.read(at, block, &mut bytes)?;
                for number in block.iter_mut() {
                    *number = (f64::from(value(*number)) * factor) as f32;
                }
            }
            values.write(at, block, &mut bytes)?;
            if let Some(weights) = &weights {
                weights.read(at, weight, &mut bytes)?;
                for (number, weight) in block.iter_mut().zip(weight) {
                    *number *= *weight;
                }
            }
            passed.write(at, block, &mut bytes)?;
            at += length as u32;
        }
        Ok(())
    }

    /// Sweeps until it is done; what the state has already is not done again.
    ///
    /// # Errors
    /// When a file cannot be read or written, and when asked to stop.
    pub fn run(
        &self,
        state: &mut StateLog,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<Swept, RankError> {
        let urls = f64::from(self.graph.urls);
        let slices = self.graph.slices();
        let mut known: Vec<Vec<SliceSum>> = Vec::new();
        for (sweep, slice, sums) in state.all(self.name).filter_map(SliceSum::parse) {
            let sweep = sweep as usize;
            if known.len() < sweep {
                known.resize(sweep, Vec::new());
            }
            if known[sweep - 1].len() == slice as usize {
                known[sweep - 1].push(sums);
            }
        }
        let mut scratch: Vec<Scratch> = (0..self.threads.max(1)).map(|_| Scratch::new()).collect();
        let (mut scale, mut dangling) = (1.0, self.dangling_at_first()?);
        let mut bound = f64::INFINITY;
        let mut sweep = 0;
        while sweep < self.most && !self.is_enough(bound) {
            sweep += 1;
            let done = known.get(sweep as usize - 1).cloned().unwrap_or_default();
            // What is only rescaled would shrink from sweep to sweep: old values are taken in units of 1.
            let unit = match self.reads_old_values() {
                true => std::mem::replace(&mut scale, 1.0),
                false => 1.0,
            };
            let numbers = SweepNumbers {
                scale,
                dangling,
                unit: unit as f32,
            };
            let sums = self.sweep(sweep, numbers, done, &mut scratch, state, is_stopped)?;
            debug_assert_eq!(sums.len(), slices as usize);
            let mut all = SliceSum::default();
            sums.iter().for_each(|sums| all.add(sums));
            if let SweepRule::Rank { damping, .. } = self.rule {
                bound = all.change * scale / urls * damping / (1.0 - damping);
                scale = urls / all.sum;
                dangling = all.dangling * scale;
            }
        }
        Ok(Swept {
            values: self.vector_path("p", sweep),
            scale,
            sweeps: sweep,
            bound,
        })
    }

    /// Tells whether a slice takes nothing that the same sweep has written.
    fn reads_old_values(&self) -> bool {
        match self.rule {
            SweepRule::Rank { dangling, .. } => dangling == DanglingRule::Scale,
            SweepRule::Series { .. } => true,
        }
    }

    fn is_enough(&self, bound: f64) -> bool {
        match self.rule {
            SweepRule::Rank { tolerance, .. } => bound < tolerance,
            SweepRule::Series { .. } => false,
        }
    }

    fn vector_path(&self, kind: &str, sweep: u32) -> PathBuf {
        let file = format!("{}.{kind}{}", self.name, sweep % 2);
        self.graph.directory.join(file)
    }

    fn vector(&self, kind: &str, sweep: u32) -> Result<Vector, RankError> {
        Vector::create(&self.vector_path(kind, sweep), self.graph.urls)
    }

    /// Returns the value of all dangling pages in the vectors that the first sweep reads.
    fn dangling_at_first(&self) -> Result<f64, RankError> {
        let Some(weights) = self.source_weight.map(Vector::open).transpose()? else {
            return Ok(0.0);
        };
        // After the second sweep nobody needs it, and the vector is another.
        let values = self.vector("p", 0)?;
        let (mut block, mut bytes) = (vec![0.0; BLOCK], Vec::new());
        let mut sum = 0.0;
        weights.for_each_block(self.graph.urls, |at, weights| {
            let block = &mut block[..weights.len()];
            values.read(at, block, &mut bytes)?;
            for (value, weight) in block.iter().zip(weights) {
                if *weight == 0.0 {
                    sum += f64::from(*value);
                }
            }
            Ok(())
        })?;
        Ok(sum)
    }

    /// How many slices before it a slice takes new values of: as many as may be at work at once, and one more so that nobody waits.
    fn lag(&self) -> u32 {
        self.threads.max(1) + 1
    }

    fn sweep(
        &self,
        sweep: u32,
        numbers: SweepNumbers,
        done: Vec<SliceSum>,
        scratch: &mut [Scratch],
        state: &mut StateLog,
        is_stopped: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<SliceSum>, RankError> {
        let slices = self.graph.slices();
        if done.len() == slices as usize {
            return Ok(done);
        }
        let urls = f64::from(self.graph.urls);
        let base = match self.rule {
            SweepRule::Rank {
                damping,
                dangling: rule,
                ..
            } => {
                let dangling = match rule {
                    DanglingRule::Prefer => damping * numbers.dangling / urls,
                    DanglingRule::Scale => 0.0,
                };
                ((1.0 - damping) + dangling) / numbers.scale
            }
            SweepRule::Series { .. } => 0.0,
        };
        let open = |path: Option<&Path>| path.map(Vector::open).transpose();
        let files = SweepFiles {
            old_values: self.vector("p", sweep - 1)?,
            old_passed: self.vector("x", sweep - 1)?,
            values: self.vector("p", sweep)?,
            passed: self.vector("x", sweep)?,
            source_weight: open(self.source_weight)?,
            target_weight: open(self.target_weight)?,
            preference: open(self.preference)?,
            base: base as f32,
            unit: numbers.unit,
        };
        let begun = done.len() as u32;
        let progress = Mutex::new(Progress {
            next: begun,
            sums: done,
            early: Vec::new(),
            failure: None,
            state,
        });
        let bell = Condvar::new();
        std::thread::scope(|scope| {
            for scratch in scratch.iter_mut() {
                let (files, progress, bell) = (&files, &progress, &bell);
                scope.spawn(move || {
                    while let Some(slice) = self.next_slice(progress, bell) {
                        let swept = match is_stopped() {
                            true => Err(RankError::Stopped),
                            false => self.slice(slice, files, scratch),
                        };
                        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Err(error) = progress.note(self.name, sweep, slice, swept) {
                            progress.failure.get_or_insert(error);
                        }
                        bell.notify_all();
                    }
                });
            }
        });
        let progress = progress
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match progress.failure {
            Some(error) => Err(error),
            None => Ok(progress.sums),
        }
    }

    /// Takes the next slice, when all that it needs is done; none when there is nothing more to do.
    fn next_slice(&self, progress: &Mutex<Progress<'_>>, bell: &Condvar) -> Option<u32> {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.next >= self.graph.slices() || progress.failure.is_some() {
            return None;
        }
        let slice = progress.next;
        progress.next += 1;
        let needed = (slice + 1).saturating_sub(self.lag()) as usize;
        while progress.sums.len() < needed {
            if progress.failure.is_some() {
                return None;
            }
            progress = bell.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        Some(slice)
    }

    fn slice(
        &self,
        slice: u32,
        files: &SweepFiles,
        scratch: &mut Scratch,
    ) -> Result<SliceSum, RankError> {
        let range = self.graph.range(slice);
        let (begin, length) = (range.start, range.len());
        let is_old = self.reads_old_values();
        // Slices that are surely done when this one begins.
        let done = match is_old {
            true => 0,
            false => (slice + 1).saturating_sub(self.lag()) * self.graph.pages,
        };
        let Scratch {
            sums,
            passed,
            source_weight,
            target_weight,
            preference,
            block,
            bytes,
            words,
        } = scratch;
        sums[..length].fill(0.0);
        files.read_old(&files.old_passed, begin, &mut passed[..length], bytes)?;
        for (vector, numbers) in [
            (&files.source_weight, &mut *source_weight),
            (&files.target_weight, &mut *target_weight),
            (&files.preference, &mut *preference),
        ] {
            if let Some(vector) = vector {
                numbers.resize(length, 0.0);
                vector.read(begin, numbers, bytes)?;
            }
        }
        let external = self.graph.file(slice, SlicePart::External);
        let mut loaded = u32::MAX;
        let mut source = 0u32;
        for_each_word_block(&external, words, |words| {
            let mut words = words.iter();
            while let Some(word) = words.next() {
                let word = u32::from_le_bytes(*word);
                let mut distance = word >> 20;
                if distance == FAR {
                    distance = words.next().map_or(0, |word| u32::from_le_bytes(*word));
                }
                source = source.wrapping_add(distance);
                if source / BLOCK as u32 != loaded {
                    loaded = source / BLOCK as u32;
                    files.load(loaded, done, self.graph.urls, block, bytes)?;
                }
                sums[(word & OFFSET_MASK) as usize] += block[source as usize % BLOCK];
            }
            Ok(())
        })?;

        let internal = self.graph.file(slice, SlicePart::Internal);
        let (factor, rounds) = match self.rule {
            SweepRule::Rank { damping, inner, .. } => {
                (damping as f32, if is_old { 1 } else { inner.max(1) })
            }
            SweepRule::Series { decay } => (decay as f32, 1),
        };
        let has_target_weight = files.target_weight.is_some();
        let has_source_weight = files.source_weight.is_some();
        let has_preference = files.preference.is_some();
        for round in 1..=rounds {
            let is_last = round == rounds;
            // The value of the URL at a place, of which the links inside bring so much.
            let mut settle = |at: usize, inside: f32, passed: &mut [f32; SLICE_PAGES as usize]| {
                let mut sum = sums[at & OFFSET_MASK as usize] + inside;
                if has_target_weight {
                    sum *= target_weight[at];
                }
                let base = match has_preference {
                    true => files.base * preference[at],
                    false => files.base,
                };
                let value = base + factor * sum;
                if !is_old {
                    passed[at & OFFSET_MASK as usize] = match has_source_weight {
                        true => value * source_weight[at],
                        false => value,
                    };
                }
                if is_last {
                    sums[at & OFFSET_MASK as usize] = value;
                }
            };
            let (mut at, mut inside) = (0usize, 0.0f32);
            for_each_word_block(&internal, words, |words| {
                let mut words = words.iter();
                while let Some(word) = words.next() {
                    let word = u32::from_le_bytes(*word);
                    let mut distance = word >> 20;
                    if distance > 0 {
                        if distance == FAR {
                            distance = words.next().map_or(0, |word| u32::from_le_bytes(*word));
                        }
                        let target = (at + distance as usize).min(length);
                        while at < target {
                            settle(at, inside, passed);
                            inside = 0.0;
                            at += 1;
                        }
                    }
                    inside += passed[(word & OFFSET_MASK) as usize];
                }
                Ok(())
            })?;
            while at < length {
                settle(at, inside, passed);
                inside = 0.0;
                at += 1;
            }
        }
        self.settle_slice(begin, length, files, scratch)
    }

    /// Compares the new values of a slice with the old ones, and writes them.
    fn settle_slice(
        &self,
        begin: u32,
        length: usize,
        files: &SweepFiles,
        scratch: &mut Scratch,
    ) -> Result<SliceSum, RankError> {
        let Scratch {
            sums,
            passed,
            source_weight,
            block,
            bytes,
            ..
        } = scratch;
        let is_series = matches!(self.rule, SweepRule::Series { .. });
        let mut found = SliceSum::default();
        let mut at = 0;
        while at < length {
            let part = (length - at).min(BLOCK);
            let old = &mut block[..part];
            let new = &mut sums[at..at + part];
            files.read_old(&files.old_values, begin + at as u32, old, bytes)?;
            if self.reads_old_values() {
                for (place, new) in new.iter().enumerate() {
                    passed[at + place] = match files.source_weight.is_some() {
                        true => *new * source_weight[at + place],
                        false => *new,
                    };
                }
            }
            if is_series {
                for (new, old) in new.iter_mut().zip(&*old) {
                    *new += *old;
                }
            } else {
                for (new, old) in new.iter().zip(&*old) {
                    found.sum += f64::from(*new);
                    found.change += f64::from((*new - *old).abs());
                }
            }
            if files.source_weight.is_some() && !is_series {
                for (new, weight) in new.iter().zip(&source_weight[at..at + part]) {
                    if *weight == 0.0 {
                        found.dangling += f64::from(*new);
                    }
                }
            }
            files.values.write(begin + at as u32, new, bytes)?;
            let passed = &passed[at..at + part];
            files.passed.write(begin + at as u32, passed, bytes)?;
            at += part;
        }
        Ok(found)
    }
}

/// The numbers that a sweep begins with.
#[derive(Clone, Copy)]
struct SweepNumbers {
    scale: f64,
    dangling: f64,
    unit: f32,
}

/// The vectors of one sweep.
struct SweepFiles {
    old_values: Vector,
    old_passed: Vector,
    values: Vector,
    passed: Vector,
    source_weight: Option<Vector>,
    target_weight: Option<Vector>,
    preference: Option<Vector>,
    base: f32,
    /// What old values are multiplied with.
    unit: f32,
}

impl SweepFiles {
    /// Reads a block of what URLs pass on: new values before `done`, old ones from there.
    fn load(
        &self,
        number: u32,
        done: u32,
        urls: u32,
        block: &mut [f32; BLOCK],
        bytes: &mut Vec<u8>,
    ) -> Result<(), RankError> {
        let begin = number * BLOCK as u32;
        let end = begin.saturating_add(BLOCK as u32).min(urls);
        let middle = done.clamp(begin, end.max(begin));
        let (new, old) = block.split_at_mut((middle - begin) as usize);
        if !new.is_empty() {
            self.passed.read(begin, new, bytes)?;
        }
        let old = &mut old[..(end.max(middle) - middle) as usize];
        if !old.is_empty() {
            self.read_old(&self.old_passed, middle, old, bytes)?;
        }
        Ok(())
    }

    fn read_old(
        &self,
        vector: &Vector,
        at: u32,
        numbers: &mut [f32],
        bytes: &mut Vec<u8>,
    ) -> Result<(), RankError> {
        vector.read(at, numbers, bytes)?;
        if self.unit != 1.0 {
            numbers.iter_mut().for_each(|number| *number *= self.unit);
        }
        Ok(())
    }
}

/// What the threads of a sweep know together.
struct Progress<'s> {
    next: u32,
    /// The slices that are done, without a gap.
    sums: Vec<SliceSum>,
    /// Those that are done behind a gap.
    early: Vec<(u32, SliceSum)>,
    failure: Option<RankError>,
    state: &'s mut StateLog,
}

impl Progress<'_> {
    fn note(
        &mut self,
        name: &str,
        sweep: u32,
        slice: u32,
        swept: Result<SliceSum, RankError>,
    ) -> Result<(), RankError> {
        self.early.push((slice, swept?));
        while let Some(at) = self
            .early
            .iter()
            .position(|(slice, _)| *slice as usize == self.sums.len())
        {
            let (slice, sums) = self.early.swap_remove(at);
            self.state.add(&sums.line(name, sweep, slice))?;
            self.sums.push(sums);
        }
        Ok(())
    }
}

/// How many words are read at a time.
const WORDS: usize = 1 << 15;

/// What a thread needs, once for all slices. Numbers that are not touched take no memory.
struct Scratch {
    /// What comes to each URL of the slice from outside; in the end its new value.
    sums: Box<[f32; SLICE_PAGES as usize]>,
    /// What each URL of the slice passes on.
    passed: Box<[f32; SLICE_PAGES as usize]>,
    source_weight: Vec<f32>,
    target_weight: Vec<f32>,
    preference: Vec<f32>,
    /// A block of what URLs outside pass on.
    block: Box<[f32; BLOCK]>,
    bytes: Vec<u8>,
    words: Vec<u8>,
}

impl Scratch {
    fn new() -> Self {
        fn zeros<const LENGTH: usize>() -> Box<[f32; LENGTH]> {
            let zeros = vec![0.0; LENGTH].into_boxed_slice();
            zeros.try_into().expect("it has this length")
        }
        Self {
            sums: zeros(),
            passed: zeros(),
            source_weight: Vec::new(),
            target_weight: Vec::new(),
            preference: Vec::new(),
            block: zeros(),
            bytes: Vec::new(),
            words: vec![0; 4 * WORDS],
        }
    }
}

/// Reads the words of a slice's file in blocks; one that says that the next word is a distance is never the last of its block.
fn for_each_word_block(
    path: &Path,
    buffer: &mut [u8],
    mut each: impl FnMut(&[[u8; 4]]) -> Result<(), RankError>,
) -> Result<(), RankError> {
    let file = File::open(path).map_err(RankError::io("open", path))?;
    let failed = |error| RankError::io("read", path)(error);
    let bytes = file.metadata().map_err(failed)?.len();
    let mut at = 4 * HEAD_WORDS as u64;
    // The last word is the checksum.
    let end = bytes.saturating_sub(4);
    while at < end {
        let length = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let part = &mut buffer[..length];
        file.read_exact_at(part, at).map_err(failed)?;
        let (mut words, _) = part.as_chunks::<4>();
        if at + (length as u64) < end
            && let [before @ .., last] = words
            && u32::from_le_bytes(*last) >> 20 == FAR
        {
            words = before;
        }
        at += 4 * words.len() as u64;
        each(words)?;
    }
    Ok(())
}
