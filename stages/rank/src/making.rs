//! The steps from lines of links to the files of a generation; each is noted when it is done, and not done again.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use ecluse_links::{RANKS_FILE, SITES_FILE};

use crate::criteria::Criteria;
use crate::error::RankError;
use crate::evidence::RankSources;
use crate::graph::{GraphFiles, GraphWriter};
use crate::number::{GraphSize, LinkPiece, number};
use crate::outcome::{Measured, Outcome};
use crate::settings::{InterestForm, RelevanceDirection, Settings};
use crate::state::StateLog;
use crate::sweep::{DanglingRule, SweepRule, Sweeps, Swept};
use crate::vector::{NumberWriter, Vector};
use crate::workspace::Workspace;

/// What is made of what.
pub(crate) struct Making<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) criteria: &'a Criteria,
    pub(crate) sources: &'a RankSources,
    pub(crate) workspace: &'a Workspace,
    pub(crate) pieces: &'a [LinkPiece<'a>],
    /// The ranks of the last generation.
    pub(crate) last_ranks: Option<PathBuf>,
    pub(crate) is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Is told how far it is.
    pub(crate) say: &'a dyn Fn(&str),
}

/// What a generation came to.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) size: GraphSize,
    pub(crate) files: Vec<String>,
    pub(crate) rank_sweeps: u32,
    pub(crate) rank_bound: f64,
    pub(crate) interest_sweeps: u32,
    pub(crate) sites: u64,
}

impl Making<'_> {
    /// Does what is left to do; all files of the generation are in the workspace then.
    pub(crate) fn make(&self, state: &mut StateLog) -> Result<Made, RankError> {
        let size = match state.last("numbered").and_then(GraphSize::parse) {
            Some(size) => size,
            None => {
                (self.say)("merging links");
                let size = number(
                    self.pieces,
                    self.last_ranks.as_deref(),
                    self.sources,
                    self.criteria,
                    self.settings,
                    self.workspace,
                    self.is_stopped,
                )?;
                state.add(&format!("numbered {}", size.line()))?;
                size
            }
        };
        let graph = |name| GraphFiles {
            directory: self.workspace.path().to_owned(),
            name,
            urls: size.urls,
            pages: self.settings.slice.get(),
        };
        let (forward, back) = (graph("slice"), graph("back"));
        if state.last("sliced").is_none() {
            (self.say)("slicing links");
            self.slice(&forward, &back)?;
            state.add("sliced all")?;
        }
        (self.say)("ranking");
        let rank = self.rank(&forward, state)?;
        (self.say)("ranking by interest");
        let interest = self.interest(&back, state)?;
        let relevance = self.relevance(&forward, &back, state)?;
        (self.say)("writing ranks");
        let outcome = Outcome {
            workspace: self.workspace,
            settings: self.settings,
            criteria: self.criteria,
            forward: &forward,
            back: &back,
            rank: Measured::of(&rank),
            interest: Measured::of(&interest),
            relevance: &relevance,
            is_stopped: self.is_stopped,
        };
        let sites = match state.last("written").and_then(|sites| sites.parse().ok()) {
            Some(sites) => sites,
            None => {
                let sites = outcome.write()?;
                state.add(&format!("written {sites}"))?;
                sites
            }
        };
        let lists = [
            ecluse_links::LINKS_FILE,
            ecluse_links::LINKS_INDEX,
            ecluse_links::URLS_FILE,
            RANKS_FILE,
            SITES_FILE,
        ];
        let files = lists.map(str::to_owned).into_iter();
        Ok(Made {
            size,
            files: files.chain(forward.file_names()).collect(),
            rank_sweeps: rank.sweeps,
            rank_bound: rank.bound,
            interest_sweeps: interest.sweeps,
            sites,
        })
    }

    fn slice(&self, forward: &GraphFiles, back: &GraphFiles) -> Result<(), RankError> {
        let memory_bytes = self.settings.memory_bytes();
        let temporary = self.workspace.path();
        let numbers = self.workspace.file("pages.u32");
        let writer = GraphWriter::new(forward, memory_bytes, temporary);
        let mut writer = writer.numbered_by(&numbers).turning();
        let path = self.workspace.file("edges.pairs");
        let file = File::open(&path).map_err(RankError::io("open", &path))?;
        let bytes = file.metadata().map_err(RankError::io("read", &path))?.len();
        let mut source = BufReader::with_capacity(256 << 10, file);
        for count in 0..bytes / 8 {
            if count % (1 << 16) == 0 && (self.is_stopped)() {
                return Err(RankError::Stopped);
            }
            let mut pair = [0; 8];
            let read = source.read_exact(&mut pair);
            read.map_err(RankError::io("read", &path))?;
            let ([page, target], _) = pair.as_chunks::<4>() else {
                unreachable!("eight bytes are two words");
            };
            writer.push(u32::from_le_bytes(*page), u32::from_le_bytes(*target))?;
        }
        let (_, turned) = writer.finish()?;
        let mut writer = GraphWriter::new(back, memory_bytes / 2, temporary);
        if let Some(turned) = turned {
            turned.finish(|source, target| writer.push(target, source))?;
        }
        writer.finish()?;
        Ok(())
    }

    /// Sweeps, from where the state is.
    fn sweep(
        &self,
        sweeps: &Sweeps<'_>,
        start: Option<&Path>,
        state: &mut StateLog,
    ) -> Result<Swept, RankError> {
        let prepared = format!("prepared-{}", sweeps.name);
        if state.last(&prepared).is_none() {
            sweeps.prepare(start)?;
            state.add(&format!("{prepared} all"))?;
        }
        sweeps.run(state, self.is_stopped)
    }

    fn rule(&self, dangling: DanglingRule) -> SweepRule {
        SweepRule::Rank {
            damping: self.settings.damping,
            dangling,
            inner: self.settings.inner.get(),
            tolerance: self.settings.tolerance,
        }
    }

    fn rank(&self, forward: &GraphFiles, state: &mut StateLog) -> Result<Swept, RankError> {
        let weight = self.workspace.file("out.f32");
        let sweeps = Sweeps {
            graph: forward,
            name: "rank",
            source_weight: Some(&weight),
            target_weight: None,
            preference: None,
            rule: self.rule(self.settings.dangling),
            threads: self.settings.threads.get(),
            most: self.settings.sweeps.get(),
        };
        let warm = self.workspace.file("warm-rank.f32");
        let start = warm_start(&warm, forward.urls, self.last_ranks.is_some())?;
        self.sweep(&sweeps, start.as_deref(), state)
    }

    fn interest(&self, back: &GraphFiles, state: &mut StateLog) -> Result<Swept, RankError> {
        let targets = self.workspace.file("targets.f32");
        let has_targets =
            match write_targets(&self.workspace.file("criterion.f32"), back.urls, &targets) {
                Ok(()) => true,
                // Nothing is said of what is relevant: all URLs are.
                Err(RankError::NoTarget) => false,
                Err(error) => return Err(error),
            };
        let (out, incoming) = (
            self.workspace.file("out.f32"),
            self.workspace.file("in.f32"),
        );
        let form = self.settings.interest;
        let sweeps = Sweeps {
            graph: back,
            name: "interest",
            source_weight: (form == InterestForm::Sum).then_some(incoming.as_path()),
            target_weight: (form == InterestForm::Mean).then_some(out.as_path()),
            preference: has_targets.then_some(targets.as_path()),
            rule: match form {
                InterestForm::Sum => self.rule(DanglingRule::Prefer),
                InterestForm::Mean => self.rule(DanglingRule::Scale),
            },
            threads: self.settings.threads.get(),
            most: self.settings.sweeps.get(),
        };
        let warm = self.workspace.file("warm-interest.f32");
        let start = warm_start(&warm, back.urls, self.last_ranks.is_some())?;
        self.sweep(&sweeps, start.as_deref(), state)
    }

    /// Returns the vectors whose sum, less the criterion for all but the first, is the relevance.
    fn relevance(
        &self,
        forward: &GraphFiles,
        back: &GraphFiles,
        state: &mut StateLog,
    ) -> Result<Vec<PathBuf>, RankError> {
        let criterion = self.workspace.file("criterion.f32");
        let perimeter = &self.settings.perimeter;
        if self.criteria.is_empty() {
            return Ok(vec![criterion]);
        }
        let terms = terms_of(&criterion, forward.urls, perimeter.decay)?;
        let weight = self.workspace.file("out.f32");
        let series = |name, graph, source_weight, target_weight| Sweeps {
            graph,
            name,
            source_weight,
            target_weight,
            preference: None,
            rule: SweepRule::Series {
                decay: perimeter.decay,
            },
            threads: self.settings.threads.get(),
            most: terms,
        };
        let weight = Some(weight.as_path());
        let mut vectors = Vec::new();
        if perimeter.direction != RelevanceDirection::In {
            let over_out = series("over-out", back, None, weight);
            let swept = self.sweep(&over_out, Some(&criterion), state)?;
            vectors.push(swept.values);
        }
        if perimeter.direction != RelevanceDirection::Out {
            let over_in = series("over-in", forward, weight, None);
            let swept = self.sweep(&over_in, Some(&criterion), state)?;
            vectors.push(swept.values);
        }
        Ok(vectors)
    }
}

/// Returns the vector of ranks that were known before, with the mean of them for new URLs; none where there are none.
fn warm_start(warm: &Path, urls: u32, has_last: bool) -> Result<Option<PathBuf>, RankError> {
    if !has_last {
        return Ok(None);
    }
    let (mut sum, mut known) = (0.0, 0.0);
    let vector = Vector::open(warm)?;
    vector.for_each_block(urls, |_, numbers| {
        for number in numbers.iter().filter(|number| **number > 0.0) {
            sum += f64::from(*number);
            known += 1.0;
        }
        Ok(())
    })?;
    if known == 0.0 {
        return Ok(None);
    }
    // A URL without a rank counts as 1 there.
    let mean = sum / known;
    let path = warm.with_extension("start");
    let mut out = NumberWriter::create(&path)?;
    vector.for_each_block(urls, |_, numbers| {
        numbers
            .iter()
            .try_for_each(|number| out.float((f64::from(*number) / mean) as f32))
    })?;
    out.finish()?;
    Ok(Some(path))
}

/// Writes the preference vector of interest: all URLs that are relevant by themselves alike, centred on 1.
fn write_targets(criterion: &Path, urls: u32, targets: &Path) -> Result<(), RankError> {
    let mut count = 0u32;
    let criterion = Vector::open(criterion)?;
    criterion.for_each_block(urls, |_, numbers| {
        count += numbers.iter().filter(|number| **number > 0.0).count() as u32;
        Ok(())
    })?;
    if count == 0 {
        return Err(RankError::NoTarget);
    }
    let share = (f64::from(urls) / f64::from(count)) as f32;
    let mut out = NumberWriter::create(targets)?;
    criterion.for_each_block(urls, |_, numbers| {
        numbers
            .iter()
            .try_for_each(|number| out.float(if *number > 0.0 { share } else { 0.0 }))
    })?;
    out.finish()
}

/// Terms smaller than this are left out.
const SMALLEST: f64 = 1e-7;

/// Returns how many terms of the series there are: the next one could not be as large as what is left out.
fn terms_of(criterion: &Path, urls: u32, decay: f64) -> Result<u32, RankError> {
    let mut largest = 0.0f64;
    Vector::open(criterion)?.for_each_block(urls, |_, numbers| {
        for number in numbers.iter() {
            largest = largest.max(f64::from(number.abs()));
        }
        Ok(())
    })?;
    let mut terms = 0;
    while largest >= SMALLEST && decay > 0.0 && terms < 1000 {
        largest *= decay;
        terms += 1;
    }
    Ok(terms)
}
