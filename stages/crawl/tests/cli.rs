//! The stage's program: its contract, whatever it is told to crawl.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;

use ecluse_testkit::contract::Contract;

/// A job that ends without any server: nobody listens on port 1.
const ORDER: &str = "
job = '1'
harvest = '1'
seeds = [{ urls = ['http://127.0.0.1:1/'] }]
agent.contact = 'keeper@archive.example'
network.allow-private = true
budget.queue.tries = 1
robots.policy = 'ignore'
";

#[test]
fn crawl_keeps_the_contract() {
    Contract {
        stage: "crawl",
        binary: Path::new(env!("CARGO_BIN_EXE_ecluse-crawl")),
        settings: "workers = 1\nnext = ['sink']",
        good: &[("order.toml", ORDER.as_bytes())],
        bad: &[("order.toml", b"job = '1'\nharvset = '1'")],
    }
    .keep();
}
