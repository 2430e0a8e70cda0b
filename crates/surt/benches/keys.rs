//! What does a key cost? An ordinary URL should stay well under 300 ns, and any URL under 2 µs; more would
//! show in the indexer, which has about 10 µs a record.
//!
//! `cargo bench -p ecluse-surt` prints nanoseconds a URL, best of several rounds.

use std::hint::black_box;
use std::time::Instant;

const ORDINARY: [&str; 8] = [
    "http://www.lock.example/",
    "https://www.lock.example/news/2024/05/17/the-gates-open-at-noon.html",
    "https://static.cdn.lock.example/wp-content/themes/Lock/assets/css/style.min.css?ver=5.8.1",
    "https://lock.example/index.php?option=com_content&view=article&id=1042&Itemid=55&lang=fr",
    "https://images.lock.example:8080/gallery/IMG_20240517_120001.jpg#top",
    "https://api.lock.example/v2/items?sort=date&page=3&limit=100&fields=title,date,author",
    "https://www.lock.example/recherche/%C3%A9cluse%20de%20No%C3%ABl/",
    "http://forum.lock.example/viewtopic.php?f=12&t=3456&sid=0123456789abcdef0123456789abcdef",
];

const OTHER: [(&str, &str); 6] = [
    ("dns", "dns:www.lock.example"),
    ("address", "http://192.0.2.1/index.html"),
    (
        "dots and slashes",
        "http://web.lock.example/web/2010/http://www.lock.example/a/../b//c.html",
    ),
    (
        "double escapes",
        "https://www.lock.example/login?next=%252Faccount%252Forders&lang=fr",
    ),
    (
        "upper-case scheme",
        "HTTP://www.lock.example/News/Index.html?b=2&a=1",
    ),
    ("international", "https://www.écluse.example/é"),
];

fn main() {
    let all: usize = ORDINARY.iter().map(|url| nanoseconds(url)).sum();
    println!(
        "{:>6} ns  ordinary, mean of {}",
        all / ORDINARY.len(),
        ORDINARY.len()
    );
    for url in ORDINARY {
        println!("{:>6} ns    {url}", nanoseconds(url));
    }
    for (name, url) in OTHER {
        println!("{:>6} ns  {name}", nanoseconds(url));
    }
}

fn nanoseconds(url: &str) -> usize {
    const KEYS: u32 = 2_000;
    let mut key = Vec::new();
    let round = |key: &mut Vec<u8>| {
        let start = Instant::now();
        for _ in 0..KEYS {
            key.clear();
            ecluse_surt::surt_or_url(black_box(url.as_bytes()), key);
            black_box(&key);
        }
        start.elapsed() / KEYS
    };
    let best = (0..99).map(|_| round(&mut key)).min().unwrap_or_default();
    best.as_nanos().try_into().unwrap_or(usize::MAX)
}
