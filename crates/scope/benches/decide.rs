//! What does it cost to decide about one link?
//!
//! A page has fifty links and may cost 300 µs in all; deciding about one should stay near a microsecond. Prints the best
//! of many short rounds, since longer ones measure the neighbours.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ecluse_scope::{
    Bare, Candidate, CanonOrder, QueueBy, Robots, RobotsLimits, Scope, ScopeOrder, SeedList,
    queue_of,
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
        let candidate = Candidate {
            hops,
            ..Candidate::seed(text, surt.as_bytes())
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
                black_box(scope.decide(black_box(&candidate)));
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
