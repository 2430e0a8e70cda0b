//! Programs that die, disks that fill, services that fail: the chain waits, goes on, and loses nothing.

use super::*;

/// The chain as eight processes, each restarted when it was killed.
struct Fleet<'a> {
    archive: &'a Archive,
    programs: Vec<Program>,
}

impl<'a> Fleet<'a> {
    fn start(archive: &'a Archive) -> Self {
        let programs = CHAIN.map(|stage| Program::start(command(archive, stage)));
        Self {
            archive,
            programs: programs.into(),
        }
    }

    fn kill(&mut self, at: usize) {
        self.programs[at].signal(Signal::KILL);
        self.programs[at].wait();
        self.programs[at] = Program::start(command(self.archive, CHAIN[at]));
    }

    fn stop(mut self) {
        for program in &mut self.programs {
            let code = program.stop();
            // One that was killed a moment ago may not listen yet, and has said nothing either.
            let just_began = code == -15 && program.log().is_empty();
            assert!(code == 0 || just_began, "{code}: {}", program.log());
        }
    }
}

fn command(archive: &Archive, stage: &str) -> Command {
    let mut command = Command::new(ECLUSE);
    command
        .args(["stage", stage, "--root"])
        .arg(archive.dir.path());
    command.env_remove("ECLUSE_CONFIG");
    command
}

/// A small generator: the same kills every time the test runs.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn five_hundred_kills_lose_nothing_and_double_nothing() {
    const KILLS: usize = 500;
    let archive = Archive::new(QUICK);
    let files = files(200);
    let mut fleet = Fleet::start(&archive);
    let mut dice = 0x5eed_u64;
    let mut harvested = 0;
    for kill in 0..KILLS {
        // The files come while it is killed, so that every stage has work at every moment.
        while harvested < files.len() && harvested * KILLS <= kill * files.len() * 10 / 9 {
            let (name, bytes) = &files[harvested];
            archive.harvest(name, bytes);
            harvested += 1;
        }
        std::thread::sleep(Duration::from_millis(next(&mut dice) % 120));
        fleet.kill((next(&mut dice) % CHAIN.len() as u64) as usize);
    }
    assert_eq!(harvested, files.len());
    let deadline = Instant::now() + Duration::from_secs(120);
    until_so("all files cleaned", || {
        assert!(Instant::now() < deadline, "{}", archive.status());
        let counts = archive.manifest().counts().unwrap();
        counts == [(FileState::Cleaned, files.len() as u64)]
    });
    fleet.stop();
    archive.must_hold(&files, FileState::Cleaned);
    assert_eq!(
        entries(&archive.path("harvested")),
        [""; 0],
        "clean removed them"
    );
    for stage in CHAIN {
        let held = entries(&archive.path(&format!("work/{stage}/held")));
        assert_eq!(held, [""; 0], "{stage}");
    }
    let generations = entries(&archive.path("index/generations"));
    assert!(generations.len() <= 3, "{generations:?}");
}

#[test]
fn a_failing_backup_command_waits_says_why_and_goes_on() {
    let archive = Archive::new("");
    let mark = archive.path("well");
    let script = archive.path("backup.sh");
    fs::write(
        &script,
        format!("#!/bin/sh\ntest -e {} || {{ echo 'the tape robot is stuck' >&2; exit 3; }}\necho tape-1\n", mark.display()),
    )
    .unwrap();
    let targets = format!(
        "{QUICK}\n[[stage.backup.targets]]\nname = \"tape\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"{}\", \"{{path}}\", \"{{sha256}}\"]\n",
        script.display()
    );
    archive.configure(&targets);
    let files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 75, "{said}");
    let status = archive.status();
    assert!(status.contains("the tape robot is stuck"), "{status}");
    assert!(!archive.path("index/current").exists());
    // The command works again: whenever the deferred are due, they go on by themselves.
    fs::write(&mark, "").unwrap();
    until_so("the deferred go on", || archive.once(&CHAIN[..7]).0 == 0);
    assert_eq!(archive.index().len(), 15);
    let proof = archive.manifest().copies(&files[0].0).unwrap();
    let tape = proof.iter().find(|copy| copy.target == "tape").unwrap();
    assert_eq!(tape.place, "tape-1");
}

#[test]
fn a_full_disk_pauses_the_chain_and_it_goes_on_when_there_is_room() {
    if !inside("deaths::a_full_disk_pauses_the_chain_and_it_goes_on_when_there_is_room") {
        return;
    }
    let archive = Archive::new(QUICK);
    mount(archive.dir.path(), "64m");
    archive.configure(QUICK);
    fs::create_dir(archive.path("harvested")).unwrap();
    fs::create_dir(archive.path("draft")).unwrap();
    let files = files(10);
    for (name, bytes) in &files {
        fs::write(archive.path("draft").join(name), bytes).unwrap();
    }
    let mut chain = Program::start(archive.command(&["run"]));
    // Stages start one after the other: with a worker of the last one at work, none is still to be born.
    let last = archive.path("work/deposit/claim");
    until_so("the chain runs", || {
        chain.must_live();
        let mut workers = fs::read_dir(&last).into_iter().flatten().flatten();
        workers.any(|worker| worker.path().join(".status").exists())
    });
    let filler = fill(archive.dir.path());
    // A rename needs no room: the files come all the same.
    for (name, _) in &files {
        let from = archive.path("draft").join(name);
        fs::rename(from, archive.path("harvested").join(name)).unwrap();
    }
    // It waits, says so, and goes on by itself.
    until_so("status says why", || {
        chain.must_live();
        let status = archive.status();
        status.contains("No space left") || status.contains("disk is full")
    });
    empty(&filler);
    until_so("all files cleaned", || {
        chain.must_live();
        archive.manifest().counts().unwrap() == [(FileState::Cleaned, 10)]
    });
    assert_eq!(chain.stop(), 0, "{}", chain.log());
    archive.must_hold(&files, FileState::Cleaned);
}

#[test]
fn a_read_only_location_pauses_the_chain_and_it_goes_on_when_it_is_well() {
    if !inside("deaths::a_read_only_location_pauses_the_chain_and_it_goes_on_when_it_is_well") {
        return;
    }
    let archive = Archive::new(QUICK);
    let repository = archive.path("repository");
    mount(&repository, "64m");
    sh("mount -o remount,ro \"$1\"", &repository);
    let files = files(5);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let mut chain = Program::start(archive.command(&["run"]));
    until_so("status says why", || {
        chain.must_live();
        archive.status().contains("Read-only file system")
    });
    assert!(!archive.path("index/current").exists());
    sh("mount -o remount,rw \"$1\"", &repository);
    until_so("all files cleaned", || {
        chain.must_live();
        archive.manifest().counts().unwrap() == [(FileState::Cleaned, 5)]
    });
    assert_eq!(chain.stop(), 0, "{}", chain.log());
    archive.must_hold(&files, FileState::Cleaned);
}

#[test]
fn below_min_free_delete_and_clean_make_room_and_a_run_ends() {
    let archive = Archive::new(QUICK);
    let files = files(2);
    let name = |file: usize| files[file].0.as_str();
    archive.harvest(name(0), &files[0].1);
    assert_eq!(archive.once(&CHAIN[..7]).0, 0);
    archive.harvest(name(1), &files[1].1);
    assert_eq!(archive.once(&CHAIN[..4]).0, 0);
    let waiting = |stage: &str| {
        let ready = archive.path("work").join(stage).join("ready");
        fs::read_dir(ready).map_or(0, Iterator::count)
    };
    assert_eq!((waiting("delete"), waiting("merge")), (1, 0));

    // One that is not at rest when the stages stop: nobody waits for it.
    archive.configure(&QUICK.replace("min-free = \"0 B\"", "min-free = \"900 PB\""));
    fs::write(archive.path("harvested/new.warc.gz"), "new").unwrap();
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("; stopped: ingest: "), "{said}");
    assert_eq!((waiting("delete"), waiting("merge")), (0, 1), "{said}");
    assert!(!archive.path("harvested").join(name(0)).exists(), "{said}");
    assert!(archive.path("harvested").join(name(1)).exists());

    let status = archive.ecluse(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    for stage in status["stages"].as_array().unwrap() {
        let name = stage["name"].as_str().unwrap();
        // Index has told plan of the pages, merge rank of the links, and bigmerge change of the captures; nobody runs them here.
        let works = CHAIN.contains(&name) || ["plan", "rank", "change"].contains(&name);
        let goes_on = ["delete", "clean"].contains(&name) || !works;
        assert_eq!(stage["state"] != "blocked", goes_on, "{stage}");
    }
    let status = archive.status();
    assert!(
        status.contains("make room; it goes on by itself"),
        "{status}"
    );
    assert!(!status.contains("min-free"), "{status}");
    archive.configure(QUICK);
    fs::remove_file(archive.path("harvested/new.warc.gz")).unwrap();
    assert_eq!(archive.once(&CHAIN).0, 0);
    archive.must_hold(&files, FileState::Cleaned);
}
