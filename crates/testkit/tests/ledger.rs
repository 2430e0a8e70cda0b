//! Old receipts go into the ledger while a stage works, and are known from there.

use std::time::{Duration, SystemTime};

use ecluse_spool::ParcelId;
use ecluse_testkit::root::{Root, until_so};

const RELAY: &str = env!("CARGO_BIN_EXE_ecluse-relay");

#[test]
fn old_receipts_are_folded_at_work_and_a_late_copy_is_still_known() {
    let root = Root::new();
    root.settings(
        &["relay", "sink"],
        "[stage.relay]\nheartbeat = \"50ms\"\nlease = \"150ms\"\nkeep-receipts = \"200ms\"\n",
    );
    // The shard that is folded first.
    let mut names = (0..).map(|number| format!("p{number}"));
    let name = names
        .find(|name| ParcelId::new(name).unwrap().shard() == "00")
        .unwrap();
    root.put("relay", &name, b"bytes");
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let receipt = root
        .part("relay", "receipts/00")
        .join(format!("{name}.json"));
    let made = receipt.metadata().unwrap().modified().unwrap();
    until_so("an old receipt", || {
        SystemTime::now().duration_since(made).unwrap() > Duration::from_millis(200)
    });
    let mut program = root.start(RELAY, &[]);
    until_so("the receipt in the ledger", || !receipt.exists());
    let index = root.part("relay", "ledger/00.index");
    assert!(std::fs::read_to_string(index).unwrap().starts_with(&name));
    root.put("relay", &name, b"bytes");
    root.await_count("relay", "ready", 0);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("sink", "ready").len(), 1, "the copy was dropped");
    assert_eq!(root.list("relay", "held"), [""; 0]);
}
