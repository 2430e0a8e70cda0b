//! Whole robots.txt files: the RFC's example, what Google documents, faults, and two other parsers as oracles.

use std::time::Duration;

use ecluse_scope::{
    AgentRules, Robots, RobotsLimits, RobotsPolicy, RobotsReason, RobotsVerdict, RuleLine,
};
use proptest::prelude::*;

fn rules(text: impl AsRef<[u8]>, token: &str) -> AgentRules {
    Robots::parse(text.as_ref(), &RobotsLimits::default()).rules_for(&[token])
}

fn allowed(text: impl AsRef<[u8]>, token: &str, path: &str) -> bool {
    let url = format!("http://lock.example{path}");
    rules(text, token).judge(&url).allowed
}

/// RFC 9309, section 5.1.
#[test]
fn the_simple_example_of_the_rfc() {
    let text = "\
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
";
    for (token, path, expected) in [
        ("other", "/a.gif", false),
        ("other", "/a.gif?x", true),
        ("other", "/example/x", false),
        ("other", "/publications/x", true),
        ("other", "/", true),
        ("foobot", "/", false),
        ("foobot", "/publications/", false),
        ("foobot", "/example/page.html", true),
        ("FooBot", "/example/allowed.gif", true),
        ("foobot", "/example/other.gif", false),
        ("barbot", "/example/page.html", false),
        ("bazbot", "/example/page.html", false),
        ("bazbot", "/a.gif", true),
        ("quxbot", "/a.gif", true),
        ("quxbot", "/example/", true),
    ] {
        assert_eq!(allowed(text, token, path), expected, "{token} {path}");
    }
}

/// RFC 9309, section 5.2.
#[test]
fn the_longest_match_of_the_rfc() {
    let text =
        "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n";
    assert!(!allowed(text, "foobot", "/example/page/disallowed.gif"));
    assert!(allowed(text, "foobot", "/example/page/"));
}

/// RFC 9309, section 2.2.1: groups for one product are joined.
#[test]
fn groups_for_one_crawler_are_joined() {
    let text = "\
user-agent: ExampleBot
disallow: /foo
disallow: /bar

user-agent: BazBot
disallow: /qux

user-agent: ExampleBot
disallow: /baz
";
    for path in ["/foo", "/bar", "/baz"] {
        assert!(!allowed(text, "examplebot", path), "{path}");
    }
    assert!(allowed(text, "examplebot", "/qux"));
    assert!(allowed(text, "nobody", "/foo"));
}

/// Google's description: which rule decides.
#[test]
fn precedence_as_google_documents_it() {
    for (lines, path, expected) in [
        ("allow: /p\ndisallow: /", "/page", true),
        ("allow: /folder\ndisallow: /folder", "/folder/page", true),
        ("allow: /page\ndisallow: /*.htm", "/page.htm", false),
        ("allow: /page\ndisallow: /*.ph", "/page.php5", true),
        ("allow: /$\ndisallow: /", "/", true),
        ("allow: /$\ndisallow: /", "/page.htm", false),
        ("disallow: /\nallow: /x/", "/x/page", true),
        ("disallow:", "/page", true),
        ("disallow: /\ndisallow:", "/page", false),
        ("allow:\ndisallow: /", "/page", false),
    ] {
        let text = format!("user-agent: *\n{lines}\n");
        assert_eq!(allowed(&text, "ecluse", path), expected, "{lines} {path}");
    }
}

/// Google's description: which group is followed.
#[test]
fn the_most_specific_group_is_followed() {
    let text = "\
user-agent: googlebot-news
disallow: /news
user-agent: *
disallow: /all
user-agent: googlebot
disallow: /bot
";
    let robots = Robots::parse(text.as_bytes(), &RobotsLimits::default());
    for (tokens, group) in [
        (&["googlebot-news", "googlebot"][..], "googlebot-news"),
        (&["googlebot"], "googlebot"),
        (&["googlebot-images", "googlebot"], "googlebot"),
        (&["storebot"], "*"),
        (&[], "*"),
    ] {
        assert_eq!(robots.rules_for(tokens).group(), Some(group), "{tokens:?}");
    }
}

#[test]
fn a_crawler_is_known_by_its_whole_name_and_by_the_rfcs_part_of_it() {
    let forbids = |agent: &str, token: &str| {
        !allowed(format!("user-agent: {agent}\ndisallow: /"), token, "/")
    };
    for (agent, token) in [
        ("Ecluse", "ecluse"),
        ("ecluse/2.0", "ecluse"),
        ("ecluse 2.0 (archive)", "ecluse"),
        ("ecluse*", "ecluse"),
        ("lock.example_bot", "lock.example_bot"),
        ("Lock.Example_Bot/1", "lock.example_bot"),
        ("lock", "lock.example_bot"),
        ("*", "anything"),
        ("* all", "anything"),
    ] {
        assert!(forbids(agent, token), "{agent} {token}");
    }
    for (agent, token) in [
        ("ecluses", "ecluse"),
        ("eclus", "ecluse"),
        ("my-ecluse", "ecluse"),
        ("lock.other_bot", "lock.example_bot"),
        ("*lock", "lock"),
        ("", "ecluse"),
        ("écluse", "cluse"),
    ] {
        assert!(!forbids(agent, token), "{agent} {token}");
    }
    // The whole name is longer, and so is preferred.
    let both = "user-agent: lock\ndisallow: /\nuser-agent: lock.example_bot\ndisallow: /x";
    assert!(allowed(both, "lock.example_bot", "/"));
}

#[test]
fn the_verdict_names_the_line() {
    let text = "\u{feff}# ours\r\nUser-agent: *\rDisallow: /a  # not this\n\n  ALLOW : /a/b \n";
    let rules = rules(text, "ecluse");
    let rule = |line, text: &str| {
        RobotsReason::Rule(RuleLine {
            line,
            text: text.to_owned(),
        })
    };
    let verdict = rules.judge("https://lock.example/a/c#top");
    assert!(!verdict.allowed);
    assert_eq!(verdict.why, rule(3, "Disallow: /a  # not this"));
    let verdict = rules.judge("https://lock.example/a/b?x");
    assert!(verdict.allowed);
    assert_eq!(verdict.why, rule(5, "ALLOW : /a/b"));
    assert_eq!(
        rules.judge("https://lock.example/").why,
        RobotsReason::NoRule
    );
}

#[test]
fn what_is_shown_is_harmless() {
    let rules = rules("user-agent: *\ndisallow: /\x1b[31m\u{202e}", "x");
    let verdict = rules.judge("http://lock.example/%1B[31m%E2%80%AE");
    assert!(!verdict.allowed);
    let shown = verdict.why.to_string();
    assert_eq!(shown, "robots.txt line 2: disallow: /\\u{1b}[31m\\u{202e}");
}

#[test]
fn faults_that_are_forgiven() {
    for text in [
        "user-agent: *\ndisallow: /x",
        "USER-AGENT:*\nDISALLOW:/x",
        "user-agent *\ndisallow /x",
        "user agent: *\ndissallow: /x",
        "useragent: *\ndisalow: /x",
        "\u{feff}user-agent: *\ndisallow: /x",
        "user-agent: *\r\ndisallow: /x\r\n",
        "user-agent: *\rdisallow: /x\r",
        "<html>\n\0\nuser-agent: *\n\n\ndisallow: /x",
        "user-agent: *\nunknown: y\nSitemap: z\ndisallow: /x",
        "user-agent: other\nuser-agent: *\ndisallow: /x",
        "\tuser-agent \t:\t* \t\x0b\n \t disallow\t:\t/x\t",
        "user-agent: other\nsitemap: /s\nuser-agent: *\ndisallow: /x",
    ] {
        assert!(!allowed(text, "ecluse", "/x"), "{text:?}");
        assert!(allowed(text, "ecluse", "/"), "{text:?}");
    }
}

#[test]
fn faults_that_forbid_nothing() {
    for text in [
        "",
        "\u{feff}",
        "disallow: /",
        "disallow: /\nuser-agent: *",
        "user-agent: *\ndisallow / x",
        "user-agent: *\n# disallow: /",
        "user-agent: *\ndis-allow: /",
        "user-agent: *\ndisallow; /",
        "user-agent: *\n: /",
        "user-agent: *\ndisallow",
        "<html><body>Not found</body></html>",
        "user-agent:\ndisallow: /",
    ] {
        assert!(allowed(text, "ecluse", "/x"), "{text:?}");
    }
}

#[test]
fn robots_txt_is_never_forbidden() {
    let rules = rules("user-agent: *\ndisallow: /", "ecluse");
    let verdict = rules.judge("http://lock.example/robots.txt");
    assert_eq!(
        (verdict.allowed, verdict.why),
        (true, RobotsReason::RobotsTxt)
    );
    assert!(!rules.judge("http://lock.example/robots.txt?x").allowed);
    assert!(!rules.judge("http://lock.example/a/robots.txt").allowed);
}

#[test]
fn a_url_is_matched_by_path_and_query() {
    let rules = rules(
        "user-agent: *\ndisallow: /a?b\ndisallow: /$\ndisallow: /?q",
        "x",
    );
    for url in [
        "http://lock.example/a?b",
        "http://u:p@lock.example:80/a?bc#d",
        "//lock.example/a?b",
        "/a?b",
        "http://lock.example",
        "http://lock.example#a",
        "http://lock.example?q=http://x/a",
        "lock.example/a?b",
    ] {
        assert!(!rules.judge(url).allowed, "{url}");
    }
    for url in [
        "http://lock.example/a#?b",
        "http://a?bb/",
        "http://lock.example/b://c/a?b",
    ] {
        assert!(rules.judge(url).allowed, "{url}");
    }
}

#[test]
fn a_file_over_the_limit_is_read_up_to_its_last_whole_line() {
    let head = "user-agent: *\ndisallow: /a\n";
    let text = format!("{head}disallow: /private");
    for size in head.len()..text.len() {
        let limits = RobotsLimits {
            size,
            ..RobotsLimits::default()
        };
        let robots = Robots::parse(text.as_bytes(), &limits);
        assert!(robots.is_cut());
        let rules = robots.rules_for(&["ecluse"]);
        assert!(!rules.judge("http://lock.example/a").allowed);
        assert!(rules.judge("http://lock.example/public").allowed, "{size}");
        assert!(rules.judge("http://lock.example/private").allowed, "{size}");
    }
    // The RFC asks for 500 KiB at least.
    let filler = "# filler\n".repeat(500 * 1024 / 9);
    let text = format!(
        "user-agent: *\n{}disallow: /late\n",
        &filler[..filler.len() - 30 * 9]
    );
    assert!(!allowed(&text, "ecluse", "/late"));
    let text = format!("user-agent: *\n{filler}disallow: /too-late\n");
    assert!(allowed(&text, "ecluse", "/too-late"));
}

#[test]
fn a_long_line_is_cut() {
    let text = format!(
        "user-agent: *\ndisallow: /{}\ndisallow: /b\n",
        "a".repeat(100_000)
    );
    assert!(!allowed(&text, "ecluse", "/b"));
    assert!(!allowed(
        &text,
        "ecluse",
        &format!("/{}", "a".repeat(17_000))
    ));
}

#[test]
fn delays_belong_to_their_group() {
    let delay = |value: &str| {
        let text = format!("user-agent: *\ndisallow: /a\ncrawl-delay: {value}\n");
        rules(text, "ecluse").crawl_delay()
    };
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(delay("10"), millis(10_000));
    assert_eq!(delay("0.5"), millis(500));
    assert_eq!(delay("2 # seconds"), millis(2_000));
    assert_eq!(delay("3s"), millis(3_000));
    assert_eq!(delay("0"), millis(0));
    assert_eq!(delay("1e9"), millis(1_000));
    assert_eq!(delay(&"9".repeat(400)), millis(7 * 86_400_000));
    for value in ["", "-5", "ten", ".", "1.2.3", "NaN", "inf"] {
        assert_eq!(delay(value), None, "{value}");
    }
    let text = "crawl-delay: 9\nuser-agent: ecluse\ndisallow:\ncrawl-delay: 2\n\
                user-agent: *\ncrawl-delay: 7\ndisallow:\nuser-agent: ecluse\ncrawl-delay: 4\n";
    assert_eq!(rules(text, "ecluse").crawl_delay(), millis(4_000));
    assert_eq!(rules(text, "other").crawl_delay(), millis(7_000));
}

/// RFC 9309, section 2.2.4: what is not in the RFC does not end a group.
#[test]
fn a_delay_does_not_end_a_group() {
    let text = "user-agent: *\ncrawl-delay: 5\n\nuser-agent: badbot\ndisallow: /\n";
    assert!(!allowed(text, "ecluse", "/"));
    assert!(!allowed(text, "badbot", "/"));
}

/// The subjects on which Heritrix tries its own parser (`RobotstxtTest`), with files of our own.
#[test]
fn files_are_read_as_heritrix_does_but_for_two_things() {
    let text = "  User-agent: *\n Disallow: /private/\n  User-agent: nobody\n Disallow: /\n User-agent: anybody\n \
                Disallow: \n User-agent: somebody\n Disallow: /x\n Disallow: /ok?no\n Allow: /\n\
                User-agent: slow\n Disallow: /\n Crawl-Delay: 20\n Allow: /images/\n";
    for (token, path, expected) in [
        ("anybody", "/a", true),
        ("somebody", "/", true),
        ("somebody", "/x", false),
        ("somebody", "/ok?no=1", false),
        ("nobody", "/", false),
        ("other", "/a", true),
        ("other", "/private/a", false),
        ("slow", "/images/a", true),
    ] {
        assert_eq!(allowed(text, token, path), expected, "{token} {path}");
    }
    assert_eq!(
        rules(text, "slow").crawl_delay(),
        Some(Duration::from_secs(20))
    );
    assert_eq!(rules(text, "nobody").crawl_delay(), None);
    let wild = |rules: &str, path: &str| allowed(format!("User-agent: *\n{rules}"), "x", path);
    for (rules, path, expected) in [
        ("Disallow: *.gif$\nAllow: /lock/", "/a.gif", false),
        ("Disallow: *.gif$\nAllow: /lock/", "/a.gif?x", true),
        ("Disallow: *.gif$\nAllow: /lock/", "/lock/a.gif", true),
        ("Allow: /a/*/c\nDisallow: /a/b/c", "/a/b/c", true),
        ("Allow: /a/*/c\nDisallow: /a/bb/c", "/a/bb/c", false),
        ("Allow: /a\nDisallow: /a", "/a/b", true),
        ("Allow: /$\nDisallow: /", "/", true),
        ("Allow: /$\nDisallow: /", "//", false),
        ("Disallow: /gate*/x", "/gates/x", false),
        ("Disallow: /gate*/x", "/gat/x", true),
        ("Disallow: /a$/\nAllow: /a$", "/a$/b", false),
        ("Disallow: /a$/\nAllow: /a$", "/a", true),
        ("Disallow: /*$\nAllow: /*", "/a", false),
    ] {
        assert_eq!(wild(rules, path), expected, "{rules} {path}");
    }
    // A delay does not end a group, by the RFC: to Heritrix the first two lines are a group of their own.
    let parted =
        "User-agent: *\nCrawl-delay: 5\nUser-agent: a\nDisallow: /\nUser-agent: *\nDisallow: /no\n";
    assert!(!allowed(parted, "a", "/x") && !allowed(parted, "c", "/no"));
    assert!(!allowed(parted, "c", "/x"), "Heritrix lets it");
    // Markup is not taken away: a page is no robots.txt.
    let page = "<HTML><BODY>\nUser-agent: *<BR>\nDisallow: /<BR>\n</BODY></HTML>\n";
    assert!(allowed(page, "x", "/index.html"), "Heritrix forbids it");
}

#[test]
fn sitemaps_stand_outside_groups() {
    let text = "Sitemap: http://lock.example/1\nuser-agent: x\nsitemap:http://lock.example/2#f\nSite-Map:\n";
    let robots = Robots::parse(text.as_bytes(), &RobotsLimits::default());
    assert_eq!(
        robots.sitemaps(),
        ["http://lock.example/1", "http://lock.example/2"]
    );
}

#[test]
fn the_policy_has_the_last_word() {
    let forbidden = || rules("user-agent: *\ndisallow: /", "ecluse").judge("http://lock.example/a");
    assert!(!forbidden().under(RobotsPolicy::Obey, "LE").allowed);
    assert!(!forbidden().under(RobotsPolicy::Requisites, "LL").allowed);
    assert!(!forbidden().under(RobotsPolicy::Requisites, "").allowed);
    let RobotsVerdict { allowed, why } = forbidden().under(RobotsPolicy::Requisites, "LER");
    assert!(allowed);
    assert_eq!(
        why.to_string(),
        "a page requisite, in spite of robots.txt line 2: disallow: /"
    );
    let RobotsVerdict { allowed, why } = forbidden().under(RobotsPolicy::Ignore, "L");
    assert_eq!((allowed, why), (true, RobotsReason::Ignored));
}

/// Files of which the oracles have the RFC's opinion.
///
/// The port of Google's parser is old: a sitemap ends a group in it, and it misses matches after a `*`
/// (`/*/b` and `/a/a/b`). texting_robots
/// takes an empty disallow for leave to fetch everything, and gives rules before the first user agent to everyone.
fn file(rule: &'static str) -> impl Strategy<Value = String> {
    let line = prop_oneof![
        3 => "(User-agent|user-agent): (foobot|barbot|\\*)",
        6 => rule,
        1 => "# comment",
        1 => "",
    ];
    let lines = proptest::collection::vec(line, 0..14);
    lines.prop_map(|lines| format!("User-agent: bazbot\n{}", lines.join("\n")))
}

const FOR_GOOGLE: &str = "(Disallow|allow|Allow|disallow):( /[ab/]{0,6}\\$?|)";
const FOR_TEXTING: &str = "(Disallow|allow|Allow|disallow): /[ab/*]{0,6}\\$?";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn agrees_with_the_port_of_googles_parser(text in file(FOR_GOOGLE), path in "(/[ab]{1,2}){0,4}/?(\\?[ab]{0,2})?") {
        let url = format!("http://lock.example{path}");
        let mut oracle = robotstxt::DefaultMatcher::default();
        let expected = oracle.one_agent_allowed_by_robots(&text, "foobot", &url);
        prop_assert_eq!(allowed(&text, "foobot", &path), expected, "{}\n{}", text, path);
    }

    #[test]
    fn agrees_with_texting_robots(text in file(FOR_TEXTING), path in "(/[ab]{1,2}){0,4}/?") {
        let url = format!("http://lock.example{path}");
        let oracle = texting_robots::Robot::new("foobot", text.as_bytes()).unwrap();
        prop_assert_eq!(allowed(&text, "foobot", &path), oracle.allowed(&url), "{}\n{}", text, path);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, url in "\\PC*", size in 0usize..64, line in 0usize..64) {
        let robots = Robots::parse(&bytes, &RobotsLimits { size, line });
        let _ = robots.rules_for(&["ecluse"]).judge(&url).why.to_string();
    }

    #[test]
    fn no_text_like_a_file_panics(
        text in "((user-agent|disallow|allow|crawl-delay|sitemap)?[: ]{0,2}[*/$%a-f\\PC]{0,12}[\r\n]{0,2}){0,12}",
        url in "http://[\\PC/?#%]{0,20}",
        token in "\\PC{0,8}",
    ) {
        let robots = Robots::parse(text.as_bytes(), &RobotsLimits::default());
        let rules = robots.rules_for(&[&token]);
        let verdict = rules.judge(&url);
        if let RobotsReason::Rule(rule) = verdict.why {
            prop_assert!((rule.line as usize) <= text.len() + 1);
        }
    }
}
