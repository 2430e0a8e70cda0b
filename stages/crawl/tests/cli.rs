//! The stage's program: its contract, whatever it is told to crawl.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;

use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::Root;

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

/// An order as plan makes it, with the receipt of plan.
fn put_planned(root: &Root, id: &str, seeds: &str) {
    let order = ORDER.replace("urls = ['http://127.0.0.1:1/']", "file = 'seeds.txt'");
    let order = order.replace("job = '1'", &format!("job = '{id}'"));
    let files = [
        ("order.toml", order.as_bytes()),
        ("seeds.txt", seeds.as_bytes()),
    ];
    root.put_files("crawl", id, &files);
}

#[allow(
    clippy::disallowed_methods,
    reason = "a history that no stage has written"
)]
fn as_if_planned(root: &Root, id: &str) {
    let parcel = root.part("crawl", "ready").join(format!("{id}~0"));
    std::fs::create_dir_all(parcel.join("history")).unwrap();
    let receipt = format!(
        "{{\"work\":\"{id}\",\"schema\":1,\"stage\":\"plan\",\"version\":\"0\",\"worker\":\"w\",\"attempt\":1,\"claimed\":\"x\",\"finished\":\"x\",\"inputs\":[],\"fate\":{{\"do\":\"consume\"}}}}\n"
    );
    std::fs::write(parcel.join("history/00-plan.json"), receipt).unwrap();
}

/// The seeds that the job of an order has, if there is a job.
fn seeds_of(root: &Root, id: &str) -> Option<String> {
    let path = root
        .path()
        .join(format!("rulings/jobs/{id}-1/seeds/seeds.txt"));
    std::fs::read_to_string(path).ok()
}

#[test]
fn what_was_forced_out_after_the_order_was_made_is_not_crawled() {
    let root = Root::new();
    let settings =
        "[stage.crawl]\nback = []\nforced = 'rulings/forced.toml'\njobs = 'rulings/jobs'\n";
    root.settings(&["crawl"], settings);
    std::fs::create_dir_all(root.path().join("rulings")).unwrap();
    let rule = "[[rule]]\nverdict = 'out'\ndomain = 'sorti.test'\nwho = 'a'\nwhen = '2026-11-01'\nwhy = 'b'\n";
    #[allow(clippy::disallowed_methods, reason = "a file of librarians")]
    std::fs::write(root.path().join("rulings/forced.toml"), rule).unwrap();
    let seeds = "sorti.test sorti.test\nhttp://127.0.0.1:1/ reste.test\n";
    put_planned(&root, "some", seeds);
    as_if_planned(&root, "some");
    put_planned(&root, "all", "www.sorti.test sorti.test\n");
    as_if_planned(&root, "all");
    // What a person wrote is not plan's.
    put_planned(&root, "hand", seeds);
    let (code, said) = root.run(env!("CARGO_BIN_EXE_ecluse-crawl"), &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        seeds_of(&root, "some").as_deref(),
        Some("http://127.0.0.1:1/ reste.test\n")
    );
    assert_eq!(seeds_of(&root, "hand").as_deref(), Some(seeds));
    assert_eq!(seeds_of(&root, "all"), None, "no job");
    assert_eq!(root.list("crawl", "held"), [""; 0]);
    assert!(said.contains("nothing is left of the order"), "{said}");
}
