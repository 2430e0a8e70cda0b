//! One URL on its way, once everything is there that it needs.
//!
//! A fetch task decides nothing for good. It says what it found, and the engine, which alone holds the frontier, draws the
//! consequences.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ecluse_frontier::Item;
use ecluse_http::{
    AddressPolicy, Authority, CertificatePolicy, CookiePlace, DigestedBody, DnsError, Exchange,
    FetchError, FetchLimits, Head, Jar, Request, Scheme, Tap,
};
use ecluse_pace::{PaceTable, Turn};
use ecluse_report::Moment;
use ecluse_scope::{CookiesKept, InvalidCertificates, Order, PayloadDigestOf, QueueBy, queue_of};
use url::Url;

use crate::earlier::{Earlier, LastCapture};
use crate::in_force::InForce;
use crate::manners::least_rest;
use crate::page_jars::PageJars;
use crate::readiness::Ready;
use crate::robots::Robots;

/// So long the turn of another job is waited for here.
const SHORT_WAIT: Duration = Duration::from_millis(5);

/// What all fetch tasks of a job share. All of them run in one thread.
pub(crate) struct Shared {
    pub(crate) robots: RefCell<Robots>,
    /// Why hosts have no address, where that holds for one URL only: the next one asks again.
    pub(crate) unresolved: RefCell<HashMap<String, DnsError>>,
    pub(crate) jar: RefCell<Jar>,
    pub(crate) page_jars: RefCell<PageJars>,
    pub(crate) earlier: RefCell<Earlier>,
    pub(crate) pace_table: PaceTable,
}

/// What became of a URL.
pub(crate) enum FetchResult {
    /// It can never be fetched.
    Bad { status: i32, why: String },
    /// robots.txt forbids it.
    Forbidden { why: String },
    /// robots.txt cannot be had, and so forbids everything for so long.
    Unknown { why: String, wait: Duration },
    /// Another job of this machine asks the server, or has just asked it: so long its name and its group wait.
    OtherJob { name: Duration, group: Duration },
    /// The name has no address, for good or for now.
    Unresolved { error: DnsError },
    /// The server gave no answer.
    Unanswered {
        error: FetchError,
        took: Duration,
        crawl_delay: Option<Duration>,
    },
    /// It was fetched.
    Fetched {
        url: Url,
        exchange: Box<Exchange>,
        last: Option<Box<LastCapture>>,
        crawl_delay: Option<Duration>,
    },
}

/// A fetch task that is over.
pub(crate) struct FetchTask {
    pub(crate) item: Item,
    pub(crate) begun: Moment,
    pub(crate) result: FetchResult,
}

impl FetchTask {
    /// One whose server was not asked.
    pub(crate) fn unasked(item: Item, result: FetchResult) -> Self {
        let begun = now();
        Self {
            item,
            begun,
            result,
        }
    }
}

/// The wall clock is read once in a process; from then on the monotonic clock counts. A wall clock that is set, back or
/// forth, neither stalls a crawl nor makes it impatient.
static STARTED: LazyLock<(SystemTime, Instant)> =
    LazyLock::new(|| (trial_time().unwrap_or_else(SystemTime::now), Instant::now()));

/// What a file says that plan takes the time from in a trial: weeks can be tried in minutes.
fn trial_time() -> Option<SystemTime> {
    let text = std::fs::read_to_string(std::env::var_os("ECLUSE_CLOCK_FILE")?).ok()?;
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    Some(time.into())
}

/// The time.
pub(crate) fn wall() -> SystemTime {
    let (wall, instant) = *STARTED;
    wall + instant.elapsed()
}

/// The time in milliseconds since 1970.
pub(crate) fn now() -> Moment {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment(since.as_millis().try_into().unwrap_or(u64::MAX))
}

/// Fetches a URL that misses nothing.
pub(crate) async fn run(
    shared: Rc<Shared>,
    in_force: Rc<InForce>,
    item: Item,
    ready: Ready,
) -> FetchTask {
    let mut begun = now();
    let result = go(&shared, &in_force, &item, &mut begun, ready).await;
    FetchTask {
        item,
        begun,
        result,
    }
}

async fn go(
    shared: &Shared,
    in_force: &InForce,
    item: &Item,
    begun: &mut Moment,
    ready: Ready,
) -> FetchResult {
    let (url, crawl_delay) = (&ready.url, ready.crawl_delay);
    let [name, group] = names_in_table(url, item);
    let least = least_rest(&in_force.order, &item.group, crawl_delay);
    match take_turn(shared, [&name, &group], least).await {
        Ok(None) => {}
        Ok(Some([name, group])) => return FetchResult::OtherJob { name, group },
        Err(source) => {
            return FetchResult::Unanswered {
                error: FetchError::Exhausted { source },
                took: Duration::ZERO,
                crawl_delay,
            };
        }
    }
    *begun = now();
    let last = last_capture(shared, &in_force.order, item, url);
    let request = request(shared, in_force, item, &ready, last.as_deref());
    let started = Instant::now();
    let mut gate = Gate {
        limit: in_force.order.scope.size.get().map(|size| size.get()),
    };
    match in_force.client.fetch(&request, &mut gate).await {
        Ok(exchange) => FetchResult::Fetched {
            url: ready.url,
            exchange: Box::new(exchange),
            last,
            crawl_delay,
        },
        Err(error) => FetchResult::Unanswered {
            error,
            took: started.elapsed(),
            crawl_delay,
        },
    }
}

/// By which names a server stands in the table of all jobs: its own, and that of its group.
pub(crate) fn names_in_table(url: &Url, item: &Item) -> [String; 2] {
    [queue_of(QueueBy::Authority, url), item.group.clone()]
}

/// Takes our turn among all jobs, or says how long the two names wait for it.
async fn take_turn(
    shared: &Shared,
    names: [&str; 2],
    least: Duration,
) -> io::Result<Option<[Duration; 2]>> {
    loop {
        match shared.pace_table.ask(names, least)? {
            Turn::Granted => return Ok(None),
            // The two clocks may differ in the last millisecond.
            Turn::Later(wait) if wait <= SHORT_WAIT => tokio::time::sleep(wait).await,
            Turn::Later(wait) => {
                let [name, group] = shared.pace_table.waits(names)?;
                // Where neither waits for itself, somebody else has the next turn.
                let group = if name.max(group).is_zero() {
                    wait
                } else {
                    group
                };
                return Ok(Some([name, group]));
            }
        }
    }
}

/// Lets no body in that is larger than the scope wants, where the server says so before it comes.
struct Gate {
    limit: Option<u64>,
}

impl Tap for Gate {
    fn head(&mut self, head: &Head) -> ControlFlow<()> {
        let length = head.text("Content-Length");
        let length = length.and_then(|length| length.trim().parse::<u64>().ok());
        match (length, self.limit) {
            (Some(length), Some(limit)) if length > limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn last_capture(
    shared: &Shared,
    order: &Order,
    item: &Item,
    url: &Url,
) -> Option<Box<LastCapture>> {
    if !order.dedup.conditional || !order.dedup.across_jobs || item.hops.ends_with('P') {
        return None;
    }
    let key = crate::notes::key_of(&order.same_url.key(url));
    shared
        .earlier
        .borrow()
        .last(&key)
        .inspect_err(|error| tracing::warn!(%error, "cannot look up an earlier capture"))
        .ok()?
        .map(Box::new)
}

fn request(
    shared: &Shared,
    in_force: &InForce,
    item: &Item,
    ready: &Ready,
    last: Option<&LastCapture>,
) -> Request {
    let (order, url) = (&in_force.order, &ready.url);
    let Authority { scheme, host, .. } = &ready.authority;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let at = wall();
    let mut request = Request::get(ready.authority.clone(), &target, &ready.addresses, at)
        .with("User-Agent", in_force.user_agent.as_bytes())
        .with("Accept", "*/*");
    let agent = &order.agent;
    for (name, value) in [
        ("Accept-Encoding", &agent.accept_encoding),
        ("Accept-Language", &agent.accept_language),
        ("From", &agent.from),
    ] {
        if !value.is_empty() {
            request = request.with(name, value);
        }
    }
    if agent.referer && item.via.starts_with("http") && !leaks(&item.via, *scheme) {
        request = request.with("Referer", referer(&item.via).as_ref());
    }
    if agent.cookies {
        let place = CookiePlace {
            scheme: *scheme,
            host,
            path: url.path(),
        };
        let seconds = i64::try_from(now().0 / 1000).unwrap_or(i64::MAX);
        let cookies = match agent.cookies_kept {
            CookiesKept::Job => shared.jar.borrow_mut().field(place, seconds),
            CookiesKept::Page => {
                let jar = shared.page_jars.borrow_mut().begin(item);
                jar.borrow_mut().field(place, seconds)
            }
        };
        if let Some(cookies) = cookies {
            request = request.with("Cookie", cookies);
        }
    }
    if let Some(last) = last {
        request = request.unless_unchanged(Some(&last.etag), Some(&last.last_modified));
    }
    request.limits = limits(order);
    request.address_policy = match order.network.allow_private {
        true => AddressPolicy::Any,
        false => AddressPolicy::PublicOnly,
    };
    request.certificate_policy = match order.tls.invalid_certificates {
        InvalidCertificates::Record => CertificatePolicy::Record,
        InvalidCertificates::Refuse => CertificatePolicy::Refuse,
    };
    request
}

/// A page that was fetched in secret is not named in the open; browsers do the same.
fn leaks(via: &str, scheme: Scheme) -> bool {
    scheme == Scheme::Http && via.starts_with("https:")
}

/// A page as it is named to others: without the name and the password that may stand in its URL (RFC 9110).
fn referer(via: &str) -> Cow<'_, str> {
    let Some(mut url) = Url::parse(via).ok().filter(|_| via.contains('@')) else {
        return Cow::Borrowed(via);
    };
    // Neither can fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Cow::Owned(url.into())
}

fn limits(order: &Order) -> FetchLimits {
    let limits = &order.limits;
    let bytes =
        |limit: ecluse_scope::Limit<ecluse_config::Bytes>| limit.get().map(|bytes| bytes.get());
    let first_byte = limits
        .idle
        .get()
        .max(limits.connect.get())
        .saturating_mul(3);
    FetchLimits {
        connect: limits.connect.get(),
        tls: limits.connect.get(),
        first_byte: first_byte.min(limits.time.get()),
        idle: limits.idle.get(),
        total: limits.time.get(),
        slowest_bytes_per_second: bytes(limits.min_rate).unwrap_or(0),
        bytes_per_second: bytes(limits.rate),
        head_bytes: usize::try_from(limits.head.get()).unwrap_or(usize::MAX),
        body_bytes: bytes(limits.size).unwrap_or(u64::MAX),
        digested: match order.warc.payload_digest {
            PayloadDigestOf::Payload => DigestedBody::Payload,
            PayloadDigestOf::Body => DigestedBody::Framed,
        },
        ..FetchLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referer_tells_no_password() {
        for (via, told) in [
            ("http://a.example/@b?c=@", "http://a.example/@b?c=@"),
            ("http://me:secret@a.example/x", "http://a.example/x"),
            ("https://me@a.example:81/", "https://a.example:81/"),
            ("not a URL @", "not a URL @"),
        ] {
            assert_eq!(referer(via), told);
        }
    }
}
