//! The engine of a job: hands URLs out, takes captures in, and commits both together.
//!
//! One thread owns the frontier and the logs, and runs all fetches; a few others look for links and pack, and one writes and
//! syncs, in the order in which it is told. A URL is finished in the frontier only after its records were given to that one,
//! and a commit makes both durable at once: killed at any moment, the job is where its last commit was.

mod amend;
mod capture;
mod commit;
mod prerequisites;
mod progress;
mod settle;
mod upkeep;

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ecluse_frontier::{Frontier, FrontierError, Item, Millis, Next, Precedence};
use ecluse_http::{Jar, KnownAddresses};
use ecluse_pace::PaceTable;
use ecluse_report::{Moment, ProgressLine, SeedTally};
use ecluse_scope::{CompressionOrder, ImportanceOrder, Order, Seed, queue_of};
use ecluse_stage::{Failure, Metrics, Outbox, Paused};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::checkpoint::{Checkpoint, EndReason, Ended};
use crate::earlier::Earlier;
use crate::fetch_task::{self, FetchTask, Shared, now};
use crate::forced::ForcedFile;
use crate::in_force::InForce;
use crate::job::Job;
use crate::link_filter::{FoundBy, LinkFilter};
use crate::logs::Logs;
use crate::manners::{Capacity, frontier_settings, set_groups};
use crate::notes;
use crate::pool::{Pool, Processed};
use crate::readiness::{self, Missing, Readiness};
use crate::robots::{Robots, authority_of};
use crate::status::{JobState, Rates};
use crate::warcs::{Naming, Warcs};

use progress::priority_name;

pub(crate) use amend::host_of_queue;
pub(crate) use progress::{SOFTWARE, policy_name, why_slow};

/// What the stage gives every job.
pub(crate) struct Surroundings<'a> {
    pub(crate) harvested: std::path::PathBuf,
    pub(crate) digests: std::path::PathBuf,
    /// What librarians force out.
    pub(crate) forced: std::path::PathBuf,
    /// Where all jobs of this machine agree on when to ask whom.
    pub(crate) pace_table: std::path::PathBuf,
    pub(crate) capacity: Capacity,
    pub(crate) threads: usize,
    pub(crate) commit_every: Duration,
    /// Free space below which nothing is fetched.
    pub(crate) floor: ecluse_config::Free,
    pub(crate) host: String,
    pub(crate) outbox: &'a Outbox,
    pub(crate) metrics: Metrics,
    /// Tells whether a more urgent job waits for a worker.
    pub(crate) is_in_the_way: &'a dyn Fn() -> bool,
    /// Tells whether a person paused the whole stage.
    pub(crate) stage_paused: &'a dyn Fn() -> Result<Option<Paused>, Failure>,
}

/// How a job was left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Everything is fetched that will be.
    Ended,
    /// It was asked to stop, or made way for a more urgent one.
    Stopped,
}

/// What comes back to the engine.
enum Event {
    FetchTask(Box<FetchTask>),
    Resolved(Box<Asked>),
    Processed(Box<Processed>),
}

/// A host whose address was asked for, and what came of it.
struct Asked {
    /// The URL that is waiting for it.
    item: Item,
    host: String,
    answer: KnownAddresses,
}

/// Why nothing more is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Stop,
    Enough(EndReason, String),
}

/// How long what is in flight may take when the job is asked to stop; then it is fetched again another time.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How a job ends that fetched everything.
const FINISHED: &str = "finished";
/// How often the engine looks around.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// How often it does while nothing is in flight.
const LOOK_AT_REST: Duration = Duration::from_millis(500);
/// How often it does at least, however long it waits for the next turn.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// How often it does while something waits for the disk.
const LOOK_FOR_THE_DISK: Duration = Duration::from_millis(10);
/// With so many bytes in memory that are not written yet, nothing more is fetched.
const UNWRITTEN: u64 = 64 << 20;
/// Captures taken in before the engine looks around again.
const AT_A_TIME: usize = 64;
/// URLs that may turn out not to belong to the job any more before the engine looks around again.
const DROPPED_AT_A_TIME: usize = 1000;

pub(crate) struct Engine<'a> {
    pub(crate) job: &'a Job,
    around: &'a Surroundings<'a>,
    pub(crate) in_force: Rc<InForce>,
    shared: Rc<Shared>,
    pub(crate) frontier: Frontier,
    link_filter: LinkFilter,
    warcs: Warcs,
    logs: Logs,
    clock: JobClock,
    pool: Pool,
    events: UnboundedReceiver<Event>,
    sender: UnboundedSender<Event>,
    /// The commits being written, the oldest first.
    commits: VecDeque<commit::CommitUnderWay>,
    /// Hosts whose addresses are being asked for.
    resolving: HashSet<String>,
    /// Large captures that wait until the disk is through with the last one.
    put_off: VecDeque<Box<Processed>>,
    pub(crate) checkpoint: Checkpoint,
    state: JobState,
    why: Option<String>,
    /// Why a disk lets nothing be fetched.
    short_of_room: Option<String>,
    /// Why a person lets nothing be fetched.
    paused: Option<String>,
    /// Since when nothing is fetched.
    paused_at: Option<Instant>,
    ending: Option<Ending>,
    /// When it was asked to stop.
    asked: Option<Instant>,
    /// Nothing waits and nothing is in flight.
    is_drained: bool,
    /// Since when nothing is left to do but to wait for hosts that fail.
    waits_since: Option<Instant>,
    /// They were given up: to the frontier it is that late.
    given_up: Option<Millis>,
    /// Queues whose budget was looked at.
    budgeted: HashSet<String>,
    started: Instant,
    /// When something last came of what was sent out.
    moved: Instant,
    busy_before: u64,
    timers: upkeep::Timers,
    rates: Rates,
    progress: Option<ProgressLine>,
    last_url: String,
    /// Bytes of the file at the last commit.
    committed_bytes: u64,
    changed: bool,
    /// A server asked for patience: a kill must not make us forget it.
    is_told_to_wait: bool,
    /// The order was changed: what waits may not belong to the job any more.
    is_changed: bool,
}

/// The time by which the frontier lets queues and groups rest: that of the wall, but never before what the job was told
/// last. A wall clock set back between two runs would let everything rest until it has caught up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobClock {
    ahead: u64,
}

impl JobClock {
    fn after(told: u64, now: u64) -> Self {
        let ahead = told.saturating_sub(now);
        Self { ahead }
    }

    pub(crate) fn now(self) -> Millis {
        Millis(now().0.saturating_add(self.ahead))
    }
}

impl<'a> Engine<'a> {
    /// Opens everything of a job. Must be called inside the runtime.
    ///
    /// # Errors
    /// Defers while another process has the job, halts when the machine refuses.
    pub(crate) fn open(job: &'a Job, around: &'a Surroundings<'a>) -> Result<Self, Failure> {
        let in_force = InForce::new(job, job.order.clone(), None)?;
        let order = &in_force.order;
        let settings = frontier_settings(order, around.capacity);
        let mut frontier = Frontier::open(&job.dir.frontier(), settings).map_err(blame)?;
        let checkpoint: Checkpoint = match frontier.checkpoint() {
            Some(bytes) => serde_json::from_slice(bytes)
                .map_err(|error| Failure::hold(format!("checkpoint of the job: {error}")))?,
            None => Checkpoint {
                begun: now().0,
                ..Checkpoint::default()
            },
        };
        let clock = JobClock::after(checkpoint.at, now().0);
        set_groups(order, &mut frontier).map_err(blame)?;
        let began = year(checkpoint.begun);
        let spool = job.dir.spool();
        let mut link_filter = LinkFilter::new(order, job, &frontier, began, &spool)?;
        link_filter.rejected.clone_from(&checkpoint.rejected);
        link_filter.online = checkpoint.online;
        link_filter.forced = ForcedFile::read(&around.forced)?;
        let naming = naming(order, &around.host);
        let warcs = Warcs::resume(&around.harvested, naming, checkpoint.warc.clone())?;
        let logs = Logs::open(&job.dir.logs(), checkpoint.logs)?;
        let shared = Rc::new(share(around, cookies(&frontier)?)?);
        let (sender, events) = unbounded_channel();
        let done = {
            let sender = sender.clone();
            move |processed| {
                let _ = sender.send(Event::Processed(Box::new(processed)));
            }
        };
        Ok(Self {
            pool: Pool::start(around.threads, done)?,
            busy_before: checkpoint.busy,
            committed_bytes: warcs.all_bytes(),
            job,
            around,
            in_force: Rc::new(in_force),
            shared,
            frontier,
            link_filter,
            warcs,
            logs,
            clock,
            events,
            sender,
            commits: VecDeque::new(),
            resolving: HashSet::new(),
            put_off: VecDeque::new(),
            checkpoint,
            state: JobState::Starting,
            why: None,
            short_of_room: None,
            paused: None,
            paused_at: None,
            ending: None,
            asked: None,
            is_drained: false,
            waits_since: None,
            given_up: None,
            budgeted: HashSet::new(),
            started: Instant::now(),
            moved: Instant::now(),
            timers: upkeep::Timers::new(),
            rates: Rates::default(),
            progress: None,
            last_url: String::new(),
            changed: true,
            is_told_to_wait: false,
            is_changed: job.dir.order().is_file(),
        })
    }

    /// Works until the job is over, or until it is asked to stop.
    ///
    /// # Errors
    /// When the machine fails; the job is then at its last commit.
    pub(crate) async fn live(&mut self) -> Result<Left, Failure> {
        if self.checkpoint.ended.is_some() {
            return Ok(Left::Ended);
        }
        self.job.count_start(self.checkpoint.tally.totals.urls)?;
        self.sow().await?;
        self.note_change("started")?;
        self.state = JobState::Running;
        loop {
            self.look_around().await?;
            self.take_put_off()?;
            let wake = self.send_out()?;
            if let Some(left) = self.is_over().await? {
                return Ok(left);
            }
            let wait = wake.min(match self.put_off.is_empty() {
                true if self.frontier.in_flight() == 0 => self.rest(),
                true => LOOK_AROUND,
                false => LOOK_FOR_THE_DISK,
            });
            let first = tokio::select! {
                biased;
                event = self.events.recv() => event,
                () = tokio::time::sleep(wait) => None,
            };
            if let Some(event) = first {
                self.moved = Instant::now();
                self.take(event)?;
                for _ in 1..AT_A_TIME {
                    let Ok(event) = self.events.try_recv() else {
                        break;
                    };
                    self.take(event)?;
                }
            }
        }
    }

    /// Queues the seeds, once.
    async fn sow(&mut self) -> Result<(), Failure> {
        if self.checkpoint.seeded {
            return Ok(());
        }
        for fault in &self.job.seeds.faults {
            self.note_change(&format!("no seed: {fault}"))?;
        }
        let refused = self.job.seeds.count.rejected;
        if refused > 0 {
            tracing::warn!(
                job = self.in_force.order.job,
                lines = refused,
                "lines that are no seeds"
            );
        }
        let job = self.job;
        let mut sown = Ok(());
        job.each_seed(&mut |seed| {
            if sown.is_ok() {
                sown = self.sow_one(&seed);
            }
            true
        })?;
        sown?;
        self.checkpoint.seeded = true;
        self.commit().await
    }

    /// Queues a seed, unless it is one that is queued already.
    fn sow_one(&mut self, seed: &Seed) -> Result<(), Failure> {
        self.around.outbox.tick();
        let key = notes::key_of(&self.in_force.order.same_url.key(&seed.url));
        let known = self.frontier.noted(notes::SEED_NUMBER, &key);
        if known.map_err(blame)?.is_some() {
            return Ok(());
        }
        let number = self.checkpoint.seeds;
        self.checkpoint.seeds += 1;
        let tally = SeedTally {
            url: seed.url.to_string(),
            tag: seed.tag.clone(),
            status: 0,
            redirect: None,
        };
        let noted = self
            .frontier
            .note(notes::SEED, &number.to_be_bytes(), &tally.encode());
        noted.map_err(blame)?;
        let value = notes::encode_number(number, seed.reach);
        let noted = self.frontier.note(notes::SEED_NUMBER, &key, &value);
        noted.map_err(blame)?;
        if self.in_force.order.frontier.importance == ImportanceOrder::Opic {
            let queue = queue_of(self.in_force.order.manners.queue_by, &seed.url);
            let online = &mut self.link_filter.online;
            online
                .sow(&mut self.frontier, &key, &queue)
                .map_err(blame)?;
        }
        let found = FoundBy {
            via: "",
            hops: "",
            source: &seed.tag,
            precedence: Precedence::SEED,
            force: false,
        };
        let in_force = Rc::clone(&self.in_force);
        let queued = self
            .link_filter
            .queue(&in_force, &mut self.frontier, &seed.url, &found);
        queued.map(|_| ()).map_err(blame)
    }

    /// Hands out what may be fetched now, and says how long there is nothing more.
    fn send_out(&mut self) -> Result<Duration, Failure> {
        self.is_drained = false;
        self.check_budget();
        let most = usize::try_from(self.in_force.order.manners.connections).unwrap_or(usize::MAX);
        let mut dropped = 0;
        while self.ending.is_none()
            && self.state == JobState::Running
            && self.under_way() < most.max(1)
            && self.warcs.bytes_in_memory() < UNWRITTEN
        {
            if self.is_budget_handed_out() {
                break;
            }
            let at = self.given_up.unwrap_or(self.clock.now());
            match self.next(at)? {
                (Next::Fetch(item), Some(readiness)) => {
                    dropped += usize::from(self.begin(item, readiness)?);
                    if dropped >= DROPPED_AT_A_TIME {
                        return Ok(Duration::ZERO);
                    }
                }
                (Next::Missing(item), Some(Readiness::Missing(missing))) => {
                    self.look_for(&item, missing)?;
                }
                (Next::Wait(until), _) if self.is_in_vain(until.since(at)) => {
                    self.given_up = Some(until);
                }
                (Next::Wait(until), _) => return Ok(until.since(at)),
                (Next::Empty, _) => {
                    self.is_drained = self.frontier.in_flight() == 0;
                    break;
                }
                (Next::Idle | Next::Fetch(_) | Next::Missing(_), _) => break,
            }
        }
        Ok(LONGEST_REST)
    }

    /// Returns how long a job with nothing in flight may rest: the longer, the longer nothing has come of it.
    fn rest(&self) -> Duration {
        (self.moved.elapsed() / 8).clamp(LOOK_AT_REST, LONGEST_REST)
    }

    /// URLs being fetched, and hosts whose addresses are asked for.
    fn under_way(&self) -> usize {
        self.frontier.in_flight() + self.resolving.len()
    }

    /// Asks the frontier for the next URL, and says what can be done with it.
    fn next(&mut self, at: Millis) -> Result<(Next, Option<Readiness>), Failure> {
        for authority in self.shared.robots.borrow_mut().learned() {
            self.frontier.fulfil(&readiness::robots_of(&authority));
        }
        let (is_changed, is_given_up) = (self.is_changed, self.given_up.is_some());
        let (shared, in_force) = (&self.shared, &self.in_force);
        let link_filter = &mut self.link_filter;
        let mut found = None;
        let next = self.frontier.next(at, |item| {
            let rejected = link_filter.drops(&in_force.order, item, is_changed);
            let readiness = match rejected {
                Err(failure) => {
                    found = Some(Err(failure));
                    return None;
                }
                Ok(Some(dropped)) => Readiness::Dropped(dropped),
                Ok(None) if is_given_up => Readiness::GivenUp,
                Ok(None) => readiness::look_at(shared, in_force, item),
            };
            let missing = match &readiness {
                // One that was queued before what it misses could be goes behind it first.
                Readiness::Missing(Missing::Robots(url))
                    if item.precedence == Precedence::PREREQUISITE
                        && !shared.robots.borrow().is_asked(&authority_of(url)) =>
                {
                    None
                }
                Readiness::Missing(missing) => {
                    Some(missing.prerequisite(&in_force.order, item, at))
                }
                _ => None,
            };
            found = Some(Ok(readiness));
            missing
        });
        Ok((next.map_err(blame)?, found.transpose()?))
    }

    /// Does with a URL what its turn brings, and tells whether it was dropped.
    fn begin(&mut self, item: Item, readiness: Readiness) -> Result<bool, Failure> {
        match readiness {
            Readiness::Dropped(dropped) => return self.drop_item(&item, &dropped).map(|()| true),
            Readiness::GivenUp => return self.give_up(&item).map(|()| true),
            Readiness::Missing(missing) => {
                self.look_for(&item, missing)?;
                self.put_back(&item)?;
            }
            Readiness::Clear(result) => {
                let task = FetchTask::unasked(item, result);
                let _ = self.sender.send(Event::FetchTask(Box::new(task)));
            }
            Readiness::Ready(ready) => {
                self.set_exception(&item)?;
                let (shared, in_force) = (Rc::clone(&self.shared), Rc::clone(&self.in_force));
                let sender = self.sender.clone();
                tokio::task::spawn_local(async move {
                    let task = fetch_task::run(shared, in_force, item, *ready).await;
                    let _ = sender.send(Event::FetchTask(Box::new(task)));
                });
            }
        }
        Ok(false)
    }

    /// Tells whether a wait for hosts that fail is longer than the order allows, with nothing else left to do.
    fn is_in_vain(&mut self, wait: Duration) -> bool {
        if self.under_way() > 0 {
            return false;
        }
        if !self.frontier.is_left_with_failures() {
            self.waits_since = None;
            return false;
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let limit = self.in_force.order.budget.wait.get().map(|span| span.get());
        let waited = since.elapsed().saturating_add(wait);
        self.given_up.is_some() || limit.is_some_and(|limit| waited > limit)
    }

    /// Tells whether as many URLs are out as the job may still fetch.
    fn is_budget_handed_out(&self) -> bool {
        let limit = self.in_force.order.budget.urls.get();
        limit.is_some_and(|limit| {
            self.checkpoint.fetched + self.frontier.in_flight() as u64 >= limit
        }) && self.frontier.in_flight() > 0
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        self.changed = true;
        match event {
            Event::FetchTask(task) => self.settle_task(*task),
            Event::Resolved(asked) => self.settle_address(*asked),
            Event::Processed(processed) if processed.is_large() && self.warcs.is_busy() => {
                self.put_off.push_back(processed);
                Ok(())
            }
            Event::Processed(processed) => self.settle_processed(*processed),
        }
    }

    /// Takes in a large capture that had to wait for the disk. Between two of these there may be a commit.
    fn take_put_off(&mut self) -> Result<(), Failure> {
        if self.warcs.is_busy() {
            return Ok(());
        }
        match self.put_off.pop_front() {
            Some(processed) => self.settle_processed(*processed),
            None => Ok(()),
        }
    }

    /// Says whether the job is over, or may be left.
    async fn is_over(&mut self) -> Result<Option<Left>, Failure> {
        if self.frontier.in_flight() > 0 {
            let patience = self
                .asked
                .is_some_and(|asked| asked.elapsed() > STOP_PATIENCE);
            if !patience {
                return Ok(None);
            }
        }
        match self.ending.clone() {
            Some(Ending::Stop) => {
                self.leave().await?;
                Ok(Some(Left::Stopped))
            }
            Some(Ending::Enough(why, how)) => self.end(why, &how).await.map(Some),
            None if self.is_drained => self.end(EndReason::Drained, FINISHED).await.map(Some),
            None => Ok(None),
        }
    }

    /// Ends the job: what is fetched is all there will be.
    async fn end(&mut self, why: EndReason, how: &str) -> Result<Left, Failure> {
        self.state = JobState::Finishing;
        self.why = None;
        self.log_progress()?;
        self.close_file()?;
        self.note_change(&format!("ended: {how}"))?;
        self.checkpoint.ended = Some(Ended {
            how: how.to_owned(),
            why,
            at: now().0,
        });
        self.commit().await?;
        self.tell()?;
        Ok(Left::Ended)
    }

    /// Says that the job cannot go on for now.
    pub(crate) fn tell_failed(&mut self, why: &str) {
        self.state = JobState::Stopped;
        self.why = Some(why.to_owned());
        let _ = self.tell();
    }

    /// Says that everything is done.
    pub(crate) fn tell_finished(&mut self) {
        self.state = JobState::Finished;
        // The status is for the eye.
        let _ = self.tell();
    }

    /// Leaves the job so that it can be taken up again.
    async fn leave(&mut self) -> Result<(), Failure> {
        self.log_progress()?;
        self.note_change("stopped")?;
        self.commit_by(Frontier::begin_pause).await?;
        self.job.forget_starts()?;
        self.state = JobState::Stopped;
        self.tell()?;
        Ok(())
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // Whatever becomes of the job, it is not running here any more.
        let job = format!(
            "{}-{}",
            self.in_force.order.job, self.in_force.order.harvest
        );
        self.around.metrics.crawl(&job, None);
    }
}

/// The cookies of the last commit.
fn cookies(frontier: &Frontier) -> Result<Jar, Failure> {
    let mut jar = Jar::new(Default::default());
    let walked = frontier.notes(notes::COOKIES, |_, value| {
        jar.put_back(serde_json::from_slice(value).unwrap_or_default());
        true
    });
    walked.map_err(blame)?;
    Ok(jar)
}

fn share(around: &Surroundings<'_>, jar: Jar) -> Result<Shared, Failure> {
    Ok(Shared {
        robots: Robots::default().into(),
        unresolved: RefCell::default(),
        pace_table: PaceTable::open(&around.pace_table)?,
        jar: RefCell::new(jar),
        page_jars: RefCell::default(),
        earlier: Earlier::open(&around.digests)
            .map_err(Failure::halt)?
            .into(),
    })
}

fn naming(order: &Order, host: &str) -> Naming {
    let front = match order.warc.prefix.as_str() {
        "" => format!("{}-{}", order.job, order.harvest),
        prefix => format!("{prefix}-{}-{}", order.job, order.harvest),
    };
    Naming {
        front,
        host: host.to_owned(),
        end: match order.warc.compression {
            CompressionOrder::Gzip => ".warc.gz",
            CompressionOrder::None => ".warc",
        },
    }
}

pub(crate) fn year(at: u64) -> u32 {
    Moment(at).digits14()[..4].parse().unwrap_or(2026)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Who is at fault when the frontier fails.
pub(crate) fn blame(error: FrontierError) -> Failure {
    match error {
        FrontierError::Locked { .. } => Failure::defer(error),
        FrontierError::Damaged { .. } => Failure::hold(error),
        other => Failure::halt(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_never_goes_back_in_time() {
        let hours = 2 * 3_600_000;
        let wall = now().0;
        // The wall clock was set back since the job was left; or it was not.
        let back = JobClock::after(wall + hours, wall).now().0;
        assert!((wall + hours..wall + hours + 60_000).contains(&back));
        let forth = JobClock::after(wall - hours, wall).now().0;
        assert!((wall..wall + 60_000).contains(&forth));
    }
}
