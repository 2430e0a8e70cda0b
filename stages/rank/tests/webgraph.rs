//! Ranks beside those of `webgraph-algo`, on a graph whose links go anywhere and on one whose links mostly stay on their host; and ranks of
//! sweeps that were stopped at their slices and went on.
//!
//! Like is compared with like: damping 0.85, the rank of pages without links to all alike, no links to oneself, and the same norm.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ecluse_rank::{
    DanglingRule, GraphFiles, GraphWriter, NumberWriter, RankError, StateLog, SweepRule, Sweeps,
    Vector,
};

const URLS: u32 = 20_000;
/// Seven slices, the last one not full.
const SLICE: u32 = 3000;

/// The links of a graph as (target, source); one page in 20 links to nothing.
fn links(stay: bool) -> BTreeSet<(u32, u32)> {
    let mut dice = 7u64;
    let mut below = |limit: u32| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((dice >> 33) % u64::from(limit)) as u32
    };
    let mut links = BTreeSet::new();
    for source in 0..URLS {
        if below(20) == 0 {
            continue;
        }
        for _ in 0..1 + below(19) {
            let host = source / 80 * 80;
            let target = match stay && below(4) > 0 {
                // The first pages of a host have most of its links.
                true => host + below(80).min(below(80)),
                false => below(URLS),
            };
            if target != source {
                links.insert((target, source));
            }
        }
    }
    links
}

struct RankedGraph {
    directory: tempfile::TempDir,
    files: GraphFiles,
}

impl RankedGraph {
    fn new(links: &BTreeSet<(u32, u32)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = GraphFiles {
            directory: directory.path().to_owned(),
            name: "slice",
            urls: URLS,
            pages: SLICE,
        };
        let mut writer = GraphWriter::new(&files, 1 << 20, directory.path());
        let mut outdegrees = vec![0u32; URLS as usize];
        for (target, source) in links {
            writer.push(*source, *target).unwrap();
            outdegrees[*source as usize] += 1;
        }
        writer.finish().unwrap();
        let mut weights = NumberWriter::create(&directory.path().join("out.f32")).unwrap();
        for degree in outdegrees {
            let weight = if degree == 0 {
                0.0
            } else {
                1.0 / degree as f32
            };
            weights.float(weight).unwrap();
        }
        weights.finish().unwrap();
        Self { directory, files }
    }

    /// Ranks as shipped, by the tolerance of `pipeline.toml`; stopped after so many slices, each time anew.
    fn ranks(&self, stops: &[u32]) -> Vec<f64> {
        let weight = self.directory.path().join("out.f32");
        let sweeps = Sweeps {
            graph: &self.files,
            name: "rank",
            source_weight: Some(&weight),
            target_weight: None,
            preference: None,
            rule: SweepRule::Rank {
                damping: 0.85,
                dangling: DanglingRule::Prefer,
                inner: 3,
                tolerance: 1e-6,
            },
            threads: 2,
            most: 200,
        };
        sweeps.prepare(None).unwrap();
        let state = self.directory.path().join(format!("state-{stops:?}"));
        for stop in stops {
            let mut log = StateLog::open(&state, "test").unwrap();
            let asked = AtomicU32::new(0);
            let is_stopped = || asked.fetch_add(1, Ordering::Relaxed) >= *stop;
            let stopped = sweeps.run(&mut log, &is_stopped);
            assert!(matches!(stopped, Err(RankError::Stopped)), "{stop}");
        }
        let mut log = StateLog::open(&state, "test").unwrap();
        let swept = sweeps.run(&mut log, &|| false).unwrap();
        let values = Vector::open(&swept.values).unwrap().all(URLS).unwrap();
        let scale = swept.scale / f64::from(URLS);
        values
            .iter()
            .map(|value| f64::from(*value) * scale)
            .collect()
    }
}

/// Ranks by webgraph-algo, to 1e-9.
fn their_ranks(program: &Path, links: &BTreeSet<(u32, u32)>) -> Vec<f64> {
    let directory = tempfile::tempdir().unwrap();
    let (pairs, ranks): (PathBuf, PathBuf) = (
        directory.path().join("pairs"),
        directory.path().join("ranks"),
    );
    let bytes: Vec<u8> = links
        .iter()
        .flat_map(|(target, source)| [source.to_le_bytes(), target.to_le_bytes()])
        .flatten()
        .collect();
    std::fs::write(&pairs, bytes).unwrap();
    let output = Command::new(program)
        .arg(&pairs)
        .args([URLS.to_string().as_str(), "1e-9", "1"])
        .arg(&ranks)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let bytes = std::fs::read(&ranks).unwrap();
    let (ranks, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty() && ranks.len() == URLS as usize);
    ranks
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes))
        .collect()
}

fn apart(ours: &[f64], theirs: &[f64]) -> f64 {
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(ours, theirs)| (ours - theirs).abs()).sum()
}

#[test]
fn ranks_are_those_of_webgraph_algo_however_often_they_were_stopped() {
    let program = ecluse_peers::webgraph();
    for stay in [false, true] {
        let links = links(stay);
        let theirs = their_ranks(&program, &links);
        assert!((theirs.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let graph = RankedGraph::new(&links);
        let ours = graph.ranks(&[]);
        let distance = apart(&ours, &theirs);
        assert!(distance < 1e-6, "{distance}, on their hosts: {stay}");
        // At every slice of the first two sweeps, and over and over.
        for stop in 0..14 {
            assert!(graph.ranks(&[stop]) == ours, "stopped at {stop}");
        }
        assert!(graph.ranks(&[1, 2, 3, 4, 5, 6, 7, 8]) == ours);
        let distance = apart(&graph.ranks(&[3; 12]), &theirs);
        assert!(distance < 1e-6, "{distance}, stopped at every third slice");
    }
}
