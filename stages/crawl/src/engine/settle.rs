//! What becomes of a URL: what a fetch task found, and what a capture brought.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use ecluse_extract::Hop;
use ecluse_frontier::{Added, Disposition, Finished, Item, NoteKind, Outcome, Precedence, Reason};
use ecluse_http::{CookiePlace, Shape};
use ecluse_report::{Fetched, HostTally, Kept, Moment, SeedTally, UriError};
use ecluse_scope::{Answer, CookiesKept, NofollowPolicy, RobotsPolicy, Seed};
use ecluse_stage::Failure;
use url::Url;

use super::{Engine, blame};
use crate::earlier::{KnownPayload, LastCapture, Original};
use crate::fetch_task::{FetchTask, Result as Found, authority, names_in_table, now};
use crate::link_filter::{FoundBy, LinkingPage, Unfollowed};
use crate::manners::{exception, retry_delay};
use crate::notes;
use crate::pool::{Processed, Work, causes};
use crate::records::{Capture, new_id, pack_dns};
use crate::rests::{Rest, RestOf};
use crate::robots::{KeptAnswer, RobotsRedirect, Search, authority_of};

/// Until a URL is asked again that waits for a robots.txt elsewhere.
const ROBOTS_WAIT: Duration = Duration::from_millis(500);
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
    pub(super) async fn settle_task(&mut self, task: FetchTask) -> Result<(), Failure> {
        if let Some(answer) = &task.dns {
            self.store_dns(answer, &task).await?;
        }
        let (item, begun) = (task.item, task.begun);
        let later = Disposition::Retry {
            after: retry_delay(&self.order),
        };
        match task.result {
            Found::Fetched {
                exchange,
                last,
                crawl_delay,
            } => {
                let Some(url) = task.url else {
                    return self.put_back(&item, ROBOTS_WAIT);
                };
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
            Found::Regroup { group } => {
                let moved = self.frontier.set_group(&item.queue, &group);
                moved.map_err(blame)?;
                self.put_back(&item, Duration::ZERO)
            }
            Found::OtherJob { wait } => {
                let at = self.clock.now();
                let held =
                    self.frontier
                        .hold_group(at, &item.group, at.after(wait), Reason::OtherJob);
                held.map_err(blame)?;
                self.put_back(&item, Duration::ZERO)
            }
            Found::NeedsRobots => self.fetch_robots_first(&item, task.url.as_ref()),
            Found::Bad { status, why } => {
                self.settle_robots_failure(task.url.as_ref(), &why);
                self.miss(&item, begun, &Missed::of(status, &why, Disposition::Failed))
            }
            Found::Forbidden { why } => {
                let why = format!("robots:{why}");
                self.miss(&item, begun, &Missed::of(-9998, &why, Disposition::Failed))
            }
            Found::Unknown { why, wait } => {
                let later = Disposition::Retry {
                    after: wait.max(Duration::from_millis(100)),
                };
                self.miss(&item, begun, &Missed::of(-61, &why, later))
            }
            Found::Unresolved { error } if error.code() == -5 => Err(Failure::halt(causes(&error))),
            Found::Unresolved { error } => {
                let disposition = match error.is_final() {
                    true => Disposition::Failed,
                    false => later,
                };
                self.settle_robots_failure(task.url.as_ref(), &error.to_string());
                let why = error.to_string();
                self.miss(&item, begun, &Missed::of(error.code(), &why, disposition))
            }
            Found::Unanswered {
                error,
                took,
                crawl_delay,
            } => {
                let code = error.code();
                if code == -5 {
                    return Err(Failure::halt(causes(&error)));
                }
                let is_robots = self.settle_robots_failure(task.url.as_ref(), &error.to_string());
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
                self.end_turn(&item)
            }
        }
    }

    /// Gives a URL up that does not belong to the job any more: Heritrix's -5000.
    pub(super) fn drop_item(&mut self, item: &Item, why: &str) -> Result<(), Failure> {
        self.changed = true;
        self.miss(item, now(), &Missed::of(-5000, why, Disposition::Failed))
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
    fn put_back(&mut self, item: &Item, after: Duration) -> Result<(), Failure> {
        let at = self.clock.now();
        let outcome = Outcome::put_back(after);
        self.frontier.finish(at, item.id, &outcome).map_err(blame)?;
        Ok(())
    }

    /// Queues robots.txt before everything else of its queue, unless an answer is still good.
    fn fetch_robots_first(&mut self, item: &Item, url: Option<&Url>) -> Result<(), Failure> {
        let Some(robots) = url.and_then(|url| url.join("/robots.txt").ok()) else {
            return self.put_back(item, ROBOTS_WAIT);
        };
        let authority = authority_of(&robots);
        let key = notes::key_of(authority.as_bytes());
        if let Some(kept) = self.frontier.noted(notes::ROBOTS, &key).map_err(blame)?
            && let Some(kept) = KeptAnswer::decode(&kept)
        {
            let keep = self.order.robots.keep.get();
            let at = Duration::from_millis(kept.at);
            if Duration::from_millis(now().0) < at.saturating_add(keep) {
                let answer = Answer::Response {
                    status: kept.status,
                    body: &kept.body,
                };
                let mut book = self.shared.robots.borrow_mut();
                book.learn(&self.order, &authority, answer, at);
                drop(book);
                return self.put_back(item, Duration::ZERO);
            }
        }
        if let Some(wait) = self.await_redirected(&authority) {
            return self.put_back(item, wait);
        }
        let hops = format!("{}P", item.hops);
        let found = FoundBy {
            via: &item.url,
            hops: &hops,
            source: &item.source,
            precedence: Precedence::SEED,
            force: true,
        };
        let order = Rc::clone(&self.order);
        let added = self
            .link_filter
            .queue(&order, &mut self.frontier, &robots, &found);
        let wait = match added.map_err(blame)? {
            Added::New => Duration::ZERO,
            // It is on its way already, maybe in another queue.
            Added::Seen => ROBOTS_WAIT,
        };
        self.put_back(item, wait)
    }

    /// Says how long to wait for a robots.txt that is being looked for elsewhere. What never comes from there, as from a
    /// queue without budget, counts as unreachable.
    fn await_redirected(&mut self, authority: &str) -> Option<Duration> {
        let at = Duration::from_millis(now().0);
        let mut book = self.shared.robots.borrow_mut();
        match book.search(authority, at, self.order.robots.retry.get()) {
            Search::None => None,
            Search::Going => Some(ROBOTS_WAIT),
            Search::InVain => {
                let why = "it leads elsewhere, and nothing comes from there";
                book.learn(&self.order, authority, Answer::Failed { why }, at);
                Some(Duration::ZERO)
            }
        }
    }

    /// Notes that a robots.txt could not be had, if that is what was asked for.
    fn settle_robots_failure(&mut self, url: Option<&Url>, why: &str) -> bool {
        let Some(url) = url else { return false };
        let mut book = self.shared.robots.borrow_mut();
        if !book.is_awaited(url) {
            return false;
        }
        let at = Duration::from_millis(now().0);
        for follower in book.followers(url) {
            book.learn(&self.order, &follower.authority, Answer::Failed { why }, at);
        }
        true
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

    /// Decides as what a response is kept, and gives it to the threads.
    fn settle_fetched(&mut self, mut capture: Capture) -> Result<(), Failure> {
        let is_robots = self.shared.robots.borrow().is_awaited(&capture.url);
        // What is tried again anyway is not kept; the last try is.
        capture.keep =
            is_robots || !self.is_overloaded(&capture) || self.is_last_try(&capture.item);
        if capture.keep {
            capture.known = self.known_payload(&capture)?;
        }
        capture.charset = self.told_charset(&capture)?;
        self.pool.give(Work {
            capture,
            order: std::sync::Arc::clone(&self.pool_order),
            wants_body: is_robots,
        });
        Ok(())
    }

    /// The character set that the page which led here says the document has, for one that does not say it.
    fn told_charset(&mut self, capture: &Capture) -> Result<Option<String>, Failure> {
        let content_type = capture.exchange.head.text("Content-Type");
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let is_text = content_type.starts_with("text/") || content_type.contains("script");
        if !is_text || content_type.contains("charset=") {
            return Ok(None);
        }
        let key = notes::key_of(capture.url.as_str().as_bytes());
        let noted = self.frontier.noted(notes::CHARSET, &key).map_err(blame)?;
        Ok(noted.and_then(|label| String::from_utf8(label).ok()))
    }

    /// Which links of a page are not followed by its own wish, as far as that is heeded.
    fn unfollowed(&self, url: &Url, nofollow: bool) -> Unfollowed {
        let host = url.host_str().unwrap_or_default();
        let robots = &self.order.robots;
        match robots.nofollow {
            _ if robots.policy_of(host) == RobotsPolicy::Ignore => Unfollowed::None,
            NofollowPolicy::Ignore => Unfollowed::None,
            NofollowPolicy::Pages | NofollowPolicy::Links if nofollow => Unfollowed::All,
            NofollowPolicy::Pages => Unfollowed::None,
            NofollowPolicy::Links => Unfollowed::Marked,
        }
    }

    fn is_overloaded(&self, capture: &Capture) -> bool {
        let statuses = &self.order.manners.back_off.statuses;
        let status = u16::try_from(capture.exchange.code());
        status.is_ok_and(|status| statuses.contains(&status))
    }

    fn is_last_try(&self, item: &Item) -> bool {
        item.attempts >= self.frontier.settings().retries
    }

    /// Looks for an earlier capture of the same payload.
    fn known_payload(&mut self, capture: &Capture) -> Result<KnownPayload, Failure> {
        let exchange = &capture.exchange;
        let dedup = &self.order.dedup;
        let is_large = exchange.payload_bytes > 0 && exchange.payload_bytes >= dedup.min_size.get();
        if !exchange.is_whole() || !is_large || !(200..300).contains(&exchange.code()) {
            return Ok(KnownPayload::New);
        }
        let payload = capture.payload();
        if dedup.within_job {
            let noted = self.frontier.noted(notes::PAYLOAD, payload.sha1.bytes());
            if let Some(noted) = noted.map_err(blame)? {
                return Ok(payload.compare(&noted));
            }
        }
        if dedup.across_jobs {
            let earlier = self.shared.earlier.borrow().payload(&payload);
            return earlier.map_err(Failure::halt);
        }
        Ok(KnownPayload::New)
    }

    /// Writes a capture down, everywhere at once: file, log, counts, frontier.
    pub(super) async fn settle_processed(&mut self, processed: Processed) -> Result<(), Failure> {
        let Processed {
            mut capture,
            links,
            nofollow,
            mut annotations,
            body,
            parts,
        } = processed;
        let parts = parts
            .map_err(|why| Failure::halt(format!("cannot record {}: {why}", capture.item.url)))?;
        if !parts.is_empty() {
            self.ensure_file().await?;
            self.warcs.append(parts)?;
        }
        self.take_cookies(&capture)?;
        let mut redirected = RobotsRedirect::Nowhere;
        if let Some(body) = body {
            redirected = self.settle_robots(&capture, &body)?;
            capture.crawl_delay = self.crawl_delay(&capture.url).or(capture.crawl_delay);
        }
        let finished = self.finish_capture(&capture)?;
        if let RobotsRedirect::To(url) = redirected {
            // Not before: it may be the same URL to the frontier, which would know it as queued.
            self.queue_redirected(&capture.item, &url)?;
        }
        let is_over = !matches!(finished, Finished::Retrying { .. } | Finished::PutBack);
        if is_over {
            annotations.splice(0..0, capture.exchange.annotations());
            self.log_capture(&capture, annotations)?;
            self.note_capture(&capture, links.is_empty())?;
            let redirect = links.iter().find(|link| link.hop == Hop::Redirect);
            let target = redirect.map(|link| link.url.as_str());
            self.settle_seed(&capture.item, capture.exchange.code(), target)?;
            if !capture.item.hops.ends_with('P') {
                self.checkpoint.fetched += 1;
            }
            self.last_url.clone_from(&capture.item.url);
            let status = capture.exchange.code();
            self.link_filter
                .guesses
                .note((&capture.item).into(), status);
            let linking = LinkingPage {
                item: &capture.item,
                unfollowed: self.unfollowed(&capture.url, nofollow),
                sets_cookie: self.order.agent.cookies
                    && capture.exchange.head.first("Set-Cookie").is_some(),
            };
            let order = Rc::clone(&self.order);
            for link in &links {
                let offered = self
                    .link_filter
                    .offer(&order, &mut self.frontier, linking, link);
                if let Some(charset) = link
                    .charset
                    .filter(|_| offered.as_ref().is_ok_and(|new| *new))
                {
                    let key = notes::key_of(link.url.as_bytes());
                    let noted = self.frontier.note(notes::CHARSET, &key, charset.as_bytes());
                    noted.map_err(blame)?;
                }
                offered.map_err(blame)?;
            }
        }
        Ok(())
    }

    /// Takes the cookies of a capture, and notes them with it: a kill loses both or none.
    fn take_cookies(&mut self, capture: &Capture) -> Result<(), Failure> {
        let authority = authority(&capture.url).filter(|_| self.order.agent.cookies);
        let Some(authority) = authority else {
            return Ok(());
        };
        let place = CookiePlace {
            scheme: authority.scheme,
            host: &authority.host,
            path: capture.url.path(),
        };
        let seconds = i64::try_from(now().0 / 1000).unwrap_or(i64::MAX);
        if self.order.agent.cookies_kept == CookiesKept::Page {
            if let Some(jar) = self.shared.page_jars.borrow().find(&capture.item.url) {
                let mut jar = jar.borrow_mut();
                jar.take(place, &capture.exchange.head, seconds);
            }
            return Ok(());
        }
        let mut jar = self.shared.jar.borrow_mut();
        let Some(domain) = jar.take(place, &capture.exchange.head, seconds) else {
            return Ok(());
        };
        let value = serde_json::to_vec(jar.of_domain(domain))
            .map_err(|error| Failure::halt(format!("cannot note cookies: {error}")))?;
        let key = notes::key_of(domain.as_bytes());
        let noted = self.frontier.note(notes::COOKIES, &key, &value);
        noted.map_err(blame)
    }

    /// The delay that a robots.txt asks for which has just come: it holds from then on.
    fn crawl_delay(&self, url: &Url) -> Option<Duration> {
        let policy = self.order.robots.policy_of(url.host_str()?);
        if policy == RobotsPolicy::Ignore {
            return None;
        }
        let at = Duration::from_millis(now().0);
        let book = self.shared.robots.borrow();
        book.standing(&authority_of(url), at)?.crawl_delay()
    }

    fn finish_capture(&mut self, capture: &Capture) -> Result<Finished, Failure> {
        let exchange = &capture.exchange;
        let status = exchange.code();
        let overloaded = self.is_overloaded(capture);
        let retry_after = overloaded.then(|| retry_after(capture)).flatten();
        self.is_told_to_wait |= overloaded;
        let disposition = match status {
            // robots.txt is asked for again by those who wait for it.
            _ if overloaded && capture.item.hops.ends_with('P') => Disposition::Failed,
            _ if overloaded => Disposition::Retry {
                after: retry_after.unwrap_or_default(),
            },
            ..=0 => Disposition::Failed,
            _ => Disposition::Done,
        };
        let outcome = Outcome {
            status,
            bytes: exchange.block.bytes(),
            fetch_duration: Some(exchange.timings.total),
            retry_after,
            crawl_delay: capture.crawl_delay,
            overloaded,
            disposition,
        };
        if disposition == Disposition::Done {
            self.waits_since = None;
        }
        let at = self.clock.now();
        let finished = self.frontier.finish(at, capture.item.id, &outcome);
        let finished = finished.map_err(blame)?;
        self.end_turn(&capture.item)?;
        Ok(finished)
    }

    /// Tells all jobs of this machine how long a server rests now, and writes that down if a kill could shorten it.
    fn end_turn(&mut self, item: &Item) -> Result<(), Failure> {
        let rests = self.frontier.rests(&item.queue, &item.group);
        let rests = rests.map_err(blame)?;
        let until = |rest| self.clock.now().after(rest).0;
        if rests.group > rests.after_a_crash {
            self.rests.note(&Rest {
                of: RestOf::Group(item.group.clone()),
                until: until(rests.group),
            })?;
        }
        if rests.queue > rests.after_a_crash {
            self.rests.note(&Rest {
                of: RestOf::Queue(item.queue.clone()),
                until: until(rests.queue),
            })?;
        }
        if let Ok(url) = Url::parse(&item.url) {
            let [name, group] = names_in_table(&url, item);
            let rests = [(&*name, rests.queue), (&*group, rests.group)];
            self.shared.paces.leave(rests)?;
        }
        Ok(())
    }

    fn log_capture(
        &mut self,
        capture: &Capture,
        mut annotations: Vec<String>,
    ) -> Result<(), Failure> {
        let kept = capture.kept();
        match kept {
            Kept::Revisit => annotations.push("warcRevisit:digest".to_owned()),
            Kept::NotModified => annotations.push("warcRevisit:notModified".to_owned()),
            Kept::Stored | Kept::Nothing => {}
        }
        annotations.push(tries(&capture.item));
        annotations.retain(|annotation| !annotation.is_empty());
        let host = host_of(&capture.item.url);
        let digest = capture.digest().to_string();
        let mime = capture.mime();
        self.count(&Fetched {
            logged: now(),
            status: capture.exchange.code(),
            size: Some(capture.exchange.payload_bytes),
            url: &capture.item.url,
            hops: &capture.item.hops,
            via: &capture.item.via,
            mime: &mime,
            thread: 1,
            begun: Some(capture.begun),
            took_ms: Some(millis(capture.exchange.timings.total)),
            digest: Some(&digest),
            source: &capture.item.source,
            annotations: &annotations,
            extra: None,
            host: &host,
            wire_bytes: capture.exchange.block.bytes(),
            kind: kept,
        })
    }

    /// Logs a finished URL and counts it for the job and its host.
    fn count(&mut self, fetched: &Fetched<'_>) -> Result<(), Failure> {
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

    /// Notes where a payload stands now, and what a later job may ask the server.
    fn note_capture(&mut self, capture: &Capture, is_leaf: bool) -> Result<(), Failure> {
        let exchange = &capture.exchange;
        if !exchange.is_whole() || !capture.keep || !(200..300).contains(&exchange.code()) {
            return Ok(());
        }
        let here = Original {
            url: capture.item.url.clone(),
            seconds: capture.begun.0 / 1000,
            id: Some(capture.id),
        };
        if capture.known == KnownPayload::New && exchange.payload_bytes > 0 {
            let payload = capture.payload();
            let key = payload.sha1.bytes();
            // Another one may have come while this one was packed: the first stays.
            let noted = self.frontier.noted(notes::PAYLOAD, key).map_err(blame)?;
            if noted.is_none() {
                let noted = payload.note(&here);
                let noted = self.frontier.note(notes::PAYLOAD, key, &noted);
                noted.map_err(blame)?;
            }
        }
        let value = |name: &str| {
            exchange
                .head
                .first(name)
                .map(|field| field.value().into_owned())
        };
        let (etag, last_modified) = (value("ETag"), value("Last-Modified"));
        // A page that leads somewhere is always fetched whole: an unchanged one would lead nowhere.
        if self.order.dedup.across_jobs && is_leaf && (etag.is_some() || last_modified.is_some()) {
            let last = LastCapture {
                original: capture.known.original().cloned().unwrap_or(here),
                digest: exchange.payload_digest,
                etag: etag.unwrap_or_default(),
                last_modified: last_modified.unwrap_or_default(),
            };
            let key = notes::key_of(&self.order.same_url.key(&capture.url));
            let noted = self.frontier.note(notes::CAPTURE, &key, &last.encode());
            noted.map_err(blame)?;
        }
        Ok(())
    }

    /// Takes in a robots.txt for all who wait for it, or says where it leads them.
    fn settle_robots(&mut self, capture: &Capture, body: &[u8]) -> Result<RobotsRedirect, Failure> {
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
                let answer = Answer::RedirectedTooOften;
                book.learn(&self.order, &follower.authority, answer, at);
            }
            return Ok(redirected);
        }
        let answer = match exchange.shape {
            Shape::Http => Answer::Response { status, body },
            _ => Answer::Failed { why: "no HTTP" },
        };
        for follower in followers {
            book.learn(&self.order, &follower.authority, answer, at);
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

    fn queue_redirected(&mut self, item: &Item, url: &Url) -> Result<(), Failure> {
        let hops = format!("{}P", item.hops.trim_end_matches('P'));
        let found = FoundBy {
            via: &item.url,
            hops: &hops,
            source: &item.source,
            precedence: Precedence::SEED,
            force: true,
        };
        let order = Rc::clone(&self.order);
        let queued = self
            .link_filter
            .queue(&order, &mut self.frontier, url, &found);
        queued.map(|_| ()).map_err(blame)
    }

    /// Writes down what became of a seed, and lets the scope follow where it leads.
    fn settle_seed(
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
            let key = notes::key_of(&self.order.same_url.key(&url));
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
        if let Some(url) = target.filter(|_| self.order.scope.seed_redirects) {
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
            self.link_filter.scope.add_seed(&seed);
            self.redirected_seeds.push(seed);
        }
        Ok(())
    }

    /// Stores an answer of the DNS.
    async fn store_dns(
        &mut self,
        answer: &ecluse_http::Resolved,
        task: &FetchTask,
    ) -> Result<(), Failure> {
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
        let part = pack_dns(&mut self.packer, answer, at).map_err(|error| {
            Failure::halt(format!(
                "cannot record dns:{}: {}",
                answer.name,
                causes(&error)
            ))
        })?;
        self.ensure_file().await?;
        self.warcs.append(vec![part])?;
        // Behind the record: a commit between the two would lose it for as long as the answer holds.
        let noted = self.frontier.note(notes::DNS, &key, &until.to_be_bytes());
        noted.map_err(blame)?;
        let url = format!("dns:{}", answer.name);
        let hops = format!("{}P", task.item.hops);
        let digest = ecluse_http::Sha1Digest::of(answer.block().as_bytes()).to_string();
        let line = Fetched {
            logged: now(),
            status: 1,
            size: Some(answer.block().len() as u64),
            url: &url,
            hops: &hops,
            via: &task.item.url,
            mime: "text/dns",
            thread: 1,
            begun: Some(at),
            took_ms: Some(0),
            digest: Some(&digest),
            source: &task.item.source,
            annotations: &[],
            extra: None,
            host: "dns:",
            wire_bytes: 0,
            kind: Kept::Stored,
        };
        self.logs.crawl.append(&line.line())?;
        Ok(())
    }

    /// Gives a queue the budget that the order has for its host.
    pub(super) fn set_exception(&mut self, item: &Item) -> Result<(), Failure> {
        if self.order.budget.exceptions.is_empty() || self.budgeted.contains(&item.queue) {
            return Ok(());
        }
        if self.budgeted.len() >= BUDGETED {
            self.budgeted.clear();
        }
        self.budgeted.insert(item.queue.clone());
        match exception(&self.order, &host_of(&item.url)) {
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

fn retry_after(capture: &Capture) -> Option<Duration> {
    let value = capture.exchange.head.text("Retry-After")?;
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let when = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(value)
        .ok()?;
    let seconds = when.as_second() - i64::try_from(now().0 / 1000).ok()?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// How often a URL was tried, as Heritrix notes it.
fn tries(item: &Item) -> String {
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

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
