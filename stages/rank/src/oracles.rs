//! The oracles of the facts sheet, and properties of ranks on small graphs.

use std::path::Path;

use proptest::prelude::*;

use crate::state::StateLog;
use crate::sweep::{DanglingRule, SweepRule, Sweeps, Swept};
use crate::vector::{NumberWriter, Vector};
use crate::{GraphFiles, GraphWriter, RankError};

/// A graph with its degrees, on disk.
pub(crate) struct TestGraph {
    pub(crate) forward: GraphFiles,
    pub(crate) back: GraphFiles,
    directory: tempfile::TempDir,
}

impl TestGraph {
    pub(crate) fn new(urls: u32, pages: u32, links: &[(u32, u32)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let files = |name| GraphFiles {
            directory: path.to_owned(),
            name,
            urls,
            pages,
        };
        let (forward, back) = (files("slice"), files("back"));
        let mut outdegrees = vec![0u32; urls as usize];
        let mut indegrees = vec![0u32; urls as usize];
        for (source, target) in links {
            outdegrees[*source as usize] += 1;
            indegrees[*target as usize] += 1;
        }
        let mut by_target = links.to_vec();
        by_target.sort_unstable_by_key(|(source, target)| (*target, *source));
        let mut writer = GraphWriter::new(&forward, 0, path);
        for (source, target) in &by_target {
            writer.push(*source, *target).unwrap();
        }
        assert_eq!(writer.finish().unwrap().0, links.len() as u64);
        let mut by_source = links.to_vec();
        by_source.sort_unstable();
        let mut writer = GraphWriter::new(&back, 0, path);
        for (source, target) in &by_source {
            writer.push(*target, *source).unwrap();
        }
        writer.finish().unwrap();
        for (name, degrees) in [("out.f32", outdegrees), ("in.f32", indegrees)] {
            let numbers = degrees.iter().map(|degree| match degree {
                0 => 0.0,
                degree => 1.0 / *degree as f32,
            });
            write_vector(&path.join(name), numbers);
        }
        Self {
            forward,
            back,
            directory,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn out(&self) -> std::path::PathBuf {
        self.path().join("out.f32")
    }

    pub(crate) fn sweeps<'a>(&'a self, weight: &'a Path, rule: SweepRule) -> Sweeps<'a> {
        Sweeps {
            graph: &self.forward,
            name: "rank",
            source_weight: Some(weight),
            target_weight: None,
            preference: None,
            rule,
            threads: 2,
            most: 1000,
        }
    }

    fn run(&self, sweeps: &Sweeps<'_>, start: Option<&Path>) -> (Vec<f64>, Swept) {
        sweeps.prepare(start).unwrap();
        let state = self.path().join(format!("{}.state", sweeps.name));
        let mut state = StateLog::open(&state, "x").unwrap();
        let swept = sweeps.run(&mut state, &|| false).unwrap();
        let values = Vector::open(&swept.values).unwrap();
        let values = values.all(self.forward.urls).unwrap();
        let scale = match sweeps.rule {
            SweepRule::Rank { .. } => swept.scale / f64::from(self.forward.urls),
            SweepRule::Series { .. } => 1.0,
        };
        let values = values.iter().map(|value| f64::from(*value) * scale);
        (values.collect(), swept)
    }
}

pub(crate) fn write_vector(path: &Path, numbers: impl Iterator<Item = f32>) {
    let mut writer = NumberWriter::create(path).unwrap();
    for number in numbers {
        writer.float(number).unwrap();
    }
    writer.finish().unwrap();
}

pub(crate) fn rank_rule(dangling: DanglingRule) -> SweepRule {
    SweepRule::Rank {
        damping: 0.85,
        dangling,
        inner: 2,
        tolerance: 1e-8,
    }
}

fn must_be(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found} {expected}");
    }
}

const FIVE: [(u32, u32); 6] = [(0, 1), (0, 2), (1, 2), (2, 0), (3, 0), (4, 3)];
const SIX: [(u32, u32); 8] = [
    (0, 1),
    (1, 2),
    (2, 3),
    (3, 0),
    (4, 0),
    (5, 4),
    (0, 4),
    (2, 5),
];

/// Section 3.1, whatever the slices.
#[test]
fn page_ranks_are_those_of_the_sheet() {
    use DanglingRule::{Prefer, Scale};
    let five = [0.374_901, 0.189_333, 0.350_266, 0.055_5, 0.03];
    let four: [(u32, u32); 4] = [(0, 1), (0, 2), (0, 3), (1, 0)];
    for pages in [1, 2, 3, 100] {
        for (links, urls, rule, expected) in [
            (&FIVE[..], 5, Prefer, &five[..]),
            (&FIVE[..], 5, Scale, &five[..]),
            (
                &FIVE[..5],
                5,
                Prefer,
                &[0.372_956, 0.194_651, 0.360_104, 0.036_145, 0.036_145],
            ),
            (
                &FIVE[..5],
                5,
                Scale,
                &[0.377_090, 0.195_379, 0.365_917, 0.030_807, 0.030_807],
            ),
            (
                &four[..],
                4,
                Prefer,
                &[0.324_561, 0.225_146, 0.225_146, 0.225_146],
            ),
            (
                &four[..],
                4,
                Scale,
                &[0.350_524, 0.216_492, 0.216_492, 0.216_492],
            ),
        ] {
            let graph = TestGraph::new(urls, pages, links);
            let out = graph.out();
            let (found, _) = graph.run(&graph.sweeps(&out, rank_rule(rule)), None);
            must_be(&found, expected, 1e-6);
        }
    }
}

/// Section 3.2: interest, as a sum and as a mean.
#[test]
fn interests_are_those_of_the_sheet() {
    let links = [(0, 3), (0, 2), (1, 0), (1, 2), (2, 1)];
    let graph = TestGraph::new(4, 2, &links);
    let (out, incoming) = (graph.out(), graph.path().join("in.f32"));
    let targets = graph.path().join("targets.f32");
    write_vector(&targets, [0.0, 0.0, 0.0, 4.0].into_iter());
    let sum = Sweeps {
        graph: &graph.back,
        name: "interest",
        preference: Some(&targets),
        ..graph.sweeps(&incoming, rank_rule(DanglingRule::Prefer))
    };
    let (found, _) = graph.run(&sum, None);
    must_be(&found, &[0.2455, 0.3267, 0.2777, 0.1500], 5e-5);
    let mean = Sweeps {
        name: "mean",
        source_weight: None,
        target_weight: Some(&out),
        rule: rank_rule(DanglingRule::Scale),
        ..sum
    };
    let (found, _) = graph.run(&mean, None);
    must_be(&found, &[0.2466, 0.2793, 0.2905, 0.1836], 5e-5);
}

/// Section 2: relevance over links out, and over links in.
#[test]
fn relevances_are_those_of_the_sheet() {
    for pages in [2, 4, 6] {
        let graph = TestGraph::new(6, pages, &SIX);
        let out = graph.out();
        let criterion = graph.path().join("criterion.f32");
        write_vector(&criterion, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0].into_iter());
        let series = SweepRule::Series { decay: 0.5 };
        let over_out = Sweeps {
            graph: &graph.back,
            name: "over-out",
            source_weight: None,
            target_weight: Some(&out),
            most: 40,
            ..graph.sweeps(&out, series)
        };
        let (found, _) = graph.run(&over_out, Some(&criterion));
        must_be(
            &found,
            &[1.1743, 0.1101, 0.2202, 0.5872, 0.5872, 0.2936],
            5e-5,
        );
        let over_in = Sweeps {
            name: "over-in",
            most: 40,
            ..graph.sweeps(&out, series)
        };
        let (found, _) = graph.run(&over_in, Some(&criterion));
        must_be(
            &found,
            &[1.1743, 0.2936, 0.1468, 0.0367, 0.3119, 0.0367],
            5e-5,
        );
    }
}

/// Section 3.5: the rank of the site graph is the sum of the ranks of pages, when sites are preferred by their size.
#[test]
fn the_rank_of_a_site_is_that_of_its_pages() {
    let graph = TestGraph::new(6, 6, &SIX);
    let out = graph.out();
    let (pages, _) = graph.run(&graph.sweeps(&out, rank_rule(DanglingRule::Prefer)), None);
    let site = |page: u32| page as usize / 2;
    let mut sums = [0.0; 3];
    for (page, rank) in pages.iter().enumerate() {
        sums[site(page as u32)] += rank;
    }
    must_be(&sums, &[0.442_728, 0.241_810, 0.315_462], 1e-6);
    // The site graph, by its definition.
    let mut weights = [[0.0; 3]; 3];
    let outdegree = |page: u32| SIX.iter().filter(|(source, _)| *source == page).count() as f64;
    for (source, target) in SIX {
        let part = pages[source as usize] / sums[site(source)] / outdegree(source);
        weights[site(source)][site(target)] += part;
    }
    for row in weights {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    let mut ranks = [1.0 / 3.0; 3];
    for _ in 0..200 {
        let mut next = [0.15 / 3.0; 3];
        for (source, row) in weights.iter().enumerate() {
            for (target, weight) in row.iter().enumerate() {
                next[target] += 0.85 * ranks[source] * weight;
            }
        }
        ranks = next;
    }
    must_be(&ranks, &[0.442_728, 0.241_810, 0.315_462], 1e-6);
}

/// PageRank by its definition, in 64 bits.
pub(crate) fn power_iteration(urls: u32, links: &[(u32, u32)]) -> Vec<f64> {
    let n = f64::from(urls);
    let mut outdegrees = vec![0.0; urls as usize];
    for (source, _) in links {
        outdegrees[*source as usize] += 1.0;
    }
    let mut ranks = vec![1.0 / n; urls as usize];
    for _ in 0..120 {
        let dangling: f64 = ranks
            .iter()
            .zip(&outdegrees)
            .filter(|(_, degree)| **degree == 0.0)
            .map(|(rank, _)| rank)
            .sum();
        let mut next = vec![(0.15 + 0.85 * dangling) / n; urls as usize];
        for (source, target) in links {
            let source = *source as usize;
            next[*target as usize] += 0.85 * ranks[source] / outdegrees[source];
        }
        ranks = next;
    }
    ranks
}

fn some_links(urls: u32) -> impl Strategy<Value = Vec<(u32, u32)>> {
    proptest::collection::btree_set((0..urls, 0..urls), 0..(4 * urls as usize)).prop_map(|links| {
        links
            .into_iter()
            .filter(|(source, target)| source != target)
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// The sum is 1 after every sweep, the fixed point that of the definition, whatever slices, rounds and threads.
    #[test]
    fn ranks_are_those_of_the_definition(
        links in some_links(40), pages in 1u32..41, inner in 1u32..4, threads in 1u32..4,
    ) {
        let graph = TestGraph::new(40, pages, &links);
        let out = graph.out();
        let rule = SweepRule::Rank { damping: 0.85, dangling: DanglingRule::Prefer, inner, tolerance: 1e-8 };
        let sweeps = Sweeps { threads, most: 400, ..graph.sweeps(&out, rule) };
        let (found, swept) = graph.run(&sweeps, None);
        let expected = power_iteration(40, &links);
        let error: f64 = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).sum();
        prop_assert!(error < 1e-6, "{error} after {} sweeps", swept.sweeps);
        for most in 1..4 {
            let few = Sweeps { name: ["", "one", "two", "three"][most as usize], most, ..graph.sweeps(&out, rule) };
            let (found, _) = graph.run(&few, None);
            prop_assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        }
    }

    /// `prefer` is the fixed point without any rule for dangling pages, normalised once.
    #[test]
    fn preferring_is_normalising_once(links in some_links(30)) {
        let n = 30.0;
        let mut outdegrees = vec![0.0f64; 30];
        for (source, _) in &links {
            outdegrees[*source as usize] += 1.0;
        }
        let mut plain = vec![1.0 / n; 30];
        for _ in 0..300 {
            let mut next = vec![0.15 / n; 30];
            for (source, target) in &links {
                let source = *source as usize;
                next[*target as usize] += 0.85 * plain[source] / outdegrees[source];
            }
            plain = next;
        }
        let sum: f64 = plain.iter().sum();
        for (rank, plain) in power_iteration(30, &links).iter().zip(&plain) {
            prop_assert!((rank - plain / sum).abs() < 1e-9);
        }
    }
}

/// Killed after any slice, it goes on to the same bytes; so it does with another number of them done in between.
#[test]
fn a_sweep_that_was_stopped_goes_on_to_the_same_bytes() {
    use std::sync::atomic::{AtomicU32, Ordering};

    let links: Vec<(u32, u32)> = (0..400u32)
        .map(|n| (n * 7 % 100, n * n % 97))
        .filter(|(source, target)| source != target)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let run = |stops: &[u32]| {
        let graph = TestGraph::new(100, 9, &links);
        let out = graph.out();
        let rule = SweepRule::Rank {
            damping: 0.85,
            dangling: DanglingRule::Prefer,
            inner: 2,
            tolerance: 1e-6,
        };
        let sweeps = graph.sweeps(&out, rule);
        sweeps.prepare(None).unwrap();
        let path = graph.path().join("state");
        for stop in stops {
            let mut state = StateLog::open(&path, "x").unwrap();
            let asked = AtomicU32::new(0);
            let stopped = sweeps.run(&mut state, &|| {
                asked.fetch_add(1, Ordering::Relaxed) >= *stop
            });
            if !matches!(stopped, Err(RankError::Stopped)) {
                break;
            }
        }
        let mut state = StateLog::open(&path, "x").unwrap();
        let swept = sweeps.run(&mut state, &|| false).unwrap();
        (
            std::fs::read(&swept.values).unwrap(),
            swept.scale,
            swept.sweeps,
        )
    };
    let whole = run(&[]);
    for stops in [&[0][..], &[1, 2, 3, 4, 5], &[30], &[7; 30], &[12; 30]] {
        assert!(run(stops) == whole, "{stops:?}");
    }
}

/// A graph in which every link goes anywhere, and one whose links mostly stay on their host.
fn larger_graph(urls: u32, stays: bool) -> Vec<(u32, u32)> {
    let mut dice = 7u64;
    let mut below = |limit: u32| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((dice >> 33) % u64::from(limit)) as u32
    };
    let mut links = std::collections::BTreeSet::new();
    for source in 0..urls {
        if below(20) == 0 {
            continue;
        }
        for _ in 0..1 + below(12) {
            let host = source / 50 * 50;
            let target = match stays && below(4) > 0 {
                true => (host + below(50)).min(urls - 1),
                false => below(urls),
            };
            if target != source {
                links.insert((source, target));
            }
        }
    }
    links.into_iter().collect()
}

/// Within 1e-6, all together, of the definition in 64 bits; `tests/webgraph.rs` compares larger ones with webgraph-algo.
#[test]
fn larger_graphs_are_within_a_millionth() {
    for stays in [false, true] {
        let links = larger_graph(1500, stays);
        let graph = TestGraph::new(1500, 400, &links);
        let out = graph.out();
        let rule = SweepRule::Rank {
            damping: 0.85,
            dangling: DanglingRule::Prefer,
            inner: 3,
            tolerance: 1e-7,
        };
        let (found, _) = graph.run(&graph.sweeps(&out, rule), None);
        let expected = power_iteration(1500, &links);
        let pairs = found.iter().zip(&expected);
        let apart: f64 = pairs
            .map(|(found, expected)| (found - expected).abs())
            .sum();
        assert!(apart < 1e-6, "{apart}");
    }
}
