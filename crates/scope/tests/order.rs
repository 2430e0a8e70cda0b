//! Whole orders: the documented example, every problem at once, and what may change while a job runs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use ecluse_config::{Bytes, ConfigError, Document, Key, Span};
use ecluse_scope::{
    GroupBy, Limit, Order, Priority, Reach, RobotsPolicy, Scope, ScopeVerdict, SeedsOrder,
};
use proptest::prelude::*;

const PAGE: &str = include_str!("../../../docs/formats/order.md");

/// The TOML examples of the documentation.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap_or_default())
        .collect()
}

const SMALL: &str = "\
job = '1'
harvest = '2'
[[seeds]]
urls = ['lock.example']
";

fn parse(text: &str) -> Result<Order, ConfigError> {
    Order::parse(text, "order.toml", "keeper@archive.example").map(|read| read.order)
}

fn problems(text: &str) -> Vec<String> {
    let error = parse(text).expect_err(text);
    error.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn the_documented_example_is_the_default() {
    let read = Order::parse(examples()[0], "order.md", "").unwrap();
    assert_eq!(read.warnings, []);
    let mut expected = Order {
        job: "4711".to_owned(),
        harvest: "2026".to_owned(),
        seeds: vec![SeedsOrder {
            urls: vec!["https://lock.example/".to_owned()],
            ..SeedsOrder::default()
        }],
        ..Order::default()
    };
    expected.agent.contact = "https://archive.example/crawler".to_owned();
    assert_eq!(read.order, expected);
}

#[test]
fn the_documented_example_has_every_key() {
    fn walk<'a>(table: &'a toml::Table, path: &[Key<'a>], document: &Document<Order>) {
        for (key, value) in table {
            let path: Vec<Key<'a>> = path.iter().copied().chain([Key::Name(key)]).collect();
            assert!(document.says(&path), "{path:?} is not documented");
            if let toml::Value::Table(table) = value {
                walk(table, &path, document);
            }
        }
    }
    let document = Document::parse_over(&Order::default(), examples()[0], "order.md");
    let defaults = toml::Table::try_from(Order::default()).unwrap();
    walk(&defaults, &[], &document);
}

#[test]
fn what_may_be_added_is_read() {
    let order = Order::parse(examples()[1], "order.md", "").unwrap().order;
    assert_eq!(examples().len(), 2);
    assert_eq!(order.seeds[0].reach, Some(Reach::Path));
    assert_eq!(order.seeds[1].file.as_deref(), Some("seeds.txt"));
    let list = order.seed_list();
    let seeds: Vec<&str> = list.seeds.iter().map(|seed| seed.url.as_str()).collect();
    assert_eq!(
        seeds,
        ["http://lock.example/news/", "http://canal.example/"]
    );
    assert_eq!(list.seeds[0].tag, "press");

    assert_eq!(
        order.queue_budget("a.canal.example").urls,
        Limit::At(50_000)
    );
    assert_eq!(order.queue_budget("lock.example").urls, Limit::None);

    let grouping = order.grouping();
    assert_eq!(grouping.by, GroupBy::Address);
    let cdn = grouping.group_of("a.cdn.example", "a.cdn.example", None);
    assert_eq!((&*cdn.name, cdn.number), ("big-cdn", Some(1)));
    assert_eq!(order.manners.groups[1].max_delay, Some(Span::secs(1)));

    for (host, policy) in [
        ("lock.example", RobotsPolicy::Ignore),
        ("a.lock.example", RobotsPolicy::Ignore),
        ("www.lock.example", RobotsPolicy::Requisites),
        ("clock.example", RobotsPolicy::Obey),
    ] {
        assert_eq!(order.robots.policy_of(host), policy, "{host}");
    }

    let scope = Scope::compile(&order.scope, &list.seeds, 2026).unwrap();
    let rules: Vec<&str> = scope.rule_names().collect();
    assert!(rules.contains(&"no-films"), "{rules:?}");
}

#[test]
fn a_small_order_is_enough() {
    let order = parse(SMALL).unwrap();
    assert_eq!(order.priority, Priority::Normal);
    assert_eq!(order.manners.min_delay, Span::secs(3));
    assert_eq!(order.robots.limits().size, 512_000);
    assert_eq!(order.robots.freshness().keep, Duration::from_secs(86_400));
    assert_eq!(order.warc.size, Bytes(1_000_000_000));
    let agent = order.user_agent("keeper@archive.example").unwrap();
    assert!(agent.ends_with("; +keeper@archive.example)"), "{agent}");
    // What is written is read back.
    let written = toml::to_string(&order).unwrap();
    assert_eq!(parse(&written).unwrap(), order);
}

#[test]
fn what_an_order_needs() {
    let error = Order::parse("", "order.toml", "").unwrap_err();
    let found: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(
        found[..3],
        [
            "order.toml: 'job': is not set, and has no default",
            "order.toml: 'harvest': is not set, and has no default",
            "order.toml: 'seeds': there is no seed; add [[seeds]] with urls or a file",
        ]
    );
    assert!(
        found[3].contains("names nobody to write to"),
        "{}",
        found[3]
    );
}

#[test]
fn every_problem_is_found_at_once_with_its_line() {
    let text = "\
job = 'a-b'
harvset = '2'
harvest = '2'
priority = 'urgent'

[[seeds]]
tag = 'two words'
urls = [
    'http://fine.example/',
    'ftp://lock.example/',
    'nonsense',
]

[[seeds]]
file = '../seeds.txt'

[scope]
hops = 'many'
reject-regexes = ['fine', '(']
sequence = ['nothing', 'sedes']

[[scope.rules]]
name = 'mine'
verdict = 'perhaps'

[budget.queue]
urls = -1

[manners]
min-delay = 3
max-delay = '1s'
delay-factor = nan

[manners.back-off]
statuses = [200]

[[manners.groups]]
name = 'one'
hosts = ['a b']
addresses = ['192.0.2.0/99']

[[manners.groups]]
name = 'one'
connections = 0

[robots.domains]
'lock example' = 'obey'
'lock.example' = 'disobey'

[agent]
contact = 'me'

[warc]
gzip-level = 11
size = '1 GBB'
";
    let found = problems(text);
    let expected = [
        "order.toml:1: 'job': \"a-b\" cannot be part of a file name",
        "order.toml:2: unknown key 'harvset'; did you mean 'harvest'?",
        "order.toml:4: 'priority': unknown value 'urgent'; known here: low, normal, high",
        "order.toml:7: 'seeds[0].tag': a tag is one word",
        "order.toml:10: 'seeds[0].urls[1]': \"ftp://lock.example/\": cannot crawl the scheme \"ftp\"",
        "order.toml:11: 'seeds[0].urls[2]': \"nonsense\": no host name",
        "order.toml:15: 'seeds[1].file': \"../seeds.txt\" must be the name of a file beside the order",
        "order.toml:18: 'scope.hops': ",
        "order.toml:19: 'scope.reject-regexes[1]': rule \"reject\": \"(\" is no regular expression",
        "order.toml:19: 'scope.reject-regexes': rule \"reject\": is not in the sequence",
        "order.toml:20: 'scope.sequence[1]': rule \"sedes\": there is no such rule",
        "order.toml:24: 'scope.rules[0].verdict': unknown value 'perhaps'",
        "order.toml:27: 'budget.queue.urls': expected a whole number, not negative",
        "order.toml:30: 'manners.min-delay': the bare number 3 has no unit",
        "order.toml:31: 'manners.max-delay': 1s must not be shorter than min-delay, 3s",
        "order.toml:32: 'manners.delay-factor': NaN must be from 0.0 to 1000.0",
        "order.toml:35: 'manners.back-off.statuses[0]': 200 is no HTTP status",
        "order.toml:39: 'manners.groups[0].hosts[0]': \"a b\" is no host",
        "order.toml:40: 'manners.groups[0].addresses[0]': \"192.0.2.0/99\" is no range of addresses",
        "order.toml:43: 'manners.groups[1].name': there are two groups \"one\"",
        "order.toml:42: 'manners.groups[1]': has neither hosts nor addresses",
        "order.toml:44: 'manners.groups[1].connections': must be at least 1",
        "order.toml:47: 'robots.domains.\"lock example\"': \"lock example\" is no host",
        "order.toml:48: 'robots.domains.\"lock.example\"': unknown value 'disobey'",
        "order.toml:51: 'agent.contact': the contact \"me\" is neither a URL nor a mail address",
        "order.toml:54: 'warc.gzip-level': 11 must be from 1 to 9",
        "order.toml:55: 'warc.size': \"1 GBB\" is not a size such as",
    ];
    for expected in expected {
        assert!(
            found.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{found:#?}"
        );
    }
    // Nothing is said twice or without need.
    let lines: BTreeSet<&String> = found.iter().collect();
    assert_eq!(
        (found.len(), lines.len()),
        (expected.len(), expected.len()),
        "{found:#?}"
    );
}

#[test]
fn values_that_cannot_be() {
    for (lines, expected) in [
        (
            "[scope]\nschemes = ['gopher']",
            "'scope.schemes[0]': \"gopher\" cannot be fetched",
        ),
        (
            "[scope]\nurl-length = 3",
            "'scope.url-length': rule \"length\": must be at least 16",
        ),
        (
            "[scope.traps]\nexcept = ['x']",
            "'scope.traps.except[0]': rule \"traps\": there is no shipped trap",
        ),
        (
            "[scope]\nreach = 'planet'",
            "'scope.reach': unknown value 'planet'",
        ),
        ("[budget]\nurls = 0", "'budget.urls': must not be zero"),
        ("[budget]\ntime = '0s'", "'budget.time': must not be zero"),
        (
            "[budget.queue]\ntries = 0",
            "'budget.queue.tries': must be at least 1",
        ),
        (
            "[[budget.exceptions]]\nurls = 7",
            "'budget.exceptions[0]': names no host",
        ),
        (
            "[manners]\nconnections = 0",
            "'manners.connections': must be at least 1",
        ),
        (
            "[manners]\nconnections = 20000",
            "'manners.connections': 20000 is more than 10000",
        ),
        (
            "[manners.back-off]\nfactor = 0.5",
            "'manners.back-off.factor': 0.5 must be",
        ),
        (
            "[manners.back-off]\nmax = '1s'",
            "'manners.back-off.max': 1s must not be shorter",
        ),
        (
            "[[manners.groups]]\nhosts = ['a.example']",
            "'manners.groups[0]': has no name",
        ),
        (
            "[[manners.groups]]\nname = 'A'\nhosts = ['a.example']",
            "'manners.groups[0].name': \"A\" cannot name a group",
        ),
        (
            "[[manners.groups]]\nname = 'a'\nhosts = ['a.example']\nmin-delay = '1h'",
            "'manners.groups[0].min-delay': 30s must not be shorter",
        ),
        (
            "[robots]\nagents = []",
            "'robots.agents': must name the crawler",
        ),
        (
            "[robots]\nagents = ['a b']",
            "'robots.agents[0]': \"a b\" is no product token",
        ),
        (
            "[agent]\nuser-agent = 'bot'",
            "'agent.contact': \"bot\" names nobody",
        ),
        (
            "[agent]\nfrom = \"a\\nb\"",
            "'agent.from': \"a\\nb\" cannot be sent",
        ),
        (
            "[limits]\nhead = '1 B'",
            "'limits.head': must be at least 1 KiB",
        ),
        (
            "[limits]\nrate = '10 B'",
            "'limits.min-rate': 64 B must be below rate, 10 B",
        ),
        ("[limits]\ntime = '0s'", "'limits.time': must not be zero"),
        (
            "[network]\nresolvers = ['192.0.2.53']",
            "'network.resolvers[0]': \"192.0.2.53\" is no address with a port",
        ),
        (
            "[extract]\nlinks = 0",
            "'extract.links': must be at least 1",
        ),
        (
            "[warc]\nprefix = 'a/b'",
            "'warc.prefix': \"a/b\" cannot be part",
        ),
        (
            "[warc]\nsize = '1 kB'",
            "'warc.size': 1 kB must be at least 1 MB",
        ),
        (
            "[warc]\ncompression = 'zip'",
            "'warc.compression': unknown value 'zip'; did you mean 'gzip'?",
        ),
        (
            "[tls]\ninvalid-certificates = 'ignore'",
            "'tls.invalid-certificates': unknown value",
        ),
        (
            "[scoep]\nhops = 3",
            "unknown key 'scoep'; did you mean 'scope'?",
        ),
        (
            "[scope]\nhosp = 3",
            "unknown key 'scope.hosp'; did you mean 'hops'?",
        ),
    ] {
        let found = problems(&format!("{SMALL}{lines}\n"));
        assert_eq!(found.len(), 1, "{lines}\n{found:#?}");
        assert!(found[0].contains(expected), "{lines}\n{}", found[0]);
    }
}

#[test]
fn what_is_odd_is_a_warning() {
    let text = format!(
        "{}[robots]\nsize = '1 KiB'\nkeep = '2d'\n[manners]\nmin-delay = '0s'\ndelay-factor = 0.0\n",
        SMALL.replace("'1'", "'one'")
    );
    let read = Order::parse(&text, "order.toml", "keeper@archive.example").unwrap();
    let warnings: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "order.toml:6: warning: 'robots.size': 1 KiB: RFC 9309 asks for at least 500 KiB",
            "order.toml:7: warning: 'robots.keep': 2d: RFC 9309 asks for at most 24 hours",
            "order.toml:9: warning: 'manners.min-delay': with delay-factor 0 there is no pause at all between two requests to a server",
        ]
    );
}

#[test]
fn a_running_order_is_amended() {
    let order = parse(&format!(
        "{SMALL}[scope]\nreject-regexes = ['/old/', '/kept/']\n"
    ))
    .unwrap();
    let text =
        "[scope]\nreject-regexes = ['/kept/', '/new/']\ndepth = 3\n[budget.queue]\nurls = 500\n";
    let amended = order
        .amend(text, "change.toml", "keeper@archive.example")
        .unwrap();
    let told: Vec<String> = amended.changes.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            r#"budget.queue.urls: "none" is now 500"#,
            r#"scope.depth: "none" is now 3"#,
            r#"scope.reject-regexes: removed "/old/""#,
            r#"scope.reject-regexes: added "/new/""#,
        ]
    );
    assert_eq!(amended.order.job, "1");
    let list = amended.order.seed_list();
    let scope = Scope::compile(&amended.order.scope, &list.seeds, 2026).unwrap();
    let url = "http://lock.example/new/";
    let surt = ecluse_surt::Surt::of(url.as_bytes()).unwrap();
    let candidate = ecluse_scope::CandidateUrl::seed(url, surt.as_bytes());
    assert_eq!(
        scope.decide(&candidate).unwrap().verdict,
        ScopeVerdict::Reject
    );

    let nothing = order
        .amend("", "change.toml", "keeper@archive.example")
        .unwrap();
    assert_eq!((nothing.changes, nothing.order), (Vec::new(), order));
}

#[test]
fn some_things_cannot_be_amended() {
    let order = parse(SMALL).unwrap();
    let text = "\
job = '9'
harvest = '9'
seeds = [{ urls = ['canal.example'] }]
bare-hosts = 'both'
same-url.lower-case = true
priority = 'high'
manners.queue-by = 'host'
warc = { prefix = 'new', compression = 'none' }
scope.reject-regexes = ['(']
";
    let error = order
        .amend(text, "change.toml", "keeper@archive.example")
        .unwrap_err();
    let found: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 10, "{found:#?}");
    for (index, (line, key)) in [
        (1, "job"),
        (2, "harvest"),
        (3, "seeds"),
        (4, "bare-hosts"),
        (5, "same-url"),
        (6, "priority"),
        (7, "manners.queue-by"),
        (8, "warc.prefix"),
        (8, "warc.compression"),
    ]
    .iter()
    .enumerate()
    {
        let expected = format!("change.toml:{line}: '{key}': cannot change while the job runs");
        assert_eq!(found[index], expected);
    }
    assert!(found[9].starts_with("change.toml:9: 'scope.reject-regexes[0]'"));
}

#[test]
fn duplicates_of_seeds_are_counted() {
    let text = SMALL.replace(
        "['lock.example']",
        "['lock.example', 'HTTP://Lock.Example:80/#top', 'https://lock.example', 'http://lock.example/?']",
    );
    let list = parse(&text).unwrap().seed_list();
    assert_eq!(
        (list.count.lines, list.count.kept, list.count.duplicates),
        (4, 2, 2)
    );
}

#[test]
fn many_faults_are_all_told_and_end() {
    let mut text = String::from(SMALL);
    text.push_str("[scope]\nreject-regexes = [\n");
    for _ in 0..300 {
        writeln!(text, "    '(',").unwrap();
    }
    text.push_str("]\n");
    assert_eq!(problems(&text).len(), 300);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Lines of the example taken out, doubled, moved or cut never panic.
    #[test]
    fn no_text_panics(picked in proptest::collection::vec((0usize..150, 0usize..90), 0..30), noise in "\\PC{0,20}") {
        let lines: Vec<&str> = examples()[0].lines().collect();
        let mut text = String::new();
        for (line, cut) in picked {
            let line = lines[line % lines.len()];
            let end = line.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(line.len());
            text.push_str(&line[..end]);
            text.push('\n');
        }
        for text in [text.clone(), format!("{text}{noise}"), noise] {
            if let Err(error) = Order::parse(&text, "order.toml", "") {
                let shown = error.to_string();
                let is_harmless = !shown.contains(|c: char| c.is_control() && c != '\n');
                prop_assert!(!shown.is_empty() && is_harmless);
            }
        }
    }
}
