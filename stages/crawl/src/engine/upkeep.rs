//! What the engine does beside fetching, and when: the budget of the job, the room on the disks, pauses.

use std::time::{Duration, Instant};

use ecluse_frontier::Frontier;
use ecluse_stage::Failure;

use super::{Ending, Engine, millis};
use crate::checkpoint::EndReason;
use crate::fetch_task::now;
use crate::status::JobState;

/// With so many commits under way there is no use in another, however urgent.
const MOST_COMMITS: usize = 4;
const STATUS_EVERY: Duration = Duration::from_millis(500);
const CONTROL_EVERY: Duration = Duration::from_millis(500);
const DISK_EVERY: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_secs(20);
const WAY_EVERY: Duration = Duration::from_secs(1);

/// When each thing is due.
pub(super) struct Timers {
    pub(super) commit: Instant,
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
        self.take_committed()?;
        // Nobody waits for a disk that large records keep busy: what an operator wants may need a commit.
        if !self.warcs.is_busy() && is_due(&mut self.timers.control, CONTROL_EVERY) {
            self.heed_control().await?;
        }
        self.pause_or_go_on()?;
        if is_due(&mut self.timers.way, WAY_EVERY) && (self.around.is_in_the_way)() {
            tracing::info!(
                job = self.in_force.order.job,
                "makes way for a more urgent job"
            );
            self.ask_to_stop();
        }
        let sync_bytes = self.in_force.order.warc.sync.get();
        let is_much = self.warcs.all_bytes() - self.committed_bytes >= sync_bytes;
        let is_late = Instant::now() >= self.timers.commit;
        // They would only wait for each other; but what a server asked for is to outlive a kill.
        let is_free = !self.warcs.is_busy();
        let can_commit = is_free && self.commits.is_empty();
        let is_urgent = is_free && self.is_told_to_wait && self.commits.len() < MOST_COMMITS;
        if is_urgent || can_commit && (is_much || (is_late && self.changed)) {
            self.begin_commit(Frontier::begin_commit)?;
        }
        let age = self
            .in_force
            .order
            .warc
            .age
            .get()
            .map(|span| millis(span.get()));
        if can_commit
            && self
                .warcs
                .is_full(self.in_force.order.warc.size.get(), age, now())
        {
            self.close_file()?;
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
        let budget = &self.in_force.order.budget;
        let bytes = self.checkpoint.tally.totals.wire_bytes;
        let fetched = self.checkpoint.fetched;
        let urls = budget.urls.get().filter(|&most| fetched >= most);
        let bytes = budget.bytes.get().filter(|most| bytes >= most.get());
        let time = budget.time.get().filter(|most| self.busy() >= most.get());
        let over = urls
            .map(|most| (EndReason::Urls, format!("{most} URLs")))
            .or_else(|| bytes.map(|most| (EndReason::Bytes, most.to_string())))
            .or_else(|| time.map(|most| (EndReason::Time, most.to_string())));
        if let Some((why, most)) = over {
            let how = format!("the limit of {most} was reached");
            self.ending = Some(Ending::Enough(why, how));
        }
    }

    pub(super) fn busy(&self) -> Duration {
        let until = self.paused_at.unwrap_or_else(Instant::now);
        Duration::from_millis(self.busy_before) + until.duration_since(self.started)
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
    fn pause_or_go_on(&mut self) -> Result<(), Failure> {
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
        tracing::warn!(job = self.in_force.order.job, "{note}");
        self.note_change(&note)?;
        self.state = state;
        self.why = why;
        self.begin_commit(Frontier::begin_commit)
    }
}
