//! Ranks by webgraph-algo 0.7, beside ours: `peer-webgraph DIR URLS RANKS [TOLERANCE]`.
//!
//! `DIR/pairs` are the links that the bench of rank wrote (`bench-rank … --ranks RANKS`), `RANKS` its ranks. Tells seconds a sweep, sweeps, the most
//! memory, and how far the two are apart, added up. Fails when that is more than 1e-6.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::process::ExitCode;
use std::time::Instant;

use webgraph::graphs::csr_graph::CsrGraph;
use webgraph::graphs::vec_graph::VecGraph;
use webgraph_algo::rank::pagerank::PageRank;
use webgraph_algo::rank::pagerank::preds::L1Norm;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, urls, ranks, more @ ..] = words.as_slice() else {
        eprintln!("peer-webgraph DIR URLS RANKS [TOLERANCE]");
        return ExitCode::from(64);
    };
    let urls: usize = urls.parse().expect("a number");
    let tolerance = more.first().map_or(1e-6, |text| text.parse().expect("a number"));
    let mut graph = VecGraph::empty(urls);
    let file = File::open(format!("{directory}/pairs")).expect("bench-rank --ranks was here");
    let mut pairs = BufReader::with_capacity(1 << 20, file);
    let mut pair = [0; 8];
    let mut links = 0u64;
    while pairs.read_exact(&mut pair).is_ok() {
        let word = |at: usize| u32::from_le_bytes(pair[at..at + 4].try_into().expect("four"));
        // It wants the graph turned around: who links to whom.
        graph.add_arc(word(4) as usize, word(0) as usize);
        links += 1;
    }
    let graph = CsrGraph::from_seq_graph(&graph);
    let mut ranking = PageRank::new(&graph);
    let (began, cpu) = (Instant::now(), cpu_seconds());
    ranking.run(L1Norm::try_from(tolerance).expect("above 0"));
    let sweeps = ranking.iterations() as f64;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let ours = fs::read(ranks).expect("the ranks of bench-rank");
    let ours = ours.chunks_exact(8).map(|rank| f64::from_le_bytes(rank.try_into().expect("eight")));
    let sum: f64 = ranking.rank().iter().sum();
    let apart: f64 = ranking.rank().iter().zip(ours).map(|(theirs, ours)| (theirs / sum - ours).abs()).sum();
    println!(
        "webgraph-algo: {links} links, {:.2} s and {:.2} CPU-s a sweep, {sweeps} sweeps, {:.0} MB; apart by {apart:.2e}",
        wall / sweeps,
        cpu / sweeps,
        resident_megabytes()
    );
    match apart <= 1e-6 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks = fields[11..13].iter().map(|number| number.parse::<f64>().expect("ticks"));
    ticks.sum::<f64>() / 100.0
}

fn resident_megabytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("VmHWM");
    let kilobytes: f64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kilobytes / 1000.0
}
