//! Where names lead: one polite GET of `/` for each form that answers, https first, redirects followed by hand.
//!
//! The manners are the crawl's: its delays, its robots.txt with Crawl-delay, Retry-After, its table of turns; and nobody is asked
//! whom librarians force out. Of an answer only the head is read.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ecluse_http::{
    AddressPolicy, Authority, Client, Exchange, FetchLimits, Head, Request, Resolver,
    ResolverSettings, Scheme, Servers, Settings as ClientSettings, Tap, is_public,
};
use ecluse_names::{ForcedRules, RedirectEvidence, RedirectKind, Registered};
use ecluse_pace::{PaceTable, Turn};
use ecluse_scope::{Order, QueueBy, Reading, RobotsAnswer, Standing, queue_of};
use tokio::task::JoinSet;
use url::Url;

/// Redirects that are followed.
const HOPS: usize = 5;
/// robots.txt answers that are remembered.
const REMEMBERED: usize = 20_000;
/// How long the turn at a server is waited for.
const TURN_PATIENCE: Duration = Duration::from_secs(600);
/// URLs longer than this are not followed.
const URL_BYTES: usize = 2000;

/// What is needed to ask web servers.
pub(crate) struct RedirectSettings<'a> {
    /// Names asked at once.
    pub(crate) connections: usize,
    /// Ports of https and http.
    pub(crate) ports: [u16; 2],
    pub(crate) allow_private: bool,
    pub(crate) resolvers: Vec<SocketAddr>,
    /// How a web master can reach us.
    pub(crate) contact: &'a str,
    /// The directory of the table of turns.
    pub(crate) paces: &'a Path,
    /// For what does not fit memory.
    pub(crate) temporary: &'a Path,
    /// What librarians force out: nobody there is asked.
    pub(crate) forced: Rc<ForcedRules>,
}

/// A name whose lead is to be followed.
#[derive(Debug, Clone)]
pub(crate) struct NameToFollow {
    pub(crate) number: u64,
    /// The names that answer: the name itself, and with `www.`.
    pub(crate) hosts: Vec<String>,
}

/// Why nothing can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedirectError {
    /// The settings are at fault.
    #[error("{0}")]
    Settings(String),
    /// The machine is.
    #[error(transparent)]
    Machine(#[from] io::Error),
}

/// Follows the names that `next` gives; `sink` is given each with where it leads. Ends early when `is_stopped` says so: then it
/// returns false.
pub(crate) fn follow(
    settings: &RedirectSettings<'_>,
    next: &mut dyn FnMut() -> io::Result<Option<NameToFollow>>,
    sink: &mut dyn FnMut(u64, Option<RedirectEvidence>) -> io::Result<()>,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<bool, RedirectError> {
    let web = Rc::new(Web::open(settings)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let followed = local.block_on(&runtime, async {
        let mut going = JoinSet::new();
        loop {
            while going.len() < settings.connections {
                let Some(name) = next()? else { break };
                let web = Rc::clone(&web);
                going.spawn_local(async move {
                    let found = web.lead_of(&name.hosts).await;
                    (name.number, found)
                });
            }
            if going.is_empty() {
                return Ok(true);
            }
            let step = tokio::time::timeout(Duration::from_millis(200), going.join_next());
            if let Ok(Some(Ok((number, found)))) = step.await {
                sink(number, found)?;
            }
            if is_stopped() {
                return Ok(false);
            }
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    followed
}

struct Web {
    order: Order,
    agent: String,
    client: Client,
    resolver: Resolver,
    paces: PaceTable,
    ports: [u16; 2],
    allow_private: bool,
    robots: RefCell<HashMap<String, Rc<Standing>>>,
    turns: RefCell<OwnTurns>,
    forced: Rc<ForcedRules>,
}

/// The turns among ourselves: to the table of all jobs we are one.
#[derive(Default)]
struct OwnTurns(HashMap<String, OwnTurn>);

enum OwnTurn {
    Asking,
    RestsUntil(Instant),
}

impl OwnTurns {
    /// Says how long to wait; none when it is our turn.
    fn wait(&self, names: [&str; 2], now: Instant) -> Option<Duration> {
        let waits = names.iter().filter_map(|name| match self.0.get(*name)? {
            OwnTurn::Asking => Some(Duration::from_millis(100)),
            OwnTurn::RestsUntil(until) if *until > now => Some(*until - now),
            OwnTurn::RestsUntil(_) => None,
        });
        waits.max()
    }

    fn take(&mut self, names: [&str; 2], now: Instant) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, turn| match turn {
                OwnTurn::Asking => true,
                OwnTurn::RestsUntil(until) => *until > now,
            });
        }
        for name in names {
            self.0.insert(name.to_owned(), OwnTurn::Asking);
        }
    }

    fn leave(&mut self, rests: [(&str, Duration); 2], now: Instant) {
        for (name, rest) in rests {
            self.0
                .insert(name.to_owned(), OwnTurn::RestsUntil(now + rest));
        }
    }
}

/// What a fetch came to.
enum Fetched {
    RobotsAnswer(Box<Exchange>),
    /// No answer, or none that may be asked for.
    Nothing,
}

/// The end of a chain.
struct Arrival {
    from: Url,
    to: Url,
    status: u16,
    /// Every host on the way.
    hosts: Vec<String>,
}

impl Web {
    fn open(settings: &RedirectSettings<'_>) -> Result<Self, RedirectError> {
        let order = Order::default();
        let agent = order.user_agent(settings.contact);
        let agent = agent.map_err(|error| RedirectError::Settings(error.to_string()))?;
        let of_client = ClientSettings {
            connections: settings.connections.max(1),
            kept_connections: settings.connections,
            ..ClientSettings::new(settings.temporary)
        };
        let resolver = Resolver::new(ResolverSettings {
            servers: Servers::Given(settings.resolvers.clone()),
            hosts: None,
            ..ResolverSettings::default()
        });
        let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        Ok(Self {
            client: Client::new(of_client).map_err(|error| other(&error))?,
            resolver: resolver.map_err(|error| other(&error))?,
            paces: PaceTable::open(settings.paces)?,
            ports: settings.ports,
            allow_private: settings.allow_private,
            robots: RefCell::default(),
            turns: RefCell::default(),
            forced: Rc::clone(&settings.forced),
            agent,
            order,
        })
    }

    /// Returns where a name leads: the first of its forms that leads to another site, or else the first that answers.
    async fn lead_of(&self, hosts: &[String]) -> Option<RedirectEvidence> {
        let mut first: Option<RedirectEvidence> = None;
        let mut passed: Vec<String> = Vec::new();
        for host in hosts {
            if passed.contains(host) {
                continue;
            }
            let Some(arrival) = self.arrival(host).await else {
                continue;
            };
            passed.extend(arrival.hosts.iter().cloned());
            let evidence = arrival.evidence();
            if evidence.kind == RedirectKind::Other {
                return Some(evidence);
            }
            first.get_or_insert(evidence);
        }
        first
    }

    async fn arrival(&self, host: &str) -> Option<Arrival> {
        for (scheme, port) in ["https", "http"].into_iter().zip(self.ports) {
            let url = Url::parse(&format!("{scheme}://{host}:{port}/")).ok()?;
            if let Some(arrival) = self.walk(url).await {
                return Some(arrival);
            }
        }
        None
    }

    /// Follows redirects from a URL that answers.
    async fn walk(&self, from: Url) -> Option<Arrival> {
        let mut at = from.clone();
        let mut hosts = Vec::new();
        let mut status = None;
        for hop in 0..=HOPS {
            hosts.extend(at.host_str().map(str::to_owned));
            let Some(standing) = self.may_ask(&at).await else {
                break;
            };
            let mut tap = HeadOnly;
            let (delay, limits) = (standing.crawl_delay(), FetchLimits::default());
            let Fetched::RobotsAnswer(exchange) = self.fetch(&at, &mut tap, limits, delay).await
            else {
                break;
            };
            status = exchange.head.status();
            let next = target_of(&exchange, &at);
            match next {
                Some(next) if hop < HOPS => at = next,
                _ => break,
            }
        }
        // Whoever gave no status has not answered.
        let status = status?;
        Some(Arrival {
            from,
            to: at,
            status,
            hosts,
        })
    }

    /// Asks robots.txt, which is fetched first; returns it where it allows the URL.
    async fn may_ask(&self, url: &Url) -> Option<Rc<Standing>> {
        let authority = authority(url)?;
        let key = format!("{:?} {authority}", authority.scheme);
        let known = self.robots.borrow().get(&key).cloned();
        let standing = match known {
            Some(standing) => standing,
            None => {
                let standing = Rc::new(self.robots_of(url).await);
                if let Some(delay) = standing.crawl_delay() {
                    // It holds from then on, and the request for robots.txt was one.
                    let queue = queue_of(QueueBy::Authority, url);
                    let rest = self.rest(Duration::ZERO, None, Some(delay));
                    self.end_turn([(&queue, rest), (&queue, rest)]);
                }
                let mut robots = self.robots.borrow_mut();
                if robots.len() >= REMEMBERED {
                    robots.clear();
                }
                robots.insert(key, Rc::clone(&standing));
                standing
            }
        };
        standing.judge(url.as_str()).allowed.then_some(standing)
    }

    async fn robots_of(&self, url: &Url) -> Standing {
        let tokens: Vec<&str> = self
            .order
            .robots
            .agents
            .iter()
            .map(String::as_str)
            .collect();
        let reading = Reading {
            tokens: &tokens,
            limits: &self.order.robots.limits(),
            freshness: &self.order.robots.freshness(),
        };
        let standing =
            |answer: RobotsAnswer<'_>| Standing::of(reading, answer, None, Duration::ZERO);
        let limits = FetchLimits {
            body_bytes: self.order.robots.size.get(),
            ..FetchLimits::default()
        };
        let Ok(mut at) = url.join("/robots.txt") else {
            return standing(RobotsAnswer::Failed { why: "no URL" });
        };
        for _ in 0..=HOPS {
            let mut body: Vec<u8> = Vec::new();
            let Fetched::RobotsAnswer(exchange) = self.fetch(&at, &mut body, limits, None).await
            else {
                return standing(RobotsAnswer::Failed { why: "no answer" });
            };
            match target_of(&exchange, &at) {
                Some(next) => at = next,
                None => {
                    let status = exchange.head.status().unwrap_or(0);
                    let body = &body;
                    return standing(RobotsAnswer::Response { status, body });
                }
            }
        }
        standing(RobotsAnswer::RedirectedTooOften)
    }

    /// Fetches when it is our turn, and lets the server rest.
    async fn fetch(
        &self,
        url: &Url,
        tap: &mut dyn Tap,
        limits: FetchLimits,
        crawl_delay: Option<Duration>,
    ) -> Fetched {
        let Some(authority) = authority(url).filter(|_| self.forced.out(url).is_none()) else {
            return Fetched::Nothing;
        };
        let Ok((resolved, _)) = self
            .resolver
            .resolve(&authority.host, SystemTime::now())
            .await
        else {
            return Fetched::Nothing;
        };
        let mut addresses = resolved.addresses.clone();
        addresses.retain(|address| self.allow_private || is_public(*address));
        addresses.sort_unstable();
        let Some(address) = addresses.first().copied() else {
            return Fetched::Nothing;
        };
        let queue = queue_of(QueueBy::Authority, url);
        let group = self.group_of(&queue, &authority.host, address);
        if !self.take_turn([&queue, &group]).await {
            return Fetched::Nothing;
        }
        let request = self.request(url, authority, &[address], limits);
        let begun = Instant::now();
        let fetched = self.client.fetch(&request, tap).await;
        let rest = self.rest(begun.elapsed(), fetched.as_ref().ok(), crawl_delay);
        let address_rest = self.order.manners.address_delay.get();
        let address_rest = if queue == group { rest } else { address_rest };
        self.end_turn([(&queue, rest), (&group, address_rest)]);
        match fetched {
            Ok(exchange) => Fetched::RobotsAnswer(Box::new(exchange)),
            Err(_) => Fetched::Nothing,
        }
    }

    fn group_of(&self, queue: &str, host: &str, address: IpAddr) -> String {
        let grouping = self.order.grouping();
        let group = grouping.group_of(queue, host, Some(address));
        group.name.into_owned()
    }

    async fn take_turn(&self, names: [&str; 2]) -> bool {
        let begun = Instant::now();
        let least = self.order.manners.min_delay.get();
        while begun.elapsed() < TURN_PATIENCE {
            let now = Instant::now();
            let own = self.turns.borrow().wait(names, now);
            let wait = match own {
                Some(wait) => wait,
                None => match self.paces.ask(names, least) {
                    Ok(Turn::Granted) => {
                        self.turns.borrow_mut().take(names, now);
                        return true;
                    }
                    Ok(Turn::Later(wait)) => wait,
                    Err(_) => return false,
                },
            };
            if begun.elapsed() + wait > TURN_PATIENCE {
                return false;
            }
            let wait = wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
            tokio::time::sleep(wait).await;
        }
        false
    }

    fn end_turn(&self, rests: [(&str, Duration); 2]) {
        self.turns.borrow_mut().leave(rests, Instant::now());
        // A table that cannot be written lets them rest for the least time.
        let _ = self.paces.leave(rests);
    }

    /// How long a server rests after an answer that took so long: what it asks for itself counts beside our own delays.
    fn rest(
        &self,
        took: Duration,
        exchange: Option<&Exchange>,
        crawl_delay: Option<Duration>,
    ) -> Duration {
        let manners = &self.order.manners;
        let (least, most) = (manners.min_delay.get(), manners.max_delay.get());
        let rest = took.mul_f64(manners.delay_factor).clamp(least, most);
        let asked = crawl_delay.unwrap_or_default();
        let rest = rest.max(asked.min(manners.crawl_delay_limit.get()));
        let back_off = &manners.back_off;
        let head = exchange.map(|exchange| &exchange.head);
        let is_overloaded = |head: &&Head| {
            let status = head.status();
            status.is_some_and(|status| back_off.statuses.contains(&status))
        };
        match head.filter(is_overloaded) {
            // Who names the time knows it best, be it shorter than ours.
            Some(head) => rest.max(match head.retry_after(SystemTime::now()) {
                Some(named) => named.min(back_off.retry_after_limit.get()),
                None => back_off.first.get(),
            }),
            None => rest,
        }
    }

    fn request(
        &self,
        url: &Url,
        authority: Authority,
        addresses: &[IpAddr],
        limits: FetchLimits,
    ) -> Request {
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut request = Request::get(authority, &target, addresses, SystemTime::now())
            .with("User-Agent", self.agent.as_bytes())
            .with("Accept", "*/*");
        request.limits = FetchLimits {
            first_byte: Duration::from_secs(30),
            total: Duration::from_secs(60),
            ..limits
        };
        if self.allow_private {
            request.address_policy = AddressPolicy::Any;
        }
        request
    }
}

impl Arrival {
    fn evidence(self) -> RedirectEvidence {
        let host = |url: &Url| url.host_str().unwrap_or_default().to_owned();
        let site = |host: &str| Registered::of(host).site.to_owned();
        let (from, to) = (host(&self.from), host(&self.to));
        let bare = |host: &str| host.strip_prefix("www.").unwrap_or(host).to_owned();
        let kind = if from == to {
            match self.from.scheme() == self.to.scheme() {
                true => RedirectKind::Same,
                false => RedirectKind::Scheme,
            }
        } else if bare(&from) == bare(&to) {
            RedirectKind::Www
        } else if site(&from) == site(&to) {
            RedirectKind::Site
        } else {
            RedirectKind::Other
        };
        RedirectEvidence {
            from: self.from.into(),
            domain: site(&to),
            to: self.to.into(),
            kind,
            status: self.status,
        }
    }
}

/// Listens to the head alone.
struct HeadOnly;

impl Tap for HeadOnly {
    fn head(&mut self, _head: &Head) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// Returns where an answer sends us; what is no web page of a named host is not followed.
fn target_of(exchange: &Exchange, at: &Url) -> Option<Url> {
    let head = &exchange.head;
    if !matches!(head.status()?, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = head.text("Location")?;
    if location.len() > URL_BYTES {
        return None;
    }
    let mut next = at.join(location.trim()).ok()?;
    next.set_fragment(None);
    // Neither can fail for a URL with a host.
    let _ = next.set_username("");
    let _ = next.set_password(None);
    let is_web = matches!(next.scheme(), "http" | "https") && next.domain().is_some();
    (is_web && next.as_str().len() <= URL_BYTES).then_some(next)
}

fn authority(url: &Url) -> Option<Authority> {
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    Some(Authority {
        scheme,
        host: url.host_str()?.to_owned(),
        port: url.port_or_known_default()?,
    })
}
