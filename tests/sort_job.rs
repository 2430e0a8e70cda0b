//! The big sort elsewhere: Spark, given the job and the list that `ecluse export --sort-job` writes, makes the bytes that bigmerge makes.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ecluse_config::Pipeline;
use ecluse_engine::JetstreamEngine;
use ecluse_spool::{Engine, ParcelId, SpoolError, WorkTree};
use ecluse_testkit::cannot_run;
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::servers::EngineServers;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const SETTINGS: &str = "[chain]\nstages = [\"bigmerge\"]\n[defaults]\nmin-free = \"0 B\"\n[stage.bigmerge]\nspare = \"0 B\"\n";

/// Keys that a sort may get wrong: no UTF-8, beyond the first plane, a carriage return, a byte order mark, a null.
const KEYS: [&[u8]; 9] = [
    b"fr,exemple)/",
    b"fr,exemple)/~",
    b"com,\xff\xfe)/",
    b"com,\xc3\xa9)/",
    b"com,z)/\r",
    b"\xf0\x9f\x98\x80,b)/",
    b"\xef\xbf\xbd,b)/",
    b"\xef\xbb\xbf,b)/",
    b"com,a)/\0",
];

struct Archive {
    dir: tempfile::TempDir,
    engine: Option<JetstreamEngine>,
}

impl Archive {
    fn new() -> Self {
        // A name that Spark would take for a pattern.
        let dir = tempfile::Builder::new()
            .prefix("sort [a] {b,c} é")
            .tempdir()
            .unwrap();
        fs::write(dir.path().join("pipeline.toml"), SETTINGS).unwrap();
        Self { dir, engine: None }
    }

    /// An archive whose parcels are in a store.
    fn on(servers: &EngineServers, prefix: &str) -> Self {
        let mut archive = Self::new();
        let text = format!("{SETTINGS}{}", servers.settings(prefix));
        fs::write(archive.path("pipeline.toml"), &text).unwrap();
        let settings = Pipeline::parse(&text, "test").unwrap().engine;
        let engine = JetstreamEngine::open(&settings, archive.dir.path(), None).unwrap();
        archive.engine = Some(engine);
        archive
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives bigmerge a day.
    fn put(&self, id: &str, collection: Option<&str>, lines: &[u8]) {
        let tree = WorkTree::open(&self.path("work"));
        let engine: &dyn Engine = match &self.engine {
            Some(engine) => engine,
            None => &tree,
        };
        let id = ParcelId::new(id).unwrap();
        let put: Result<_, SpoolError> = engine.put("bigmerge", &id, "day", |parcel| {
            parcel.manifest().collection = collection.map(str::to_owned);
            let mut lists = vec![("day.cdxj", lines.to_vec())];
            lists.push(("day.path", format!("{id}.warc.gz\t/x/{id}\n").into_bytes()));
            for (name, bytes) in lists {
                let mut file = parcel.create(name)?;
                std::io::Write::write_all(&mut file, &bytes).unwrap();
                parcel.add(file)?;
            }
            Ok(())
        });
        put.unwrap();
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        command.arg("--root").arg(self.dir.path()).args(words);
        settle_environment(&mut command);
        command.output().unwrap()
    }

    fn bigmerge(&self) -> Output {
        let mut command = Command::new(ECLUSE);
        command.args(["stage", "bigmerge", "--once", "--log", "error", "--root"]);
        command.arg(self.dir.path());
        settle_environment(&mut command);
        command.output().unwrap()
    }

    /// Makes a generation of what waits.
    fn merge(&self) {
        let output = self.bigmerge();
        assert!(output.status.success(), "{output:?}");
    }

    fn export(&self, name: &str) -> PathBuf {
        let job = self.path(name);
        let output = self.run(&["export", "--sort-job", job.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        job
    }
}

/// So many lines of all keys, in order, beginning with a number.
fn day(first: usize, count: usize) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = (first..first + count)
        .map(|number| {
            let mut line = KEYS[number % KEYS.len()].to_vec();
            let rest = format!(
                "{} 20261118{:06} {{\"n\": {number}}}\n",
                number / 40,
                number % 7
            );
            line.extend_from_slice(rest.as_bytes());
            line
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// Runs the job with two workers on loopback.
fn spark(submit: &Path, job: &Path, output: &Path) -> Output {
    let home = submit.parent().unwrap();
    let mut path = home.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let scratch = tempfile::tempdir().unwrap();
    Command::new(submit)
        .args(["--master", "local[2]", "--driver-memory", "1g"])
        .args(["--conf", "spark.ui.enabled=false"])
        .arg(job.join("sort.py"))
        .args(["--parts", "4"])
        .arg(output)
        .env("PATH", path)
        .env("PYSPARK_PYTHON", home.join("python"))
        .env("SPARK_LOCAL_IP", "127.0.0.1")
        .env("SPARK_LOCAL_DIRS", scratch.path())
        .env_remove("SPARK_HOME")
        .output()
        .unwrap()
}

/// The parts, in the order of their names.
fn together(output: &Path) -> Vec<u8> {
    let entries = fs::read_dir(output).unwrap();
    let mut parts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    parts.retain(|part| {
        let name = part.file_name().unwrap().to_str().unwrap();
        name.starts_with("part-")
    });
    parts.sort();
    assert_eq!(parts.len(), 4, "{parts:?}");
    parts
        .iter()
        .flat_map(|part| fs::read(part).unwrap())
        .collect()
}

/// All that was said: `spark-submit` gives what the job writes to standard error out as its own output.
fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn the_list_names_the_index_and_the_days_that_wait_for_it() {
    let archive = Archive::new();
    let job = archive.path("job");
    let words = ["export", "--sort-job", job.to_str().unwrap()];
    let output = archive.run(&words);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(said(&output).contains("no index to merge"), "{output:?}");

    archive.put("first", None, &day(0, 50));
    archive.merge();
    archive.put("b-day", None, &day(40, 20));
    archive.put("a-day", None, &day(90, 20));
    archive.put("elsewhere", Some("presse"), &day(0, 9));
    archive.put("bad", None, &day(0, 10));
    let held = archive.run(&["hold", "bad", "--why", "a test"]);
    assert!(held.status.success(), "{held:?}");
    let output = archive.run(&words);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("bigmerge is not paused"), "{told}");

    let list = fs::read_to_string(job.join("inputs.txt")).unwrap();
    let inputs: Vec<(u64, PathBuf)> = list
        .lines()
        .map(|line| {
            let (bytes, path) = line.split_once('\t').unwrap();
            (bytes.parse().unwrap(), PathBuf::from(path))
        })
        .collect();
    let found: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(bytes, path)| {
            let text = fs::read(path).unwrap();
            assert!(path.is_absolute() && text.len() as u64 == *bytes, "{list}");
            text
        })
        .collect();
    assert_eq!(found, [day(0, 50), day(90, 20), day(40, 20)]);

    // Nothing is written over, and a collection has its own.
    let again = archive.run(&words);
    assert_eq!(again.status.code(), Some(64), "{again:?}");
    let other = archive.path("presse-job");
    let output = archive.run(&["export", "presse", "--sort-job", other.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let list = fs::read_to_string(other.join("inputs.txt")).unwrap();
    assert!(
        list.lines().count() == 1 && list.contains("/ready/elsewhere"),
        "{list}"
    );
    let both = archive.run(&["export", "--sort-job", "x", "--as", "cdxj"]);
    assert_eq!(both.status.code(), Some(64), "{both:?}");
}

fn servers() -> EngineServers {
    EngineServers::start(
        &ecluse_peers::server("nats-server"),
        &ecluse_peers::server("weed"),
    )
}

/// What waits in a store is brought out; the lists are those that directories have, one for one.
#[test]
fn days_that_wait_in_a_store_are_brought_out() {
    let servers = servers();
    let archive = Archive::on(&servers, "brought");
    archive.put("first", None, &day(0, 50));
    archive.merge();
    archive.put("b-day", None, &day(40, 20));
    archive.put("a-day", None, &day(90, 20));
    archive.put("elsewhere", Some("presse"), &day(0, 9));
    archive.put("bad", None, &day(0, 10));
    let held = archive.run(&["hold", "bad", "--why", "a test"]);
    assert!(held.status.success(), "{held:?}");
    let job = archive.export("job");
    let list = fs::read_to_string(job.join("inputs.txt")).unwrap();
    let found: Vec<Vec<u8>> = list
        .lines()
        .map(|line| {
            let (bytes, path) = line.split_once('\t').unwrap();
            let text = fs::read(path).unwrap();
            assert_eq!(text.len().to_string(), bytes, "{list}");
            text
        })
        .collect();
    assert_eq!(found, [day(0, 50), day(90, 20), day(40, 20)]);
    assert_eq!(fs::read_dir(job.join("days")).unwrap().count(), 2);
    // They wait as before.
    archive.merge();
    let index = fs::read(archive.path("index/current/index.cdxj")).unwrap();
    assert_eq!(index.iter().filter(|byte| **byte == b'\n').count(), 80);
    // And what the job has to make of the list is what bigmerge makes.
    let lines: BTreeSet<&[u8]> = found
        .iter()
        .flat_map(|list| list.split_inclusive(|byte| *byte == b'\n'))
        .collect();
    assert!(lines.into_iter().collect::<Vec<_>>().concat() == index);

    // A list that is gone from the store: one line, and no half of a job.
    archive.put("lost", None, &day(200, 5));
    let payloads = tempfile::tempdir().unwrap();
    servers.mirror("brought/payloads", payloads.path()).unwrap();
    let lost = below(payloads.path()).into_iter();
    let lost: Vec<String> = lost
        .filter(|path| path.to_string_lossy().contains("/lost="))
        .map(|path| {
            path.strip_prefix(payloads.path())
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    assert!(!lost.is_empty());
    for path in lost {
        servers.remove(&format!("brought/payloads/{path}")).unwrap();
    }
    let job = archive.path("half");
    let output = archive.run(&["export", "--sort-job", job.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    assert!(
        said(&output).contains("there is no payloads/"),
        "{output:?}"
    );
    assert!(!job.exists());
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => vec![path],
        })
        .collect()
}

#[test]
fn spark_makes_the_bytes_of_bigmerge_of_days_in_a_store_too() {
    let Some(submit) = ecluse_peers::spark_submit() else {
        return cannot_run("there is no java of 17 or newer");
    };
    let servers = servers();
    let archive = Archive::on(&servers, "sorted");
    archive.put("first", None, &day(0, 900));
    archive.merge();
    archive.put("monday", None, &day(600, 700));
    archive.put("tuesday", None, &day(1_100, 500));
    let job = archive.export("job");
    let output = archive.path("sorted");
    let ran = spark(&submit, &job, &output);
    assert!(ran.status.success(), "{}", said(&ran));
    let sorted = together(&output);
    archive.merge();
    let ours = fs::read(archive.path("index/current/index.cdxj")).unwrap();
    assert!(ours == sorted, "{} and {} bytes", ours.len(), sorted.len());
    assert_eq!(ours.iter().filter(|byte| **byte == b'\n').count(), 1_600);
}

#[test]
fn spark_makes_the_bytes_that_bigmerge_makes_and_refuses_what_it_refuses() {
    let Some(submit) = ecluse_peers::spark_submit() else {
        return cannot_run("there is no java of 17 or newer");
    };
    let archive = Archive::new();
    let header = [b" CDX N b a m s k r M S V g\n".as_slice(), &day(0, 900)].concat();
    archive.put("first", None, &header);
    archive.merge();
    archive.put("monday", None, &day(600, 700));
    archive.put("tuesday", None, &day(1_100, 500));
    let job = archive.export("job");
    let output = archive.path("sorted");
    let ran = spark(&submit, &job, &output);
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(output.join("_SUCCESS").exists());
    let sorted = together(&output);

    // Back into the archive, as the page says it; bigmerge then finds every line there.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sort-elsewhere.md");
    let page = fs::read_to_string(page).unwrap();
    let recipe = page.split("<!-- back -->\n```sh\n").nth(1).unwrap();
    let recipe = recipe.split("```").next().unwrap();
    let other = Archive::new();
    let copied = Command::new("cp")
        .arg("-a")
        .args([archive.path("work"), archive.path("index")])
        .arg(other.dir.path())
        .status();
    assert!(copied.unwrap().success());
    let back = Command::new("sh")
        .args(["-euc", recipe])
        .current_dir(other.dir.path())
        .env("SORTED", &output)
        .output()
        .unwrap();
    assert!(back.status.success(), "{back:?}");
    assert_eq!(
        fs::read(other.path("index/current/index.cdxj")).unwrap(),
        sorted
    );
    other.merge();

    archive.merge();
    let ours = fs::read(archive.path("index/current/index.cdxj")).unwrap();
    assert!(ours == sorted, "{} and {} bytes", ours.len(), sorted.len());
    // 1,600 captures and a header: of 2,100 lines 500 were there already.
    assert_eq!(ours.iter().filter(|byte| **byte == b'\n').count(), 1_601);
    for name in ["index.cdxj", "path-index.txt"] {
        let read = |archive: &Archive| fs::read(archive.path("index/current").join(name)).unwrap();
        assert!(read(&archive) == read(&other), "{name}");
    }

    // A line that is none, and a list that is cut short.
    for (name, lines, why) in [
        (
            "odd",
            &b"fr,a)/ 20261118000000 {}\nfr,b)/ yesterday {}\n"[..],
            "no line of an index: fr,b)/ yesterday {}",
        ),
        (
            "short",
            b"fr,a)/ 20261118000000 {}\nfr,b)/ 20261118000000 {}",
            "cut short",
        ),
    ] {
        archive.put(name, None, lines);
        let job = archive.export(&format!("job-{name}"));
        let output = archive.path(&format!("sorted-{name}"));
        let ran = spark(&submit, &job, &output);
        assert_eq!(ran.status.code(), Some(65), "{}", said(&ran));
        let text = said(&ran);
        let line = text.lines().find(|line| line.starts_with("sort.py: "));
        assert!(line.is_some_and(|line| line.contains(why)), "{text}");
        assert!(!output.join("_SUCCESS").exists());
        // So does bigmerge: it holds the parcel.
        assert_eq!(archive.bigmerge().status.code(), Some(65));
        let held = archive.run(&["discard", name, "--why", "a test"]);
        assert!(held.status.success(), "{held:?}");
    }
}
