//! What URLs wait for: addresses, groups and robots.txt are looked for, and who waits is told.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use ecluse_frontier::{Item, NoteKind, Precedence};
use ecluse_http::{AnswerSource, Resolved, Shape};
use ecluse_report::{Fetched, Kept, Moment};
use ecluse_scope::{RobotsAnswer, RobotsPolicy};
use ecluse_stage::Failure;
use url::Url;

use super::{Asked, Engine, Event, blame, millis};
use crate::fetch_task::{now, wall};
use crate::link_filter::FoundBy;
use crate::notes;
use crate::pool::causes;
use crate::readiness::{self, Missing};
use crate::records::{Capture, pack_dns};
use crate::robots::{KeptAnswer, RobotsRedirect, Search, authority_of};

impl Engine<'_> {
    /// Has looked for what a URL misses. Its queue is woken when it is there.
    pub(super) fn look_for(&mut self, item: &Item, missing: Missing) -> Result<(), Failure> {
        match missing {
            Missing::Address(host) => {
                self.ask_for_address(item, host);
                Ok(())
            }
            Missing::Group(group) => {
                let moved = self.frontier.set_group(&item.queue, &group);
                moved.map_err(blame)?;
                self.frontier.fulfil(&readiness::group_of(item));
                Ok(())
            }
            Missing::Robots(url) => self.look_for_robots(item, &url),
        }
    }

    /// Asks for the address of a host, unless that is being done.
    fn ask_for_address(&mut self, item: &Item, host: String) {
        if !self.resolving.insert(host.clone()) {
            return;
        }
        let (resolver, sender) = (Rc::clone(&self.in_force.resolver), self.sender.clone());
        let item = item.clone();
        tokio::task::spawn_local(async move {
            let answer = resolver.resolve(&host, wall()).await;
            let asked = Asked { item, host, answer };
            let _ = sender.send(Event::Resolved(Box::new(asked)));
        });
    }

    /// Takes in the address of a host, or why it has none, for all who wait for it.
    pub(super) fn settle_address(&mut self, asked: Asked) -> Result<(), Failure> {
        let Asked { item, host, answer } = asked;
        self.resolving.remove(&host);
        match answer {
            Ok((answer, AnswerSource::Asked)) => self.store_dns(&answer, &item)?,
            Ok(_) => {}
            Err(error) if error.code() == -5 => return Err(Failure::halt(causes(&error))),
            Err(error) => {
                let mut unresolved = self.shared.unresolved.borrow_mut();
                unresolved.insert(host.clone(), error);
            }
        }
        self.frontier.fulfil(&readiness::address_of(&host));
        Ok(())
    }

    /// Stores an answer of the DNS.
    fn store_dns(&mut self, answer: &Resolved, item: &Item) -> Result<(), Failure> {
        let since = |at: SystemTime| {
            at.duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
        };
        let (at, until) = (
            Moment(millis(since(answer.at))),
            millis(since(answer.until)),
        );
        let key = notes::key_of(answer.name.as_bytes());
        let noted = self.frontier.noted(notes::DNS, &key).map_err(blame)?;
        let holds = noted
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_be_bytes);
        if holds.is_some_and(|holds| at.0 < holds) {
            // Asked again after a restart; the answer that is stored still holds.
            return Ok(());
        }
        let part =
            pack_dns(&mut self.in_force.packer.borrow_mut(), answer, at).map_err(|error| {
                Failure::halt(format!(
                    "cannot record dns:{}: {}",
                    answer.name,
                    causes(&error)
                ))
            })?;
        self.ensure_file()?;
        self.warcs.append(vec![part])?;
        // Behind the record: a commit between the two would lose it for as long as the answer holds.
        let noted = self.frontier.note(notes::DNS, &key, &until.to_be_bytes());
        noted.map_err(blame)?;
        let url = format!("dns:{}", answer.name);
        let hops = format!("{}P", item.hops);
        let digest = ecluse_http::Sha1Digest::of(answer.block().as_bytes()).to_string();
        let line = Fetched {
            logged: now(),
            status: 1,
            size: Some(answer.block().len() as u64),
            url: &url,
            hops: &hops,
            via: &item.url,
            mime: "text/dns",
            thread: 1,
            begun: Some(at),
            took_ms: Some(0),
            digest: Some(&digest),
            source: &item.source,
            annotations: &[],
            extra: None,
            host: "dns:",
            wire_bytes: 0,
            kind: Kept::Stored,
        };
        self.logs.crawl.append(&line.line())?;
        Ok(())
    }

    /// Queues robots.txt before everything else of its queue, unless an answer is still good or on its way.
    fn look_for_robots(&mut self, item: &Item, robots: &Url) -> Result<(), Failure> {
        let authority = authority_of(robots);
        if self.recall_robots(&authority)? || self.is_redirected(&authority) {
            return Ok(());
        }
        self.shared.robots.borrow_mut().note_asked(&authority);
        self.queue_robots(robots, item, &format!("{}P", item.hops))
    }

    /// Reads a robots.txt that was fetched before, if it is still good.
    fn recall_robots(&mut self, authority: &str) -> Result<bool, Failure> {
        let key = notes::key_of(authority.as_bytes());
        let kept = self.frontier.noted(notes::ROBOTS, &key).map_err(blame)?;
        let Some(kept) = kept.as_deref().and_then(KeptAnswer::decode) else {
            return Ok(false);
        };
        let order = &self.in_force.order;
        let (at, now) = (
            Duration::from_millis(kept.at),
            Duration::from_millis(now().0),
        );
        if now >= at.saturating_add(order.robots.keep.get()) {
            return Ok(false);
        }
        let answer = RobotsAnswer::Response {
            status: kept.status,
            body: &kept.body,
        };
        let mut book = self.shared.robots.borrow_mut();
        book.learn(order, authority, answer, at);
        Ok(book.standing(authority, now).is_some())
    }

    /// Tells whether a robots.txt is being looked for elsewhere. What never comes from there, as from a queue without
    /// budget, counts as unreachable.
    fn is_redirected(&mut self, authority: &str) -> bool {
        let at = Duration::from_millis(now().0);
        let order = &self.in_force.order;
        let mut book = self.shared.robots.borrow_mut();
        match book.search(authority, at, order.robots.retry.get()) {
            Search::None => return false,
            Search::Going => {}
            Search::InVain => {
                let why = "it leads elsewhere, and nothing comes from there";
                book.learn(order, authority, RobotsAnswer::Failed { why }, at);
            }
        }
        true
    }

    fn queue_robots(&mut self, robots: &Url, item: &Item, hops: &str) -> Result<(), Failure> {
        let found = FoundBy {
            via: &item.url,
            hops,
            source: &item.source,
            precedence: Precedence::PREREQUISITE,
            force: true,
        };
        let in_force = Rc::clone(&self.in_force);
        let queued = self
            .link_filter
            .queue(&in_force, &mut self.frontier, robots, &found);
        queued.map(|_| ()).map_err(blame)
    }

    /// Notes that a robots.txt could not be had, if that is what was asked for.
    pub(super) fn settle_robots_failure(&mut self, url: &str, why: &str) -> bool {
        let Ok(url) = Url::parse(url) else {
            return false;
        };
        let mut book = self.shared.robots.borrow_mut();
        if !book.is_awaited(&url) {
            return false;
        }
        let at = Duration::from_millis(now().0);
        for follower in book.followers(&url) {
            book.learn(
                &self.in_force.order,
                &follower.authority,
                RobotsAnswer::Failed { why },
                at,
            );
        }
        true
    }

    /// Takes in a robots.txt for all who wait for it, or says where it leads them.
    pub(super) fn settle_robots(
        &mut self,
        capture: &Capture,
        body: &[u8],
    ) -> Result<RobotsRedirect, Failure> {
        let exchange = &capture.exchange;
        let at = Duration::from_millis(now().0);
        let status = exchange.head.status().unwrap_or(0);
        let mut book = self.shared.robots.borrow_mut();
        let followers = book.followers(&capture.url);
        if (300..400).contains(&status) && status != 304 {
            let target = exchange.head.text("Location");
            let target = target.and_then(|target| capture.url.join(&target).ok());
            let target = target.filter(|url| matches!(url.scheme(), "http" | "https"));
            let (redirected, lost) = book.follow(followers, target, at);
            for follower in lost {
                let answer = RobotsAnswer::RedirectedTooOften;
                book.learn(&self.in_force.order, &follower.authority, answer, at);
            }
            return Ok(redirected);
        }
        let answer = match exchange.shape {
            Shape::Http => RobotsAnswer::Response { status, body },
            _ => RobotsAnswer::Failed { why: "no HTTP" },
        };
        for follower in followers {
            book.learn(&self.in_force.order, &follower.authority, answer, at);
            if exchange.shape == Shape::Http && status != 429 && status < 500 {
                let kept = KeptAnswer {
                    at: now().0,
                    status,
                    body: body.to_vec(),
                };
                let key = notes::key_of(follower.authority.as_bytes());
                let kept = kept.encode();
                // A longer one is asked for again after a restart: an order may read more than notes hold.
                if kept.len() <= NoteKind::VALUE_BYTES {
                    let noted = self.frontier.note(notes::ROBOTS, &key, &kept);
                    noted.map_err(blame)?;
                }
            }
            let standing = book.standing(&follower.authority, at);
            self.is_told_to_wait |= standing.is_some_and(|known| known.crawl_delay().is_some());
        }
        Ok(RobotsRedirect::Nowhere)
    }

    /// Queues where a robots.txt leads to.
    pub(super) fn queue_redirected(&mut self, item: &Item, url: &Url) -> Result<(), Failure> {
        let hops = format!("{}P", item.hops.trim_end_matches('P'));
        self.queue_robots(url, item, &hops)
    }

    /// The delay that a robots.txt asks for which has just come: it holds from then on.
    pub(super) fn crawl_delay(&self, url: &Url) -> Option<Duration> {
        let policy = self.in_force.order.robots.policy_of(url.host_str()?);
        if policy == RobotsPolicy::Ignore {
            return None;
        }
        let at = Duration::from_millis(now().0);
        let book = self.shared.robots.borrow();
        book.standing(&authority_of(url), at)?.crawl_delay()
    }
}
