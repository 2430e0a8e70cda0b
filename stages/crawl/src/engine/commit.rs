//! Commits, and the files that they make durable.

use std::time::{Duration, Instant};

use ecluse_frontier::{Frontier, PendingCommit};
use ecluse_stage::Failure;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{Engine, SOFTWARE, blame, millis, policy_name, priority_name};
use crate::fetch_task::now;
use crate::notes;
use crate::records::pack_warcinfo;

/// The shortest time between two commits.
const FIRST_COMMIT: Duration = Duration::from_millis(200);
/// How often a wait for the disk says that the job lives.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// How the frontier begins a commit.
type BeginCommit = fn(&mut Frontier, &[u8]) -> ecluse_frontier::Result<PendingCommit>;

/// Tells when a commit is written.
pub(super) type CommitUnderWay = oneshot::Receiver<std::io::Result<()>>;

impl Engine<'_> {
    /// Makes everything durable, as one, and waits for it.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        self.commit_by(Frontier::begin_commit).await
    }

    /// Makes everything durable by the frontier's commit, or by the one with which it is left in good order, and waits for
    /// it. Fetches go on meanwhile, and what they bring is taken in afterwards.
    pub(super) async fn commit_by(&mut self, begin: BeginCommit) -> Result<(), Failure> {
        self.begin_commit(begin)?;
        while let Some(commit) = self.commits.front_mut() {
            match tokio::time::timeout(TICK_EVERY, &mut *commit).await {
                Ok(answer) => self.end_commit(answer.ok())?,
                Err(_) => self.around.outbox.tick(),
            }
        }
        Ok(())
    }

    /// Gives everything up to now to the thread that writes: records and logs are durable before the frontier says so. The
    /// job goes on meanwhile.
    pub(super) fn begin_commit(&mut self, begin: BeginCommit) -> Result<(), Failure> {
        let (lengths, unsynced) = self.logs.hand_over()?;
        self.checkpoint.logs = lengths;
        self.checkpoint.warc.clone_from(&self.warcs.state);
        self.checkpoint
            .rejected
            .clone_from(&self.link_filter.rejected);
        self.checkpoint.online = self.link_filter.online;
        self.checkpoint.busy = millis(self.busy());
        self.checkpoint.at = self.clock.now().0;
        let bytes = serde_json::to_vec(&self.checkpoint)
            .map_err(|error| Failure::halt(format!("cannot write a checkpoint: {error}")))?;
        let commit = begin(&mut self.frontier, &bytes).map_err(blame)?;
        let write = move || commit.write().map_err(std::io::Error::other);
        let answer = self.warcs.sync(unsynced, Box::new(write));
        self.commits.push_back(answer);
        self.committed_bytes = self.warcs.all_bytes();
        self.changed = false;
        self.is_told_to_wait = false;
        self.timers.commit = Instant::now() + self.commit_wait();
        Ok(())
    }

    /// Takes note of the commits that are durable by now.
    pub(super) fn take_committed(&mut self) -> Result<(), Failure> {
        while let Some(commit) = self.commits.front_mut() {
            match commit.try_recv() {
                Ok(answer) => self.end_commit(Some(answer))?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => self.end_commit(None)?,
            }
        }
        Ok(())
    }

    /// Ends the oldest commit under way.
    fn end_commit(&mut self, answer: Option<std::io::Result<()>>) -> Result<(), Failure> {
        let gone = || Err(std::io::Error::other("the thread that writes is gone"));
        answer.unwrap_or_else(gone)?;
        self.commits.pop_front();
        Ok(())
    }

    /// How long until the next commit. Soon after a start it is short: a job that is killed again and again gets on.
    fn commit_wait(&self) -> Duration {
        let young = (self.started.elapsed() / 2).max(FIRST_COMMIT);
        self.around.commit_every.min(young)
    }

    /// Sees to it that there is a file to write to.
    pub(super) fn ensure_file(&mut self) -> Result<(), Failure> {
        if self.warcs.is_open() {
            return Ok(());
        }
        let at = now();
        self.warcs.reserve(at);
        // The name is durable before the file is there: nothing is ever left over.
        self.begin_commit(Frontier::begin_commit)?;
        self.warcs.create();
        let name = self.warcs.name().unwrap_or_default().to_owned();
        let lines = self.warcinfo();
        let mut packer = self.in_force.packer.borrow_mut();
        let part = pack_warcinfo(&mut packer, &name, at, &lines)
            .map_err(|error| Failure::halt(format!("cannot begin {name}: {error}")))?;
        Ok(self.warcs.append(vec![part])?)
    }

    /// Closes the file being written; it gets its name when that is durable.
    pub(super) fn close_file(&mut self) -> Result<(), Failure> {
        let Some(closed) = self.warcs.begin_close(now()) else {
            return Ok(());
        };
        let key = self.warcs.state.files.to_be_bytes();
        let value = serde_json::to_vec(&closed).unwrap_or_default();
        let noted = self.frontier.note(notes::FILE, &key, &value);
        noted.map_err(blame)?;
        self.begin_commit(Frontier::begin_commit)?;
        self.warcs.finish_close();
        tracing::info!(file = closed.name, bytes = closed.bytes, "file closed");
        Ok(())
    }

    fn warcinfo(&self) -> String {
        let order = &self.in_force.order;
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
        put("http-header-user-agent", &self.in_force.user_agent);
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
}
