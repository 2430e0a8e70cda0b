//! robots.txt of the hosts being crawled: what holds now, and who waits for it.
//!
//! What came back stands in the frontier's notes too, so that a restart asks no server again before it is due.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ecluse_scope::{Order, Reading, RobotsAnswer, Standing};
use url::Url;

/// What standings may take in memory; those left out are read from the notes again.
const STANDING_BYTES: usize = 64 << 20;
/// Authorities of which is remembered how often their robots.txt could not be had.
const FAILURES: usize = 20_000;
/// Redirects of a robots.txt that are followed; RFC 9309 asks for five.
const REDIRECTS: u8 = 5;

/// An answer as the notes keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    /// When it came, in milliseconds since 1970.
    pub(crate) at: u64,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The content, decoded.
    pub(crate) body: Vec<u8>,
}

impl KeptAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.at.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.status.to_be_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let (status, body) = rest.split_first_chunk::<2>()?;
        Some(Self {
            at: u64::from_be_bytes(*at),
            status: u16::from_be_bytes(*status),
            body: body.to_vec(),
        })
    }
}

/// Somebody whose robots.txt is being looked for elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Follower {
    pub(crate) authority: String,
    pub(crate) redirects: u8,
}

/// Where a redirect of robots.txt leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RobotsRedirect {
    /// There: it is to be fetched, and whoever waits is told.
    To(Url),
    /// Nowhere, or in too many steps.
    Nowhere,
}

/// The standings of a job.
#[derive(Debug, Default)]
pub(crate) struct Robots {
    standings: HashMap<String, Standing>,
    /// Those that were learned before; when there is no room for both, these go.
    older: HashMap<String, Standing>,
    /// What `standings` takes in memory.
    bytes: usize,
    followers: HashMap<String, Vec<Follower>>,
    /// How often in a row it could not be had from an authority, and when last.
    failures: HashMap<String, (u32, Duration)>,
    /// Authorities whose robots.txt was queued, and of which nothing was learned since.
    asked: HashSet<String>,
    /// Authorities of which something was learned, and nobody was told yet.
    learned: Vec<String>,
    /// Authorities whose robots.txt was last seen to lead elsewhere, and since when nothing came from there.
    redirected: HashMap<String, Duration>,
}

/// Whether a robots.txt is being looked for elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// No: it can be asked for.
    None,
    /// Yes; to ask for it again would only lead there again.
    Going,
    /// It was, for too long.
    InVain,
}

impl Robots {
    /// Returns what holds for an authority, if that is known and not too old.
    pub(crate) fn standing(&self, authority: &str, now: Duration) -> Option<&Standing> {
        let standing = self.standings.get(authority);
        let standing = standing.or_else(|| self.older.get(authority))?;
        standing.is_fresh(now).then_some(standing)
    }

    /// Takes in what came back for an authority.
    pub(crate) fn learn(
        &mut self,
        order: &Order,
        authority: &str,
        answer: RobotsAnswer<'_>,
        at: Duration,
    ) {
        if self.failures.len() >= FAILURES {
            self.failures.clear();
        }
        let tokens: Vec<&str> = order.robots.agents.iter().map(String::as_str).collect();
        let reading = Reading {
            tokens: &tokens,
            limits: &order.robots.limits(),
            freshness: &order.robots.freshness(),
        };
        self.redirected.remove(authority);
        self.asked.remove(authority);
        self.learned.push(authority.to_owned());
        let older = self.older.remove(authority);
        let before = self.standings.remove(authority);
        if let Some(before) = &before {
            self.bytes -= memory_bytes(authority, before);
        }
        let standing = Standing::of(reading, answer, before.or(older), at);
        self.bytes += memory_bytes(authority, &standing);
        let before = self.failures.remove(authority);
        if standing.is_unknown() {
            let before = before.map_or(0, |(times, _)| times);
            let failures = (before.saturating_add(1), at);
            self.failures.insert(authority.to_owned(), failures);
        }
        self.standings.insert(authority.to_owned(), standing);
        if self.bytes > STANDING_BYTES / 2 {
            self.bytes = 0;
            self.older = std::mem::take(&mut self.standings);
        }
    }

    /// Returns of whom something was learned since this was asked last: who waits for these is to be told.
    pub(crate) fn learned(&mut self) -> Vec<String> {
        std::mem::take(&mut self.learned)
    }

    /// Notes that the robots.txt of an authority is queued.
    pub(crate) fn note_asked(&mut self, authority: &str) {
        self.asked.insert(authority.to_owned());
    }

    /// Tells whether it is queued, or on its way.
    pub(crate) fn is_asked(&self, authority: &str) -> bool {
        self.asked.contains(authority)
    }

    /// Tells whether it could not be had so many times in a row. That holds for as long as an answer would.
    pub(crate) fn is_given_up(&self, order: &Order, authority: &str, now: Duration) -> bool {
        let failures = self.failures.get(authority);
        failures.is_some_and(|(times, last)| {
            let keep = order.robots.keep.get();
            *times >= order.budget.queue.tries && now < last.saturating_add(keep)
        })
    }

    /// Tells whether it could not be had the last time.
    pub(crate) fn has_failed(&self, authority: &str) -> bool {
        self.failures.contains_key(authority)
    }

    /// Forgets everything: the order reads it differently now.
    pub(crate) fn forget(&mut self) {
        self.standings.clear();
        self.older.clear();
        self.bytes = 0;
    }

    /// Returns whom an answer from `url` is for.
    pub(crate) fn followers(&mut self, url: &Url) -> Vec<Follower> {
        let mut followers = self.followers.remove(url.as_str()).unwrap_or_default();
        if is_robots_txt(url) {
            followers.push(Follower {
                authority: authority_of(url),
                redirects: 0,
            });
        }
        followers
    }

    /// Follows a redirect for those who wait; who was led on too often is returned.
    pub(crate) fn follow(
        &mut self,
        followers: Vec<Follower>,
        target: Option<Url>,
        at: Duration,
    ) -> (RobotsRedirect, Vec<Follower>) {
        let Some(target) = target else {
            return (RobotsRedirect::Nowhere, followers);
        };
        let (lost, redirected): (Vec<Follower>, Vec<Follower>) = followers
            .into_iter()
            .partition(|follower| follower.redirects >= REDIRECTS);
        if redirected.is_empty() {
            return (RobotsRedirect::Nowhere, lost);
        }
        let waiting = self.followers.entry(target.to_string()).or_default();
        for mut follower in redirected {
            follower.redirects += 1;
            self.redirected.insert(follower.authority.clone(), at);
            waiting.retain(|other| other.authority != follower.authority);
            waiting.push(follower);
        }
        (RobotsRedirect::To(target), lost)
    }

    /// Tells whether an authority's robots.txt is being looked for elsewhere, which may take so long.
    pub(crate) fn search(&self, authority: &str, now: Duration, patience: Duration) -> Search {
        match self.redirected.get(authority) {
            None => Search::None,
            Some(since) if now < since.saturating_add(patience) => Search::Going,
            Some(_) => Search::InVain,
        }
    }

    /// Tells whether somebody waits for this URL.
    pub(crate) fn is_awaited(&self, url: &Url) -> bool {
        is_robots_txt(url) || self.followers.contains_key(url.as_str())
    }
}

/// What a standing takes in memory with its name, and about what the table needs for it.
fn memory_bytes(authority: &str, standing: &Standing) -> usize {
    standing.memory_bytes() + authority.len() + 64
}

/// Tells whether this is the one URL that speaks for its authority: any page may link to `/robots.txt?x`.
fn is_robots_txt(url: &Url) -> bool {
    url.path() == "/robots.txt" && url.query().is_none()
}

/// The authority that a robots.txt speaks for: scheme, host and port.
pub(crate) fn authority_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn answers_are_kept_as_they_came() {
        let answer = KeptAnswer {
            at: 7,
            status: 200,
            body: b"User-agent: *".to_vec(),
        };
        assert_eq!(KeptAnswer::decode(&answer.encode()), Some(answer));
        assert_eq!(KeptAnswer::decode(b"short"), None);
    }

    #[test]
    fn a_standing_holds_for_its_authority_and_time() {
        let mut robots = Robots::default();
        let order = Order::default();
        let body = b"User-agent: *\nDisallow: /x\nCrawl-delay: 2";
        let answer = RobotsAnswer::Response { status: 200, body };
        robots.learn(&order, "http://a.example", answer, Duration::from_secs(10));
        let holds = |at| robots.standing("http://a.example", Duration::from_secs(at));
        let standing = holds(11).unwrap();
        assert!(!standing.judge("http://a.example/x").allowed);
        assert_eq!(standing.crawl_delay(), Some(Duration::from_secs(2)));
        assert!(holds(10 + 86_400).is_none());
        assert!(
            robots
                .standing("https://a.example", Duration::from_secs(11))
                .is_none()
        );
    }

    #[test]
    fn long_answers_push_older_ones_out_and_the_last_one_stays() {
        let mut robots = Robots::default();
        let order = Order::default();
        let body = "User-agent: *\n".to_owned() + &"Disallow:/a\n".repeat(40_000);
        let at = Duration::from_secs(10);
        for host in 0..70 {
            let answer = RobotsAnswer::Response {
                status: 200,
                body: body.as_bytes(),
            };
            let authority = format!("http://{host}.example");
            robots.learn(&order, &authority, answer, at);
            assert!(robots.standing(&authority, at).is_some());
        }
        let all = robots.standings.iter().chain(&robots.older);
        let taken: usize = all.map(|(name, known)| memory_bytes(name, known)).sum();
        assert!(taken <= STANDING_BYTES + (2 << 20), "{taken}");
        assert!(robots.standing("http://0.example", at).is_none());
    }

    #[test]
    fn it_is_asked_for_as_often_as_a_url_and_then_given_up_for_a_while() {
        let mut robots = Robots::default();
        let mut order = Order::default();
        order.budget.queue.tries = 2;
        let (a, seconds) = ("http://a.example", Duration::from_secs);
        let body = b"";
        let overloaded = RobotsAnswer::Response { status: 503, body };
        let mut given_up = |answer, at| {
            robots.learn(&order, a, answer, seconds(at));
            assert_eq!(robots.has_failed(a), answer == overloaded);
            [at, at + 86_399, at + 86_400].map(|at| robots.is_given_up(&order, a, seconds(at)))
        };
        assert_eq!(given_up(overloaded, 0), [false, false, false]);
        assert_eq!(given_up(overloaded, 900), [true, true, false]);
        let good = RobotsAnswer::Response { status: 404, body };
        assert_eq!(given_up(good, 1800), [false, false, false]);
        assert_eq!(given_up(overloaded, 2700), [false, false, false]);
    }

    #[test]
    fn only_the_exact_target_speaks_for_its_authority() {
        let mut robots = Robots::default();
        for (text, speaks) in [
            ("http://a.example/robots.txt", true),
            ("http://a.example/robots.txt?x", false),
            ("http://a.example/robots.txt?", false),
            ("http://a.example/x/robots.txt", false),
        ] {
            assert_eq!(robots.is_awaited(&url(text)), speaks, "{text}");
            assert_eq!(!robots.followers(&url(text)).is_empty(), speaks, "{text}");
        }
    }

    #[test]
    fn a_redirect_is_followed_five_times() {
        let mut robots = Robots::default();
        let mut at = url("http://a.example/robots.txt");
        for step in 0..7 {
            let followers = robots.followers(&at);
            let mine: Vec<_> = followers
                .iter()
                .filter(|follower| follower.authority == "http://a.example")
                .cloned()
                .collect();
            assert_eq!(mine.len(), 1);
            let target = url(&format!("http://a.example/elsewhere/{step}"));
            let (redirected, lost) = robots.follow(mine, Some(target.clone()), Duration::ZERO);
            if step == 5 {
                assert_eq!((redirected, lost.len()), (RobotsRedirect::Nowhere, 1));
                return;
            }
            assert_eq!(redirected, RobotsRedirect::To(target.clone()));
            assert!(robots.is_awaited(&target));
            at = target;
        }
        unreachable!("the sixth redirect is not followed");
    }

    #[test]
    fn who_is_led_elsewhere_waits_there_once_and_not_for_ever() {
        let mut robots = Robots::default();
        let (seconds, authority) = (Duration::from_secs, "http://a.example");
        let at = url("http://a.example/robots.txt");
        let target = url("http://b.example/r");
        assert_eq!(
            robots.search(authority, seconds(0), seconds(9)),
            Search::None
        );
        for _ in 0..2 {
            let followers = robots.followers(&at);
            robots.follow(followers, Some(target.clone()), seconds(1));
        }
        assert_eq!(
            robots.search(authority, seconds(9), seconds(9)),
            Search::Going
        );
        assert_eq!(
            robots.search(authority, seconds(10), seconds(9)),
            Search::InVain
        );
        assert_eq!(robots.followers(&target).len(), 1);
        let answer = RobotsAnswer::Failed { why: "" };
        robots.learn(&Order::default(), authority, answer, seconds(10));
        assert_eq!(
            robots.search(authority, seconds(10), seconds(9)),
            Search::None
        );
    }

    #[test]
    fn authorities_have_their_scheme_and_port() {
        assert_eq!(
            authority_of(&url("https://a.example/x")),
            "https://a.example"
        );
        assert_eq!(
            authority_of(&url("http://a.example:81/")),
            "http://a.example:81"
        );
    }
}
