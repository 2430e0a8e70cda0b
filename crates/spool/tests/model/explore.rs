//! Crashes a scenario everywhere, and again in the recovery, and has every outcome judged.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::chain::{Life, Scenario, Temper};
use super::disk::{Cut, Dice, Disk};
use super::fs::{Fault, Moment, Process, Turns};
use super::judge::judge;

/// How much is tried of each scenario.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Outcomes of a power cut looked at before one call.
    cuts: usize,
    /// First crashes.
    firsts: usize,
    /// First crashes that are followed by second ones.
    deep: usize,
    /// Second crashes.
    seconds: usize,
    /// Kills of first lives, and of the reapers after them.
    reapers: usize,
    /// Faulty calls.
    faults: usize,
    /// Pauses of one life, and of two.
    pauses: usize,
}

impl Effort {
    /// Everything when `ECLUSE_EXHAUSTIVE` is set; a sample that takes seconds otherwise.
    pub(crate) fn asked() -> Self {
        match std::env::var_os("ECLUSE_EXHAUSTIVE") {
            Some(_) => Self {
                cuts: 200,
                firsts: usize::MAX,
                deep: usize::MAX,
                seconds: usize::MAX,
                reapers: usize::MAX,
                faults: usize::MAX,
                pauses: usize::MAX,
            },
            None => Self {
                cuts: 40,
                firsts: 120,
                deep: 10,
                seconds: 100,
                reapers: 50,
                faults: 50,
                pauses: 50,
            },
        }
    }
}

/// What was tried, what was left out, and what went wrong.
pub(crate) struct Report {
    scenario: &'static str,
    what: &'static str,
    possible: usize,
    run: usize,
    same: usize,
    wrong: Vec<String>,
}

impl Report {
    fn new(scenario: &Scenario, what: &'static str) -> Self {
        Self {
            scenario: scenario.name,
            what,
            possible: 0,
            run: 0,
            same: 0,
            wrong: Vec::new(),
        }
    }

    fn enough(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Prints what was tried; panics when anything went wrong.
    pub(crate) fn close(self) {
        println!(
            "{} of {}: {} possible, {} run, {} more left out as the same",
            self.what, self.scenario, self.possible, self.run, self.same
        );
        assert!(
            self.wrong.is_empty(),
            "MODEL VERDICT: {} of {}\n{}",
            self.what,
            self.scenario,
            self.wrong.join("\n")
        );
        assert!(self.run > 0, "nothing was tried");
    }
}

/// Crashes a scenario before every change, by a kill and by a power cut; then crashes the
/// recovery too.
pub(crate) fn crash(scenario: &Scenario, effort: Effort) -> Report {
    let mut search = Search::new(scenario, effort, "crashes");
    let process = Process::new(scenario.disk()).recording();
    search.live("without a crash", &process);
    let deep = search.firsts(&process.moments());
    search.seconds(&deep);
    search.report
}

/// Kills a scenario before every change, and the life after it before every change of its
/// recovery: what two renames where there should be one do not survive.
pub(crate) fn reapers(scenario: &Scenario, effort: Effort) -> Report {
    let mut search = Search::new(scenario, effort, "kills of reapers");
    let process = Process::new(scenario.disk()).recording();
    search.live("without a crash", &process);
    let moments = process.moments();
    let mut reapers = Vec::new();
    let firsts: Vec<_> = moments.iter().enumerate().collect();
    for (number, moment) in search.dice.choose(effort.reapers, firsts) {
        let crash = Crash {
            number,
            moment,
            cut: None,
        };
        let disk = crash.disk();
        if search.is_new(&disk) {
            let process = Process::new(disk).recording();
            let changes = search.live(&crash.story(), &process);
            let mut moments = process.moments();
            moments.truncate(changes);
            reapers.push((crash.story(), moments));
        }
    }
    let seconds: Vec<_> = reapers
        .iter()
        .flat_map(|(story, moments)| moments.iter().enumerate().map(move |m| (story, m)))
        .collect();
    search.report.possible = moments.len() + seconds.len();
    for (before, (number, moment)) in search.dice.choose(effort.reapers, seconds) {
        let crash = Crash {
            number,
            moment,
            cut: None,
        };
        let disk = crash.disk();
        if search.is_new(&disk) {
            let story = format!("{before}\n    then {}", crash.story());
            search.live(&story, &Process::new(disk));
        }
    }
    search.report
}

/// Kills a scenario before every change; then an operator who remembers nothing gives everything
/// again.
pub(crate) fn given_again(scenario: &Scenario, effort: Effort) -> Report {
    let mut search = Search::new(scenario, effort, "gifts given again");
    let process = Process::new(scenario.disk()).recording();
    search.live("without a crash", &process);
    let moments = process.moments();
    search.report.possible = moments.len();
    let firsts: Vec<_> = moments.iter().enumerate().collect();
    for (number, moment) in search.dice.choose(effort.reapers, firsts) {
        let mut disk = moment.disk.kill();
        disk.outside.acknowledged.clear();
        if search.is_new(&disk) {
            let story = format!("all given again before call {number}: {}", moment.call);
            search.live(&story, &Process::new(disk));
        }
    }
    search.report
}

/// A crash and what it leaves.
struct Crash<'moment> {
    number: usize,
    moment: &'moment Moment,
    /// The outcome of a power cut; `None` for a kill.
    cut: Option<Cut>,
}

impl Crash<'_> {
    fn disk(&self) -> Disk {
        match &self.cut {
            Some(cut) => self.moment.disk.power_cut(cut),
            None => self.moment.disk.kill(),
        }
    }

    fn story(&self) -> String {
        let what = match &self.cut {
            Some(cut) => format!("power cut, {cut:?},"),
            None => "kill".to_owned(),
        };
        format!("{what} before call {}: {}", self.number, self.moment.call)
    }
}

struct Search<'scenario> {
    scenario: &'scenario Scenario,
    effort: Effort,
    dice: Dice,
    seen: HashSet<u64>,
    report: Report,
}

impl<'scenario> Search<'scenario> {
    fn new(scenario: &'scenario Scenario, effort: Effort, what: &'static str) -> Self {
        Self {
            scenario,
            effort,
            dice: Dice(0x5eed),
            seen: HashSet::new(),
            report: Report::new(scenario, what),
        }
    }

    /// Recovers from first crashes; returns the recoveries that are to be crashed too.
    fn firsts(&mut self, moments: &[Moment]) -> Vec<(String, Process)> {
        let mut crashes = Vec::new();
        for (number, moment) in moments.iter().enumerate() {
            let (possible, cuts) = moment.disk.cuts(self.effort.cuts, &mut self.dice);
            self.report.possible += possible + 1;
            let cuts = cuts.into_iter().map(Some);
            crashes.extend(std::iter::once(None).chain(cuts).map(|cut| Crash {
                number,
                moment,
                cut,
            }));
        }
        let mut deep = Vec::new();
        let chosen = self.dice.choose(self.effort.firsts, crashes);
        let all = chosen.len();
        for crash in chosen {
            let disk = crash.disk();
            if !self.is_new(&disk) {
                continue;
            }
            let story = crash.story();
            let mut process = Process::new(disk);
            if self.dice.odds(self.effort.deep, all) {
                process = process.recording();
                deep.push((story.clone(), process.clone()));
            }
            self.live(&story, &process);
        }
        deep
    }

    /// Recovers from crashes of recoveries: kills, and power cuts with the extreme outcomes.
    fn seconds(&mut self, deep: &[(String, Process)]) {
        let each = self.effort.seconds / deep.len().max(1);
        for (before, process) in deep {
            let moments = process.moments();
            let mut crashes = Vec::new();
            for (number, moment) in moments.iter().enumerate() {
                let cuts = moment.disk.extremes().into_iter().map(Some);
                crashes.extend(std::iter::once(None).chain(cuts).map(|cut| Crash {
                    number,
                    moment,
                    cut,
                }));
            }
            self.report.possible += crashes.len();
            for crash in self.dice.choose(each, crashes) {
                let disk = crash.disk();
                if self.is_new(&disk) {
                    let story = format!("{before}\n    then {}", crash.story());
                    self.live(&story, &Process::new(disk));
                }
            }
        }
    }

    fn is_new(&mut self, disk: &Disk) -> bool {
        let new = self.seen.insert(disk.fingerprint());
        self.report.same += usize::from(!new);
        new && !self.report.enough()
    }

    /// Lives until idle and has the disk judged; returns after how many changes it was recovered.
    fn live(&mut self, story: &str, process: &Process) -> usize {
        self.report.run += 1;
        let mut life = Life::new(self.scenario, process, "host", Temper::Strict);
        let end = life.run();
        let mut wrong = match end {
            Ok(()) => judge(&process.disk(), self.scenario),
            Err(e) => vec![format!("the restart failed: {e}")],
        };
        if !wrong.is_empty() {
            wrong.insert(0, story.to_owned());
            self.report
                .wrong
                .push(format!("{}\n{}", wrong.join("\n  "), process.disk()));
        }
        life.recovered
    }
}

/// Lets every call fail once, and then a run of calls; the worker resets until it works. When all
/// is idle the power is cut: what a failed sync did not write is gone.
pub(crate) fn faults(scenario: &Scenario, effort: Effort) -> Report {
    let mut report = Report::new(scenario, "faults");
    let mut possible = Vec::new();
    for at in 0..count(scenario).0 {
        for (error, calls) in [(Errno::IO, 1), (Errno::NOSPC, 1), (Errno::NOSPC, 4)] {
            possible.push(Fault { at, calls, error });
        }
    }
    report.possible = possible.len();
    for fault in Dice(0xfa17).choose(effort.faults, possible) {
        report.run += 1;
        report.wrong.extend(faulty(scenario, fault));
        if report.enough() {
            break;
        }
    }
    report
}

fn faulty(scenario: &Scenario, fault: Fault) -> Option<String> {
    let process = Process::new(scenario.disk()).failing(fault);
    let failed = process.failed();
    let mut life = Life::new(scenario, &process, "host", Temper::Patient);
    let story = |what: &str| format!("{fault:?} {}: {what}", failed.lock().unwrap());
    if let Err(e) = life.run() {
        return Some(story(&format!("it did not get over it: {e}")));
    }
    let rest = process.disk().clone();
    let mut heirs = vec![("a restart".to_owned(), rest.kill())];
    for cut in rest.extremes() {
        heirs.push((format!("a power cut {cut:?}"), rest.power_cut(&cut)));
    }
    let mut seen = HashSet::new();
    for (what, disk) in heirs {
        if !seen.insert(disk.fingerprint()) {
            continue;
        }
        let process = Process::new(disk);
        let end = Life::new(scenario, &process, "host", Temper::Strict).run();
        let wrong = match end {
            Ok(()) => judge(&process.disk(), scenario),
            Err(e) => vec![format!("the restart failed: {e}")],
        };
        if !wrong.is_empty() {
            let text = format!("then {what}\n  {}\n{}", wrong.join("\n  "), process.disk());
            return Some(story(&text));
        }
    }
    None
}

/// What the second host makes of the first while that is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// Takes it for dead and goes on with its work.
    Heir,
    /// Leaves it alone and works beside it, on copies of the same gifts.
    Rival,
}

/// Pauses a life before each of its calls. Another host works, to the end or until it is paused
/// in turn; then the first wakes up.
pub(crate) fn pauses(scenario: &Scenario, other: Other, effort: Effort) -> Report {
    let what = match other {
        Other::Heir => "pauses beside an heir",
        Other::Rival => "pauses beside a rival",
    };
    let mut report = Report::new(scenario, what);
    let (calls, syncs) = count(scenario);
    let mut dice = Dice(0x20b1e);
    let ones: Vec<_> = (0..calls).map(|first| [Some(first), None]).collect();
    let twos: Vec<_> = (0..calls * calls)
        .map(|both| [Some(both / calls), Some(both % calls)])
        .collect();
    report.possible = ones.len() + twos.len();
    let mut chosen = dice.choose(effort.pauses / 2, ones);
    // What others may see and what is durable differ most before a sync: none of these is left out.
    chosen.extend(syncs.into_iter().map(|first| [Some(first), None]));
    chosen.extend(dice.choose(effort.pauses / 2, twos));
    for stops in chosen {
        report.run += 1;
        let wrong = pause(scenario, other, stops);
        if !wrong.is_empty() {
            report.wrong.push(wrong.join("\n  "));
        }
        if report.enough() {
            break;
        }
    }
    report
}

/// Kills a scenario before every change, pauses the life after it before each of its calls, and lets
/// another host work beside it on what it has put back so far.
pub(crate) fn paused_reapers(scenario: &Scenario, effort: Effort) -> Report {
    let mut report = Report::new(scenario, "pauses of reapers");
    let process = Process::new(scenario.disk()).recording();
    let end = Life::new(scenario, &process, "alpha", Temper::Strict).run();
    end.unwrap();
    let mut seen = HashSet::new();
    let mut possible = Vec::new();
    for (number, moment) in process.moments().into_iter().enumerate() {
        let disk = moment.disk.kill();
        if !seen.insert(disk.fingerprint()) {
            report.same += 1;
            continue;
        }
        let heir = Process::new(disk.clone());
        let end = Life::new(scenario, &heir, "alpha", Temper::Strict).run();
        end.unwrap();
        let story = Arc::new((format!("kill before call {number}: {}", moment.call), disk));
        possible.extend((0..heir.calls()).map(|stop| (Arc::clone(&story), stop)));
    }
    report.possible = possible.len();
    for (killed, stop) in Dice(0x9a05e).choose(effort.pauses, possible) {
        let (story, disk) = &*killed;
        report.run += 1;
        let wrong = pause_on(disk.clone(), scenario, Other::Rival, [Some(stop), None]);
        if !wrong.is_empty() {
            report
                .wrong
                .push(format!("{story}\n  {}", wrong.join("\n  ")));
            break;
        }
    }
    report
}

fn pause(scenario: &Scenario, other: Other, stops: [Option<usize>; 2]) -> Vec<String> {
    pause_on(scenario.disk(), scenario, other, stops)
}

fn pause_on(
    disk: Disk,
    scenario: &Scenario,
    other: Other,
    stops: [Option<usize>; 2],
) -> Vec<String> {
    let shared = Arc::new(Mutex::new(disk));
    let turns = Turns::new(stops);
    let run = |me: usize, host: &str| {
        let process = Process::on(&shared).taking_turns(&turns, me);
        let mut life = Life::new(scenario, &process, host, Temper::Fenceable);
        if me == 1 && other == Other::Heir {
            life = life.impatient();
        }
        turns.begin(me);
        let ended = Ended(&turns, me);
        let result = life.run();
        drop(ended);
        (result, life)
    };
    let (sleeper, heir) = std::thread::scope(|scope| {
        let heir = scope.spawn(|| run(1, "beta"));
        let sleeper = run(0, "alpha");
        (sleeper, heir.join().unwrap())
    });
    let mut wrong = Vec::new();
    for (who, result) in [("the sleeper", &sleeper.0), ("the heir", &heir.0)] {
        if let Err(e) = result {
            wrong.push(format!("{who} failed: {e}"));
        }
    }
    // Whom the heir met it took for dead. None of these may work on; only one that was just
    // ending in good order need not notice.
    if let (Other::Heir, [Some(stop), None]) = (other, stops) {
        for worker in heir.1.met.difference(&sleeper.1.fenced) {
            let closing = sleeper.1.closed.get(worker);
            if !closing.is_some_and(|calls| calls.contains(&stop)) {
                wrong.push(format!("{worker} was taken for dead and not fenced"));
            }
        }
    }
    let mut disk = shared.lock().unwrap().kill();
    // Two hosts gone for good: a third one cleans up.
    disk.boots += 1;
    let process = Process::new(disk);
    let end = Life::new(scenario, &process, "gamma", Temper::Strict)
        .impatient()
        .run();
    match end {
        Ok(()) => wrong.extend(judge(&process.disk(), scenario)),
        Err(e) => wrong.push(format!("the restart failed: {e}")),
    }
    if !wrong.is_empty() {
        wrong.insert(0, format!("paused at {stops:?}"));
        wrong.push(process.disk().to_string());
    }
    wrong
}

/// Ends a process's turn, also when it panics.
struct Ended<'turns>(&'turns Turns, usize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// Counts the calls of a life without trouble, and names those that are syncs.
fn count(scenario: &Scenario) -> (usize, Vec<usize>) {
    let process = Process::new(scenario.disk());
    Life::new(scenario, &process, "alpha", Temper::Strict)
        .run()
        .unwrap();
    (process.calls(), process.syncs())
}
