//! What does it cost to decide about one link?
//!
//! A page has fifty links and may cost 300 µs in all; deciding about one should stay near a microsecond. Prints the best
//! of many short rounds, since longer ones measure the neighbours.
//!
//! `cargo bench -p ecluse-scope -- --millions 5` asks what so many seeds cost instead: their memory should stay under
//! 16 MiB, and a decision well below what a fetch costs (300 µs).

use std::hint::black_box;
use std::time::{Duration, Instant};

use ecluse_scope::{
    Bare, CandidateUrl, CanonOrder, QueueBy, Robots, RobotsLimits, Scope, ScopeOrder, Seed,
    SeedList, queue_of,
};
use url::Url;

const ROUNDS: u32 = 99;
const REPEATS: u32 = 200;

const URLS: [(&str, &str); 8] = [
    ("https://www.lock.example/", "L"),
    (
        "https://www.lock.example/2026/11/16/a-title-of-a-page/",
        "LL",
    ),
    (
        "https://www.lock.example/index.php?id=42&lang=fr&page=2",
        "LLL",
    ),
    ("https://static.lock.example/js/main.3f2a.js?v=1.2.3", "LE"),
    ("https://cdn.canal.example/img/photo%20(1).jpg", "LE"),
    ("https://other.example/page", "LL"),
    ("https://www.lock.example/a/b/c/d/e/f/g/h.html", "LLLL"),
    ("https://www.lock.example/post/?replytocom=77", "LL"),
];

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--millions");
    if let Some(millions) = arguments.nth(1) {
        let millions: u32 = millions.parse().expect("a number of millions");
        return many_seeds(millions * 1_000_000);
    }
    let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
    for n in 0..10_000 {
        list.add(&format!("site-{n}.example"), "", None)
            .expect("a good seed");
    }
    list.add("lock.example", "", None).expect("a good seed");
    let begin = Instant::now();
    let scope = Scope::compile(&ScopeOrder::default(), &list.seeds, 2026).expect("a good order");
    println!(
        "compile the default scope with 10,001 seeds: {:?}",
        begin.elapsed()
    );

    let canon = CanonOrder::default();
    let robots: String = (0..200)
        .map(|n| format!("Disallow: /private-{n}/*/x\n"))
        .collect();
    let robots = Robots::parse(
        format!("User-agent: *\n{robots}").as_bytes(),
        &RobotsLimits::default(),
    );
    let rules = robots.rules_for(&["ecluse"]);
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8}  URL",
        "parse", "key", "queue", "decide", "robots"
    );
    let mut sums = [Duration::ZERO; 5];
    for (text, hops) in URLS {
        let url = Url::parse(text).expect("a good URL");
        let surt = ecluse_surt::Surt::of(text.as_bytes()).expect("a URL with a key");
        let candidate = CandidateUrl {
            hops,
            ..CandidateUrl::seed(text, surt.as_bytes())
        };
        let mut key = Vec::new();
        let costs = [
            best(|| drop(black_box(Url::parse(black_box(text))))),
            best(|| {
                key.clear();
                canon.append_key(black_box(&url), &mut key);
            }),
            best(|| drop(black_box(queue_of(QueueBy::Authority, black_box(&url))))),
            best(|| {
                let _ = black_box(scope.decide(black_box(&candidate)));
            }),
            best(|| drop(black_box(rules.judge(black_box(text))))),
        ];
        let [parse, key, queue, decide, robots] = costs.map(|cost| cost.as_nanos());
        println!("{parse:>6}ns {key:>6}ns {queue:>6}ns {decide:>6}ns {robots:>6}ns  {text}");
        for (sum, cost) in sums.iter_mut().zip(costs) {
            *sum += cost;
        }
    }
    let [parse, key, queue, decide, robots] = sums.map(|sum| sum.as_nanos() / URLS.len() as u128);
    println!("{parse:>6}ns {key:>6}ns {queue:>6}ns {decide:>6}ns {robots:>6}ns  on average");
}

/// Memory and time for many seeds, each a domain of its own.
fn many_seeds(count: u32) {
    let url = |number: u32| {
        let name = number.wrapping_mul(0x9e37_79b9);
        Url::parse(&format!("http://www.a-lock-{name:08x}.fr/")).expect("a good URL")
    };
    let mut scope = Scope::compile(&ScopeOrder::default(), &[], 2026).expect("a good order");
    scope.keep_seeds_in(&std::env::temp_dir());
    let (before, begin) = (peak_kib(), Instant::now());
    for number in 0..count {
        let seed = Seed {
            url: url(number),
            tag: String::new(),
            reach: None,
        };
        scope.add_seed(&seed).expect("room for seeds");
    }
    scope.gather_seeds().expect("room for seeds");
    let grown = peak_kib() - before;
    println!(
        "{count} seeds: {grown} KiB more at the peak, {:?}",
        begin.elapsed()
    );
    let asked = 200_000;
    for (what, from) in [("in", 0), ("not in", count)] {
        let keys = (0..asked).map(|number| {
            let url = url(from + number * (count / asked)).to_string();
            let mut surt = Vec::new();
            ecluse_surt::surt_or_url(url.as_bytes(), &mut surt);
            (url, surt)
        });
        let keys: Vec<(String, Vec<u8>)> = keys.collect();
        let begin = Instant::now();
        for (url, surt) in &keys {
            let candidate = CandidateUrl {
                hops: "L",
                ..CandidateUrl::seed(url, surt)
            };
            let _ = black_box(scope.decide(black_box(&candidate)));
        }
        println!(
            "decide about a host that is {what}: {:?}",
            begin.elapsed() / asked
        );
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn best(mut work: impl FnMut()) -> Duration {
    let round = |work: &mut dyn FnMut()| {
        let begin = Instant::now();
        for _ in 0..REPEATS {
            work();
        }
        begin.elapsed() / REPEATS
    };
    (0..ROUNDS)
        .map(|_| round(&mut work))
        .min()
        .unwrap_or_default()
}
