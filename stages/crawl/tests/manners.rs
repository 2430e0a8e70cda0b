//! Manners, measured at the server: no group sees two requests closer than its delay, be the crawl left alone or killed
//! again and again.
//!
//! Times are those of the server's log. With one connection the delay runs from the end of an answer, so nothing that
//! slows this machine down can make a gap look shorter than it was.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::until_so;
use ecluse_testkit::web::{Answer, Seen, Web, html};
use rustix::process::Signal;

use web::{Dice, Harvest, Job, Order, at, web_on};

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

fn crawl(order: &Order, fate: Fate) -> Harvest {
    let job = Job::give(order);
    if fate == Fate::Killed {
        let killed = job.kill(4, &mut Dice(7), 200, 600);
        assert!(killed > 1, "it ended before it could be killed");
    }
    job.finish();
    Harvest::read(job)
}

/// What a server said so long ago is known after a kill; what it said a moment before cannot be.
const LEARNED: Duration = Duration::from_millis(300);

/// Crawls it; a crawl that is killed dies after each answer that tells something, as soon as that must be known.
fn crawl_telling(order: &Order, fate: Fate, told: impl Fn() -> Vec<Instant>) -> Harvest {
    let job = Job::give(order);
    let deaths = if fate == Fate::Killed { 3 } else { 0 };
    let known = || told().iter().filter(|at| at.elapsed() > LEARNED).count();
    let mut before = 0;
    for _ in 0..deaths {
        let mut program = job.start();
        until_so("an answer that tells", || {
            known() > before || job.root.receipts("crawl") > 0
        });
        before = known();
        program.signal(Signal::KILL);
        program.wait();
    }
    job.finish();
    Harvest::read(job)
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
/// the crawl was killed and never saw the answer.
fn apart(seen: &[Seen], delay: Duration, fate: Fate) {
    assert!(seen.len() > PAGES, "{} requests", seen.len());
    for pair in seen.windows(2) {
        let from = match fate {
            Fate::Undisturbed => pair[0].end.unwrap(),
            Fate::Killed => pair[0].start,
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
    let harvest = crawl(&order, fate);
    all_captured(&harvest, &web, &["one.test"]);
    apart(&web.log(), millis(120), fate);
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
    site(&web, "one.test", None);
    let mut order = delayed(&names, 120);
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
    let mut programs = vec![job.start()];
    if processes == Processes::Two {
        programs.push(job.start());
    }
    for mut program in programs {
        assert_eq!(program.wait(), 0, "{}", program.log());
    }
    let seen = web.log();
    // Each page twice, and robots.txt.
    assert_eq!(seen.len(), 2 * (PAGES + 2));
    apart(&seen, millis(120), Fate::Undisturbed);
    // Both were at work: the second did not wait for the end of the first.
    let robots = seen.iter().rposition(|seen| seen.target == "/robots.txt");
    assert!(robots.unwrap() < seen.len() / 2, "{robots:?}");
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
    let harvest = crawl(&order, Fate::Undisturbed);
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
    let harvest = crawl(&order, Fate::Undisturbed);
    for host in &hosts {
        assert_eq!(harvest.line(&web.url(host, "/")).status, 200, "{host}");
    }
    apart(&web.log(), millis(40), Fate::Undisturbed);
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
    let harvest = crawl(&order, Fate::Undisturbed);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log(), millis(60), Fate::Undisturbed);
    for host in hosts {
        apart(&web.log_of(&[host]), millis(300), Fate::Undisturbed);
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
    order.text("manners.back-off.first", "40s");
    order.text("manners.back-off.max", "40s");
    order.set("budget.queue.tries", 3);
    order.seed(web.url("busy.test", "/"));
    order.seed(web.url("calm.test", "/"));
    let harvest = crawl(&order, Fate::Undisturbed);
    all_captured(&harvest, &web, &["calm.test"]);
    assert_eq!(harvest.line(&web.url("busy.test", "/1")).status, 200);
    let busy = web.log_of(&["busy.test"]);
    let told = busy.iter().position(|seen| seen.target == "/").unwrap();
    let rest = busy[told + 1].start - busy[told].start;
    assert!(rest + ROUNDING >= millis(3000), "{rest:?}");
    // It named the time itself, which is shorter than ours.
    assert!(rest < Duration::from_secs(30), "{rest:?}");
    let calm = web.log_of(&["calm.test"]);
    let meanwhile = calm.iter().filter(|seen| seen.start < busy[told + 1].start);
    assert!(meanwhile.count() > PAGES, "the neighbour waited");
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
    let harvest = crawl(&order, fate);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log(), millis(50), fate);
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
    let harvest = crawl(&order, fate);
    all_captured(&harvest, &web, &hosts);
    all_captured(&harvest, &web, &["free.test"]);
    apart(&web.log_of(&hosts), millis(50), fate);
    let free = web.log_of(&["free.test"]);
    apart(&free, millis(10), fate);
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
    let harvest = crawl(&order, fate);
    all_captured(&harvest, &web, &hosts);
    apart(&web.log_of(&hosts), millis(60), fate);
}

both!(a_group_with_several_connections);

fn a_group_with_several_connections(fate: Fate) {
    let (web, names) = web_on(1);
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let hosts = ["a.wide.test", "b.wide.test", "c.wide.test"];
    let mut order = delayed(&names, 10);
    for host in hosts {
        let (under_way, most) = (under_way.clone(), most.clone());
        web.host(host, move |request, wire| {
            let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(millis(300));
            let links: String = (0..6)
                .map(|page| format!("<a href='/{page}'></a>"))
                .collect();
            let body = if request.target == "/" {
                links
            } else {
                request.target.clone()
            };
            under_way.fetch_sub(1, Ordering::SeqCst);
            wire.answer(&html(&body))
        });
        names.set(host, Named::V4(vec![at(1)]));
        order.seed(web.url(host, "/"));
    }
    order.set(
        "manners.groups",
        "[{ name = \"wide\", hosts = [\".wide.test\"], connections = 3, delay-factor = 0.0, min-delay = \"100ms\" }]",
    );
    let harvest = crawl(&order, fate);
    for host in hosts {
        for page in 0..6 {
            assert_eq!(
                harvest.line(&web.url(host, &format!("/{page}"))).status,
                200
            );
        }
    }
    let most = most.load(Ordering::SeqCst);
    if fate == Fate::Undisturbed {
        // A server still answers what a killed crawl asked for.
        assert!((2..=3).contains(&most), "{most} at once");
    }
    let seen = web.log();
    // A thread that wakes late makes one gap look shorter; over several gaps that does not matter.
    for five in seen.windows(5) {
        let gap = five[4].start - five[0].start;
        assert!(gap >= millis(4 * 100 - 80), "five requests within {gap:?}");
    }
    for pair in seen.windows(2) {
        let gap = pair[1].start - pair[0].start;
        assert!(gap >= millis(40), "two requests within {gap:?}");
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
    let harvest = crawl_telling(&order, fate, || {
        web.log().iter().filter_map(|seen| seen.end).collect()
    });
    all_captured(&harvest, &web, &["slow.test"]);
    let seen = web.log();
    assert_eq!(seen[0].target, "/robots.txt");
    apart(&seen, millis(350), fate);
}

/// Makes `busy.test`, which answers some requests with a status and these header lines, and all else with pages; returns
/// when it complained.
fn complaining(
    web: &Web,
    pages: usize,
    status: &'static str,
    fields: &'static str,
    at: &'static [usize],
) -> Arc<Mutex<Vec<Instant>>> {
    let complaints = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&complaints);
    let asked = AtomicUsize::new(0);
    web.host("busy.test", move |request, wire| {
        if request.target == "/robots.txt" {
            return wire.answer(&Answer::missing());
        }
        if at.contains(&(asked.fetch_add(1, Ordering::SeqCst) + 1)) {
            let after = wire.answer(&Answer::new(status, fields, b"too much"));
            noted.lock().unwrap().push(Instant::now());
            return after;
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
fn rests(seen: &[Seen], at: &[usize]) -> Vec<Duration> {
    let pages: Vec<&Seen> = seen
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
    let harvest = crawl_telling(&order, fate, || complaints.lock().unwrap().clone());
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
    let harvest = crawl_telling(&order, fate, || complaints.lock().unwrap().clone());
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
    let paces = job.dir().join("paces");
    let asked = |target: &str| {
        let seen = web.log_of(&["slow.test"]);
        seen.into_iter().find(|seen| seen.target == target)
    };
    until_so("a long rest that is written down", || {
        let noted = std::fs::read_to_string(&paces).unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let is_long = |line: &str| {
            let until = line
                .strip_suffix(" slow")
                .and_then(|until| until.parse().ok());
            until.is_some_and(|until| Duration::from_millis(until) > since + millis(500))
        };
        noted.lines().any(is_long) || asked("/next").is_some()
    });
    program.signal(Signal::KILL);
    program.wait();
    job.finish();
    // The page is asked for again, since no commit has it.
    let seen = web.log_of(&["slow.test"]);
    for pair in seen.windows(2).filter(|pair| pair[0].target == "/") {
        let rest = pair[1].start - pair[0].end.unwrap();
        assert!(rest + ROUNDING >= millis(1500), "{rest:?}");
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
    until_so("the complaint", || {
        let complaints = complaints.lock().unwrap();
        complaints.iter().any(|at| at.elapsed() > LEARNED)
    });
    program.signal(Signal::KILL);
    program.wait();
    job.finish();
    let rests = rests(&web.log(), &[26]);
    assert!(rests[0] >= millis(4000) - ROUNDING, "{rests:?}");
}
