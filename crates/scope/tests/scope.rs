//! Whole scopes: what is in, what is out, and what is said about it.

use std::sync::LazyLock;

use ecluse_scope::{
    Bare, CandidateUrl, CanonOrder, Limit, OwnRule, Reach, RegexReach, SEQUENCE, Scope, ScopeOrder,
    ScopeVerdict, SeedList, TrapsOrder, changes,
};
use proptest::prelude::*;

fn scope(order: &ScopeOrder, seeds: &[&str]) -> Scope {
    let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
    for seed in seeds {
        list.add(seed, "register", None).expect("a good seed");
    }
    Scope::compile(order, &list.seeds, 2026).expect("a good order")
}

struct Asked {
    verdict: ScopeVerdict,
    rule: String,
    why: String,
}

fn ask(scope: &Scope, url: &str, hops: &str) -> Asked {
    let surt = ecluse_surt::Surt::of(url.as_bytes()).expect("a URL with a key");
    let candidate = CandidateUrl {
        hops,
        via: Some("http://lock.example/"),
        tag: Some("register"),
        ..CandidateUrl::seed(url, surt.as_bytes())
    };
    let judged = scope.judge(&candidate).expect("in memory nothing fails");
    let decided = scope.decide(&candidate).expect("in memory nothing fails");
    // The quick way and the whole story agree.
    assert_eq!(judged.verdict, decided.verdict);
    if let Some(last) = judged.spoke.last() {
        assert_eq!(
            (last.rule.as_str(), &last.why),
            (decided.rule, &decided.why.to_string())
        );
    }
    Asked {
        verdict: decided.verdict,
        rule: decided.rule.to_owned(),
        why: decided.why.to_string(),
    }
}

fn decided(scope: &Scope, url: &str, hops: &str) -> (ScopeVerdict, String) {
    let asked = ask(scope, url, hops);
    (asked.verdict, asked.rule)
}

use ScopeVerdict::{Accept, Reject};

#[test]
fn the_default_scope_rule_by_rule() {
    let scope = scope(&ScopeOrder::default(), &["http://www.lock.example/start"]);
    let long = format!("http://lock.example/{}", "a".repeat(4_000));
    let deep = format!(
        "http://lock.example{}",
        (0..21).map(|n| format!("/{n}")).collect::<String>()
    );
    let many = format!(
        "http://lock.example/?{}",
        (0..31).map(|n| format!("a{n}=1&")).collect::<String>()
    );
    let (files, endless) = ("E".repeat(50), "E".repeat(51));
    for (url, hops, verdict, rule) in [
        ("http://lock.example/a", "L", Accept, "seeds"),
        ("https://sub.lock.example:8443/a", "LLL", Accept, "seeds"),
        ("http://other.example/a", "L", Reject, "nothing"),
        ("http://other.example/a.png", "LE", Accept, "transclusion"),
        ("http://other.example/a.css", "LEE", Accept, "transclusion"),
        (
            "http://other.example/a.css",
            "LEEEEE",
            Accept,
            "transclusion",
        ),
        ("http://other.example/a", "LEEEE", Accept, "transclusion"),
        (
            "http://other.example/a.png",
            "LEEEX",
            Accept,
            "transclusion",
        ),
        ("http://other.example/a.html", "LEEEX", Reject, "nothing"),
        ("http://other.example/v1.2", "LEEEX", Reject, "nothing"),
        ("http://other.example/a.css", &files, Accept, "transclusion"),
        ("http://other.example/a.css", &endless, Reject, "hops"),
        ("http://other.example/a", "LX", Accept, "transclusion"),
        ("http://other.example/a", "LXX", Reject, "nothing"),
        ("http://other.example/a", "R", Accept, "transclusion"),
        ("http://other.example/a", "LR", Accept, "transclusion"),
        ("http://other.example/a", "LRL", Reject, "nothing"),
        ("http://other.example/a", "LERR", Accept, "transclusion"),
        ("http://other.example/a", "LRRRRRRRRRRR", Reject, "nothing"),
        (
            "http://lock.example/a",
            "LLLLLLLLLLLLLLLLLLLL",
            Accept,
            "seeds",
        ),
        (
            "http://lock.example/a",
            "LLLLLLLLLLLLLLLLLLLLL",
            Reject,
            "hops",
        ),
        (
            "http://lock.example/a.png",
            "LLLLLLLLLLLLLLLLLLLLE",
            Accept,
            "transclusion",
        ),
        ("http://lock.example/a/a/a/b", "L", Reject, "repetition"),
        (
            "http://lock.example/a/b/a/c/a/d/a/e/a/f/a/g/a",
            "L",
            Reject,
            "repetition",
        ),
        (&deep, "L", Reject, "segments"),
        (&deep, "", Accept, "seed"),
        ("http://lock.example/2071/11/", "L", Reject, "calendar"),
        (&many, "L", Reject, "arguments"),
        (
            "http://lock.example/?f[0]=a&f[1]=b&f[2]=c&f[3]=d&f[4]=e",
            "L",
            Reject,
            "arguments",
        ),
        ("http://lock.example/?u=%25252525", "L", Reject, "arguments"),
        ("http://lock.example/?replytocom=7", "L", Reject, "traps"),
        ("http://lock.example/?replytocom=7", "LE", Reject, "traps"),
        (
            "http://other.example/robots.txt",
            "LP",
            Accept,
            "prerequisites",
        ),
        (&long, "L", Reject, "length"),
        (&long, "", Reject, "length"),
        ("ftp://lock.example/a", "L", Reject, "schemes"),
        ("mailto:keeper@lock.example", "L", Reject, "schemes"),
        ("ftp://lock.example/a", "P", Reject, "schemes"),
    ] {
        assert_eq!(
            decided(&scope, url, hops),
            (verdict, rule.to_owned()),
            "{url} {hops}"
        );
    }
}

#[test]
fn a_judgement_tells_the_whole_story() {
    let order = ScopeOrder {
        reject_surts: vec!["example,lock)/private/".to_owned()],
        ..ScopeOrder::default()
    };
    let scope = scope(&order, &["lock.example"]);
    let url = "http://lock.example/private/a/a/a/";
    let surt = ecluse_surt::Surt::of(url.as_bytes()).unwrap();
    let candidate = CandidateUrl {
        hops: "LE",
        ..CandidateUrl::seed(url, surt.as_bytes())
    };
    let judgement = scope.judge(&candidate).unwrap();
    let story: Vec<String> = judgement.spoke.iter().map(ToString::to_string).collect();
    assert_eq!(
        story,
        [
            "nothing: reject: holds for every URL",
            "seeds: accept: lies in domain example,lock",
            "transclusion: accept: belongs to a page, 1 hops away",
            "repetition: reject: the path repeats a/",
            "reject: reject: lies in path example,lock)/private/",
        ]
    );
    assert_eq!(judgement.verdict, Reject);
}

#[test]
fn each_seed_may_have_its_own_reach() {
    let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
    list.add("lock.example/news/today", "a", Some(Reach::Path))
        .unwrap();
    list.add("canal.example", "a", Some(Reach::Host)).unwrap();
    list.add("boat.example/one", "a", Some(Reach::Page))
        .unwrap();
    list.add("river.example", "a", None).unwrap();
    let scope = Scope::compile(&ScopeOrder::default(), &list.seeds, 2026).unwrap();
    for (url, verdict) in [
        ("http://lock.example/news/a", Accept),
        ("http://lock.example/a", Reject),
        ("http://www.canal.example/a", Accept),
        ("http://a.canal.example/", Reject),
        ("http://boat.example/one", Accept),
        ("http://boat.example/two", Reject),
        ("http://a.river.example/", Accept),
    ] {
        assert_eq!(ask(&scope, url, "L").verdict, verdict, "{url}");
    }
    assert_eq!(
        ask(&scope, "http://boat.example/style.css", "E").verdict,
        Accept
    );
}

#[test]
fn a_seed_may_come_later() {
    let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
    list.add("lock.example", "a", None).unwrap();
    let mut scope = Scope::compile(&ScopeOrder::default(), &[], 2026).unwrap();
    assert_eq!(ask(&scope, "http://lock.example/a", "L").verdict, Reject);
    scope.add_seed(&list.seeds[0]).unwrap();
    assert_eq!(ask(&scope, "http://lock.example/a", "L").verdict, Accept);
}

#[test]
fn lists_and_limits_of_the_order() {
    let text = |text: &str| vec![text.to_owned()];
    let order = ScopeOrder {
        depth: Limit::At(1),
        accept_surts: text("example,canal,"),
        accept_regexes: text(r"\.pdf$"),
        reject_surts: text("example,lock,ads,"),
        reject_regexes: text(r"^http://lock\.example/print/"),
        reject_extensions: vec!["zip".to_owned(), ".tar.gz".to_owned()],
        size: Limit::At(ecluse_config::Bytes(1_000)),
        ..ScopeOrder::default()
    };
    let scope = scope(&order, &["lock.example"]);
    for (url, hops, verdict, rule) in [
        ("http://canal.example/", "L", Accept, "accept"),
        ("http://far.example/a.pdf", "L", Accept, "accept"),
        ("http://far.example/a.pdf.html", "L", Reject, "nothing"),
        ("http://ads.lock.example/", "L", Reject, "reject"),
        ("http://x.ads.lock.example/", "LE", Reject, "reject"),
        ("http://lock.example/print/1", "L", Reject, "reject"),
        ("http://lock.example/print/1", "", Reject, "reject"),
        (
            "http://lock.example/x?http://lock.example/print/",
            "L",
            Accept,
            "seeds",
        ),
        ("http://lock.example/a.ZIP?x", "L", Reject, "extensions"),
        ("http://lock.example/a.tar.gz", "L", Reject, "extensions"),
        ("http://lock.example/a.gz", "L", Accept, "seeds"),
        ("http://lock.example/azip", "L", Accept, "seeds"),
        ("http://lock.example/a", "LL", Reject, "depth"),
        ("http://lock.example/a", "LRE", Accept, "transclusion"),
    ] {
        assert_eq!(
            decided(&scope, url, hops),
            (verdict, rule.to_owned()),
            "{url} {hops}"
        );
    }
    let sized = |size| {
        let candidate = CandidateUrl {
            hops: "L",
            size: Some(size),
            ..CandidateUrl::seed("http://lock.example/a", b"example,lock)/a")
        };
        let decision = scope.decide(&candidate).unwrap();
        (decision.verdict, decision.why.to_string())
    };
    assert_eq!(sized(1_000).0, Accept);
    assert_eq!(
        sized(1_001),
        (Reject, "has 1001 B, 1 kB are allowed".to_owned())
    );
}

fn own(name: &str, verdict: ScopeVerdict) -> OwnRule {
    OwnRule {
        name: name.to_owned(),
        verdict,
        regex: None,
        surts: Vec::new(),
        extensions: Vec::new(),
        hops: None,
        via: None,
        tag: None,
    }
}

#[test]
fn rules_of_the_orders_own_come_late_or_where_the_sequence_says() {
    let some = |text: &str| Some(text.to_owned());
    let mut order = ScopeOrder {
        rules: vec![
            OwnRule {
                regex: some("/calendar/"),
                hops: some(".*E"),
                ..own("keep-calendar-images", Accept)
            },
            OwnRule {
                via: some("^http://lock"),
                tag: some("register"),
                extensions: vec!["mp4".to_owned()],
                ..own("no-films", Reject)
            },
            OwnRule {
                surts: vec!["example,far,".to_owned()],
                ..own("far", Accept)
            },
        ],
        ..ScopeOrder::default()
    };
    let late = scope(&order, &["lock.example"]);
    for (url, hops, verdict, rule) in [
        (
            "http://lock.example/calendar/2071/11/a.png",
            "LE",
            Accept,
            "keep-calendar-images",
        ),
        (
            "http://lock.example/calendar/2071/11/a.png",
            "LEL",
            Reject,
            "calendar",
        ),
        ("http://lock.example/a.mp4", "L", Reject, "no-films"),
        ("http://far.example/a.mp4", "L", Accept, "far"),
        ("http://far.example/a/a/a/", "L", Accept, "far"),
    ] {
        assert_eq!(
            decided(&late, url, hops),
            (verdict, rule.to_owned()),
            "{url} {hops}"
        );
    }
    assert_eq!(
        ask(&late, "http://lock.example/a.mp4", "L").why,
        "its 3 conditions hold"
    );

    order.sequence.retain(|name| name != "far");
    order.sequence.insert(3, "far".to_owned());
    let early = scope(&order, &["lock.example"]);
    assert_eq!(
        decided(&early, "http://far.example/a", "L"),
        (Accept, "far".to_owned())
    );
    assert_eq!(
        decided(&early, "http://far.example/a/a/a/", "L"),
        (Reject, "repetition".to_owned())
    );
    let names: Vec<&str> = early.rule_names().collect();
    assert_eq!(names[2..5], ["accept", "far", "hops"]);
    assert!(!names.contains(&"own"));
}

#[test]
fn expressions_match_as_a_whole_when_asked_to() {
    let order = |regexes| ScopeOrder {
        regexes,
        reject_regexes: vec!["http://lock.example/a".to_owned()],
        ..ScopeOrder::default()
    };
    let (url, longer) = ("http://lock.example/a", "http://lock.example/ab");
    let anywhere = scope(&order(RegexReach::Anywhere), &["lock.example"]);
    assert_eq!(
        [url, longer].map(|url| ask(&anywhere, url, "L").verdict),
        [Reject, Reject]
    );
    let whole = scope(&order(RegexReach::Whole), &["lock.example"]);
    assert_eq!(
        [url, longer].map(|url| ask(&whole, url, "L").verdict),
        [Reject, Accept]
    );
}

#[test]
fn traps_can_be_left_out_and_added() {
    let mut order = ScopeOrder::default();
    order.traps.except = vec!["reply-links".to_owned()];
    order.traps.also = vec!["/Zoetrope/".to_owned()];
    let scope = scope(&order, &["lock.example"]);
    assert_eq!(
        ask(&scope, "http://lock.example/?replytocom=7", "L").verdict,
        Accept
    );
    assert_eq!(
        ask(&scope, "http://lock.example/zoetrope/1", "L").why,
        "is the trap /Zoetrope/"
    );
    assert_eq!(
        ask(&scope, "http://lock.example/?share=email", "L").why,
        "is the trap share-links"
    );
    order.traps.shipped = false;
    order.traps.also.clear();
    let without = self::scope(&order, &["lock.example"]);
    assert_eq!(
        ask(&without, "http://lock.example/?share=email", "L").verdict,
        Accept
    );
}

#[test]
fn documents_count_and_files_do_not() {
    let scope = scope(&ScopeOrder::default(), &["lock.example"]);
    let verdict = |hops: &str, framed: bool| {
        let url = "http://other.example/frame";
        let surt = ecluse_surt::Surt::of(url.as_bytes()).expect("a URL with a key");
        let candidate = CandidateUrl {
            hops,
            framed,
            ..CandidateUrl::seed(url, surt.as_bytes())
        };
        scope.decide(&candidate).unwrap().verdict
    };
    // A page, a frame in it, a frame in that; then its style sheet, what that imports, and a font.
    assert_eq!(verdict("LE", true), Accept);
    assert_eq!(verdict("LEE", true), Accept);
    assert_eq!(verdict("LEEE", true), Reject);
    assert_eq!(verdict("LEEEEE", false), Accept);
}

#[test]
fn every_fault_is_found_and_names_its_rule() {
    let list = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let mut order = ScopeOrder {
        accept_surts: list(&["org,fine,", "not fine"]),
        reject_regexes: list(&["(", "fine", r"(a)\1"]),
        reject_extensions: list(&["zip", "a/b", ""]),
        schemes: Vec::new(),
        url_length: 3,
        repetitions: Limit::At(0),
        rules: vec![
            own("empty", Accept),
            OwnRule {
                hops: Some("[".to_owned()),
                ..own("bad-hops", Reject)
            },
            OwnRule {
                tag: Some("x".to_owned()),
                ..own("seeds", Reject)
            },
            OwnRule {
                tag: Some("x".to_owned()),
                ..own("twice", Reject)
            },
            OwnRule {
                tag: Some("x".to_owned()),
                ..own("twice", Reject)
            },
        ],
        ..ScopeOrder::default()
    };
    order.traps.except = list(&["clock"]);
    order.traps.also = list(&["fine", "*"]);
    order.sequence.push("sedes".to_owned());
    order.sequence.push("hops".to_owned());
    let errors = Scope::compile(&order, &[], 2026).unwrap_err();
    let mut found: Vec<String> = errors.0.iter().map(|error| error.to_string()).collect();
    found.sort();
    let expected = [
        r#"rule "accept": "not fine" is no SURT prefix"#,
        r#"rule "bad-hops": "[" is no regular expression"#,
        r#"rule "empty": has no condition"#,
        r#"rule "extensions": "" is no file type"#,
        r#"rule "extensions": "a/b" is no file type"#,
        r#"rule "hops": stands twice"#,
        r#"rule "length": must be at least 16"#,
        r#"rule "reject": "(" is no regular expression"#,
        r#"rule "reject": "(a)\\1" is no regular expression: backreferences are not supported"#,
        r#"rule "repetition": must be at least 1"#,
        r#"rule "schemes": would reject every URL"#,
        r#"rule "sedes": there is no such rule"#,
        r#"rule "seeds": a rule's name is"#,
        r#"rule "traps": "*" is no regular expression"#,
        r#"rule "traps": there is no shipped trap "clock""#,
        r#"rule "twice": stands twice"#,
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    // The place of the third expression is its own, although the first was dropped.
    let place = &errors
        .0
        .iter()
        .find(|error| error.to_string().contains("backref"))
        .unwrap()
        .key;
    assert_eq!(
        format!("{place:?}"),
        r#"[Name("reject-regexes"), Index(2)]"#
    );
}

#[test]
fn a_rule_that_no_sequence_asks_is_an_error() {
    let order = ScopeOrder {
        sequence: vec!["nothing".to_owned(), "seeds".to_owned()],
        rules: vec![OwnRule {
            tag: Some("x".to_owned()),
            ..own("mine", Accept)
        }],
        ..ScopeOrder::default()
    };
    let errors = Scope::compile(&order, &[], 2026).unwrap_err();
    assert!(
        errors
            .to_string()
            .starts_with(r#"rule "mine": there is no such rule"#)
    );
    let silent = ScopeOrder {
        sequence: Vec::new(),
        ..ScopeOrder::default()
    };
    let asked = ask(
        &scope(&silent, &["lock.example"]),
        "http://lock.example/",
        "",
    );
    assert_eq!(
        (asked.verdict, asked.why.as_str()),
        (Reject, "no rule speaks of it")
    );
}

#[test]
fn what_changed_is_told() {
    let old = ScopeOrder::default();
    let mut new = old.clone();
    new.hops = Limit::At(5);
    new.depth = Limit::At(3);
    new.reject_regexes = vec!["/print/".to_owned()];
    new.rules = vec![OwnRule {
        tag: Some("x".to_owned()),
        ..own("mine", Accept)
    }];
    let told: Vec<String> = changes("scope", &old, &new)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        told,
        [
            r#"scope.depth: "none" is now 3"#,
            "scope.hops: 20 is now 5",
            r#"scope.reject-regexes: added "/print/""#,
            r#"scope.rules: added { name = "mine", tag = "x", verdict = "accept" }"#,
        ]
    );
}

/// The calendar of a hostile server: every page links the next month.
#[test]
fn an_endless_calendar_is_left_within_its_window() {
    let order = ScopeOrder {
        hops: Limit::None,
        ..ScopeOrder::default()
    };
    let scope = scope(&order, &["lock.example"]);
    let month = |n: u32| {
        format!(
            "http://lock.example/agenda/{}/{:02}/",
            2026 + n / 12,
            n % 12 + 1
        )
    };
    let followed = (0..)
        .take_while(|n| ask(&scope, &month(*n), "L").verdict == Accept)
        .count();
    assert_eq!(followed, 36);
}

#[test]
fn the_sequence_is_the_default_one() {
    let scope = Scope::compile(&ScopeOrder::default(), &[], 2026).unwrap();
    let names: Vec<&str> = scope.rule_names().collect();
    let expected: Vec<&str> = SEQUENCE.into_iter().filter(|name| *name != "own").collect();
    assert_eq!(names, expected);
}

/// The tables of `docs/formats/scope.md`.
#[test]
fn the_documentation_holds() {
    const PAGE: &str = include_str!("../../../docs/formats/scope.md");
    let rows = |heading: &str| -> Vec<Vec<String>> {
        let table = PAGE.split(heading).nth(1).unwrap_or_default();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let cells = |line: &str| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        };
        rows.map(cells).collect()
    };
    let keys = rows("| URL | key |");
    assert_eq!(keys.len(), 2);
    for row in keys {
        let url = url::Url::parse(&row[0]).unwrap();
        let key = CanonOrder::default().key(&url);
        assert_eq!(String::from_utf8_lossy(&key), row[1]);
    }
    let rules: Vec<String> = rows("| rule | | speaks when | settings |")
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(rules, SEQUENCE);
    let mut order = ScopeOrder::default();
    order.traps.except = vec!["none of them".to_owned()];
    let shipped = Scope::compile(&order, &[], 2026).unwrap_err().to_string();
    let shipped = shipped.split("they are ").nth(1).unwrap_or_default();
    for name in shipped.split(", ") {
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_candidate_panics(
        url in "\\PC{0,60}",
        close in "https?://[a-z.]{0,12}[/a-b0-9%?&=;\\[\\]#-]{0,60}",
        surt: Vec<u8>,
        hops in "[LEXRPIMSé]{0,30}",
        size: Option<u64>,
    ) {
        static SCOPE: LazyLock<Scope> = LazyLock::new(|| scope(&ScopeOrder::default(), &["lock.example"]));
        let scope = &*SCOPE;
        for url in [&url, &close] {
            let candidate = CandidateUrl { url, surt: &surt, hops: &hops, via: Some(url), tag: None, size, framed: false };
            let judged = scope.judge(&candidate).unwrap();
            prop_assert_eq!(judged.verdict, scope.decide(&candidate).unwrap().verdict);
        }
    }

    /// An order is refused or compiled, whatever its texts are.
    #[test]
    fn no_order_panics(texts in proptest::collection::vec("\\PC{0,12}", 0..4), name in "\\PC{0,8}") {
        let order = ScopeOrder {
            accept_surts: texts.clone(),
            reject_regexes: texts.clone(),
            reject_extensions: texts.clone(),
            rules: vec![OwnRule { regex: texts.first().cloned(), hops: texts.last().cloned(), ..own(&name, Accept) }],
            sequence: SEQUENCE.into_iter().map(str::to_owned).chain([name.clone()]).collect(),
            traps: TrapsOrder { shipped: false, also: texts, ..TrapsOrder::default() },
            ..ScopeOrder::default()
        };
        let _ = Scope::compile(&order, &[], 2026).map_err(|errors| errors.to_string());
    }
}
