//! The program: the contract of every stage, and a part as it is made. `tests/ranges.rs` of the driver has whole generations.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::Write;
use std::path::Path;

use ecluse_generation::{
    DESCRIPTION, FLAT, FileSum, IndexDirectory, IndexFile, IndexGeneration, NEW_LINES, RangeOrder,
    RangePlan, SummedFile, block_bytes,
};
use ecluse_spool::{ParcelId, Signs};
use ecluse_testkit::contract::Contract;

const RANGE: &str = env!("CARGO_BIN_EXE_ecluse-range");

fn line(page: u32) -> String {
    format!("org,example)/{page:06} 20260101000000 {{\"page\": \"{page}\"}}\n")
}

fn lines(pages: impl IntoIterator<Item = u32>) -> String {
    pages.into_iter().map(line).collect()
}

/// Writes a list, every block of it summed.
fn write(path: &Path, name: &str, text: &str) -> IndexFile {
    let sum = FileSum::in_blocks(block_bytes(text.len() as u64));
    let mut file = SummedFile::create(path, sum, &Signs::default()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut entry = file.finish(name).unwrap();
    entry.lines = Some(text.lines().count() as u64);
    entry
}

/// Makes an index of one generation and a plan of the next: two ranges, cut before page 50.
fn plan(index: &IndexDirectory) -> ParcelId {
    index.prepare().unwrap();
    let lock = index.try_lock().unwrap().unwrap();
    let (low, high) = (lines((0..50).step_by(2)), lines((50..100).step_by(2)));
    let building = index.begin(&lock, 1).unwrap();
    let flat = write(&building.join(FLAT), FLAT, &(low.clone() + &high));
    let files = vec![flat.clone()];
    let generation = IndexGeneration {
        schema: IndexGeneration::schema_of(&files),
        number: 1,
        previous: None,
        lines: 50,
        duplicates: 0,
        files,
        members: Vec::new(),
    };
    generation.write(&building).unwrap();
    assert!(building.join(DESCRIPTION).exists());
    index.publish(&lock, &building, &generation, None).unwrap();
    let begun = index.begin_plan(&lock, 2).unwrap();
    let new = [lines([1, 2]), lines([50, 61])];
    let plan = RangePlan {
        number: 2,
        previous: 1,
        parcel: ParcelId::new("days-1").unwrap(),
        last_cuts: vec![0, low.len() as u64, (low.len() + high.len()) as u64],
        last: IndexFile {
            blocks: None,
            ..flat
        },
        new: write(&begun.join(NEW_LINES), NEW_LINES, &new.concat()),
        new_cuts: vec![0, new[0].len() as u64, new.concat().len() as u64],
        zipnum_lines: 10.try_into().ok(),
        recheck: true,
    };
    let name = plan.name().unwrap();
    index.show_plan(&lock, &begun, &name, &plan).unwrap();
    name
}

#[test]
fn range_keeps_the_contract_and_makes_its_part() {
    let dir = tempfile::tempdir().unwrap();
    let index = IndexDirectory::of(dir.path(), None).unwrap();
    let plan = plan(&index);
    let order = |plan: &ParcelId| {
        let order = RangeOrder {
            collection: None,
            plan: plan.clone(),
            range: 1,
        };
        serde_json::to_vec(&order).unwrap()
    };
    let settings = format!(
        "next = [\"sink\"]\n[archive]\nindex = \"{}\"",
        dir.path().display()
    );
    // A plan that is gone is no longer needed.
    for plan in [&plan, &ParcelId::new("1-days-0").unwrap()] {
        Contract {
            stage: "range",
            binary: Path::new(RANGE),
            settings: &settings,
            good: &[("range.json", &order(plan))],
            bad: &[("range.json", br#"{"plan": "../x", "range": 0}"#)],
        }
        .keep();
    }
    assert_eq!(index.missing_parts(&plan, 2).unwrap(), [0]);
    let (directory, part) = index.part(&plan, 1).unwrap().unwrap();
    let found = fs::read_to_string(directory.join(FLAT)).unwrap();
    let pages = (50..100).filter(|page| page % 2 == 0 || *page == 61);
    assert_eq!(found, lines(pages));
    assert_eq!((part.lines_read, part.duplicates), (27, 1));
    assert_eq!(part.flat.lines, Some(26));
    let shard = part.zipnum.unwrap();
    assert_eq!((shard.members, shard.shard.lines), (3, Some(26)));
    assert_eq!(shard.shard.name, "index-00001.cdxj.gz");
    // Nobody's half-built part is left.
    assert_eq!(
        fs::read_dir(index.plan_directory(&plan)).unwrap().count(),
        3
    );
}
