//! The engine of directories keeps the contract of engines.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use ecluse_spool::WorkTree;
use ecluse_testkit::engine::engine_contract;

#[test]
fn directories_keep_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let mut number = 0;
    engine_contract(|| {
        number += 1;
        Arc::new(WorkTree::open(&root.path().join(format!("work-{number}"))))
    });
}
