//! What becomes of a response: as what it is kept, and everything that is written down with it.

use std::rc::Rc;

use ecluse_extract::{Hop, Link};
use ecluse_frontier::{Disposition, Finished, Item, Outcome};
use ecluse_http::CookiePlace;
use ecluse_report::{Fetched, Kept};
use ecluse_scope::{CookiesKept, ImportanceOrder, NofollowPolicy, RobotsPolicy};
use ecluse_stage::Failure;
use url::Url;

use super::settle::tries;
use super::{Engine, blame, millis};
use crate::earlier::{KnownPayload, LastCapture, Original};
use crate::fetch_task::{now, wall};
use crate::link_filter::{LinkingPage, Unfollowed};
use crate::notes;
use crate::pool::{Processed, Work};
use crate::readiness::authority;
use crate::records::Capture;
use crate::robots::RobotsRedirect;

impl Engine<'_> {
    /// Decides as what a response is kept, and gives it to the threads.
    pub(super) fn settle_fetched(&mut self, mut capture: Capture) -> Result<(), Failure> {
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
            order: std::sync::Arc::clone(&self.in_force.pool_order),
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
        let robots = &self.in_force.order.robots;
        match robots.nofollow {
            _ if robots.policy_of(host) == RobotsPolicy::Ignore => Unfollowed::None,
            NofollowPolicy::Ignore => Unfollowed::None,
            NofollowPolicy::Pages | NofollowPolicy::Links if nofollow => Unfollowed::All,
            NofollowPolicy::Pages => Unfollowed::None,
            NofollowPolicy::Links => Unfollowed::Marked,
        }
    }

    fn is_overloaded(&self, capture: &Capture) -> bool {
        let statuses = &self.in_force.order.manners.back_off.statuses;
        let status = u16::try_from(capture.exchange.code());
        status.is_ok_and(|status| statuses.contains(&status))
    }

    fn is_last_try(&self, item: &Item) -> bool {
        item.attempts >= self.frontier.settings().retries
    }

    /// Looks for an earlier capture of the same payload.
    fn known_payload(&mut self, capture: &Capture) -> Result<KnownPayload, Failure> {
        let exchange = &capture.exchange;
        let dedup = &self.in_force.order.dedup;
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
    pub(super) fn settle_processed(&mut self, processed: Processed) -> Result<(), Failure> {
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
            self.ensure_file()?;
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
            let part = self.visit_online(&capture.item, &capture.url, &links)?;
            let linking = LinkingPage {
                item: &capture.item,
                unfollowed: self.unfollowed(&capture.url, nofollow),
                sets_cookie: self.in_force.order.agent.cookies
                    && capture.exchange.head.first("Set-Cookie").is_some(),
                part,
            };
            let in_force = Rc::clone(&self.in_force);
            for link in &links {
                let offered = self
                    .link_filter
                    .offer(&in_force, &mut self.frontier, linking, link);
                if let Some(charset) = link
                    .charset
                    .filter(|_| offered.as_ref().is_ok_and(|new| *new))
                {
                    let key = notes::key_of(link.url.as_bytes());
                    let noted = self.frontier.note(notes::CHARSET, &key, charset.as_bytes());
                    noted.map_err(blame)?;
                }
                offered?;
            }
        }
        Ok(())
    }

    /// Where the order asks for on-line importance: the page gives its cash away. Returns what each of its links gets.
    fn visit_online(
        &mut self,
        item: &Item,
        url: &Url,
        links: &[Link],
    ) -> Result<Option<f64>, Failure> {
        let order = &self.in_force.order;
        if order.frontier.importance != ImportanceOrder::Opic {
            return Ok(None);
        }
        let key = notes::key_of(&order.same_url.key(url));
        let pages = links
            .iter()
            .filter(|link| link.hop != Hop::Redirect && !link.requisite && link.hop != Hop::Embed)
            .count();
        let online = &mut self.link_filter.online;
        let part = online.visit(&mut self.frontier, &key, &item.queue, pages);
        part.map(Some).map_err(blame)
    }

    /// Takes the cookies of a capture, and notes them with it: a kill loses both or none.
    fn take_cookies(&mut self, capture: &Capture) -> Result<(), Failure> {
        let authority = authority(&capture.url).filter(|_| self.in_force.order.agent.cookies);
        let Some(authority) = authority else {
            return Ok(());
        };
        let place = CookiePlace {
            scheme: authority.scheme,
            host: &authority.host,
            path: capture.url.path(),
        };
        let seconds = i64::try_from(now().0 / 1000).unwrap_or(i64::MAX);
        if self.in_force.order.agent.cookies_kept == CookiesKept::Page {
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

    fn finish_capture(&mut self, capture: &Capture) -> Result<Finished, Failure> {
        let exchange = &capture.exchange;
        let status = exchange.code();
        let overloaded = self.is_overloaded(capture);
        let retry_after = overloaded.then(|| exchange.head.retry_after(wall()));
        let retry_after = retry_after.flatten();
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
        self.end_turn(&capture.item, &capture.url)?;
        Ok(finished)
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
        let host = capture.url.host_str().unwrap_or("-");
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
            host,
            wire_bytes: capture.exchange.block.bytes(),
            kind: kept,
        })
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
        if self.in_force.order.dedup.across_jobs
            && is_leaf
            && (etag.is_some() || last_modified.is_some())
        {
            let last = LastCapture {
                original: capture.known.original().cloned().unwrap_or(here),
                digest: exchange.payload_digest,
                etag: etag.unwrap_or_default(),
                last_modified: last_modified.unwrap_or_default(),
            };
            let key = notes::key_of(&self.in_force.order.same_url.key(&capture.url));
            let noted = self.frontier.note(notes::CAPTURE, &key, &last.encode());
            noted.map_err(blame)?;
        }
        Ok(())
    }
}
