//! Several workers on several hosts: a host is an engine of its own, with its name, its scratch directory and its connections.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ecluse_spool::{Engine, Spool, Work};
use sha2::{Digest, Sha256};

use crate::page::Page;
use crate::{Clock, END, STAGES, Servers, put_all, worker};

/// What a worker does with a parcel.
#[derive(Clone, Copy)]
enum Job {
    /// Waits for so long, as a crawl does.
    Wait(Duration),
    /// Hashes so many bytes.
    Hash(usize),
}

impl Job {
    fn work(self) {
        match self {
            Self::Wait(wait) => std::thread::sleep(wait),
            Self::Hash(bytes) => {
                let block = vec![b'h'; 1 << 16];
                let mut hash = Sha256::new();
                for _ in 0..bytes >> 16 {
                    hash.update(&block);
                }
                assert_ne!(hash.finalize()[..], [0; 32][..]);
            }
        }
    }
}

/// How many parcels each of the tables moves.
const PARCELS: usize = 240;
const WAIT: Duration = Duration::from_millis(200);
const HASHED: usize = 256 << 20;

/// One, two and four workers on two hosts.
pub(crate) fn workers(page: &mut Page, dir: &Path) {
    let servers = Servers::start(dir);
    page.say(format!("One to four workers on two hosts, {PARCELS} parcels (at least 1.9 × for two on two cores)\n"));
    page.say(
        "| parcels that | workers | s | beside one | CPU-s of the workers | beside one, by CPU |",
    );
    page.say("|---|--:|--:|--:|--:|--:|");
    for (what, job, parcels) in [
        ("wait 200 ms", Job::Wait(WAIT), PARCELS),
        ("hash 256 MiB", Job::Hash(HASHED), PARCELS / 3),
    ] {
        let mut one: Option<Crew> = None;
        for count in [1, 2, 4] {
            let prefix = format!("w{count}-{}", what.split(' ').next().unwrap());
            let crew = crew(
                &servers,
                &dir.join(&prefix),
                &prefix,
                2,
                count,
                parcels,
                job,
                false,
            );
            let first = *one.get_or_insert(crew);
            page.say(format!(
                "| {what} | {count} | {:.1} | {:.2} × | {:.1} | {:.2} × |",
                crew.took.as_secs_f64(),
                first.took.as_secs_f64() / crew.took.as_secs_f64(),
                crew.cpu.as_secs_f64(),
                first.cpu.as_secs_f64() / crew.cpu.as_secs_f64() * count as f64,
            ));
        }
    }
    page.say("");
}

/// Seventy hosts with a worker each, whose parcels wait; the most urgent is asked for, as crawl does.
pub(crate) fn crawlers(page: &mut Page, dir: &Path) {
    const CRAWLERS: usize = 70;
    const ROUNDS: usize = 5;
    let servers = Servers::start(dir);
    page.say(format!(
        "{CRAWLERS} crawlers, a host each, {ROUNDS} jobs for each; a job waits\n"
    ));
    page.say("| a job takes | asked for | s | s if nothing were dispatched | of the time at work | a claim and its commit take, s: middle, worst | CPU-s | its servers' |");
    page.say("|--:|---|--:|--:|--:|--:|--:|--:|");
    for (wait, by_urgency) in [(10, false), (10, true)] {
        let prefix = format!("c{wait}-{by_urgency}");
        let clock = Clock::start();
        let job = Job::Wait(Duration::from_secs(wait));
        let all = CRAWLERS * ROUNDS;
        let crew = crew(
            &servers,
            &dir.join(&prefix),
            &prefix,
            CRAWLERS,
            CRAWLERS,
            all,
            job,
            by_urgency,
        );
        let ideal = wait as f64 * ROUNDS as f64;
        page.say(format!(
            "| {wait} s | {} | {:.1} | {ideal:.1} | {:.0} % | {:.2}, {:.2} | {:.1} | {:.1} |",
            if by_urgency { "the most urgent" } else { "any" },
            crew.took.as_secs_f64(),
            ideal / crew.took.as_secs_f64() * 100.0,
            crew.dispatch.0,
            crew.dispatch.1,
            clock.ours().as_secs_f64(),
            clock.servers().as_secs_f64(),
        ));
    }
    page.say("");
}

/// What became of a crew's work.
#[derive(Clone, Copy)]
struct Crew {
    took: Duration,
    /// The CPU time of the workers' own threads.
    cpu: Duration,
    /// Seconds from the end of one job to the begin of the next: the middle and the worst.
    dispatch: (f64, f64),
}

#[expect(clippy::too_many_arguments, reason = "each is one axis of a table")]
fn crew(
    servers: &Servers,
    dir: &Path,
    prefix: &str,
    hosts: usize,
    workers: usize,
    parcels: usize,
    job: Job,
    by_urgency: bool,
) -> Crew {
    let hosts = hosts.min(workers);
    let engines: Vec<_> = (0..hosts)
        .map(|host| servers.open(prefix, dir, &format!("h{host}")))
        .collect();
    engines[0].init(END).unwrap();
    put_all(&engines[0], STAGES[0], parcels);
    let crew: Vec<Box<dyn Spool>> = (0..workers)
        .map(|number| worker(&engines[number % hosts], STAGES[0], END, 1))
        .collect();
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let ended: Vec<(Duration, Vec<f64>, Box<dyn Spool>)> = std::thread::scope(|scope| {
        let done = &done;
        let threads: Vec<_> = crew
            .into_iter()
            .map(|worker| scope.spawn(move || live(worker, done, parcels, job, by_urgency)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let took = began.elapsed();
    let mut there = 0;
    engines[0].each_name(END, &mut |_| there += 1).unwrap();
    assert_eq!(there, parcels, "every parcel must arrive, once");
    let cpu = ended.iter().map(|(cpu, _, _)| *cpu).sum();
    let mut gaps: Vec<f64> = Vec::new();
    for (_, gap, worker) in ended {
        gaps.extend(gap);
        worker.close().unwrap();
    }
    gaps.sort_by(f64::total_cmp);
    Crew {
        took,
        cpu,
        dispatch: (gaps[gaps.len() / 2], gaps[gaps.len() - 1]),
    }
}

/// Works until all parcels are done; returns the CPU time of this thread and the gaps between its jobs.
fn live(
    mut worker: Box<dyn Spool>,
    done: &AtomicUsize,
    parcels: usize,
    job: Job,
    by_urgency: bool,
) -> (Duration, Vec<f64>, Box<dyn Spool>) {
    let cpu = thread_cpu();
    let mut gaps = Vec::new();
    let mut idle = Instant::now();
    while done.load(Ordering::SeqCst) < parcels {
        let scan = match by_urgency {
            true => worker.scan_urgent(&mut |_, _| 0).unwrap(),
            false => worker.scan().unwrap(),
        };
        let mut waiting = scan.waiting;
        if waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
        while let Some(next) = waiting.pop() {
            let Some(parcel) = worker.claim(&next).unwrap() else {
                continue;
            };
            gaps.push(idle.elapsed().as_secs_f64());
            job.work();
            idle = Instant::now();
            let parcels = vec![parcel];
            let outbox = worker.outbox(&parcels);
            let mut works = vec![Work { parcels, outbox }];
            done.fetch_add(worker.finish(&mut works).unwrap().len(), Ordering::SeqCst);
            if by_urgency {
                // There may be one more urgent by now.
                break;
            }
        }
    }
    (thread_cpu() - cpu, gaps, worker)
}

fn thread_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
