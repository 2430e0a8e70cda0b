//! Crawls sites with the spider crate, sixteen at a time, each into a WARC file of its own.
//!
//! `peer-spider DIR URL…`; prints how many records it wrote.

use std::path::PathBuf;

use spider::utils::warc::WarcConfig;
use spider::website::Website;
use tokio::task::JoinSet;

const SITES_AT_ONCE: usize = 16;

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let dir = PathBuf::from(words.next().expect("a directory"));
    let mut running = JoinSet::new();
    let mut records = 0;
    for (number, url) in words.enumerate() {
        if running.len() == SITES_AT_ONCE {
            records += running.join_next().await.expect("one runs").expect("no panic");
        }
        let path = dir.join(format!("{number:04}.warc"));
        running.spawn(crawl(url, path.display().to_string()));
    }
    while let Some(count) = running.join_next().await {
        records += count.expect("no panic");
    }
    println!("{records}");
}

/// Crawls one site; returns the number of records.
async fn crawl(url: String, path: String) -> u64 {
    let mut website = Website::new(&url);
    website
        .with_respect_robots_txt(true)
        .with_full_resources(true)
        .with_delay(0);
    website.configuration.with_warc(WarcConfig {
        path,
        ..WarcConfig::default()
    });
    website.crawl().await;
    let records = website.warc_record_count();
    website.unsubscribe();
    records
}
