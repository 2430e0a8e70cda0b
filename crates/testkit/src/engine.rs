//! The contract that every engine keeps, asked of it through its traits alone.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use ecluse_spool::{
    Blocked, Engine, Fate, Finish, Floor, Marks, Parcel, ParcelId, ParcelPlace, ParcelState,
    Setback, Spool, SpoolError, Verdict, Waiting, Work, WorkerLimits, WorkerTerms,
};

use crate::root::until;

/// A test of the contract and its name.
pub type Clause = (&'static str, fn(&dyn Engine));

/// Everything that is asked of an engine, each of one without parcels.
pub const CLAUSES: [Clause; 14] = [
    ("a parcel passes on with what was attached", passes_on),
    ("of two workers one has a parcel", one_wins),
    ("one parcel becomes many", fans_out),
    ("many parcels become one", gathers),
    ("a deferred parcel comes back when it is due", defers),
    ("a held parcel waits for a person", holds),
    ("what is given back costs no attempt", gives_back),
    ("what nobody asked for is let go", keeps_nothing_unasked),
    (
        "a dead worker's parcels go back, and the last attempt holds them",
        recovers,
    ),
    ("what was done is not done again", is_done_once),
    (
        "another parcel of a finished one's name is held",
        holds_another_of_the_name,
    ),
    ("a paused or full stage says so", is_blocked),
    ("the most urgent is named first", is_urgent),
    ("a parcel can be found, and set aside", is_found),
];

const STAGE: &str = "one";
const NEXT: &str = "two";

/// Opens a worker of a stage whose results go to the next.
fn worker(engine: &dyn Engine, stage: &str) -> Box<dyn Spool> {
    let limits = WorkerLimits {
        attempts: 2,
        retry_first: Duration::from_secs(1),
        retry_longest: Duration::from_secs(1),
        lease: Duration::from_secs(2),
        ..WorkerLimits::default()
    };
    let next = match stage {
        STAGE => vec![NEXT.to_owned()],
        _ => Vec::new(),
    };
    let opened = engine.open_worker(&WorkerTerms {
        stage,
        next: &next,
        limits: &limits,
        version: "0",
    });
    opened.expect("a worker can be opened")
}

fn id(name: &str) -> ParcelId {
    ParcelId::new(name).expect("a test names its parcels well")
}

fn put(engine: &dyn Engine, name: &str, bytes: &[u8]) {
    let put = engine.put::<SpoolError>(STAGE, &id(name), "test", |parcel| {
        parcel.write("data", bytes)
    });
    put.expect("a parcel can be put");
}

/// Claims a parcel as soon as it can be had.
fn claim(worker: &mut dyn Spool, name: &str) -> Parcel {
    until(&format!("{name} to be had"), || try_claim(worker, name))
}

fn try_claim(worker: &mut dyn Spool, name: &str) -> Option<Parcel> {
    worker.undefer().expect("due parcels can be looked for");
    let scan = worker.scan().expect("a stage can be scanned");
    let found = scan
        .waiting
        .into_iter()
        .find(|waiting| waiting.entry.id == id(name))?;
    worker.claim(&found).expect("a parcel can be claimed")
}

fn read(parcel: &Parcel, name: &str) -> String {
    let mut text = String::new();
    let mut file = parcel.open(name).expect("a parcel's file can be opened");
    file.read_to_string(&mut text)
        .expect("a parcel's file can be read");
    text
}

/// Finishes work on one parcel as it came.
fn finish(worker: &mut dyn Spool, parcel: Parcel) -> Finish {
    let outbox = worker.outbox(std::slice::from_ref(&parcel));
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    let finishes = worker.finish(&mut works).expect("work can be finished");
    finishes[0]
}

fn place(engine: &dyn Engine, stage: &str, name: &str) -> Option<ParcelPlace> {
    let places = engine.locate(&[stage.to_owned()], &id(name));
    places.expect("parcels can be looked for").pop()
}

fn state(engine: &dyn Engine, stage: &str, name: &str) -> Option<ParcelState> {
    place(engine, stage, name).map(|place| place.state)
}

fn passes_on(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    assert_eq!(parcel.attempt(), 1);
    assert_eq!(read(&parcel, "data"), "text");
    assert_eq!(state(engine, STAGE, "a"), Some(ParcelState::Working));
    let mut outbox = first.outbox(std::slice::from_ref(&parcel));
    let mut file = outbox.create("more").expect("an outbox takes files");
    file.write_all(b"and more").expect("a file takes bytes");
    outbox.attach(file).expect("a file can be attached");
    outbox.detach("data");
    outbox.fact("learned", 7);
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    assert_eq!(
        first.finish(&mut works).expect("it can be finished"),
        [Finish::Committed]
    );
    assert!(works.is_empty());
    assert_eq!(state(engine, STAGE, "a"), None);
    let filed = engine
        .receipt(STAGE, &id("a"))
        .expect("receipts can be read")
        .expect("it has one");
    assert_eq!(filed.receipt.facts["learned"], 7);
    assert!(matches!(&filed.receipt.fate, Fate::PassOn { to, .. } if to == NEXT));

    let mut second = worker(engine, NEXT);
    let parcel = claim(&mut *second, "a");
    let names: Vec<&str> = parcel
        .manifest()
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(names, ["more"]);
    assert_eq!(read(&parcel, "more"), "and more");
    let before = parcel.receipt_of(STAGE).expect("its history can be read");
    assert_eq!(before.expect("it has passed"), filed.receipt);
    assert_eq!(
        parcel.receipt_of("three").expect("its history can be read"),
        None
    );
    assert_eq!(finish(&mut *second, parcel), Finish::Committed);
    assert_eq!(state(engine, NEXT, "a"), None);
    for worker in [first, second] {
        worker.close().expect("a worker can end");
    }
    let stages = engine.stages().expect("stages can be listed");
    assert!(stages.iter().any(|stage| stage == STAGE) && stages.iter().any(|stage| stage == NEXT));
}

fn one_wins(engine: &dyn Engine) {
    for round in 0..5 {
        let name = format!("a{round}");
        put(engine, &name, b"text");
        let mut workers = [worker(engine, STAGE), worker(engine, STAGE)];
        let waiting = Waiting {
            entry: ecluse_spool::ParcelEntry::new(&id(&name), 0),
        };
        let parcel = until("one of two", || {
            let mut claimed = Vec::new();
            for worker in &mut workers {
                worker.scan().expect("a stage can be scanned");
                claimed.extend(worker.claim(&waiting).expect("a parcel can be claimed"));
            }
            assert!(claimed.len() < 2, "two have it");
            claimed.pop()
        });
        drop(parcel);
        for worker in workers {
            worker.close().expect("a worker can end");
        }
        assert_eq!(state(engine, STAGE, &name), Some(ParcelState::Ready));
    }
}

fn fans_out(engine: &dyn Engine) {
    put(engine, "list", b"x y z");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "list");
    let mut outbox = first.outbox(std::slice::from_ref(&parcel));
    for word in read(&parcel, "data").split(' ') {
        let mut output = outbox
            .parcel(id(word), "word")
            .expect("an outbox takes parcels");
        output
            .write("word", word.as_bytes())
            .expect("a parcel takes files");
        output.write("empty", b"").expect("a parcel takes files");
        outbox.emit(output).expect("it has a next stage");
    }
    outbox.consume();
    let mut works = vec![Work {
        parcels: vec![parcel],
        outbox,
    }];
    first.finish(&mut works).expect("it can be finished");
    let mut second = worker(engine, NEXT);
    for word in ["x", "y", "z"] {
        let parcel = claim(&mut *second, word);
        assert_eq!(read(&parcel, "word"), word);
        assert_eq!(read(&parcel, "empty"), "");
        // The receipt speaks of it as an output, not as a parcel that passed.
        let before = parcel.receipt_of(STAGE);
        assert_eq!(before.expect("its history can be read"), None);
        finish(&mut *second, parcel);
    }
    assert_eq!(state(engine, STAGE, "list"), None);
    for worker in [first, second] {
        worker.close().expect("a worker can end");
    }
}

fn gathers(engine: &dyn Engine) {
    let names = ["a", "b", "c"];
    for name in names {
        put(engine, name, name.as_bytes());
    }
    let mut first = worker(engine, STAGE);
    let parcels: Vec<Parcel> = names.iter().map(|name| claim(&mut *first, name)).collect();
    let texts: String = parcels.iter().map(|parcel| read(parcel, "data")).collect();
    let mut outbox = first.outbox(&parcels);
    let mut output = outbox
        .parcel(id("all"), "text")
        .expect("an outbox takes parcels");
    output
        .write("all", texts.as_bytes())
        .expect("a parcel takes files");
    outbox.emit(output).expect("it has a next stage");
    let work = ecluse_spool::work_id(STAGE, &parcels);
    let mut works = vec![Work { parcels, outbox }];
    assert_eq!(
        first.finish(&mut works).expect("it can be finished"),
        [Finish::Committed]
    );
    for name in names {
        let filed = engine
            .receipt(STAGE, &id(name))
            .expect("receipts can be read");
        assert_eq!(filed.expect("each member has one").receipt.work, work);
        assert_eq!(state(engine, STAGE, name), None);
    }
    let mut receipts = 0;
    engine
        .each_receipt(STAGE, &mut |_| receipts += 1)
        .expect("receipts can be read");
    assert_eq!(receipts, 1);
    let mut second = worker(engine, NEXT);
    let parcel = claim(&mut *second, "all");
    assert_eq!(read(&parcel, "all"), "abc");
    finish(&mut *second, parcel);
    for worker in [first, second] {
        worker.close().expect("a worker can end");
    }
}

fn defers(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    let verdict = Verdict::Defer {
        reason: "the world".into(),
    };
    let setback = first
        .fail(parcel, &verdict)
        .expect("a parcel can be deferred");
    let Setback::DeferredUntil(due) = setback else {
        panic!("it was deferred: {setback:?}");
    };
    let place = place(engine, STAGE, "a").expect("it is there");
    assert_eq!(
        (place.state, place.due, place.attempts),
        (ParcelState::Deferred, Some(due), 0)
    );
    let trouble = engine.trouble(&place).expect("it is in trouble");
    assert_eq!(
        (trouble.deferrals, trouble.reason.as_str()),
        (1, "the world")
    );
    let depths = engine.depths(STAGE).expect("a stage can be counted");
    assert_eq!((depths.ready, depths.working, depths.deferred), (0, 0, 1));
    assert_eq!(depths.next_due, Some(due));
    let parcel = claim(&mut *first, "a");
    assert_eq!(parcel.attempt(), 1);
    assert!(engine.now_seconds(STAGE) >= due);
    finish(&mut *first, parcel);
    first.close().expect("a worker can end");
}

fn holds(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    let verdict = Verdict::Hold {
        reason: "its fault".into(),
    };
    assert_eq!(
        first.fail(parcel, &verdict).expect("it can be held"),
        Setback::Held
    );
    let held = place(engine, STAGE, "a").expect("it is there");
    assert_eq!(held.state, ParcelState::Held);
    let why = engine
        .why(&held)
        .expect("it can be asked")
        .expect("there is a reason");
    assert_eq!(
        (why.reason.as_str(), why.by.as_str()),
        ("its fault", first.name().as_str())
    );
    assert_eq!(engine.depths(STAGE).expect("it can be counted").held, 1);
    assert!(try_claim(&mut *first, "a").is_none());
    engine.release(&held).expect("it can be let go");
    assert_eq!(engine.depths(STAGE).expect("it can be counted").held, 0);
    assert!(engine.release(&held).is_err(), "it is no longer held");
    let parcel = claim(&mut *first, "a");
    assert_eq!(parcel.attempt(), 1);
    finish(&mut *first, parcel);
    first.close().expect("a worker can end");
}

fn gives_back(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    for _ in 0..4 {
        let parcel = claim(&mut *first, "a");
        assert_eq!(parcel.attempt(), 1);
        first.give_back(parcel).expect("it can be given back");
    }
    let parcel = claim(&mut *first, "a");
    assert_eq!(
        first
            .give_back_crashed(parcel, "a bug")
            .expect("it can be given back"),
        None
    );
    let parcel = claim(&mut *first, "a");
    assert_eq!(parcel.attempt(), 2);
    let setback = first
        .give_back_crashed(parcel, "a bug")
        .expect("it can be given back");
    assert_eq!(setback, Some(Setback::Held));
    // What an error left in hand goes back as well.
    put(engine, "b", b"text");
    let parcel = claim(&mut *first, "b");
    drop(parcel);
    assert_eq!(first.reset().expect("it can be reset"), 1);
    let parcel = claim(&mut *first, "b");
    assert_eq!(parcel.attempt(), 1);
    finish(&mut *first, parcel);
    first.close().expect("a worker can end");
}

/// A worker that is kept from claiming has nothing in hand but what it was given.
fn keeps_nothing_unasked(engine: &dyn Engine) {
    let names: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    for name in &names {
        put(engine, name, b"text");
    }
    let mut first = worker(engine, STAGE);
    let mut in_hand = Vec::new();
    // Whoever is quick may be given several at a time.
    while in_hand.len() < 4 {
        let scan = first.scan().expect("a stage can be scanned");
        let Some(waiting) = scan.waiting.first() else {
            continue;
        };
        in_hand.extend(first.claim(waiting).expect("a parcel can be claimed"));
    }
    first.give_back_unasked().expect("it can be given back");
    let taken: Vec<String> = in_hand
        .iter()
        .map(|parcel| parcel.id().to_string())
        .collect();
    for name in &names {
        let expected = match taken.contains(name) {
            true => ParcelState::Working,
            false => ParcelState::Ready,
        };
        assert_eq!(state(engine, STAGE, name), Some(expected), "{name}");
    }
    // And the others are free for whoever comes.
    let mut second = worker(engine, STAGE);
    for name in names.iter().filter(|name| !taken.contains(name)) {
        let parcel = claim(&mut *second, name);
        assert_eq!(parcel.attempt(), 1);
        assert_eq!(finish(&mut *second, parcel), Finish::Committed);
    }
    for parcel in in_hand {
        assert_eq!(finish(&mut *first, parcel), Finish::Committed);
    }
    first.close().expect("a worker can end");
    second.close().expect("a worker can end");
}

fn recovers(engine: &dyn Engine) {
    put(engine, "a", b"text");
    for attempt in 1..=2 {
        let mut dead = worker(engine, STAGE);
        let parcel = claim(&mut *dead, "a");
        assert_eq!(parcel.attempt(), attempt);
        drop((parcel, dead));
        let mut heir = worker(engine, STAGE);
        let recovered = heir.recover().expect("the dead can be settled");
        assert_eq!((recovered.workers, recovered.parcels), (1, 1));
        let held = heir.take_held();
        assert_eq!(held.len(), usize::from(attempt == 2), "{held:?}");
        heir.close().expect("a worker can end");
    }
    let held = place(engine, STAGE, "a").expect("it is there");
    assert_eq!(held.state, ParcelState::Held);
    let why = engine
        .why(&held)
        .expect("it can be asked")
        .expect("there is a reason");
    assert!(why.reason.contains("died"), "{}", why.reason);
}

fn is_done_once(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    finish(&mut *first, parcel);
    // A copy come late: the same content, another birth.
    put(engine, "a", b"text");
    until("the copy to be dropped", || {
        assert!(try_claim(&mut *first, "a").is_none(), "it was done");
        state(engine, STAGE, "a").is_none().then_some(())
    });
    assert_eq!(state(engine, NEXT, "a"), Some(ParcelState::Ready));
    let waits = engine.put::<SpoolError>(NEXT, &id("a"), "test", |parcel| {
        parcel.write("data", b"text")
    });
    assert!(matches!(waits, Err(SpoolError::Waits { .. })), "{waits:?}");
    first.close().expect("a worker can end");
}

fn holds_another_of_the_name(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    finish(&mut *first, parcel);
    put(engine, "a", b"another text");
    until("the other to be held", || {
        assert!(try_claim(&mut *first, "a").is_none(), "it was done");
        (state(engine, STAGE, "a") == Some(ParcelState::Held)).then_some(())
    });
    assert_eq!(first.take_held().len(), 1);
    first.close().expect("a worker can end");
}

fn is_blocked(engine: &dyn Engine) {
    let marks = Marks {
        high: 1,
        low: 0,
        floor: Floor::Bytes(0),
    };
    engine.init(STAGE).expect("a stage can be made");
    engine.init(NEXT).expect("a stage can be made");
    let next = [NEXT.to_owned()];
    let asked = |before: Option<&Blocked>| {
        engine
            .pressure(STAGE, &next, &marks, before)
            .expect("it can be asked")
    };
    assert_eq!(asked(None), None);
    engine
        .pause(STAGE, "somebody", "a reason")
        .expect("it can be paused");
    let Some(Blocked::Paused(paused)) = asked(None) else {
        panic!("it is paused");
    };
    assert_eq!(
        (paused.who.as_str(), paused.why.as_str()),
        ("somebody", "a reason")
    );
    assert!(engine.resume(STAGE).expect("it can be resumed"));
    assert!(!engine.resume(STAGE).expect("it can be resumed"));
    for name in ["a", "b"] {
        let put =
            engine.put::<SpoolError>(NEXT, &id(name), "test", |parcel| parcel.write("data", b""));
        put.expect("a parcel can be put");
    }
    let full = until("the next stage to be full", || asked(None));
    assert!(
        matches!(&full, Blocked::HighMark { waiting: 2, .. }),
        "{full:?}"
    );
    let mut second = worker(engine, NEXT);
    let parcel = claim(&mut *second, "a");
    finish(&mut *second, parcel);
    // Between the marks it stays as it was.
    until("one to be left", || {
        (asked(None).is_none() && asked(Some(&full)).is_some()).then_some(())
    });
    second.close().expect("a worker can end");
    let depths = engine.depths(NEXT).expect("it can be counted");
    assert_eq!(
        (depths.ready + depths.working, depths.held, depths.deferred),
        (1, 0, 0)
    );
}

fn is_urgent(engine: &dyn Engine) {
    for (name, text) in [("a", "1"), ("b", "3"), ("c", "2")] {
        put(engine, name, text.as_bytes());
    }
    let mut first = worker(engine, STAGE);
    for name in ["b", "c", "a"] {
        let parcel = until("the most urgent", || {
            let mut urgency = |_: &ParcelId, path: &std::path::Path| {
                let text = std::fs::read_to_string(path.join("data")).unwrap_or_default();
                text.parse::<u8>().unwrap_or(0)
            };
            let scan = first
                .scan_urgent(&mut urgency)
                .expect("a stage can be scanned");
            let waiting = scan.waiting.last()?.clone();
            first.claim(&waiting).expect("a parcel can be claimed")
        });
        assert_eq!(parcel.id(), &id(name));
        finish(&mut *first, parcel);
    }
    first.close().expect("a worker can end");
}

fn is_found(engine: &dyn Engine) {
    put(engine, "a", b"text");
    let mut names = Vec::new();
    engine
        .each_name(STAGE, &mut |name| names.push(name))
        .expect("names can be listed");
    assert_eq!(names, [id("a")]);
    let found = place(engine, STAGE, "a").expect("it is there");
    assert_eq!((found.state, found.attempts), (ParcelState::Ready, 0));
    assert_eq!(engine.manifest(&found).expect("it can be read").bytes(), 4);
    let text = engine
        .look_at(&found)
        .expect("it can be looked at")
        .join("data");
    assert_eq!(std::fs::read(text).expect("it is there"), b"text");
    engine
        .hold(&found, "wait", "somebody")
        .expect("it can be held");
    assert!(
        engine.hold(&found, "wait", "somebody").is_err(),
        "it is no longer waiting"
    );
    let held = place(engine, STAGE, "a").expect("it is there");
    engine
        .discard(&held, "not wanted", "somebody")
        .expect("it can be discarded");
    let discarded = place(engine, STAGE, "a").expect("it is there");
    assert_eq!(discarded.state, ParcelState::Discarded);
    let why = engine
        .why(&discarded)
        .expect("it can be asked")
        .expect("there is a reason");
    assert_eq!(
        (why.reason.as_str(), why.held_for.as_deref()),
        ("not wanted", Some("wait"))
    );
    let depths = engine.depths(STAGE).expect("it can be counted");
    assert_eq!((depths.ready, depths.held), (0, 0));
    engine.release(&discarded).expect("it can be let go");
    let mut first = worker(engine, STAGE);
    let parcel = claim(&mut *first, "a");
    finish(&mut *first, parcel);
    let workers = engine
        .workers(STAGE, Duration::from_secs(60))
        .expect("workers can be listed");
    assert_eq!(workers.len(), 1);
    assert!(workers[0].alive && workers[0].id == first.name().as_str());
    first.close().expect("a worker can end");
    assert!(
        engine
            .workers(STAGE, Duration::from_secs(60))
            .expect("workers can be listed")
            .is_empty()
    );
    let throughput = engine
        .throughput(STAGE, Duration::from_secs(3600))
        .expect("it can be counted");
    assert_eq!(throughput.count, 1);
}

/// Asks everything of engines that `open` makes.
pub fn engine_contract(mut open: impl FnMut() -> Arc<dyn Engine>) {
    for (what, clause) in CLAUSES {
        eprintln!("{what}");
        clause(&*open());
    }
}
