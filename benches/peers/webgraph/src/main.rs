//! Ranks a graph with `webgraph-algo`: `peer-webgraph PAIRS URLS TOLERANCE THREADS RANKS`.
//!
//! PAIRS has the links, each as two little-endian 32-bit numbers, source and target, in the order of targets. The graph lies in memory as a
//! `CsrGraph`, the fastest form the library has. Its PageRank is asked for what ours computes: damping 0.85, the rank of pages that link to nothing
//! goes to all alike ("strongly preferential" with the uniform preference), and it ends when `c/(1-c)·‖Δ‖₁` is below TOLERANCE, which is its
//! own norm. RANKS gets a 64-bit float for each URL. It prints sweeps, seconds by the clock and of CPU for these, and the most memory in megabytes that was
//! resident meanwhile, all without reading the graph.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::time::Instant;

use webgraph::graphs::arc_list_graph::ArcListGraph;
use webgraph::graphs::csr_graph::CsrGraph;
use webgraph_algo::rank::pagerank::{Mode, PageRank, preds};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pairs, urls, tolerance, threads, ranks] = words.as_slice() else {
        return Err("peer-webgraph PAIRS URLS TOLERANCE THREADS RANKS".into());
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?);
    let pool = pool.build()?;
    let urls: usize = urls.parse()?;
    let graph = CsrGraph::from_seq_graph(&ArcListGraph::new(urls, Pairs::open(pairs)));
    let predicate = preds::L1Norm::try_from(tolerance.parse::<f64>()?)?;
    let mut rank = PageRank::new(&graph);
    rank.alpha(0.85).mode(Mode::StronglyPreferential);
    // The peak begins anew.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    pool.install(|| rank.run(predicate));
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    println!(
        "{} {wall:.3} {cpu:.2} {:.1}",
        rank.iterations(),
        resident_megabytes()?
    );
    let mut out = BufWriter::new(File::create(ranks)?);
    for rank in rank.rank() {
        out.write_all(&rank.to_le_bytes())?;
    }
    Ok(out.flush()?)
}

/// The links of a file, turned around; whoever goes through them again begins at the first.
struct Pairs {
    path: String,
    source: BufReader<File>,
}

impl Pairs {
    fn open(path: &str) -> Self {
        let file = File::open(path).unwrap_or_else(|error| panic!("cannot open {path}: {error}"));
        Self {
            path: path.to_owned(),
            source: BufReader::with_capacity(1 << 20, file),
        }
    }
}

impl Clone for Pairs {
    fn clone(&self) -> Self {
        Self::open(&self.path)
    }
}

impl Iterator for Pairs {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = [0; 8];
        self.source.read_exact(&mut bytes).ok()?;
        let [a, b, c, d, e, f, g, h] = bytes;
        let (source, target) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        Some((target as usize, source as usize))
    }
}

/// User and system time of this process, by the kernel's clock of 100 ticks a second.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

/// The most memory that was resident at once.
fn resident_megabytes() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.ok_or("there is no VmHWM")?.parse::<f64>()? / 1000.0)
}
