//! Manners, measured at the server: no group sees two requests closer than its delay, be the crawl left alone or killed
//! again and again.
//!
//! Times are those of the server's log. With one connection the delay runs from the end of an answer, so nothing that
//! slows this machine down can make a gap look shorter than it was.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ecluse_frontier::{Frontier, Settings};
use ecluse_pace::PaceTable;
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::{until, until_so};
use ecluse_testkit::web::{Answer, SeenRequest, Web, html};
use rustix::process::Signal;

use web::{Harvest, Job, Order, at, web_on};

/// Times are counted in whole milliseconds by the crawl.
const ROUNDING: Duration = Duration::from_millis(2);
const PAGES: usize = 8;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Whether the crawl is left alone.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Undisturbed,
    Killed,
}

/// Makes a test of what must hold whatever happens to the crawl. Both fates take their time side by side: they wait more
/// than they work.
macro_rules! both {
    ($name:ident) => {
        mod $name {
            use super::Fate;

            #[test]
            fn whatever_happens() {
                std::thread::scope(|scope| {
                    scope.spawn(|| super::$name(Fate::Undisturbed));
                    scope.spawn(|| super::$name(Fate::Killed));
                });
            }
        }
    };
}

/// What came of a crawl, and when its program was started each time.
struct Crawled {
    harvest: Harvest,
    starts: Vec<Instant>,
}

/// Crawls it; a crawl that is killed dies each time the servers have seen a few requests more.
fn crawl(order: &Order, fate: Fate, web: &Web) -> Crawled {
    let few = 3;
    crawl_telling(order, fate, || web.log().len() / few, |_, _| true)
}

/// Crawls it; a crawl that is killed dies each time more was told and that is known to the table of turns, or to the job.
fn crawl_telling(
    order: &Order,
    fate: Fate,
    told: impl Fn() -> usize,
    is_known: impl Fn(&Job, &PaceTable) -> bool,
) -> Crawled {
    let job = Job::give(order);
    let mut starts = Vec::new();
    let deaths = if fate == Fate::Killed { 3 } else { 0 };
    let mut killed = 0;
    for _ in 0..deaths {
        let before = told();
        starts.push(Instant::now());
        let mut program = job.start();
        let table = pace_table(&job);
        let is_over = || job.root.receipts("crawl") > 0;
        until_so("an answer that tells", || {
            (told() > before && is_known(&job, &table)) || is_over()
        });
        killed += usize::from(!is_over());
        program.signal(Signal::KILL);
        program.wait();
    }
    assert_eq!(killed > 0, deaths > 0, "it was over before it was killed");
    starts.push(Instant::now());
    job.finish();
    let harvest = Harvest::read(job);
    Crawled { harvest, starts }
}

/// The table of turns of a job that was started.
fn pace_table(job: &Job) -> PaceTable {
    let tables = job.root.path().join("jobs/.paces");
    let table = until("the table of turns", || {
        std::fs::read_dir(&tables).ok()?.next()?.ok()
    });
    PaceTable::open(&table.path()).unwrap()
}

/// Tells whether the table has the first address rest for longer than this.
fn rests_for(table: &PaceTable, longer_than: Duration) -> bool {
    let address = format!("ip:{}", at(1));
    table.waits([&address, &address]).unwrap()[0] > longer_than
}

/// How often the back-off of the first address has grown, and one, as a crawl that is started now would find it.
fn committed_level(job: &Job) -> usize {
    let copy = tempfile::tempdir().unwrap();
    // What is copied while the crawl writes may not be whole: then it is not known yet.
    let level = || {
        for entry in std::fs::read_dir(job.dir().join("frontier")).ok()? {
            let entry = entry.ok()?;
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).ok()?;
        }
        let mut frontier = Frontier::open_to_read(copy.path(), Settings::default()).ok()?;
        let group = frontier.group(&format!("ip:{}", at(1))).ok()??;
        Some(group.backoff_level)
    };
    level().unwrap_or(0).into()
}

/// A page with links to all others.
fn site(web: &Web, host: &str, robots: Option<&str>) {
    let mut links = String::new();
    for page in 0..PAGES {
        write!(links, "<a href='/{page}'>{page}</a>").unwrap();
    }
    let mut pages = vec![("/".to_owned(), html(&links))];
    for page in 0..PAGES {
        pages.push((format!("/{page}"), html(&format!("<p>{host} {page}</p>"))));
    }
    if let Some(robots) = robots {
        let answer = Answer::of("text/plain", robots.as_bytes());
        pages.push(("/robots.txt".to_owned(), answer));
    }
    web.pages(host, pages);
}

/// Fails unless every page of these hosts was captured.
fn all_captured(harvest: &Harvest, web: &Web, hosts: &[&str]) {
    for host in hosts {
        for page in 0..PAGES {
            let url = web.url(host, &format!("/{page}"));
            assert_eq!(harvest.line(&url).status, 200, "{url}");
            harvest.response(&url);
        }
    }
}

/// Fails when a request came sooner than `delay` after the one before: after its answer, or after its beginning where
/// the crawl was killed and never saw the answer. A server that is slow to note when a request came makes no gap look
/// shorter: what counts is when it can have been sent at the earliest.
fn apart(seen: &[SeenRequest], delay: Duration, starts: &[Instant]) {
    assert!(seen.len() > PAGES, "{} requests", seen.len());
    let crawl_of = |seen: &SeenRequest| starts.iter().rposition(|start| *start <= seen.start);
    let mut sent_after = starts[0];
    for pair in seen.windows(2) {
        let is_same_crawl = crawl_of(&pair[0]) == crawl_of(&pair[1]);
        let from = if is_same_crawl {
            pair[0].end.unwrap()
        } else {
            sent_after
        };
        let gap = pair[1].start.saturating_duration_since(from);
        assert!(
            gap + ROUNDING >= delay,
            "{}{} came {gap:?} after {}{}, not {delay:?}",
            pair[1].host,
            pair[1].target,
            pair[0].host,
            pair[0].target
        );
        sent_after = match crawl_of(&pair[1]) {
            Some(crawl) if !is_same_crawl => starts[crawl],
            _ => from + delay,
        };
    }
}

fn delayed(names: &Names, delay: u64) -> Order {
    let mut order = Order::new(names);
    order.text("manners.min-delay", &format!("{delay}ms"));
    order.text("manners.max-delay", "1s");
    order
}

both!(one_host);

fn one_host(fate: Fate) {
    let (web, names) = web_on(1);
    site(&web, "one.test", None);
    let mut order = delayed(&names, 120);
    order.seed(web.url("one.test", "/"));
    let Crawled { harvest, starts } = crawl(&order, fate, &web);
    all_captured(&harvest, &web, &["one.test"]);
    apart(&web.log(), millis(120), &starts);
}

/// Pages of a fresh host wait for its address, its group and its robots.txt, and are handed out when these are there: every
/// hand-out is a request that the servers saw.
#[test]
fn every_url_of_a_fresh_host_is_handed_out_once() {
    let (web, names) = web_on(3);
    let mut order = Order::new(&names);
    // Several at once: while robots.txt is on its way, other pages of the host could be asked for.
    order.set("manners.group-connections", 4);
    for (last, host) in (1..).zip(["one.test", "two.test", "far.test"]) {
        names.set(host, Named::V4(vec![at(last)]));
        site(&web, host, Some("User-agent: *\nAllow: /"));
        for page in ["/0", "/1", "/2"] {
            order.seed(web.url(host, page));
        }
    }
    // The last one has its robots.txt at another host.
    let elsewhere = Answer::redirect(&web.url("one.test", "/robots-of-far"));
    web.host("far.test", move |request, wire| {
        match request.target.as_str() {
            "/robots.txt" => wire.answer(&elsewhere),
            _ => wire.answer(&html("far")),
        }
    });
    let harvest = Job::crawl(&order);
    let seen = web.log();
    assert_eq!(seen.len(), 3 * (3 + 1) + 1);
    let status = harvest.job.status().unwrap();
    assert_eq!(status.handed_out, seen.len() as u64);
}

/// Whether orders are worked on in one process or in several.
#[derive(Clone, Copy, PartialEq)]
enum Processes {
    One,
    Two,
}

/// Two orders for one host, at the same time.
fn two_orders(processes: Processes) {
    let (web, names) = web_on(1);
    // There is always another page until the second one asks too: who comes second does not wait for the end of the first.
    let asked_for_robots = AtomicUsize::new(0);
    web.host("one.test", move |request, wire| {
        let number = request.target.strip_prefix("/more/");
        let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        let more = match asked_for_robots.load(Ordering::SeqCst) {
            2.. => String::new(),
            _ => format!("<a href='/more/{}'></a>", number + 1),
        };
        wire.answer(&match request.target.as_str() {
            "/robots.txt" => {
                asked_for_robots.fetch_add(1, Ordering::SeqCst);
                Answer::missing()
            }
            "/" => html(&(0..PAGES).fold(more, |links, page| {
                format!("{links}<a href='/{page}'>{page}</a>")
            })),
            _ => html(&more),
        })
    });
    let mut order = delayed(&names, 120);
    order.set("scope.hops", 1000);
    order.seed(web.url("one.test", "/"));
    let job = Job::give(&order);
    order.text("job", "4712");
    let text = order.text_of();
    let files = [("order.toml", text.as_bytes())];
    job.root.put_files("crawl", "other", &files);
    if processes == Processes::Two {
        job.root
            .settings(&["crawl"], "[stage.crawl]\nworkers = 1\n");
    }
    let starts = [Instant::now()];
    let mut programs = vec![job.start()];
    if processes == Processes::Two {
        programs.push(job.start());
    }
    for mut program in programs {
        assert_eq!(program.wait(), 0, "{}", program.log());
    }
    let seen = web.log();
    apart(&seen, millis(120), &starts);
    let times = |target: &str| seen.iter().filter(|seen| seen.target == target).count();
    for target in ["/robots.txt", "/", "/0", "/7"] {
        assert_eq!(times(target), 2, "{target}");
    }
    for number in ["4711", "4712"] {
        let log = job
            .root
            .path()
            .join(format!("jobs/{number}-7/logs/crawl.log"));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.lines().count() > PAGES, "{log}");
    }
}

#[test]
fn two_orders_for_one_host_in_one_process() {
    two_orders(Processes::One);
}

#[test]
fn two_orders_for_one_host_in_two_processes() {
    two_orders(Processes::Two);
}

/// A name with the address of another beside its own, and a server there that asks for a day.
#[test]
fn a_name_with_a_neighbours_address_does_not_make_it_rest() {
    let (web, names) = web_on(2);
    site(&web, "victim.test", None);
    names.set("evil.test", Named::V4(vec![at(1), at(2)]));
    web.host("evil.test", |_, wire| {
        wire.answer(&Answer::new("503 Busy", "Retry-After: 86400\r\n", b""))
    });
    let mut order = delayed(&names, 20);
    order.set("robots.domains", "{ \"evil.test\" = \"ignore\" }");
    order.set("budget.queue.tries", 1);
    order.seed(web.url("evil.test", "/"));
    order.seed(web.url("victim.test", "/"));
    let Crawled { harvest, .. } = crawl(&order, Fate::Undisturbed, &web);
    all_captured(&harvest, &web, &["victim.test"]);
    let evil = web.log_of(&["evil.test"]);
    assert_eq!(evil.len(), 1, "{evil:?}");
}

/// Many names whose first address is dead, and their second the victim's.
#[test]
fn names_that_reach_an_address_by_a_detour_share_its_pace() {
    let (web, names) = (Web::on(&[at(9)]), Names::start(3600));
    let hosts: Vec<String> = (0..12).map(|number| format!("h{number}.test")).collect();
    let mut order = delayed(&names, 40);
    order.set("robots.policy", "\"ignore\"");
    order.set("budget.queue.tries", 3);
    for host in &hosts {
        // Nothing listens on the first, which is the lower one.
        names.set(host, Named::V4(vec![at(8), at(9)]));
        web.pages(host, [("/".to_owned(), html(host))]);
        order.seed(web.url(host, "/"));
    }
    let Crawled { harvest, starts } = crawl(&order, Fate::Undisturbed, &web);
    for host in &hosts {
        assert_eq!(harvest.line(&web.url(host, "/")).status, 200, "{host}");
    }
    apart(&web.log(), millis(40), &starts);
}

/// Hosts of one address: each has the host's delay, and the address the shorter one.
#[test]
fn an_address_has_a_shorter_delay_than_its_hosts() {
    let hosts = ["a.test", "b.test", "c.test"];
    let (web, names) = web_on(1);
    let mut order = delayed(&names, 300);
    order.text("manners.address-delay", "60ms");
    for host in hosts {
        site(&web, host, None);
        order.seed(web.url(host, "/"));
    }
    let Crawled { harvest, starts } = crawl(&order, Fate::Undisturbed, &web);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log(), millis(60), &starts);
    for host in hosts {
        apart(&web.log_of(&[host]), millis(300), &starts);
    }
    // Between two requests to one host there is room for the others.
    let changes = web.log();
    let changes = changes
        .windows(2)
        .filter(|pair| pair[0].host != pair[1].host);
    assert!(
        changes.count() > PAGES,
        "the hosts were asked one after the other"
    );
}

/// A host that asks for patience rests alone, until a second one of its address does the same.
#[test]
fn one_host_that_asks_for_patience_rests_alone() {
    let (web, names) = web_on(1);
    site(&web, "calm.test", None);
    complaining(&web, 2, "503 Busy", "Retry-After: 3\r\n", &[1]);
    let mut order = delayed(&names, 20);
    // By our own time its second page would be given up.
    order.text("manners.back-off.first", "1h");
    order.text("manners.back-off.max", "1h");
    order.text("budget.wait", "1m");
    order.set("budget.queue.tries", 3);
    order.seed(web.url("busy.test", "/"));
    order.seed(web.url("calm.test", "/"));
    let Crawled { harvest, .. } = crawl(&order, Fate::Undisturbed, &web);
    all_captured(&harvest, &web, &["calm.test"]);
    assert_eq!(harvest.line(&web.url("busy.test", "/1")).status, 200);
    let busy = web.log_of(&["busy.test"]);
    let told = busy.iter().position(|seen| seen.target == "/").unwrap();
    let told_again = told + 1;
    let rest = busy[told_again].start - busy[told].start;
    assert!(rest + ROUNDING >= millis(3000), "{rest:?}");
    let calm = web.log_of(&["calm.test"]);
    let meanwhile = calm.iter().filter(|seen| {
        let told = busy[told].end.unwrap();
        seen.start > told && seen.start < busy[told_again].start
    });
    assert!(meanwhile.count() > 0, "the neighbour waited");
}

both!(several_hosts_on_one_address);

fn several_hosts_on_one_address(fate: Fate) {
    let hosts = ["a.test", "b.test", "c.test"];
    let (web, names) = web_on(1);
    let mut order = delayed(&names, 50);
    for host in hosts {
        site(&web, host, None);
        order.seed(web.url(host, "/"));
    }
    let Crawled { harvest, starts } = crawl(&order, fate, &web);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log(), millis(50), &starts);
}

both!(a_named_group_over_several_addresses);

fn a_named_group_over_several_addresses(fate: Fate) {
    let hosts = ["a.shop.test", "b.shop.test", "c.shop.test"];
    let (web, names) = web_on(4);
    let mut order = delayed(&names, 10);
    for (last, host) in (1..).zip(hosts) {
        names.set(host, Named::V4(vec![at(last)]));
        site(&web, host, None);
        order.seed(web.url(host, "/"));
    }
    names.set("free.test", Named::V4(vec![at(4)]));
    site(&web, "free.test", None);
    order.seed(web.url("free.test", "/"));
    order.set(
        "manners.groups",
        "[{ name = \"shops\", hosts = [\".shop.test\"], min-delay = \"50ms\" }]",
    );
    let Crawled { harvest, starts } = crawl(&order, fate, &web);
    all_captured(&harvest, &web, &hosts);
    all_captured(&harvest, &web, &["free.test"]);
    apart(&web.log_of(&hosts), millis(50), &starts);
    let free = web.log_of(&["free.test"]);
    apart(&free, millis(10), &starts);
    if fate == Fate::Undisturbed {
        // In the group it would have been served in turn with the shops, and ended with them.
        let ended = free.last().unwrap().start;
        let shops = web.log_of(&hosts);
        let before = shops.iter().filter(|shop| shop.start < ended).count();
        let all = shops.len();
        assert!(
            before < all / 2,
            "{before} of {all} shop requests came first"
        );
    }
}

both!(a_group_by_its_addresses);

fn a_group_by_its_addresses(fate: Fate) {
    let hosts = ["a.test", "b.test"];
    let (web, names) = web_on(2);
    let mut order = delayed(&names, 10);
    for (last, host) in (1..).zip(hosts) {
        names.set(host, Named::V4(vec![at(last)]));
        site(&web, host, None);
        order.seed(web.url(host, "/"));
    }
    order.set(
        "manners.groups",
        "[{ name = \"network\", addresses = [\"127.0.0.0/24\"], min-delay = \"60ms\" }]",
    );
    let Crawled { harvest, starts } = crawl(&order, fate, &web);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log_of(&hosts), millis(60), &starts);
}

/// Lets requests wait for each other: each is answered when so many are there, and all of these at once.
struct Rounds {
    size: usize,
    state: Mutex<RoundsState>,
    is_full: Condvar,
}

#[derive(Default)]
struct RoundsState {
    come: usize,
    under_way: usize,
    most: usize,
    /// When the requests of each round were let go.
    ends: Vec<Instant>,
}

impl Rounds {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        let round = state.come / self.size;
        state.come += 1;
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        if state.come.is_multiple_of(self.size) {
            state.ends.push(Instant::now());
            self.is_full.notify_all();
        }
        let waits = |state: &mut RoundsState| state.ends.len() <= round;
        let mut state = self.is_full.wait_while(state, waits).unwrap();
        state.under_way -= 1;
    }
}

const WIDE: [&str; 3] = ["a.wide.test", "b.wide.test", "c.wide.test"];
const WIDE_DELAY: Duration = Duration::from_millis(100);

/// Hosts of one group that may be asked three things at once; each request is let go by `wait`.
fn wide(web: &Web, names: &Names, wait: impl Fn() + Clone + Send + Sync + 'static) -> Order {
    let mut order = delayed(names, 10);
    for host in WIDE {
        let wait = wait.clone();
        web.host(host, move |request, wire| {
            wait();
            let links = (0..6).map(|page| format!("<a href='/{page}'></a>"));
            wire.answer(&match request.target.as_str() {
                "/" => html(&links.collect::<String>()),
                path => html(path),
            })
        });
        names.set(host, Named::V4(vec![at(1)]));
        order.seed(web.url(host, "/"));
    }
    order.set(
        "manners.groups",
        "[{ name = \"wide\", hosts = [\".wide.test\"], connections = 3, delay-factor = 0.0, min-delay = \"100ms\" }]",
    );
    for limit in ["limits.time", "limits.idle"] {
        order.text(limit, "1m");
    }
    order
}

fn all_wide_captured(harvest: &Harvest, web: &Web) {
    for host in WIDE {
        for page in 0..6 {
            let url = web.url(host, &format!("/{page}"));
            assert_eq!(harvest.line(&url).status, 200, "{url}");
        }
    }
}

/// No request is answered before three are there. All three are answered at once, so those of the next round are sent
/// after that moment, one after the other.
#[test]
fn a_group_with_several_connections_has_so_many_and_no_more() {
    let (web, names) = web_on(1);
    let rounds = Arc::new(Rounds {
        size: 3,
        state: Mutex::default(),
        is_full: Condvar::new(),
    });
    let waiting = Arc::clone(&rounds);
    let order = wide(&web, &names, move || waiting.wait());
    let harvest = Job::crawl(&order);
    all_wide_captured(&harvest, &web);
    let state = rounds.state.lock().unwrap();
    assert_eq!(state.most, 3);
    let seen = web.log();
    assert_eq!(seen.len(), WIDE.len() * (6 + 2));
    for (requests, end) in seen.chunks(3).skip(1).zip(&state.ends) {
        for (before, request) in (0..).zip(requests) {
            let gap = request.start.saturating_duration_since(*end);
            let wanted = WIDE_DELAY * before;
            assert!(gap + ROUNDING >= wanted, "{gap:?}, not {wanted:?}");
        }
    }
}

/// However often it is killed, no more requests come from the start of a program on than its pace allows; three may have
/// been under way when the one before it died.
#[test]
fn a_group_with_several_connections_keeps_its_pace_when_killed() {
    let (web, names) = web_on(1);
    let order = wide(&web, &names, || std::thread::sleep(WIDE_DELAY));
    let Crawled { harvest, starts } = crawl(&order, Fate::Killed, &web);
    all_wide_captured(&harvest, &web);
    let seen = web.log();
    for start in starts {
        let requests = seen.iter().filter(|seen| seen.start > start);
        for (number, request) in (0..).zip(requests).skip(3) {
            let gap = request.start - start;
            let wanted = WIDE_DELAY * (number - 3);
            assert!(gap + ROUNDING >= wanted, "{gap:?}, not {wanted:?}");
        }
    }
}

both!(a_crawl_delay);

fn a_crawl_delay(fate: Fate) {
    let (web, names) = web_on(1);
    site(
        &web,
        "slow.test",
        Some("User-agent: *\nCrawl-delay: 0.35\n"),
    );
    let mut order = delayed(&names, 5);
    order.seed(web.url("slow.test", "/"));
    // Who asks for a page knows what robots.txt says.
    let pages = || {
        let log = web.log();
        log.iter()
            .filter(|seen| seen.target != "/robots.txt")
            .count()
    };
    let Crawled { harvest, starts } = crawl_telling(&order, fate, pages, |_, _| true);
    all_captured(&harvest, &web, &["slow.test"]);
    let seen = web.log();
    assert_eq!(seen[0].target, "/robots.txt");
    apart(&seen, millis(350), &starts);
}

/// Makes `busy.test`, which answers some requests with a status and these header lines, and all else with pages; returns
/// how often it has complained.
fn complaining(
    web: &Web,
    pages: usize,
    status: &'static str,
    fields: &'static str,
    at: &'static [usize],
) -> Arc<AtomicUsize> {
    let complaints = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&complaints);
    let asked = AtomicUsize::new(0);
    web.host("busy.test", move |request, wire| {
        if request.target == "/robots.txt" {
            return wire.answer(&Answer::missing());
        }
        if at.contains(&(asked.fetch_add(1, Ordering::SeqCst) + 1)) {
            noted.fetch_add(1, Ordering::SeqCst);
            return wire.answer(&Answer::new(status, fields, b"too much"));
        }
        let links = (0..pages).map(|page| format!("<a href='/{page}'></a>"));
        match request.target.as_str() {
            "/" => wire.answer(&html(&links.collect::<String>())),
            path => wire.answer(&html(path)),
        }
    });
    complaints
}

/// Returns when the requests after each complaint came, after the complaint.
fn rests(seen: &[SeenRequest], at: &[usize]) -> Vec<Duration> {
    let pages: Vec<&SeenRequest> = seen
        .iter()
        .filter(|seen| seen.target != "/robots.txt")
        .collect();
    at.iter()
        .map(|&number| {
            let from: Instant = pages[number - 1].start;
            let next = seen.iter().find(|seen| seen.start > from).unwrap();
            next.start - from
        })
        .collect()
}

both!(a_retry_after_is_kept);

fn a_retry_after_is_kept(fate: Fate) {
    let (web, names) = web_on(1);
    let complaint = "429 Too Many Requests";
    let complaints = complaining(&web, 6, complaint, "Retry-After: 2\r\n", &[3]);
    let mut order = delayed(&names, 60);
    order.set("budget.queue.tries", 5);
    order.seed(web.url("busy.test", "/"));
    let told = || complaints.load(Ordering::SeqCst);
    let is_known = |_: &Job, table: &PaceTable| rests_for(table, millis(500));
    let Crawled { harvest, .. } = crawl_telling(&order, fate, told, is_known);
    let rests = rests(&web.log(), &[3]);
    assert!(rests[0] >= millis(2000) - ROUNDING, "{rests:?}");
    for page in 0..6 {
        let url = web.url("busy.test", &format!("/{page}"));
        assert_eq!(harvest.line(&url).status, 200, "{url}");
    }
}

both!(overload_backs_off_longer_each_time);

fn overload_backs_off_longer_each_time(fate: Fate) {
    let (web, names) = web_on(1);
    let complaints = complaining(&web, 6, "503 Overloaded", "", &[3, 4, 5]);
    let mut order = delayed(&names, 60);
    order.text("manners.back-off.first", "400ms");
    order.text("manners.back-off.max", "1s");
    order.set("budget.queue.tries", 9);
    order.seed(web.url("busy.test", "/"));
    let told = || complaints.load(Ordering::SeqCst);
    // The table knows at once how long the server rests. How often it has complained is known from the next commit on.
    let is_known = |job: &Job, _: &PaceTable| committed_level(job) >= told();
    let Crawled { harvest, .. } = crawl_telling(&order, fate, told, is_known);
    let rests = rests(&web.log(), &[3, 4, 5]);
    let wanted = [400, 800, 1000].map(millis);
    for (rest, wanted) in rests.iter().zip(wanted) {
        assert!(*rest + ROUNDING >= wanted, "{rests:?}");
    }
    for page in 0..6 {
        let url = web.url("busy.test", &format!("/{page}"));
        assert_eq!(harvest.line(&url).status, 200, "{url}");
    }
}

/// However long a crawl has run when it is told, and however seldom it commits then.
/// When a job is old enough it commits every two seconds: only then does a kill find something that no commit knows.
#[test]
fn a_rest_after_a_long_fetch_is_kept_after_a_kill() {
    let (web, names) = web_on(2);
    names.set("slow.test", Named::V4(vec![at(2)]));
    web.host("slow.test", |request, wire| match request.target.as_str() {
        "/robots.txt" => wire.answer(&Answer::missing()),
        "/" => {
            std::thread::sleep(millis(300));
            wire.answer(&html("<a href='/next'></a>"))
        }
        _ => wire.answer(&html("next")),
    });
    let links: String = (0..60)
        .map(|page| format!("<a href='/{page}'></a>"))
        .collect();
    let slow = format!("<a href='{}'></a>", web.url("slow.test", "/"));
    web.host("busy.test", move |request, wire| {
        match request.target.as_str() {
            "/45" => wire.answer(&html(&slow)),
            _ => wire.answer(&html(&links)),
        }
    });
    let mut order = delayed(&names, 100);
    order.set("scope.accept-surts", "[\"test,slow,\"]");
    order.set(
        "manners.groups",
        "[{ name = 'slow', hosts = ['slow.test'], min-delay = '5ms', delay-factor = 5.0, max-delay = '1600ms' }]",
    );
    order.seed(web.url("busy.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    let table = pace_table(&job);
    let asked = |target: &str| {
        let seen = web.log_of(&["slow.test"]);
        seen.into_iter().find(|seen| seen.target == target)
    };
    until_so("a long rest that is written down", || {
        let [_, rest] = table.waits(["slow.test", "slow"]).unwrap();
        rest > millis(500) || asked("/next").is_some()
    });
    program.signal(Signal::KILL);
    program.wait();
    job.finish();
    // The page is asked for again, since no commit has it.
    let seen = web.log_of(&["slow.test"]);
    for pair in seen.windows(2).filter(|pair| pair[0].target == "/") {
        // It took 300 ms, and rests for five times as long.
        let rest = pair[1].start - pair[0].start;
        assert!(rest + ROUNDING >= millis(1800), "{rest:?}");
    }
}

#[test]
fn a_retry_after_that_comes_late_is_kept_after_a_kill() {
    let (web, names) = web_on(1);
    let complaint = "429 Too Many Requests";
    let complaints = complaining(&web, 30, complaint, "Retry-After: 4\r\n", &[26]);
    let mut order = delayed(&names, 200);
    order.set("budget.queue.tries", 5);
    order.seed(web.url("busy.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    let table = pace_table(&job);
    until_so("the complaint", || {
        complaints.load(Ordering::SeqCst) > 0 && rests_for(&table, millis(500))
    });
    program.signal(Signal::KILL);
    program.wait();
    job.finish();
    let rests = rests(&web.log(), &[26]);
    assert!(rests[0] >= millis(4000) - ROUNDING, "{rests:?}");
}
