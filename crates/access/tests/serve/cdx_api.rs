//! The CDX API, and what stands beside it: health, figures, PATH, robots.txt.

use std::fs;
use std::os::unix::fs::symlink;

use crate::made::{Made, Served};
use ecluse_cdx::{LineSource, zipnum};

/// Captures of three hosts: two of them the same page under many times.
fn made() -> Made {
    let mut made = Made::new();
    for second in 0..5 {
        let time = format!("2026010100000{second}");
        made.html(
            "http://www.example.org/news",
            &time,
            &format!("news {second}"),
        );
    }
    made.html("https://example.org/", "20250601120000", "home");
    made.page(
        "https://example.org/logo.png",
        "20250601120001",
        "Content-Type: image/png\r\n",
        b"png",
    );
    made.html("https://shop.example.org/a", "20240101000000", "shop");
    made.html("https://other.example/", "20240101000000", "other");
    let block = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\ngone";
    made.record(
        "response",
        "https://example.org/gone",
        "20250601120002",
        "",
        block,
    );
    made.publish(1);
    made
}

fn lines(served: &Served, query: &str) -> Vec<String> {
    let answer = served.get(&format!("/web/cdx?{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.text().lines().map(str::to_owned).collect()
}

/// Keys and times of an answer.
fn heads(served: &Served, query: &str) -> Vec<String> {
    let cut = |line: &String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    lines(served, query).iter().map(cut).collect()
}

#[test]
fn matches_are_those_of_pywb() {
    let made = made();
    let served = made.serve();
    assert_eq!(lines(&served, "url=example.org/news").len(), 5);
    assert_eq!(
        lines(&served, "url=http%3A%2F%2Fwww.example.org%2Fnews").len(),
        5
    );
    assert_eq!(lines(&served, "url=example.org&matchType=host").len(), 8);
    assert_eq!(lines(&served, "url=example.org&matchType=domain").len(), 9);
    assert_eq!(lines(&served, "url=*.example.org").len(), 9);
    assert_eq!(lines(&served, "url=example.org/n*").len(), 5);
    assert_eq!(
        lines(&served, "url=example.org/n&matchType=prefix").len(),
        5
    );
    assert_eq!(lines(&served, "url=example.org/nothing").len(), 0);
    let mut all: Vec<String> = made
        .lines
        .iter()
        .filter(|l| l.contains("news"))
        .cloned()
        .collect();
    all.sort();
    assert_eq!(
        lines(&served, "url=example.org/news"),
        all,
        "lines as they stand in the index"
    );
}

#[test]
fn times_order_limits_and_filters() {
    let made = made();
    let served = made.serve();
    let news = |more: &str| heads(&served, &format!("url=example.org/news{more}"));
    let at = |second: u32| format!("org,example)/news 2026010100000{second}");
    assert_eq!(
        news("&from=20260101000002&to=20260101000003"),
        [at(2), at(3)]
    );
    assert_eq!(news("&from=2025&to=2026").len(), 5);
    assert_eq!(news("&to=2025").len(), 0);
    assert_eq!(news("&limit=2"), [at(0), at(1)]);
    assert_eq!(news("&limit=-2"), [at(3), at(4)]);
    assert_eq!(news("&offset=3"), [at(3), at(4)]);
    assert_eq!(news("&sort=reverse&limit=2"), [at(4), at(3)]);
    assert_eq!(news("&closest=20260101000003&limit=1"), [at(3)]);
    assert_eq!(
        news("&sort=closest&closest=20260101000003"),
        [at(3), at(2), at(4), at(1), at(0)]
    );
    let host = |more: &str| lines(&served, &format!("url=example.org&matchType=host{more}")).len();
    assert_eq!(host("&filter=status:404"), 1);
    assert_eq!(host("&filter=!status:404"), 7);
    assert_eq!(host("&filter==mime:image/png"), 1);
    assert_eq!(host("&filter=mimetype:image/.*"), 1);
    assert_eq!(host("&filter=!mimetype:image/.*&filter=statuscode:200"), 6);
    assert_eq!(host("&filter=~status:[23]"), 7);
    assert_eq!(host("&collapse=urlkey"), 4);
    assert_eq!(host("&collapse=timestamp:4&filter=status:200"), 2);
    assert_eq!(host("&collapseTime=10"), 4, "time and status");
}

#[test]
fn each_output_has_its_form() {
    let made = made();
    let served = made.serve();
    let one = "url=https://example.org/logo.png";
    let line = lines(&served, one).remove(0);
    assert!(
        line.starts_with("org,example)/logo.png 20250601120001 {\"url\": "),
        "{line}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&lines(&served, &format!("{one}&output=json"))[0]).unwrap();
    assert_eq!(json["urlkey"], "org,example)/logo.png");
    assert_eq!(json["timestamp"], "20250601120001");
    assert_eq!(json["mime"], "image/png");
    assert_eq!(
        lines(
            &served,
            &format!("{one}&output=text&fl=timestamp,original,statuscode,nothing")
        ),
        ["20250601120001 https://example.org/logo.png 200 -"]
    );
    assert_eq!(
        lines(&served, &format!("{one}&fl=mime,url")),
        [
            "org,example)/logo.png 20250601120001 {\"mime\": \"image/png\", \"url\": \"https://example.org/logo.png\"}"
        ]
    );
    let link = lines(&served, "url=example.org/news&output=link");
    assert_eq!(link.len(), 5);
    let (base, date) = (served.base(), "Thu, 01 Jan 2026 00:00:00 GMT");
    assert_eq!(
        link[0],
        format!(
            "<{base}/web/20260101000000/http://www.example.org/news>; rel=\"memento\"; datetime=\"{date}\","
        )
    );
    assert!(!link[4].ends_with(','));
}

#[test]
fn what_cannot_be_asked_is_said() {
    let made = made();
    let served = made.serve();
    for (query, told) in [
        ("", "url"),
        ("url=", "url"),
        ("url=a.example&matchType=fuzzy", "Invalid match_type: fuzzy"),
        ("url=a.example&output=xml", "output=xml"),
        ("url=a.example&limit=many", "limit"),
        ("url=a.example&page=-1", "page"),
        ("url=a.example&from=yesterday", "from"),
        ("url=a.example&filter=~status:(", "no pattern"),
        ("url=a.example&sort=closest", "closest"),
        ("url=a.example&resumeKey=x", "resumeKey"),
    ] {
        let answer = served.get(&format!("/web/cdx?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        let message: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        assert!(
            message["message"].as_str().unwrap().contains(told),
            "{message}"
        );
    }
    assert_eq!(served.get("/nowhere/cdx?url=a.example").status, 404);
    assert_eq!(served.get("/..%2f/cdx?url=a.example").status, 404);
    let answer = served.ask("POST", "/web/cdx?url=a.example", "");
    assert_eq!(
        (answer.status, answer.field("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[test]
fn pages_and_resume_keys_give_every_line_once() {
    let made = made();
    let all = {
        let served = made.serve();
        assert_eq!(
            lines(
                &served,
                "url=example.org&matchType=domain&showNumPages=true"
            ),
            ["1"]
        );
        lines(&served, "url=example.org&matchType=domain")
    };
    let served = made.serve_with(|settings| settings.page_lines = 4);
    let query = "url=example.org&matchType=domain";
    assert_eq!(lines(&served, &format!("{query}&showNumPages=true")), ["3"]);
    let pages: Vec<String> = (0..4)
        .flat_map(|page| lines(&served, &format!("{query}&page={page}")))
        .collect();
    assert_eq!(pages, all);
    let mut seen = Vec::new();
    let mut resume = String::new();
    loop {
        let mut got = lines(
            &served,
            &format!("{query}&limit=2&showResumeKey=true{resume}"),
        );
        let key = match got.iter().position(String::is_empty) {
            Some(at) => got.split_off(at).remove(1),
            None => String::new(),
        };
        seen.append(&mut got);
        if key.is_empty() {
            break;
        }
        resume = format!("&resumeKey={key}");
    }
    assert_eq!(seen, all);
}

#[test]
fn captures_of_one_second_are_not_given_twice() {
    let mut made = Made::new();
    for number in 0..5 {
        made.html(
            "http://a.example/",
            "20260101000000",
            &"x".repeat(number + 1),
        );
    }
    made.publish(1);
    let served = made.serve();
    let mut seen = Vec::new();
    let mut resume = String::new();
    for _ in 0..3 {
        let mut got = lines(
            &served,
            &format!("url=a.example&limit=2&showResumeKey=1{resume}"),
        );
        if let Some(at) = got.iter().position(String::is_empty) {
            resume = format!("&resumeKey={}", got.split_off(at)[1]);
        }
        seen.append(&mut got);
    }
    let mut all = made.lines.clone();
    all.sort();
    assert_eq!(seen, all);
}

#[test]
fn an_answer_ends_at_its_bounds_and_says_how_to_go_on() {
    let made = made();
    for change in [
        (|settings: &mut ecluse_config::AccessSettings| settings.scan_lines = 3)
            as fn(&mut ecluse_config::AccessSettings),
        |settings| settings.answer = ecluse_config::Bytes(500),
    ] {
        let served = made.serve_with(change);
        let mut path = "/web/cdx?url=example.org&matchType=domain".to_owned();
        let mut seen = Vec::new();
        loop {
            let answer = served.get(&path);
            assert!(answer.body.len() < 1500);
            seen.extend(answer.text().lines().map(str::to_owned));
            assert_eq!(
                answer.field("x-ecluse-cut").is_some(),
                answer.field("link").is_some()
            );
            let Some(link) = answer.field("link") else {
                break;
            };
            let next = link.strip_prefix(&format!("<{}", served.base())).unwrap();
            path = next.split('>').next().unwrap().to_owned();
        }
        assert_eq!(seen.len(), 9);
    }
    let served = made.serve_with(|settings| settings.scan_lines = 3);
    let count = served.get("/web/cdx?url=example.org&matchType=domain&showNumPages=true");
    assert_eq!(count.status, 400);
    // Of lines that are sorted too, no more than the bound are read.
    let far = served.get("/web/cdx?url=example.org&matchType=domain&sort=reverse");
    assert_eq!(far.field("x-ecluse-cut"), Some("true"));
    let page = served.get("/web/cdx?url=example.org&matchType=domain&page=99999999999");
    assert_eq!(
        (page.status, page.field("x-ecluse-cut")),
        (200, Some("true"))
    );
}

#[test]
fn a_zipnum_index_answers_alike() {
    let made = made();
    let flat = made.serve();
    let generation = made.path().join("index/generations/2");
    fs::create_dir_all(&generation).unwrap();
    let text = fs::read(made.path().join("index/generations/1/index.cdxj")).unwrap();
    let source = LineSource::new("lines", std::io::Cursor::new(text));
    let options = zipnum::ZipNumOptions {
        lines_per_member: 3,
        ..zipnum::ZipNumOptions::default()
    };
    zipnum::write(source, &generation, "index", &options).unwrap();
    let queries = [
        "url=example.org/news",
        "url=*.example.org",
        "url=example.org/n*&sort=reverse",
        "url=example.org&matchType=host&filter=status:200&fl=url,status",
    ];
    let before: Vec<_> = queries.iter().map(|query| lines(&flat, query)).collect();
    symlink("generations/2", made.path().join("index/new")).unwrap();
    fs::rename(
        made.path().join("index/new"),
        made.path().join("index/current"),
    )
    .unwrap();
    let zipped: Vec<_> = queries.iter().map(|query| lines(&flat, query)).collect();
    assert_eq!(before, zipped);
    assert!(flat.get("/healthz").text().contains("\"generation\":2"));
}

#[test]
fn a_new_generation_is_taken_over_and_a_bad_one_is_not() {
    let mut made = made();
    let served = made.serve();
    assert_eq!(lines(&served, "url=new.example").len(), 0);
    made.html("http://new.example/", "20260202000000", "new");
    made.publish(2);
    assert_eq!(lines(&served, "url=new.example").len(), 1);
    // The old one is retired: what was open is not needed any more.
    fs::remove_dir_all(made.path().join("index/generations/1")).unwrap();
    assert_eq!(lines(&served, "url=new.example").len(), 1);
    // A link to nothing, and a generation without a list: the last good one is served.
    fs::create_dir_all(made.path().join("index/generations/4")).unwrap();
    for target in ["generations/3", "generations/4"] {
        symlink(target, made.path().join("index/new")).unwrap();
        fs::rename(
            made.path().join("index/new"),
            made.path().join("index/current"),
        )
        .unwrap();
        assert_eq!(lines(&served, "url=new.example").len(), 1);
    }
    // The same number made anew is another generation.
    made.html("http://newer.example/", "20260202000000", "newer");
    fs::remove_dir_all(made.path().join("index/generations/2")).unwrap();
    made.publish(2);
    assert_eq!(lines(&served, "url=newer.example").len(), 1);
}

#[test]
fn health_figures_paths_and_robots() {
    let made = made();
    let served = made.serve();
    assert_eq!(served.get("/healthz").status, 200);
    served.get("/web/cdx?url=example.org");
    let figures = served.get("/metrics").text();
    assert!(
        figures.contains("ecluse_access_requests_total{kind=\"cdx\",status=\"2xx\"} 1"),
        "{figures}"
    );
    assert!(
        figures.contains("ecluse_access_index_generation 1"),
        "{figures}"
    );
    assert!(figures.ends_with("# EOF\n"));
    let robots = served.get("/robots.txt").text();
    assert!(robots.contains("Disallow: /"), "{robots}");
    let file = "1-1-20260101000000000-00000-test.warc.gz";
    let path: serde_json::Value =
        serde_json::from_str(&served.get(&format!("/web/path/{file}")).text()).unwrap();
    assert_eq!(path["places"][0], made.stored(file).display().to_string());
    assert_eq!(served.get("/web/path/nothing.warc.gz").status, 404);
    assert_eq!(served.get("/web/path/..%2F..%2Fetc%2Fpasswd").status, 404);
}

#[test]
fn without_an_index_it_says_503_until_there_is_one() {
    let mut made = Made::new();
    let served = made.serve();
    for path in [
        "/healthz",
        "/",
        "/web/cdx?url=a.example",
        "/web/2026id_/http://a.example/",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 503, "{path}");
    }
    assert_eq!(
        served.get("/web/cdx?url=a.example").field("retry-after"),
        Some("30")
    );
    made.html("http://a.example/", "20260101000000", "a");
    made.publish(1);
    for path in [
        "/healthz",
        "/",
        "/web/cdx?url=a.example",
        "/web/2026id_/http://a.example/",
    ] {
        assert_eq!(served.get(path).status, 200, "{path}");
    }
}

#[test]
fn a_collection_has_an_index_of_its_own() {
    let mut made = made();
    made.lines.clear();
    made.html("http://vote.example/", "20260101000000", "vote");
    made.publish_in("index/elections", 1);
    let served = made.serve();
    assert_eq!(
        served
            .get("/elections/cdx?url=vote.example")
            .text()
            .lines()
            .count(),
        1
    );
    assert_eq!(served.get("/web/cdx?url=vote.example").text(), "");
    let home = served.get("/").text();
    assert!(home.contains("/elections/"), "{home}");
    for bad in [
        "/generations/cdx?url=a",
        "/current/cdx?url=a",
        "/.lock/cdx?url=a",
        "/no/cdx?url=a",
    ] {
        assert_eq!(served.get(bad).status, 404, "{bad}");
    }
}

#[test]
fn text_has_its_fields_in_order_and_a_dash_for_what_is_missing() {
    let mut made = Made::new();
    made.lines.push(
        "example,a)/ 20260101000000 {\"url\": \"http://a.example/\", \"status\": \"-\", \"offset\": \"7\", \"filename\": \"a.warc.gz\"}"
            .to_owned(),
    );
    made.publish(1);
    let served = made.serve();
    let answer = |query: &str| {
        served
            .get(&format!("/web/cdx?url=a.example&{query}"))
            .text()
    };
    assert_eq!(
        answer("output=text"),
        "example,a)/ 20260101000000 http://a.example/ - - - - 7 a.warc.gz\n"
    );
    assert_eq!(
        answer("output=json&fl=timestamp,status,nothing"),
        "{\"timestamp\": \"20260101000000\", \"status\": \"-\"}\n"
    );
}
