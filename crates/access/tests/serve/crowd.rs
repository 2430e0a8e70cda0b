//! Many readers at once while generations are swapped and the disk of the files goes away and comes back: no answer is wrong, and
//! what cannot be had is 503.
//!
//! `ECLUSE_CROWD_SECONDS` makes it last longer.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::made::{Made, Served};

const CLIENTS: usize = 100;
const URLS: usize = 10;
/// Generations at the least; each has one capture more of every URL.
const GENERATIONS: usize = 40;
/// Answers that are waited for before the next thing happens.
const ANSWERS: u64 = 200;

fn time_of(generation: usize) -> String {
    format!("202601{:02}{:02}0000", 1 + generation / 24, generation % 24)
}

fn body_of(url: usize, generation: usize) -> String {
    format!("<p>page {url} as of generation {generation}</p>")
}

/// Makes a generation current, as the stage does, and retires the one before the last.
fn publish(index: &Path, number: usize, lines: &[Vec<String>], paths: &str) {
    let generations = index.join("generations");
    let generation = generations.join(number.to_string());
    fs::create_dir_all(&generation).unwrap();
    // More than there are captures: later generations say the same again.
    let captures = number.min(lines.len());
    let mut all: Vec<&String> = lines[..captures].iter().flatten().collect();
    all.sort();
    let text: String = all.iter().map(|line| format!("{line}\n")).collect();
    fs::write(generation.join("index.cdxj"), text).unwrap();
    fs::write(generation.join("path-index.txt"), paths).unwrap();
    symlink(format!("generations/{number}"), index.join("new")).unwrap();
    fs::rename(index.join("new"), index.join("current")).unwrap();
    if number > 2 {
        let old = generations.join((number - 2).to_string());
        fs::remove_dir_all(old).unwrap();
    }
}

/// What the readers share with who disturbs them.
#[derive(Default)]
struct Shared {
    /// The generation that is being published, and the last that was.
    begun: AtomicUsize,
    done: AtomicUsize,
    is_over: AtomicBool,
    /// The disk is surely there, or surely away; or something between.
    answers: AtomicU64,
    shown: AtomicU64,
    away: AtomicU64,
}

/// Asks once and says what is wrong with the answer.
fn ask(served: &Served, shared: &Shared, dice: u64) -> Result<(), String> {
    let url = (dice % URLS as u64) as usize;
    let address = format!("http://a.example/{url}");
    let before = shared.done.load(Ordering::SeqCst);
    let wanted = 1 + (dice / 64) as usize % before.min(GENERATIONS);
    let time = time_of(wanted);
    let path = match dice / 16 % 4 {
        0 => format!("/web/cdx?url={address}"),
        1 => format!("/web/timemap/link/{address}"),
        2 => format!("/web/{time}id_/{address}"),
        _ => format!("/web/{time}mp_/{address}"),
    };
    let answer = served.get(&path);
    let after = shared.begun.load(Ordering::SeqCst);
    let text = answer.text();
    let is_replay = path.contains("_/");
    let fault = |what: &str| {
        let start: String = text.chars().take(300).collect();
        Err(format!("{path}: {what}, status {}: {start}", answer.status))
    };
    match answer.status {
        503 if is_replay => {
            shared.away.fetch_add(1, Ordering::Relaxed);
            match answer.field("retry-after") {
                Some(_) => Ok(()),
                None => fault("no word when to come back"),
            }
        }
        200 if is_replay => {
            shared.shown.fetch_add(1, Ordering::Relaxed);
            match text.contains(&body_of(url, wanted)) {
                true => Ok(()),
                false => fault("another page"),
            }
        }
        200 => {
            let count = match path.contains("/cdx?") {
                true => text.lines().count(),
                false => text.matches("memento\"").count(),
            };
            let range = before.min(GENERATIONS)..=after.min(GENERATIONS);
            match range.contains(&count) {
                true => Ok(()),
                false => fault(&format!("{count} captures and not {range:?}")),
            }
        }
        _ => fault("a wrong status"),
    }
}

#[test]
fn no_answer_is_wrong_while_generations_are_swapped_and_a_disk_goes_and_comes() {
    let seconds = std::env::var("ECLUSE_CROWD_SECONDS").map_or(0, |text| text.parse().unwrap());
    let mut made = Made::new();
    let mut lines = Vec::new();
    for generation in 1..=GENERATIONS {
        let time = time_of(generation);
        for url in 0..URLS {
            let address = format!("http://a.example/{url}");
            made.html(&address, &time, &body_of(url, generation));
        }
        lines.push(made.lines.split_off(0));
    }
    made.publish(1);
    let index = made.path().join("index");
    let paths = fs::read_to_string(index.join("current/path-index.txt")).unwrap();
    fs::remove_dir_all(&index).unwrap();
    publish(&index, 1, &lines, &paths);
    let shared = Shared::default();
    shared.begun.store(1, Ordering::SeqCst);
    shared.done.store(1, Ordering::SeqCst);
    let served = made.serve();
    let end = Instant::now() + Duration::from_secs(seconds);
    let faults: Vec<String> = thread::scope(|scope| {
        let readers: Vec<_> = (0..CLIENTS as u64)
            .map(|reader| {
                let (served, shared) = (&served, &shared);
                scope.spawn(move || {
                    let mut dice = reader + 1;
                    while !shared.is_over.load(Ordering::Relaxed) {
                        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let asked = ask(served, shared, dice >> 33);
                        shared.answers.fetch_add(1, Ordering::Relaxed);
                        asked?;
                    }
                    Ok(())
                })
            })
            .collect();
        let wait = || {
            let until = shared.answers.load(Ordering::Relaxed) + ANSWERS;
            // A reader that found a fault asks no more.
            while shared.answers.load(Ordering::Relaxed) < until
                && readers.iter().all(|reader| !reader.is_finished())
            {
                thread::yield_now();
                thread::sleep(Duration::from_millis(1));
            }
        };
        let (disk, elsewhere) = (made.path().join("repository"), made.path().join("away"));
        let mut number = 1;
        while number < GENERATIONS || Instant::now() < end {
            number += 1;
            shared.begun.store(number, Ordering::SeqCst);
            publish(&index, number, &lines, &paths);
            shared.done.store(number, Ordering::SeqCst);
            wait();
            if number % 4 == 0 {
                fs::rename(&disk, &elsewhere).unwrap();
                wait();
                fs::rename(&elsewhere, &disk).unwrap();
                wait();
            }
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
        shared.is_over.store(true, Ordering::Relaxed);
        let results = readers.into_iter().map(|reader| reader.join().unwrap());
        results.filter_map(Result::err).collect()
    });
    assert_eq!(faults, [""; 0]);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (shown, away) = (count(&shared.shown), count(&shared.away));
    println!(
        "{} answers, {shown} pages, {away} while the disk was away",
        count(&shared.answers)
    );
    assert!(shown > 1_000 && away > 100, "{shown} shown, {away} away");
    assert_eq!(served.get("/web/2026id_/http://a.example/0").status, 200);
}
