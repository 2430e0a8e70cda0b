//! What the engine does beside fetching: files, commits, status, control, and a look at the disk.

use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ecluse_frontier::{Frontier, Millis};
use ecluse_report::{Moment, Progress, progress_note};
use ecluse_scope::{Order, Priority, RobotsPolicy};
use ecluse_stage::Failure;
use ecluse_warc::Packer;

use super::{Ending, Engine, blame, client, packing, pool_order, year};
use crate::control::{self, Request};
use crate::explain::{Explanation, Known};
use crate::fetch_task::now;
use crate::manners::{budget_of, exception, frontier_settings, set_groups};
use crate::notes;
use crate::place::{write_quick, write_whole};
use crate::records::pack_warcinfo;
use crate::status::{JobState, JobStatus, STATUS_FILE, Slowest};

/// The shortest time between two commits.
const FIRST_COMMIT: Duration = Duration::from_millis(200);
/// How often a wait for the disk says that the job lives.
const TICK_EVERY: Duration = Duration::from_secs(1);
const STATUS_EVERY: Duration = Duration::from_millis(500);
const CONTROL_EVERY: Duration = Duration::from_millis(500);
const DISK_EVERY: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_secs(20);
const WAY_EVERY: Duration = Duration::from_secs(1);

/// When each thing is due.
pub(super) struct Timers {
    commit: Instant,
    status: Instant,
    control: Instant,
    disk: Instant,
    progress: Instant,
    way: Instant,
}

impl Timers {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            commit: now,
            status: now,
            control: now,
            disk: now,
            progress: now,
            way: now + WAY_EVERY,
        }
    }
}

/// Tells whether something is due, and when it is next.
fn is_due(timer: &mut Instant, every: Duration) -> bool {
    let now = Instant::now();
    if now < *timer {
        return false;
    }
    *timer = now + every;
    true
}

impl Engine<'_> {
    /// Does what is due.
    pub(super) async fn look_around(&mut self) -> Result<(), Failure> {
        self.around.outbox.tick();
        if self.around.outbox.stop_asked() && self.ending != Some(Ending::Stop) {
            self.ask_to_stop();
        }
        if is_due(&mut self.timers.disk, DISK_EVERY) {
            self.short_of_room = self.look_for_room()?;
        }
        let can_commit = !self.warcs.is_busy();
        if can_commit && is_due(&mut self.timers.control, CONTROL_EVERY) {
            self.heed_control().await?;
        }
        if can_commit {
            self.pause_or_go_on().await?;
        }
        if is_due(&mut self.timers.way, WAY_EVERY) && (self.around.is_in_the_way)() {
            tracing::info!(job = self.order.job, "makes way for a more urgent job");
            self.ask_to_stop();
        }
        let sync_bytes = self.order.warc.sync.get();
        let is_much = self.warcs.all_bytes() - self.committed_bytes >= sync_bytes;
        let is_late = Instant::now() >= self.timers.commit;
        if can_commit && (is_much || self.is_told_to_wait || (is_late && self.changed)) {
            self.commit().await?;
        }
        let age = self.order.warc.age.get().map(|span| millis(span.get()));
        if can_commit && self.warcs.is_full(self.order.warc.size.get(), age, now()) {
            self.close_file().await?;
        }
        if is_due(&mut self.timers.status, STATUS_EVERY) {
            self.tell()?;
        }
        if is_due(&mut self.timers.progress, PROGRESS_EVERY) {
            self.log_progress()?;
        }
        Ok(())
    }

    fn ask_to_stop(&mut self) {
        self.ending = Some(Ending::Stop);
        self.asked = Some(Instant::now());
    }

    /// Ends the job when it has had enough.
    pub(super) fn check_budget(&mut self) {
        if self.ending.is_some() || self.state == JobState::Paused {
            return;
        }
        let budget = &self.order.budget;
        let bytes = self.checkpoint.tally.totals.wire_bytes;
        let fetched = self.checkpoint.fetched;
        let urls = budget.urls.get().filter(|&most| fetched >= most);
        let bytes = budget.bytes.get().filter(|most| bytes >= most.get());
        let time = budget.time.get().filter(|most| self.busy() >= most.get());
        let over = urls
            .map(|most| format!("{most} URLs"))
            .or_else(|| bytes.map(|most| most.to_string()))
            .or_else(|| time.map(|most| most.to_string()));
        if let Some(most) = over {
            let how = format!("the limit of {most} was reached");
            self.ending = Some(Ending::Enough(how));
        }
    }

    fn busy(&self) -> Duration {
        let until = self.paused_at.unwrap_or_else(Instant::now);
        Duration::from_millis(self.busy_before) + until.duration_since(self.started)
    }

    /// Makes everything durable, as one.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        self.commit_by(Frontier::commit).await
    }

    /// Makes everything durable by the frontier's commit, or by the one with which it is left in good order. Fetches go on
    /// meanwhile, and what they bring is taken in afterwards.
    pub(super) async fn commit_by(
        &mut self,
        commit: impl FnOnce(&mut Frontier, &[u8]) -> ecluse_frontier::Result<()>,
    ) -> Result<(), Failure> {
        let (lengths, unsynced) = self.logs.hand_over()?;
        self.checkpoint.logs = lengths;
        self.sync(unsynced).await?;
        self.checkpoint.warc.clone_from(&self.warcs.state);
        self.checkpoint
            .rejected
            .clone_from(&self.link_filter.rejected);
        self.checkpoint.busy = millis(self.busy());
        self.checkpoint.at = self.clock.now().0;
        let bytes = serde_json::to_vec(&self.checkpoint)
            .map_err(|error| Failure::halt(format!("cannot write a checkpoint: {error}")))?;
        commit(&mut self.frontier, &bytes).map_err(blame)?;
        self.rests.clear()?;
        self.committed_bytes = self.warcs.all_bytes();
        self.changed = false;
        self.is_told_to_wait = false;
        self.timers.commit = Instant::now() + self.commit_wait();
        Ok(())
    }

    /// Waits until all records are durable, and what these files hold.
    async fn sync(&self, logs: Vec<File>) -> Result<(), Failure> {
        let mut sync = std::pin::pin!(self.warcs.sync(logs));
        loop {
            if let Ok(synced) = tokio::time::timeout(TICK_EVERY, &mut sync).await {
                return Ok(synced?);
            }
            self.around.outbox.tick();
        }
    }

    /// How long until the next commit. Soon after a start it is short: a job that is killed again and again gets on.
    fn commit_wait(&self) -> Duration {
        let young = (self.started.elapsed() / 2).max(FIRST_COMMIT);
        self.around.commit_every.min(young)
    }

    /// Sees to it that there is a file to write to.
    pub(super) async fn ensure_file(&mut self) -> Result<(), Failure> {
        if self.warcs.is_open() {
            return Ok(());
        }
        let at = now();
        self.warcs.reserve(at);
        // The name is durable before the file is there: nothing is ever left over.
        self.commit().await?;
        self.warcs.create()?;
        let name = self.warcs.name().unwrap_or_default().to_owned();
        let lines = self.warcinfo();
        let part = pack_warcinfo(&mut self.packer, &name, at, &lines)
            .map_err(|error| Failure::halt(format!("cannot begin {name}: {error}")))?;
        Ok(self.warcs.append(vec![part])?)
    }

    /// Closes the file being written; it has its name when this returns.
    pub(super) async fn close_file(&mut self) -> Result<(), Failure> {
        let Some(closed) = self.warcs.begin_close(now()) else {
            return Ok(());
        };
        let key = self.warcs.state.files.to_be_bytes();
        let value = serde_json::to_vec(&closed).unwrap_or_default();
        let noted = self.frontier.note(notes::FILE, &key, &value);
        noted.map_err(blame)?;
        self.commit().await?;
        self.warcs.finish_close()?;
        tracing::info!(file = closed.name, bytes = closed.bytes, "file closed");
        Ok(())
    }

    fn warcinfo(&self) -> String {
        let order = &self.order;
        let mut lines = String::new();
        let mut put = |name: &str, value: &str| {
            let clean: String = value.chars().filter(|c| !c.is_control()).collect();
            if !clean.is_empty() {
                lines.push_str(&format!("{name}: {clean}\r\n"));
            }
        };
        put("software", SOFTWARE);
        put("format", "WARC file version 1.1");
        put(
            "conformsTo",
            "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        );
        put("hostname", &self.around.host);
        put("operator", self.job.contact_of(order));
        put("publisher", &self.job.organization);
        put("isPartOf", &format!("{}-{}", order.job, order.harvest));
        put("description", &order.description);
        put("robots", policy_name(order.robots.policy));
        put("http-header-user-agent", &self.shared.user_agent.borrow());
        put("http-header-from", &order.agent.from);
        put("harvestInfo.version", "0.6");
        put("harvestInfo.jobId", &order.job);
        put("harvestInfo.origHarvestDefinitionID", &order.harvest);
        put("harvestInfo.priority", priority_name(order.priority));
        put("harvestInfo.orderXMLName", "order.toml");
        put(
            "harvestInfo.maxBytesPerDomain",
            &order.budget.queue.bytes.to_string(),
        );
        put(
            "harvestInfo.maxObjectsPerDomain",
            &order.budget.queue.urls.to_string(),
        );
        lines
    }

    /// Returns which disk is too full to fetch more.
    fn look_for_room(&self) -> Result<Option<String>, Failure> {
        let mut short = None;
        for dir in [self.around.harvested.as_path(), self.job.dir.path()] {
            let stat = rustix::fs::statvfs(dir).map_err(std::io::Error::from)?;
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let floor = self
                .around
                .floor
                .bytes_of(stat.f_blocks.saturating_mul(stat.f_frsize));
            if free < floor {
                short = Some(format!(
                    "{} bytes free at {}, {floor} are to stay free",
                    free,
                    dir.display()
                ));
            }
        }
        Ok(short)
    }

    /// Pauses while a disk is full or a person wants it, and goes on when the cause is gone. The time of a pause is no work.
    async fn pause_or_go_on(&mut self) -> Result<(), Failure> {
        let why = self.paused.clone().or_else(|| self.short_of_room.clone());
        let state = match why {
            Some(_) => JobState::Paused,
            None => JobState::Running,
        };
        if !matches!(self.state, JobState::Running | JobState::Paused)
            || (state == self.state && why == self.why)
        {
            return Ok(());
        }
        match (&why, self.paused_at) {
            (Some(_), None) => self.paused_at = Some(Instant::now()),
            (None, Some(since)) => {
                self.started += since.elapsed();
                self.paused_at = None;
                self.waits_since = None;
            }
            _ => {}
        }
        let note = match &why {
            Some(why) if self.paused.is_some() => why.clone(),
            Some(why) => format!("paused: {why}"),
            None => "resumed".to_owned(),
        };
        tracing::warn!(job = self.order.job, "{note}");
        self.note_change(&note)?;
        self.state = state;
        self.why = why;
        self.commit().await
    }

    /// Writes a line into the log of changes.
    pub(super) fn note_change(&mut self, what: &str) -> Result<(), Failure> {
        Ok(self.logs.changes.append(&progress_note(now(), what))?)
    }

    pub(super) fn log_progress(&mut self) -> Result<(), Failure> {
        let counts = self.frontier.counts();
        let progress = Progress {
            at: now(),
            busy_ms: millis(self.busy()),
            discovered: counts.known,
            queued: counts.queued,
            downloaded: counts.done,
            bytes: counts.bytes,
            failures: counts.failed,
            busy: counts.in_flight,
            memory_kb: memory_kib(),
            memory_limit_kb: 0,
            congestion: 0.0,
            deepest: 0,
            average_depth: counts.queued / counts.queues.max(1),
        };
        let line = progress.line(self.progress.as_ref());
        self.progress = Some(progress);
        self.logs.progress.append(&line)?;
        Ok(())
    }

    /// Writes the status for others to read.
    pub(super) fn tell(&mut self) -> Result<(), Failure> {
        let status = self.status();
        let job = format!("{}-{}", status.job, status.harvest);
        self.around.metrics.crawl(&job, Some(status.figures()));
        let bytes = serde_json::to_vec_pretty(&status).unwrap_or_default();
        let path = self.job.dir.path().join(STATUS_FILE);
        if let Err(error) = write_quick(&path, &bytes) {
            // The status is for the eye: a full disk that takes no new one stops nothing by that.
            tracing::warn!(%error, "cannot write the status");
        }
        Ok(())
    }

    pub(crate) fn status(&mut self) -> JobStatus {
        let counts = self.frontier.counts();
        let totals = self.checkpoint.tally.totals;
        self.rates.see(counts.done, counts.bytes);
        let at = now();
        JobStatus {
            job: self.order.job.clone(),
            harvest: self.order.harvest.clone(),
            priority: priority_name(self.order.priority).to_owned(),
            state: self.state,
            why: self.why.clone().or_else(|| self.ended_early()),
            pid: std::process::id(),
            begun: Moment(self.checkpoint.begun).iso(),
            updated: at.iso(),
            seconds: self.busy().as_secs_f64(),
            known: counts.known,
            queued: counts.queued,
            in_flight: counts.in_flight,
            done: counts.done,
            failed: counts.failed.saturating_sub(totals.forbidden),
            forbidden: totals.forbidden,
            captures: totals.novel.urls,
            revisits: totals.duplicate.urls + totals.not_modified.urls,
            bytes: counts.bytes,
            files: self.warcs.state.files + u64::from(self.warcs.is_open()),
            file_bytes: self.warcs.all_bytes(),
            queues: counts.queues,
            active_queues: counts.active_queues,
            waiting_queues: counts.inactive_queues + counts.parked_queues + counts.snoozed_queues,
            retired_queues: counts.retired_queues,
            retired_urls: counts.retired_urls,
            urls_per_second: self.rates.urls_per_second(),
            bytes_per_second: self.rates.bytes_per_second(),
            slowest: self.slowest(self.clock.now()),
            last_url: self.last_url.clone(),
        }
    }

    /// How the job ended, if not because everything was fetched.
    fn ended_early(&self) -> Option<String> {
        let how = self
            .checkpoint
            .ended
            .as_ref()
            .map(|ended| ended.how.clone());
        how.filter(|how| how != super::FINISHED)
    }

    fn slowest(&self, at: Millis) -> Option<Slowest> {
        let group = self.frontier.slowest_group()?;
        Some(Slowest {
            why: why_slow(group.why).to_owned(),
            waits: group.next_allowed.since(at).as_secs_f64(),
            delay: group.delay.as_secs_f64(),
            queues: group.queues,
            group: group.name,
        })
    }

    /// Heeds what an operator put into the control directory.
    async fn heed_control(&mut self) -> Result<(), Failure> {
        for request in control::requests(&self.job.dir)? {
            match request {
                Request::Amend { name, text } => self.amend(&name, &text).await?,
                Request::Bad { name, problem } => self.refuse(&name, &problem)?,
                Request::Ask { name, url } => {
                    let answer = self.explain(&url);
                    control::answer(&self.job.dir, &name, &answer)?;
                }
            }
        }
        let dir = self.job.dir.path();
        if let Some(told) = control::told(dir, control::END_FILE)
            && self.ending.is_none()
        {
            let how = control::by_whom("ended", &told);
            tracing::info!(job = self.order.job, how, "told to end");
            self.ending = Some(Ending::Enough(how));
        }
        let stage = (self.around.stage_paused)()?;
        let paused = control::told(dir, control::PAUSE_FILE).or(stage);
        self.paused = paused.map(|paused| control::by_whom("paused", &paused));
        Ok(())
    }

    /// Reads a change over the order, and puts it in force if it makes sense.
    async fn amend(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let amended = match self.order.amend(text, name, &self.job.contact) {
            Ok(amended) => amended,
            Err(error) => return self.refuse(name, &error.to_string()),
        };
        let order = Rc::new(amended.order);
        let began = year(self.checkpoint.begun);
        if let Err(error) =
            self.link_filter
                .changed(&order, self.job, &self.redirected_seeds, began)
        {
            return self.refuse(name, &error.reason);
        }
        let changes: Vec<String> = amended.changes.iter().map(ToString::to_string).collect();
        let text = toml::to_string(&*order)
            .map_err(|error| Failure::halt(format!("cannot write the changed order: {error}")))?;
        write_whole(&self.job.dir.order(), text.as_bytes())?;
        self.is_changed = true;
        self.put_in_force(order)?;
        for change in &changes {
            tracing::info!(job = self.order.job, change, "order changed");
            self.note_change(&format!("{name}: {change}"))?;
        }
        self.commit().await?;
        Ok(control::done(&self.job.dir, name, &changes, &[])?)
    }

    fn refuse(&mut self, name: &str, why: &str) -> Result<(), Failure> {
        tracing::warn!(job = self.order.job, name, why, "change refused");
        self.note_change(&format!("{name} refused: {why}"))?;
        let problems: Vec<String> = why.lines().map(str::to_owned).collect();
        Ok(control::done(&self.job.dir, name, &[], &problems)?)
    }

    fn put_in_force(&mut self, order: Rc<Order>) -> Result<(), Failure> {
        let settings = frontier_settings(&order, self.around.capacity);
        self.frontier.set_settings(settings).map_err(blame)?;
        if order.budget != self.order.budget {
            self.set_exceptions(&order)?;
        }
        set_groups(&order, &mut self.frontier).map_err(blame)?;
        self.budgeted.clear();
        self.packer = Packer::new(packing(&order));
        self.pool_order = Arc::new(pool_order(&order, self.job));
        let agent = order.user_agent(&self.job.contact).map_err(Failure::hold)?;
        self.shared.user_agent.replace(agent.into());
        self.shared.grouping.replace(Rc::new(order.grouping()));
        if order.network.resolvers != self.order.network.resolvers {
            let resolver = crate::fetch_task::resolver(&order).map_err(Failure::hold)?;
            self.shared.resolver.replace(Rc::new(resolver));
        }
        self.shared.robots.borrow_mut().forget();
        self.shared
            .client
            .replace(Rc::new(client(self.job, &order)?));
        self.shared.order.replace(Rc::clone(&order));
        self.order = order;
        Ok(())
    }

    /// Gives every queue the budget that the order has for its host now. A retired one that has something left comes back.
    fn set_exceptions(&mut self, order: &Order) -> Result<(), Failure> {
        if order.budget.exceptions.is_empty() && self.order.budget.exceptions.is_empty() {
            return Ok(());
        }
        let mut others = Vec::new();
        let walked = self.frontier.queues(|queue| {
            if queue.budget != budget_of(order, host_of_queue(&queue.name)) {
                others.push(queue.name);
            }
            true
        });
        walked.map_err(blame)?;
        for queue in others {
            let budget = exception(order, host_of_queue(&queue));
            self.frontier.set_budget(&queue, budget).map_err(blame)?;
        }
        Ok(())
    }

    fn explain(&mut self, url: &str) -> Result<Explanation, String> {
        let robots = self.shared.robots.borrow();
        let known = Known {
            order: &self.order,
            scope: &self.link_filter.scope,
            robots: &robots,
            logs: &self.job.dir.logs(),
            now: Duration::from_millis(now().0),
        };
        known.explain(&mut self.frontier, url)
    }
}

/// The program, as the files have it.
pub(crate) const SOFTWARE: &str = concat!("ecluse/", env!("CARGO_PKG_VERSION"));

/// The name that an order has for a policy.
pub(crate) fn policy_name(policy: RobotsPolicy) -> &'static str {
    match policy {
        RobotsPolicy::Obey => "obey",
        RobotsPolicy::Ignore => "ignore",
        RobotsPolicy::Requisites => "requisites",
    }
}

pub(crate) fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}

pub(crate) fn why_slow(reason: ecluse_frontier::Reason) -> &'static str {
    use ecluse_frontier::Reason;
    match reason {
        Reason::New => "not asked yet",
        Reason::MinDelay => "the shortest delay",
        Reason::Duration => "a multiple of the last fetch",
        Reason::MaxDelay => "the longest delay",
        Reason::CrawlDelay => "its robots.txt asks for it",
        Reason::Backoff => "it is overloaded or fails",
        Reason::RetryAfter => "it asked for it (Retry-After)",
        Reason::Restart => "the crawl was restarted",
        Reason::Bandwidth => "its share of bandwidth",
        Reason::OtherJob => "another job asks it",
    }
}

/// The host in the name of a queue, which may have a port.
pub(crate) fn host_of_queue(queue: &str) -> &str {
    match queue.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => queue,
    }
}

/// Memory of this process, in KiB.
fn memory_kib() -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc/self/statm")).unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    // Pages of 4 KiB: so it is on every machine this runs on.
    pages.unwrap_or(0) * 4
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_name_their_hosts() {
        for (queue, host) in [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("[2001:db8::1]:81", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host_of_queue(queue), host);
        }
    }
}
