//! The big index built in ranges of keys, with the real program: several workers and hosts, whatever is killed, make of the same
//! days the bytes that one makes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecluse_cdx::zipnum::{self, Shards, ZipNumOptions};
use ecluse_cdx::{LineSource, split_points};
use ecluse_generation::{FLAT, IndexDirectory, IndexGeneration, PATHS};
use ecluse_manifest::Manifest;
use ecluse_testkit::root::{Root, contents, settle_environment};
use ecluse_testkit::servers::EngineServers;
use rustix::process::Signal;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const PATIENCE: Duration = Duration::from_secs(300);
const RANGES: usize = 5;
/// Lines in a gzip member.
const MEMBER: usize = 50;

fn root(bigmerge: &str, range: &str) -> Root {
    let root = Root::new();
    configure(&root, bigmerge, range);
    root
}

fn configure(root: &Root, bigmerge: &str, range: &str) {
    let table = format!(
        "attempts = 100000\n[stage.bigmerge]\nspare = \"0 B\"\nback = []\nbatch = {{ parcels = 100, wait = \"1ms\" }}\n\
         keep = 100\nzipnum = true\nzipnum-lines = {MEMBER}\nranges-from = \"0 B\"\n{bigmerge}\n[stage.range]\n{range}\n"
    );
    root.settings(&["bigmerge", "clean", "range"], &table);
}

fn in_ranges() -> String {
    format!("ranges = {RANGES}")
}

/// Runs both stages over what waits.
fn run(root: &Root, stages: &[&str], expected: i32) -> String {
    let words = [&["run"], stages, &["--once"]].concat();
    let (code, said) = root.run(ECLUSE, &words);
    assert_eq!(code, expected, "{said}");
    said
}

const BOTH: [&str; 2] = ["bigmerge", "range"];

/// Runs until nothing is left: what was killed or found nobody is tried again after a while.
fn finish(root: &Root) {
    let began = Instant::now();
    loop {
        let (code, said) = root.run(ECLUSE, &["run", "bigmerge", "range", "--once"]);
        if code == 0 {
            return;
        }
        assert_eq!(code, 75, "{said}");
        assert!(began.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A line of a page; pages of one site have keys that begin alike.
fn line(page: u32) -> String {
    let (site, digest) = (
        page % 17,
        u64::from(page).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    );
    format!("org,site{site:02})/{page:06} 20260101000000 {{\"digest\": \"{digest:016x}\"}}\n")
}

fn lines(pages: impl IntoIterator<Item = u32>) -> String {
    let mut lines: Vec<String> = pages.into_iter().map(line).collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

fn put(root: &Root, name: &str, pages: impl IntoIterator<Item = u32>) {
    let cdxj = lines(pages);
    let path = format!("{name}\t/repository/{name}\n");
    let files = format!("{name}\t00\n");
    root.put_with("bigmerge", name, "day", |parcel| {
        for (suffix, text) in [("cdxj", &cdxj), ("path", &path), ("files", &files)] {
            parcel.write(&format!("day.{suffix}"), text.as_bytes())?;
        }
        Ok(())
    });
}

/// An index of one generation, and days for the next: some lines are in both days, and some in the index.
fn with_days(bigmerge: &str, range: &str) -> Root {
    let root = root(bigmerge, range);
    put(&root, "day-1", (0..4000).filter(|page| page % 3 > 0));
    run(&root, &BOTH, 0);
    put(&root, "day-2", (0..2000).filter(|page| page % 7 == 0));
    put(&root, "day-3", 1000..1400);
    root
}

fn index(root: &Root) -> IndexDirectory {
    IndexDirectory::of(&root.path().join("index"), None).unwrap()
}

fn described(root: &Root, number: u64) -> IndexGeneration {
    index(root).describe(number).unwrap().unwrap()
}

/// Every file of a generation.
fn generation(root: &Root, number: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = contents(&index(root).generation(number));
    assert!(!files.is_empty());
    files
}

fn must_be_equal(found: &BTreeMap<PathBuf, Vec<u8>>, expected: &BTreeMap<PathBuf, Vec<u8>>) {
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{} is another", name.display());
    }
}

/// Nothing is left of the building, and of the parcels nothing but receipts.
fn must_be_tidy(root: &Root) {
    assert!(contents(&root.path().join("index/.building")).is_empty());
    for (stage, part) in [
        ("bigmerge", "ready"),
        ("bigmerge", "held"),
        ("range", "held"),
    ] {
        assert_eq!(root.list(stage, part), [""; 0], "{stage}/{part}");
    }
    let generations = fs::read_dir(root.path().join("index/generations")).unwrap();
    assert_eq!(generations.count(), index(root).numbers().unwrap().len());
}

#[test]
fn any_number_of_workers_makes_the_bytes_that_one_makes() {
    let alone = with_days("", "");
    run(&alone, &BOTH, 0);
    let first = with_days(&in_ranges(), "");
    run(&first, &BOTH, 0);
    must_be_tidy(&first);
    assert_eq!(first.receipts("range"), RANGES);
    assert_eq!(alone.receipts("range"), 0);

    // The lists are those of one machine without ranges, and so is what is told of them.
    let (ours, theirs) = (described(&first, 2), described(&alone, 2));
    for name in [FLAT, PATHS] {
        let read = |root: &Root| fs::read(index(root).generation(2).join(name)).unwrap();
        assert!(read(&first) == read(&alone), "{name} is another");
        let (ours, theirs) = (ours.file(name).unwrap(), theirs.file(name).unwrap());
        assert_eq!((&ours.xxh128, ours.lines), (&theirs.xxh128, theirs.lines));
    }
    let counts = |of: &IndexGeneration| (of.number, of.previous, of.lines, of.duplicates);
    assert_eq!(counts(&ours), counts(&theirs));
    assert!(ours.duplicates > 0 && ours.lines > described(&first, 1).lines);
    assert_eq!(ours.members, theirs.members);
    assert_eq!((ours.schema, theirs.schema), (3, 2));
    let told = |root: &Root| {
        let told = contents(&root.part("clean", "ready")).into_iter();
        told.filter(|(path, _)| path.ends_with("generation.files"))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&first), told(&alone));
    let manifest = Manifest::open(&first.path().join("manifest.sqlite"), first.path()).unwrap();
    for (name, generation) in [("day-1", 1), ("day-2", 2), ("day-3", 2)] {
        let row = manifest.file(name).unwrap().unwrap();
        assert_eq!(row.generation, Some(generation), "{name}");
    }

    // Receipts name the days, from which the manifest can be made again.
    let mut named = Vec::new();
    let see = &mut |filed: ecluse_spool::Filed| {
        let facts = filed.receipt.facts.into_iter();
        named.extend(facts.filter(|(key, _)| key.starts_with("days of ")));
    };
    first.tree().each_receipt("bigmerge", see).unwrap();
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].1, serde_json::json!(["day-2", "day-3"]));

    // ZipNum is what one pass over the list writes that is told where to cut.
    let splits = split_points(&index(&first).generation(1).join(FLAT), RANGES).unwrap();
    assert_eq!(splits.len(), RANGES - 1);
    let options = ZipNumOptions {
        lines_per_member: MEMBER,
        shards: Shards::At(splits),
        ..ZipNumOptions::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let flat = LineSource::open(&index(&first).generation(2).join(FLAT)).unwrap();
    let written = zipnum::write(flat, directory.path(), "index", &options).unwrap();
    assert_eq!(written.shards.len(), RANGES);
    for (name, bytes) in contents(directory.path()) {
        let found = fs::read(index(&first).generation(2).join(&name)).unwrap();
        assert!(found == bytes, "{} is another", name.display());
    }

    let expected = generation(&first, 2);
    for workers in [2, 3] {
        let many = with_days(&in_ranges(), &format!("workers = {workers}"));
        run(&many, &BOTH, 0);
        must_be_equal(&generation(&many, 2), &expected);
        must_be_tidy(&many);
    }
}

#[test]
fn killed_at_any_moment_it_makes_the_same_bytes() {
    const DAYS: u32 = 5;
    const KILLS: u64 = 14;
    let day =
        |number: u32| (number * 900..number * 900 + 1100).filter(move |page| page % 11 != number);
    let undisturbed = root(&in_ranges(), "");
    for number in 0..DAYS {
        put(&undisturbed, &format!("day-{number}"), day(number));
        run(&undisturbed, &BOTH, 0);
    }
    let root = root(&in_ranges(), "");
    let mut killed = 0;
    for number in 0..DAYS {
        put(&root, &format!("day-{number}"), day(number));
        for kill in 0..KILLS {
            let programs = [&["run", "bigmerge"], &["run", "range"], &["run", "range"]];
            let programs = programs.map(|words| root.start(ECLUSE, words));
            // Somewhere in their work; where exactly is left to the machine.
            std::thread::sleep(Duration::from_millis(
                20 + (kill * 37 + u64::from(number) * 13) % 140,
            ));
            for mut program in programs {
                program.signal(Signal::KILL);
                assert_eq!(program.wait(), -9, "{}", program.log());
                killed += 1;
            }
        }
        finish(&root);
        let made = index(&root).current_number().unwrap();
        assert_eq!(made, Some(u64::from(number) + 1));
        let (ours, theirs) = (generation(&root, u64::from(number) + 1), &undisturbed);
        must_be_equal(&ours, &generation(theirs, u64::from(number) + 1));
    }
    assert!(killed >= 150);
    must_be_tidy(&root);
}

#[test]
fn nobody_is_waited_for_in_vain_and_what_was_begun_is_finished() {
    let root = with_days(&in_ranges(), "");
    // No machine builds ranges: the days wait and say so.
    let said = run(&root, &["bigmerge"], 75);
    let reason = "generation 2 is being built in ranges: 0 of 5 are there";
    assert!(
        said.contains(&format!("{reason}, and no machine runs the stage range")),
        "{said}"
    );
    let status = status(&root);
    assert!(status.contains(reason), "{status}");
    assert_eq!(root.list("range", "ready").len(), RANGES);
    assert_eq!(index(&root).current_number().unwrap(), Some(1));

    // Later days wait for it too, though nobody asks for ranges any more.
    configure(&root, "ranges = 1", "");
    put(&root, "day-4", [3, 9000]);
    let said = run(&root, &["bigmerge"], 75);
    assert!(said.contains(reason), "{said}");
    assert_eq!(index(&root).numbers().unwrap(), [1]);

    // A part that was lost is built again.
    run(&root, &["range"], 0);
    let plan = fs::read_dir(root.path().join("index/.building")).unwrap();
    let plan = plan.map(|entry| entry.unwrap().path()).next().unwrap();
    assert_eq!(
        plan.file_name()
            .unwrap()
            .to_string_lossy()
            .split('-')
            .next(),
        Some("2")
    );
    fs::remove_dir_all(plan.join("00001")).unwrap();
    finish(&root);
    assert_eq!(root.receipts("range"), RANGES + 1);
    assert_eq!(index(&root).current_number().unwrap(), Some(3));
    must_be_tidy(&root);

    let other = with_days(&in_ranges(), "");
    run(&other, &BOTH, 0);
    must_be_equal(&generation(&root, 2), &generation(&other, 2));
    assert_eq!(described(&root, 3).lines, described(&root, 2).lines + 2);
    assert_eq!(described(&root, 3).schema, 2, "without ranges as ever");
}

fn status(root: &Root) -> String {
    let mut command = root.program(ECLUSE);
    let output = command.arg("status").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_discarded_parcel_does_not_block_the_index() {
    let root = with_days(&in_ranges(), "");
    run(&root, &["bigmerge"], 75);
    let deferred = root.list("bigmerge", "deferred");
    let [days] = deferred.as_slice() else {
        panic!("{deferred:?}");
    };
    let days = days.split('~').nth(1).unwrap();
    let (code, said) = root.run(ECLUSE, &["discard", days, "--why", "a test"]);
    assert_eq!(code, 0, "{said}");
    put(&root, "day-4", [3, 9000]);
    // What is left of the orders is for nobody.
    run(&root, &BOTH, 0);
    assert_eq!(index(&root).current_number().unwrap(), Some(2));
    assert_eq!(described(&root, 2).members.len(), 1);
    assert_eq!(described(&root, 2).lines, described(&root, 1).lines + 2);
    must_be_tidy(&root);
}

#[test]
fn a_machine_that_does_not_have_the_index_builds_nothing() {
    let root = with_days(&in_ranges(), "");
    run(&root, &["bigmerge"], 75);
    let flat = index(&root).generation(1).join(FLAT);
    let whole = fs::read(&flat).unwrap();

    // Another index, or none: it says what it misses, and takes nothing from those who have it.
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    configure(
        &root,
        &in_ranges(),
        &format!("[archive]\nindex = \"{}\"", elsewhere.display()),
    );
    let said = run(&root, &["range"], 74);
    assert!(
        said.contains(&format!("there is no index in {}", elsewhere.display())),
        "{said}"
    );
    configure(&root, &in_ranges(), "");

    // One byte of the last generation that changed, one that is missing.
    let mut spoilt = whole.clone();
    spoilt[whole.len() / 2] ^= 1;
    for (bytes, words) in [
        (&spoilt[..], "is not what was written"),
        (&whole[1..], "were written"),
    ] {
        fs::write(&flat, bytes).unwrap();
        let said = run(&root, &["range"], 74);
        assert!(said.contains(words) && said.contains(FLAT), "{said}");
    }
    fs::write(&flat, whole).unwrap();
    assert_eq!(index(&root).current_number().unwrap(), Some(1));
    finish(&root);
    assert_eq!(index(&root).current_number().unwrap(), Some(2));
    must_be_tidy(&root);
}

/// Hosts that share the directory of the index and nothing else.
struct Hosts<'a> {
    root: &'a Path,
}

impl Hosts<'_> {
    fn new<'a>(root: &'a Path, servers: &EngineServers) -> Hosts<'a> {
        for host in ["alpha", "beta", "gamma"] {
            let stages = r#"alpha = ["bigmerge"]
beta = ["range"]
gamma = ["bigmerge", "range"]"#;
            let text = format!(
                "{}{}scratch = \"scratch-{host}\"\n[hosts]\n{stages}\n",
                Self::common(),
                servers.settings("ranges")
            );
            fs::write(root.join(format!("{host}.toml")), text).unwrap();
        }
        fs::copy(root.join("alpha.toml"), root.join("pipeline.toml")).unwrap();
        Hosts { root }
    }

    /// What one machine has as well.
    fn common() -> String {
        format!(
            "[chain]\nstages = [\"bigmerge\", \"range\"]\n[defaults]\nmin-free = \"0 B\"\nattempts = 1000\nscan = \"200ms\"\n\
             heartbeat = \"500ms\"\nlease = \"5s\"\n[stage.bigmerge]\nnext = []\nback = []\nspare = \"0 B\"\n\
             batch = {{ parcels = 100, wait = \"1ms\" }}\nzipnum = true\nzipnum-lines = {MEMBER}\nranges = {RANGES}\n\
             ranges-from = \"0 B\"\n"
        )
    }

    fn start(&self, host: &str, words: &[&str]) -> ecluse_testkit::root::Program {
        let mut command = std::process::Command::new(ECLUSE);
        settle_environment(&mut command);
        command.env("ECLUSE_HOST", host);
        command.arg("--root").arg(self.root);
        let settings = self.root.join(format!("{host}.toml"));
        command.arg("--config").arg(settings).args(words);
        ecluse_testkit::root::Program::start(command)
    }

    fn must(&self, host: &str, words: &[&str]) {
        let mut program = self.start(host, words);
        assert_eq!(program.wait(), 0, "{words:?}: {}", program.log());
    }

    fn give(&self, name: &str, pages: impl IntoIterator<Item = u32>) {
        let file = self.root.join(format!("{name}.cdxj"));
        fs::write(&file, lines(pages)).unwrap();
        self.must("alpha", &["give", "bigmerge", &file.display().to_string()]);
    }
}

/// What lies in the directory of the generation that is being built.
fn parts(root: &Root) -> Vec<String> {
    let plans = fs::read_dir(root.path().join("index/.building"));
    let plans = plans.into_iter().flatten().flatten();
    let parts = plans.flat_map(|plan| fs::read_dir(plan.path()).into_iter().flatten().flatten());
    parts
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn hosts_without_a_common_work_directory_build_it_together() {
    // What one machine makes of the same days in the same ranges.
    let alone = Root::new();
    fs::write(alone.path().join("pipeline.toml"), Hosts::common()).unwrap();
    let one = Hosts { root: alone.path() };
    fs::copy(
        alone.path().join("pipeline.toml"),
        alone.path().join("alpha.toml"),
    )
    .unwrap();
    let days = [
        (
            "day-1",
            Vec::from_iter((0..4000).filter(|page| page % 3 > 0)),
        ),
        (
            "day-2",
            Vec::from_iter((0..2000).filter(|page| page % 7 == 0)),
        ),
    ];
    for (name, pages) in &days {
        one.give(name, pages.iter().copied());
        run(&alone, &BOTH, 0);
    }

    let servers = EngineServers::start(
        &ecluse_peers::server("nats-server"),
        &ecluse_peers::server("weed"),
    );
    let root = Root::new();
    let hosts = Hosts::new(root.path(), &servers);
    let eventually = |what: &str, is_so: &dyn Fn() -> bool, log: &dyn Fn() -> String| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "in vain: {what}: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let [(first, of_first), (second, of_second)] = days;
    hosts.give(first, of_first);
    hosts.must("alpha", &["run", "bigmerge", "--once"]);
    hosts.give(second, of_second);

    // The owner dies when the orders are out, and a builder in the middle.
    let mut alpha = hosts.start("alpha", &["run", "bigmerge"]);
    // Its parcel waits and says so, after the orders were given.
    let is_planned = || status(&root).contains("generation 2 is being built in ranges");
    eventually("a plan", &is_planned, &|| alpha.log() + &status(&root));
    alpha.signal(Signal::KILL);
    alpha.wait();
    let planned = parts(&root).len();
    let mut beta = hosts.start("beta", &["run", "range"]);
    let has_begun = || parts(&root).len() > planned;
    eventually("a part", &has_begun, &|| beta.log());
    beta.signal(Signal::KILL);
    beta.wait();
    assert_eq!(index(&root).current_number().unwrap(), Some(1));

    // Another takes over what the owner had, and goes on with what is there.
    let workers = [("beta", &["run", "range"][..]), ("gamma", &["run"])];
    let workers = workers.map(|(host, words)| hosts.start(host, words));
    let logs = || {
        workers
            .each_ref()
            .map(ecluse_testkit::root::Program::log)
            .concat()
    };
    let is_made = || index(&root).current_number().unwrap() == Some(2);
    eventually("the generation", &is_made, &logs);
    assert!(logs().contains("taken over"), "{}", logs());
    must_be_equal(&generation(&root, 2), &generation(&alone, 2));
    let shards = described(&root, 2).files.into_iter();
    let shards = shards.filter(|file| file.name.ends_with(".gz"));
    assert_eq!(shards.count(), RANGES);
}

#[test]
fn ranges_that_no_stage_builds_are_told_before() {
    let told = "'stage.bigmerge.ranges': no host runs the stage range";
    let root = root(&in_ranges(), "");
    let check = || {
        let output = root.program(ECLUSE).args(["check", "--offline"]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let (_, said) = check();
    assert!(!said.contains(told), "{said}");
    let settings = root.path().join("pipeline.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let without = text.replace(", \"range\"]", "]");
    assert_ne!(text, without);
    fs::write(&settings, without).unwrap();
    let (code, said) = check();
    assert!(code == Some(1) && said.contains(told), "{code:?}: {said}");
}
