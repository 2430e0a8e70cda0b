//! What becomes of a URL: what a fetch task found, and what is written down of it.

use std::time::Duration;

use ecluse_frontier::{Disposition, Finished, Item, Outcome, RestReason};
use ecluse_report::{Fetched, HostTally, Kept, Moment, SeedTally, UriError};
use ecluse_scope::Seed;
use ecluse_stage::Failure;
use url::Url;

use super::{Engine, blame, millis};
use crate::earlier::KnownPayload;
use crate::fetch_task::{FetchResult, FetchTask, names_in_table, now};
use crate::manners::{exception, retry_delay};
use crate::notes;
use crate::pool::causes;
use crate::readiness::Dropped;
use crate::records::{Capture, new_id};
use crate::robots::authority_of;

/// Queues that are remembered for having their budget.
const BUDGETED: usize = 100_000;

/// A URL that is finished, or tried, without a capture.
struct Missed<'a> {
    status: i32,
    why: &'a str,
    disposition: Disposition,
    took: Option<Duration>,
    crawl_delay: Option<Duration>,
}

impl Engine<'_> {
    /// Draws the consequences of a fetch task.
    pub(super) fn settle_task(&mut self, task: FetchTask) -> Result<(), Failure> {
        let FetchTask {
            item,
            begun,
            result,
        } = task;
        let later = Disposition::Retry {
            after: retry_delay(&self.in_force.order),
        };
        match result {
            FetchResult::Fetched {
                url,
                exchange,
                last,
                crawl_delay,
            } => {
                let capture = Capture {
                    item,
                    url,
                    id: new_id(),
                    charset: None,
                    begun,
                    exchange,
                    known: KnownPayload::New,
                    last,
                    keep: true,
                    crawl_delay,
                };
                self.settle_fetched(capture)
            }
            FetchResult::OtherJob { name, group } => {
                let (at, why) = (self.clock.now(), RestReason::OtherJob);
                let (name, group) = (at.after(name), at.after(group));
                let held = self.frontier.hold_queue(at, &item.queue, name, why);
                held.map_err(blame)?;
                let held = self.frontier.hold_group(at, &item.group, group, why);
                held.map_err(blame)?;
                self.put_back(&item)
            }
            FetchResult::Bad { status, why } => {
                self.settle_robots_failure(&item.url, &why);
                self.miss(&item, begun, &Missed::of(status, &why, Disposition::Failed))
            }
            FetchResult::Forbidden { why } => {
                let why = format!("robots:{why}");
                self.miss(&item, begun, &Missed::of(-9998, &why, Disposition::Failed))
            }
            FetchResult::Unknown { why, wait } => {
                let later = Disposition::Retry {
                    after: wait.max(Duration::from_millis(100)),
                };
                self.miss(&item, begun, &Missed::of(-61, &why, later))
            }
            FetchResult::Unresolved { error } if error.code() == -5 => {
                Err(Failure::halt(causes(&error)))
            }
            FetchResult::Unresolved { error } => {
                let disposition = match error.is_final() {
                    true => Disposition::Failed,
                    false => later,
                };
                self.settle_robots_failure(&item.url, &error.to_string());
                let why = error.to_string();
                self.miss(&item, begun, &Missed::of(error.code(), &why, disposition))
            }
            FetchResult::Unanswered {
                error,
                took,
                crawl_delay,
            } => {
                let code = error.code();
                if code == -5 {
                    return Err(Failure::halt(causes(&error)));
                }
                let is_robots = self.settle_robots_failure(&item.url, &error.to_string());
                let missed = Missed {
                    status: code,
                    why: &causes(&error),
                    // What waits for a robots.txt asks for it again by itself.
                    disposition: match code {
                        -4..=-2 if !is_robots => later,
                        _ => Disposition::Failed,
                    },
                    took: (code != -5001).then_some(took),
                    crawl_delay,
                };
                self.miss(&item, begun, &missed)?;
                match Url::parse(&item.url) {
                    Ok(url) => self.end_turn(&item, &url),
                    Err(_) => Ok(()),
                }
            }
        }
    }

    /// Gives a URL up that does not belong to the job any more: Heritrix's -5000, or -5001 for what librarians force out.
    pub(super) fn drop_item(&mut self, item: &Item, dropped: &Dropped) -> Result<(), Failure> {
        self.changed = true;
        let Dropped { status, why } = dropped;
        // Where a robots.txt leads to may be forced out: who waits for it waits for nothing.
        self.settle_robots_failure(&item.url, why);
        self.miss(item, now(), &Missed::of(*status, why, Disposition::Failed))
    }

    /// Gives a URL up because its host fails, and nothing else is left to do: Heritrix's -61 where robots.txt could not be
    /// had, -8 elsewhere.
    pub(super) fn give_up(&mut self, item: &Item) -> Result<(), Failure> {
        self.changed = true;
        let authority = Url::parse(&item.url).map(|url| authority_of(&url));
        let book = self.shared.robots.borrow();
        let status = match authority.is_ok_and(|authority| book.has_failed(&authority)) {
            true => -61,
            false => -8,
        };
        drop(book);
        let why = "given up, as only hosts that fail were left";
        self.miss(item, now(), &Missed::of(status, why, Disposition::Failed))
    }

    /// Puts a URL back as if it had never been handed out.
    pub(super) fn put_back(&mut self, item: &Item) -> Result<(), Failure> {
        let at = self.clock.now();
        let outcome = Outcome::put_back(Duration::ZERO);
        self.frontier.finish(at, item.id, &outcome).map_err(blame)?;
        Ok(())
    }

    /// A URL that brought nothing: tried again, or given up and logged.
    fn miss(&mut self, item: &Item, begun: Moment, missed: &Missed<'_>) -> Result<(), Failure> {
        let outcome = Outcome {
            status: missed.status,
            bytes: 0,
            fetch_duration: missed.took,
            retry_after: None,
            crawl_delay: missed.crawl_delay,
            overloaded: false,
            disposition: missed.disposition,
        };
        let at = now();
        let finished = self
            .frontier
            .finish(self.clock.now(), item.id, &outcome)
            .map_err(blame)?;
        if matches!(finished, Finished::Retrying { .. } | Finished::PutBack) {
            return Ok(());
        }
        let annotations = [missed.why.to_owned(), tries(item)];
        let annotations: Vec<String> = annotations.into_iter().filter(|a| !a.is_empty()).collect();
        let host = host_of(&item.url);
        self.count(&Fetched {
            logged: at,
            status: missed.status,
            size: None,
            url: &item.url,
            hops: &item.hops,
            via: &item.via,
            mime: "",
            thread: 1,
            begun: Some(begun),
            took_ms: missed.took.map(millis),
            digest: None,
            source: &item.source,
            annotations: &annotations,
            extra: None,
            host: &host,
            wire_bytes: 0,
            kind: Kept::Nothing,
        })?;
        self.settle_seed(item, missed.status, None)?;
        let error = UriError {
            logged: at,
            status: missed.status,
            url: &item.url,
            queue: &item.queue,
            attempts: item.attempts + 1,
            reason: missed.why,
        };
        Ok(self.logs.errors.append(&error.line())?)
    }

    /// Tells all jobs of this machine how long a server rests now: this one too, should it be killed before the next commit.
    pub(super) fn end_turn(&mut self, item: &Item, url: &Url) -> Result<(), Failure> {
        let rests = self.frontier.rests(&item.queue, &item.group);
        let rests = rests.map_err(blame)?;
        let [name, group] = names_in_table(url, item);
        let rests = [(&*name, rests.queue), (&*group, rests.group)];
        Ok(self.shared.pace_table.leave(rests)?)
    }

    /// Logs a finished URL and counts it for the job and its host.
    pub(super) fn count(&mut self, fetched: &Fetched<'_>) -> Result<(), Failure> {
        self.logs.crawl.append(&fetched.line())?;
        self.checkpoint.tally.count(fetched);
        let key = notes::key_of(fetched.host.as_bytes());
        let noted = self.frontier.noted(notes::HOST, &key).map_err(blame)?;
        let noted = noted.and_then(|bytes| HostTally::decode(&bytes).ok());
        let mut host = noted.unwrap_or_else(|| HostTally::new(fetched.host));
        host.count(fetched);
        let noted = self.frontier.note(notes::HOST, &key, &host.encode());
        noted.map_err(blame)
    }

    /// Writes down what became of a seed, and lets the scope follow where it leads.
    pub(super) fn settle_seed(
        &mut self,
        item: &Item,
        status: i32,
        target: Option<&str>,
    ) -> Result<(), Failure> {
        if !item.hops.bytes().all(|hop| hop == b'R') {
            return Ok(());
        }
        let target = target.and_then(|target| Url::parse(target).ok());
        let mut reach = None;
        if item.hops.is_empty() {
            let Ok(url) = Url::parse(&item.url) else {
                return Ok(());
            };
            let key = notes::key_of(&self.in_force.order.same_url.key(&url));
            let number = self
                .frontier
                .noted(notes::SEED_NUMBER, &key)
                .map_err(blame)?;
            if let Some((number, own)) = number.as_deref().and_then(notes::decode_number) {
                reach = own;
                let tally = SeedTally {
                    url: item.url.clone(),
                    tag: item.source.clone(),
                    status,
                    redirect: target.as_ref().map(ToString::to_string),
                };
                let noted = self.frontier.note(notes::SEED, number, &tally.encode());
                noted.map_err(blame)?;
            }
        }
        if let Some(url) = target.filter(|_| self.in_force.order.scope.seed_redirects) {
            if !item.hops.is_empty() {
                let key = notes::key_of(item.url.as_bytes());
                let noted = self.frontier.noted(notes::SEED_TARGET, &key);
                let before = noted.map_err(blame)?;
                reach = before
                    .and_then(|value| notes::decode_target(&value))
                    .and_then(|seed| seed.reach);
            }
            let key = notes::key_of(url.as_str().as_bytes());
            let seed = Seed {
                url,
                tag: item.source.clone(),
                reach,
            };
            let value = notes::encode_target(&seed);
            let noted = self.frontier.note(notes::SEED_TARGET, &key, &value);
            noted.map_err(blame)?;
            self.link_filter.scope.add_seed(&seed)?;
        }
        Ok(())
    }

    /// Gives a queue the budget that the order has for its host.
    pub(super) fn set_exception(&mut self, item: &Item) -> Result<(), Failure> {
        if self.in_force.order.budget.exceptions.is_empty() || self.budgeted.contains(&item.queue) {
            return Ok(());
        }
        if self.budgeted.len() >= BUDGETED {
            self.budgeted.clear();
        }
        self.budgeted.insert(item.queue.clone());
        match exception(&self.in_force.order, &host_of(&item.url)) {
            Some(budget) => {
                let set = self.frontier.set_budget(&item.queue, Some(budget));
                set.map_err(blame)
            }
            None => Ok(()),
        }
    }
}

impl<'a> Missed<'a> {
    /// One for which no server was asked.
    fn of(status: i32, why: &'a str, disposition: Disposition) -> Self {
        Self {
            status,
            why,
            disposition,
            took: None,
            crawl_delay: None,
        }
    }
}

/// How often a URL was tried, as Heritrix notes it.
pub(super) fn tries(item: &Item) -> String {
    match item.attempts {
        0 => String::new(),
        attempts => format!("{}t", attempts + 1),
    }
}

fn host_of(url: &str) -> String {
    let parsed = Url::parse(url).ok();
    let host = parsed.as_ref().and_then(Url::host_str);
    host.unwrap_or("-").to_owned()
}
