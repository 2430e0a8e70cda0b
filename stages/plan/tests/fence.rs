//! A worker that was taken for dead shows no register, and puts down no run.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use common::*;
use ecluse_plan::{Plan, RunDirectory};
use ecluse_register::Register;
use ecluse_testkit::fence::{WorkerFate, work_on};

#[test]
fn a_worker_that_was_taken_for_dead_shows_nothing() {
    for fate in [WorkerFate::IsFenced, WorkerFate::Lives] {
        let root = root("");
        put_names(
            &root,
            "names-1",
            "20261101",
            &[("exemple.fr", "afnic:1", "ok")],
        );
        let (done, asked) = work_on::<Plan>(&root, "names-1", fate);
        assert_eq!(asked, 1, "it asks when all is made");
        let register = Register::at(&root.path().join("register")).unwrap();
        match fate {
            WorkerFate::Lives => {
                done.unwrap();
                assert_eq!(register.current().unwrap(), Some(1));
            }
            WorkerFate::IsFenced => {
                let failure = done.unwrap_err();
                assert!(failure.reason.contains("taken for dead"), "{failure:?}");
                assert_eq!(register.current().unwrap(), None);
                assert!(register.settle().unwrap().is_empty(), "nor later");
            }
        }
    }
}

#[test]
fn nor_does_it_put_down_a_run() {
    let press = "kind = \"selective\"\nfrom = \"2026-11-20T06:00:00Z\"\nschedule = \"*-*-* 06:00\"\nuntil = \"2027-11-20\"\nbudget = { urls = 10 }\n\
                 template = \"templates/t.toml\"\n[[domains]]\nnames = [\"journal.fr\"]\n";
    for fate in [WorkerFate::IsFenced, WorkerFate::Lives] {
        let root = root("");
        put(&root, "harvests/press.toml", press);
        put(
            &root,
            "harvests/templates/t.toml",
            "[agent]\ncontact = 'c@archive.example'\n",
        );
        let due = br#"{"harvest":"press","due":"2026-11-20T06:00:00Z","missed":0}"#;
        root.put_files("plan", "run", &[("run.json", due)]);
        let (done, asked) = work_on::<Plan>(&root, "run", fate);
        assert_eq!(asked, 1, "{done:?}");
        assert_eq!(done.is_ok(), fate == WorkerFate::Lives, "{done:?}");
        let runs = RunDirectory::at(root.path().join("runs"));
        let is_there = runs.last_run("press").unwrap().is_some();
        assert_eq!(is_there, fate == WorkerFate::Lives);
    }
}
