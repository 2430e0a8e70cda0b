//! What changed: on a page between two captures, on a site between two dates.

use std::fs;

use crate::made::{Answer, Made};

const EARLY: &str = "20250101000000";
const LATE: &str = "20260101000000";
const PAGE: &str = "http://a.example/";

/// Returns a page of ours with its slashes as they were.
fn told(answer: &Answer) -> String {
    answer.text().replace("&#x2f;", "/")
}

fn page(made: &mut Made, time: &str, body: &str) {
    made.record(
        "response",
        PAGE,
        time,
        &format!("WARC-Payload-Digest: sha1:{time}\r\n"),
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{body}")
            .as_bytes(),
    );
}

fn put(made: &mut Made, url: &str, time: &str, status: &str, digest: &str) {
    made.record(
        "response",
        url,
        time,
        &format!("WARC-Payload-Digest: sha1:{digest}\r\n"),
        format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\n\r\n{digest}").as_bytes(),
    );
}

#[test]
fn the_text_that_changed_is_marked_and_nothing_of_the_page_runs() {
    let mut made = Made::new();
    let long: String = (0..30).map(|line| format!("<p>line {line}</p>")).collect();
    let old = format!("<h1>Lock</h1><p>We open at nine o'clock.</p>{long}<p>Bye</p>");
    let new = format!(
        "<h1>Lock</h1><p>We open at ten o'clock.</p><script>alert(1)</script>{long}<p>Bye &lt;script&gt;</p>"
    );
    page(&mut made, EARLY, &old);
    page(&mut made, LATE, &new);
    made.publish(1);
    let served = made.serve();
    let answer = served.get(&format!("/web/diff/{EARLY}/{LATE}/{PAGE}"));
    let text = told(&answer);
    assert_eq!(answer.status, 200, "{text}");
    for part in [
        "<del>We open at <mark>nine</mark> o&#x27;clock.</del>",
        "<ins>We open at <mark>ten</mark> o&#x27;clock.</ins>",
        "Unchanged lines: 26",
        "&lt;script&gt;",
        "Lines gone: 2. Lines new: 2.",
        "1 January 2025",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("alert(1)") && !text.contains("line 20"));
    // In French, and from dates that are cut short.
    let french = served.ask(
        "GET",
        &format!("/web/diff/{EARLY}/{LATE}/{PAGE}"),
        "Accept-Language: fr\r\n",
    );
    assert!(french.text().contains("Ce qui a changé sur cette page"));
    let short = served.get(&format!("/web/diff/2025/2026/{PAGE}"));
    assert_eq!(short.status, 302);
    let exact = format!("/web/diff/{EARLY}/{LATE}/{PAGE}");
    assert_eq!(short.field("location"), Some(exact.as_str()));
    // The other way round it is the same comparison.
    let turned = served.get(&format!("/web/diff/{LATE}/{EARLY}/{PAGE}"));
    assert!(
        turned
            .text()
            .contains("<mark>ten</mark> o&#x27;clock.</ins>")
    );
    // The list of captures leads to it.
    let list = told(&served.get(&format!("/web/*/{PAGE}")));
    assert!(list.contains(&exact), "{list}");
    let form = served.get("/compare?collection=web&url=http%3A%2F%2Fa.example%2F&from=2025-01-01&to=2026-01-01&what=page");
    let to = format!("/web/diff/20250101/20260101/{PAGE}");
    assert_eq!(form.field("location"), Some(to.as_str()));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let mut made = Made::new();
    let png = "Content-Type: image/png\r\n";
    made.page("http://a.example/p.png", EARLY, png, b"one");
    made.page("http://a.example/p.png", LATE, png, b"two, and longer");
    page(&mut made, EARLY, "<p>a</p>");
    page(&mut made, LATE, "<p>a</p><style>b{}</style>");
    for (time, digest) in [(EARLY, "X"), (LATE, "X")] {
        put(&mut made, "http://a.example/same", time, "200 OK", digest);
    }
    let many = |word: &str| -> String { (0..9_000).map(|n| format!("<p>{word} {n}")).collect() };
    made.html("http://a.example/long", EARLY, &many("old"));
    made.html("http://a.example/long", LATE, &many("brandnew"));
    made.publish(1);
    let served = made.serve();
    let said = |url: &str| told(&served.get(&format!("/web/diff/{EARLY}/{LATE}/{url}")));
    assert!(said("http://a.example/p.png").contains("These captures are no text"));
    assert!(said(PAGE).contains("The text is the same; something else in the page is not."));
    assert!(said("http://a.example/same").contains("The two captures have the same content."));
    let long = said("http://a.example/long");
    assert!(long.contains("There is more than can be compared or shown here"));
    assert!(long.contains("Lines gone: 9000. Lines new: 9000.") && long.len() < 1 << 20);
    for (path, status) in [
        (format!("/web/diff/{EARLY}/{LATE}/http://b.example/"), 404),
        (format!("/web/diff/{EARLY}/{PAGE}"), 404),
        (format!("/web/diff/x/{LATE}/{PAGE}"), 404),
        (format!("/web/diff/{EARLY}/202601010000001/{PAGE}"), 404),
        ("/compare?url=a.example&from=x&to=2026".to_owned(), 400),
        (
            "/compare?url=a.example&from=2025&to=2026&collection=no".to_owned(),
            404,
        ),
    ] {
        assert_eq!(served.get(&path).status, status, "{path}");
    }
}

#[test]
fn a_rule_of_access_holds_for_comparisons_too() {
    let mut made = Made::new();
    page(&mut made, EARLY, "<p>a</p>");
    page(&mut made, LATE, "<p>b</p>");
    put(&mut made, "http://a.example/hidden", LATE, "200 OK", "H");
    made.publish(1);
    let rules = made.path().join("rules.aclj");
    fs::write(
        &rules,
        "example,a)/### - {\"access\": \"block\", \"after\": \"2025\"}\nexample,a)/hidden - {\"access\": \"exclude\"}\n",
    )
    .unwrap();
    let served = made.serve_with(|settings| settings.rules = vec![rules]);
    let page = served.get(&format!("/web/diff/{EARLY}/{LATE}/{PAGE}"));
    assert_eq!(page.status, 451, "{}", page.text());
    let site = told(&served.get(&format!("/web/site/2024/2026/{PAGE}")));
    assert!(site.contains(PAGE) && !site.contains("hidden"), "{site}");
}

#[test]
fn a_site_shows_what_is_new_changed_gone_and_not_seen_again() {
    let mut made = Made::new();
    for (path, time, status, digest) in [
        ("same", EARLY, "200 OK", "S"),
        ("same", LATE, "200 OK", "S"),
        ("changed", EARLY, "200 OK", "C1"),
        ("changed", LATE, "200 OK", "C2"),
        ("gone", EARLY, "200 OK", "G1"),
        ("gone", LATE, "404 Not Found", "G2"),
        ("new", LATE, "200 OK", "N"),
        ("back", EARLY, "503 Away", "B1"),
        ("back", LATE, "200 OK", "B2"),
        ("unseen", EARLY, "200 OK", "U"),
        ("never", LATE, "404 Not Found", "E"),
        ("later", "20270101000000", "200 OK", "L"),
    ] {
        put(
            &mut made,
            &format!("http://a.example/{path}"),
            time,
            status,
            digest,
        );
    }
    // A revisit has not changed; another host is another site.
    made.record(
        "revisit",
        "http://a.example/same",
        "20260102000000",
        "WARC-Payload-Digest: sha1:S\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
    );
    put(&mut made, "http://ab.example/", LATE, "200 OK", "O");
    made.publish(1);
    let served = made.serve();
    let path = "/web/site/20250601/20260601/http://a.example/";
    let answer = served.get(path);
    let text = told(&answer);
    assert_eq!(answer.status, 200, "{text}");
    let section = |id: &str| {
        let start = text.find(&format!("<h2 id=\"{id}\"")).unwrap();
        let rest = &text[start..];
        rest[..rest.find("</ul>").unwrap()].to_owned()
    };
    let urls = |id: &str| -> Vec<String> {
        let section = section(id);
        let links = section.split("class=\"url\" href=\"").skip(1);
        links
            .map(|link| link.split(['>', '<']).nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        urls("new"),
        ["http://a.example/back", "http://a.example/new"]
    );
    assert_eq!(urls("changed"), ["http://a.example/changed"]);
    assert_eq!(urls("gone"), ["http://a.example/gone"]);
    assert_eq!(urls("unseen"), ["http://a.example/unseen"]);
    assert!(text.contains("1 unchanged") && section("gone").contains(", 404"));
    assert!(section("changed").contains(&format!(
        "/web/diff/{EARLY}/{LATE}/http://a.example/changed"
    )));
    for absent in ["never", "later", "ab.example"] {
        assert!(!text.contains(absent), "{absent}");
    }
    let french = served.ask("GET", path, "Accept-Language: fr\r\n").text();
    assert!(french.contains("Ce qui a changé sur ce site"));
    // Below a path only; of a site that is unknown; and no further than is read for one question.
    let below = told(&served.get("/web/site/20250601/20260601/http://a.example/ne"));
    assert!(below.contains("/new") && !below.contains("/changed"));
    assert_eq!(
        served
            .get("/web/site/2025/2026/http://none.example/")
            .status,
        404
    );
    let narrow = made.serve_with(|settings| settings.scan_lines = 4);
    let cut = narrow.get(path).text();
    assert!(cut.contains("more captures than can be read"), "{cut}");
}
