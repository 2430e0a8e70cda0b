//! One URL on its way: its host's address, its group, robots.txt, then the fetch itself.
//!
//! A fetch task decides nothing for good. It says what it found, and the engine, which alone holds the frontier, draws the
//! consequences.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ecluse_frontier::Item;
use ecluse_http::{
    AddressPolicy, AnswerSource, Authority, CertificatePolicy, Client, CookiePlace, DigestedBody,
    DnsError, Exchange, FetchError, FetchLimits, Head, Jar, Request, Resolved, Resolver,
    ResolverSettings, Scheme, Servers, Tap, is_public,
};
use ecluse_report::Moment;
use ecluse_scope::{
    CookiesKept, Grouping, InvalidCertificates, Order, PayloadDigestOf, QueueBy, RobotsPolicy,
    RobotsReason, queue_of,
};
use url::Url;

use crate::earlier::{Earlier, LastCapture};
use crate::pace_table::{PaceTable, Turn};
use crate::page_jars::PageJars;
use crate::robots::{Robots, authority_of};

/// So long the turn of another job is waited for here.
const SHORT_WAIT: Duration = Duration::from_millis(5);

/// What all fetch tasks of a job share. All of them run in one thread.
pub(crate) struct Shared {
    pub(crate) order: RefCell<Rc<Order>>,
    pub(crate) grouping: RefCell<Rc<Grouping>>,
    pub(crate) user_agent: RefCell<Rc<str>>,
    pub(crate) client: RefCell<Rc<Client>>,
    pub(crate) resolver: RefCell<Rc<Resolver>>,
    pub(crate) robots: RefCell<Robots>,
    pub(crate) jar: RefCell<Jar>,
    pub(crate) page_jars: RefCell<PageJars>,
    pub(crate) earlier: RefCell<Earlier>,
    pub(crate) paces: PaceTable,
}

/// What a fetch task found.
pub(crate) enum Result {
    /// It can never be fetched.
    Bad { status: i32, why: String },
    /// Its queue belongs to another group, now that the address is known.
    Regroup { group: String },
    /// robots.txt must be fetched first.
    NeedsRobots,
    /// robots.txt forbids it.
    Forbidden { why: String },
    /// robots.txt cannot be had, and so forbids everything for so long.
    Unknown { why: String, wait: Duration },
    /// Another job of this machine asks the server, or has just asked it.
    OtherJob { wait: Duration },
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
        exchange: Box<Exchange>,
        last: Option<Box<LastCapture>>,
        crawl_delay: Option<Duration>,
    },
}

/// A fetch task that is over.
pub(crate) struct FetchTask {
    pub(crate) item: Item,
    pub(crate) url: Option<Url>,
    pub(crate) begun: Moment,
    /// An answer of the DNS that was not known before.
    pub(crate) dns: Option<Arc<Resolved>>,
    pub(crate) result: Result,
}

/// The wall clock is read once in a process; from then on the monotonic clock counts. A wall clock that is set, back or
/// forth, neither stalls a crawl nor makes it impatient.
static STARTED: LazyLock<(SystemTime, Instant)> =
    LazyLock::new(|| (SystemTime::now(), Instant::now()));

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

/// Makes the resolver that an order asks for.
///
/// # Errors
/// When there is none to be had; in words.
pub(crate) fn resolver(order: &Order) -> std::result::Result<Resolver, String> {
    let mut servers = Vec::new();
    for text in &order.network.resolvers {
        let address = text.parse::<SocketAddr>();
        servers.push(address.map_err(|error| format!("resolver {text:?}: {error}"))?);
    }
    let settings = ResolverSettings {
        // Who names his resolvers wants to hear these.
        hosts: ResolverSettings::default()
            .hosts
            .filter(|_| servers.is_empty()),
        servers: match servers.is_empty() {
            true => Servers::System,
            false => Servers::Given(servers),
        },
        ..ResolverSettings::default()
    };
    Resolver::new(settings).map_err(|error| error.to_string())
}

/// Runs a fetch task to its end.
pub(crate) async fn run(shared: Rc<Shared>, item: Item) -> FetchTask {
    let begun = now();
    let mut task = FetchTask {
        url: Url::parse(&item.url).ok(),
        item,
        begun,
        dns: None,
        result: Result::NeedsRobots,
    };
    task.result = match task.url.clone() {
        Some(url) => go(&shared, &mut task, &url).await,
        None => Result::Bad {
            status: -7,
            why: "not a URL".to_owned(),
        },
    };
    task
}

async fn go(shared: &Shared, task: &mut FetchTask, url: &Url) -> Result {
    let Some(authority) = authority(url) else {
        let why = format!("cannot fetch the scheme {:?}", url.scheme());
        return Result::Bad { status: -7, why };
    };
    let addresses = match resolve(shared, &authority.host, task).await {
        Ok(addresses) => addresses,
        Err(error) => return Result::Unresolved { error },
    };
    let allow_private = shared.order.borrow().network.allow_private;
    if !allow_private && !addresses.iter().copied().any(is_public) {
        // Said here, or its robots.txt would seem to be what is wrong.
        let why = format!("no address of {} is public", authority.host);
        return Result::Bad { status: -5001, why };
    }
    if let Some(regroup) = regroup(shared, &task.item, &authority.host, &addresses) {
        return regroup;
    }
    let crawl_delay = match ask_robots(shared, &task.item, url) {
        Ok(crawl_delay) => crawl_delay,
        Err(result) => return result,
    };
    let names = names_in_table(url, &task.item);
    match take_turn(shared, [&names[0], &names[1]]).await {
        Ok(None) => {}
        Ok(Some(wait)) => return Result::OtherJob { wait },
        Err(source) => {
            return Result::Unanswered {
                error: FetchError::Exhausted { source },
                took: Duration::ZERO,
                crawl_delay,
            };
        }
    }
    task.begun = now();
    let last = last_capture(shared, &task.item, url);
    let addresses = addresses_of_group(shared, &task.item, &authority.host, addresses);
    let request = request(
        shared,
        &task.item,
        url,
        authority,
        &addresses,
        last.as_deref(),
    );
    let client = Rc::clone(&shared.client.borrow());
    let started = Instant::now();
    let mut gate = Gate {
        limit: shared
            .order
            .borrow()
            .scope
            .size
            .get()
            .map(|size| size.get()),
    };
    match client.fetch(&request, &mut gate).await {
        Ok(exchange) => Result::Fetched {
            exchange: Box::new(exchange),
            last,
            crawl_delay,
        },
        Err(error) => Result::Unanswered {
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

/// Takes our turn among all jobs, or says how long to wait for it.
async fn take_turn(shared: &Shared, names: [&str; 2]) -> io::Result<Option<Duration>> {
    let least = shared.order.borrow().manners.min_delay.get();
    loop {
        match shared.paces.ask(names, least)? {
            Turn::Granted => return Ok(None),
            // The two clocks may differ in the last millisecond.
            Turn::Later(wait) if wait <= SHORT_WAIT => tokio::time::sleep(wait).await,
            Turn::Later(wait) => return Ok(Some(wait)),
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

/// Whom to ask for a URL; none for a scheme that is not spoken.
pub(crate) fn authority(url: &Url) -> Option<Authority> {
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    Some(Authority {
        scheme,
        host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default()?,
    })
}

async fn resolve(
    shared: &Shared,
    host: &str,
    task: &mut FetchTask,
) -> std::result::Result<Vec<IpAddr>, DnsError> {
    let bare = host.trim_end_matches('.');
    if bare == "localhost" || bare.ends_with(".localhost") {
        // RFC 6761: these names mean this machine, and no server is asked for them.
        return Ok(vec![
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ]);
    }
    let resolver = Rc::clone(&shared.resolver.borrow());
    let (resolved, source) = resolver.resolve(host, wall()).await?;
    if source == AnswerSource::Asked {
        task.dns = Some(Arc::clone(&resolved));
    }
    Ok(resolved.addresses.clone())
}

/// Says to which group a queue belongs once its address is known. A queue keeps the group of an address that is still
/// one of its own: names with many addresses would wander otherwise. A URL that failed there is tried at the next one.
fn regroup(shared: &Shared, item: &Item, host: &str, addresses: &[IpAddr]) -> Option<Result> {
    let grouping = Rc::clone(&shared.grouping.borrow());
    let allow_private = shared.order.borrow().network.allow_private;
    let group_of = |address| grouping.group_of(&item.queue, host, address);
    let keeps = |address: &IpAddr| group_of(Some(*address)).name == item.group;
    if item.attempts == 0 && addresses.iter().any(keeps) {
        return None;
    }
    let address = address_for_group(addresses, allow_private, item.attempts);
    let group = group_of(address).name;
    (group != item.group).then(|| Result::Regroup {
        group: group.into_owned(),
    })
}

/// The address by which a queue gets its group, and to which it connects. Names with several addresses have them in turn,
/// each time another one first: the lowest is the same for all names that share them, and whenever one is asked for.
fn address_for_group(addresses: &[IpAddr], allow_private: bool, tries: u32) -> Option<IpAddr> {
    let reached = addresses.iter().copied();
    let mut reached: Vec<IpAddr> = reached
        .filter(|address| allow_private || is_public(*address))
        .collect();
    reached.sort_unstable();
    let turn = tries as usize % reached.len().max(1);
    reached.get(turn).copied()
}

/// The addresses to connect to: those of the group that the queue is paced by, and no others.
fn addresses_of_group(
    shared: &Shared,
    item: &Item,
    host: &str,
    mut addresses: Vec<IpAddr>,
) -> Vec<IpAddr> {
    let grouping = Rc::clone(&shared.grouping.borrow());
    addresses.retain(|address| {
        let group = grouping.group_of(&item.queue, host, Some(*address));
        group.name == item.group
    });
    addresses
}

/// Asks robots.txt, as far as the policy wants it asked; gives the delay it asks for.
fn ask_robots(
    shared: &Shared,
    item: &Item,
    url: &Url,
) -> std::result::Result<Option<Duration>, Result> {
    let order = shared.order.borrow();
    let host = url.host_str().unwrap_or_default();
    let policy = order.robots.policy_of(host);
    let robots = shared.robots.borrow();
    if policy == RobotsPolicy::Ignore {
        return Ok(None);
    }
    let at = Duration::from_millis(now().0);
    let standing = robots.standing(&authority_of(url), at);
    if robots.is_awaited(url) {
        return Ok(standing.and_then(|standing| standing.crawl_delay()));
    }
    if robots.is_given_up(&order, &authority_of(url), at) {
        let tries = order.budget.queue.tries;
        let why = format!("robots.txt could not be had in {tries} tries");
        return Err(Result::Bad { status: -61, why });
    }
    let Some(standing) = standing else {
        return Err(Result::NeedsRobots);
    };
    let verdict = standing.judge(url.as_str()).under(policy, &item.hops);
    if verdict.allowed {
        return Ok(standing.crawl_delay());
    }
    let why = verdict.why.to_string();
    Err(match verdict.why {
        RobotsReason::Absent(_) => Result::Unknown {
            why,
            wait: standing.until.saturating_sub(at),
        },
        _ => Result::Forbidden { why },
    })
}

fn last_capture(shared: &Shared, item: &Item, url: &Url) -> Option<Box<LastCapture>> {
    let order = shared.order.borrow();
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
    item: &Item,
    url: &Url,
    authority: Authority,
    addresses: &[IpAddr],
    last: Option<&LastCapture>,
) -> Request {
    let order = shared.order.borrow();
    let place_host = authority.host.clone();
    let scheme = authority.scheme;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let at = wall();
    let mut request = Request::get(authority, &target, addresses, at)
        .with("User-Agent", shared.user_agent.borrow().as_bytes())
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
    if agent.referer && item.via.starts_with("http") && !leaks(&item.via, scheme) {
        request = request.with("Referer", referer(&item.via).as_ref());
    }
    if agent.cookies {
        let place = CookiePlace {
            scheme,
            host: &place_host,
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
    request.limits = limits(&order);
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
    fn names_that_share_their_addresses_share_a_group() {
        let address = |texts: &[&str], allow_private| {
            let addresses: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            address_for_group(&addresses, allow_private, 0).map(|address| address.to_string())
        };
        let all = ["9.9.9.9", "10.0.0.1", "2001:4860::1", "8.8.8.8"];
        let turned = ["8.8.8.8", "2001:4860::1", "9.9.9.9", "10.0.0.1"];
        assert_eq!(address(&all, false).as_deref(), Some("8.8.8.8"));
        assert_eq!(address(&turned, false), address(&all, false));
        assert_eq!(
            address(&["10.0.0.1", "2a00::1"], false).as_deref(),
            Some("2a00::1")
        );
        assert_eq!(
            address(&["10.0.0.1", "2a00::1"], true).as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(address(&["127.0.0.1"], false), None);
        let both: Vec<IpAddr> = vec!["9.9.9.9".parse().unwrap(), "8.8.8.8".parse().unwrap()];
        let tried = |tries| address_for_group(&both, false, tries);
        assert_eq!([tried(1), tried(2)], [Some(both[0]), Some(both[1])]);
    }

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
