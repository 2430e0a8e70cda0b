//! A worker that was taken for dead shows no ranks.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ecluse_links::{LINKS_HEADER, LinksDirectory};
use ecluse_rank::Rank;
use ecluse_testkit::fence::{WorkerFate, work_on};
use ecluse_testkit::root::Root;

#[test]
fn a_worker_that_was_taken_for_dead_shows_nothing() {
    let line = "fr,a)/\t20260101000000\tsha1:A\thttps://a.fr/\ta https://b.fr/";
    let links = zstd::encode_all(format!("{LINKS_HEADER}\n{line}\n").as_bytes(), 1).unwrap();
    for fate in [WorkerFate::IsFenced, WorkerFate::Lives] {
        let root = Root::new();
        root.settings(&["rank", "sink"], "[stage.rank]\nnext = []\n");
        root.put_with("rank", "day", "links", |parcel| {
            parcel.write("day.links.zst", &links)
        });
        let (done, asked) = work_on::<Rank>(&root, "day", fate);
        assert_eq!(asked, 1, "it asks when all is made");
        let directory = LinksDirectory::at(&root.path().join("links")).unwrap();
        let number = directory.generations().current_number().unwrap();
        match fate {
            WorkerFate::Lives => {
                done.unwrap();
                assert_eq!(number, Some(1));
            }
            WorkerFate::IsFenced => {
                let failure = done.unwrap_err();
                assert!(failure.reason.contains("taken for dead"), "{failure:?}");
                assert_eq!(number, None);
                let shown = directory.generations().numbers().unwrap();
                assert_eq!(shown, [0u64; 0], "nor is it left for another to show");
            }
        }
    }
}
