//! Rules of access: the same for lists, TimeMaps, pages and replay.

use std::fs;

use ecluse_config::AccessRule;

use crate::made::Made;

#[test]
fn a_rule_holds_wherever_a_capture_could_be_seen() {
    let mut made = Made::new();
    for host in ["open", "blocked", "secret"] {
        made.html(&format!("http://{host}.example/"), "20260101000000", host);
    }
    made.html("http://partly.example/", "20190101000000", "old");
    made.html("http://partly.example/", "20260101000000", "new");
    made.html(
        "http://open.example/page",
        "20260101000000",
        "<img src=http://secret.example/>",
    );
    // Beside it in the index, and named like a page that is not there.
    made.html(
        "http://open.example/hidden/index.html",
        "20260101000000",
        "h",
    );
    made.publish(1);
    let rules = "example,blocked)/ - {\"access\": \"block\"}\n\
        example,blocked)/ - {\"access\": \"allow\", \"user\": \"staff\"}\n\
        example,secret)/ - {\"access\": \"exclude\"}\n\
        example,open)/hidden - {\"access\": \"exclude\"}\n\
        example,partly)/ - {\"access\": \"exclude\", \"after\": \"2020\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    let served = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.user_header = "X-User".into();
        settings.proxies = vec!["127.0.0.1".parse().unwrap()];
    });
    let status = |path: &str| served.get(path).status;
    let lines = |url: &str| {
        served
            .get(&format!("/web/cdx?url={url}"))
            .text()
            .lines()
            .count()
    };
    // Not even known.
    assert_eq!(lines("secret.example"), 0);
    assert_eq!(
        served
            .get("/web/cdx?url=example&matchType=domain")
            .text()
            .lines()
            .count(),
        4
    );
    for path in [
        "/web/2026id_/http://secret.example/",
        "/web/2026mp_/http://secret.example/",
        "/web/2026/http://secret.example/",
        "/web/http://secret.example/",
        "/web/*/http://secret.example/",
        "/web/timemap/link/http://secret.example/",
    ] {
        assert_eq!(status(path), 404, "{path}");
    }
    for (url, pages) in [("secret.example", "0\n"), ("open.example", "1\n")] {
        let path = format!("/web/cdx?url={url}&showNumPages=true");
        assert_eq!(served.get(&path).text(), pages, "{path}");
    }
    // Nor by its neighbours.
    for path in [
        "/web/*/http://open.example/hidden/",
        "/web/*/http://open.example/hide",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 404, "{path}");
        let page = answer.text();
        assert!(
            !page.contains("/*/http://open.example/hidden/index.html"),
            "{page}"
        );
    }
    // Known, and not shown.
    assert_eq!(lines("blocked.example"), 1);
    assert_eq!(status("/web/*/http://blocked.example/"), 200);
    for modifier in ["", "id_", "mp_", "im_"] {
        let path = format!("/web/20260101000000{modifier}/http://blocked.example/");
        assert_eq!(status(&path), 451, "{path}");
        let staff = served.ask("GET", &path, "X-User: staff\r\n");
        assert_eq!(staff.status, 200, "{path}");
        assert_eq!(served.ask("GET", &path, "X-User: other\r\n").status, 451);
    }
    // By its time.
    assert_eq!(lines("partly.example"), 1);
    assert_eq!(
        served.get("/web/2026id_/http://partly.example/").text(),
        "old"
    );
    let map = served
        .get("/web/timemap/link/http://partly.example/")
        .text();
    assert!(
        map.contains("20190101000000") && !map.contains("20260101000000"),
        "{map}"
    );
    let page = served.get("/web/*/http://partly.example/").text();
    assert!(!page.contains("20260101000000"), "{page}");
    assert_eq!(status("/web/2026id_/http://open.example/"), 200);
}

#[test]
fn without_a_header_of_the_proxy_nobody_has_a_user() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "a");
    made.publish(1);
    let rules = "example,a)/ - {\"access\": \"allow\", \"user\": \"staff\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    let served = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.default_rule = AccessRule::Block;
    });
    let more = "X-Pywb-ACL-User: staff\r\nX-User: staff\r\n";
    let answer = served.ask("GET", "/web/2026id_/http://a.example/", more);
    assert_eq!(answer.status, 451);
}

#[test]
fn a_user_is_known_by_his_token_his_place_or_a_proxy_that_is_believed() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "a");
    made.publish(1);
    let rules = "example,a)/ - {\"access\": \"block\"}\n\
        example,a)/ - {\"access\": \"allow\", \"user\": \"staff\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    // printf %s open-sesame | sha256sum
    let digest = "d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7";
    fs::write(made.path().join("tokens"), format!("staff {digest}\n")).unwrap();
    let path = "/web/2026mp_/http://a.example/";
    let by_token = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.tokens = Some("tokens".into());
        settings.user_header = "X-User".into();
        settings.proxies = vec!["192.0.2.0/24".parse().unwrap()];
    });
    assert_eq!(by_token.get(path).status, 451);
    let token = "Authorization: Bearer open-sesame\r\n";
    assert_eq!(by_token.ask("GET", path, token).status, 200);
    let wrong = by_token.ask("GET", path, "Authorization: Bearer open\r\n");
    assert_eq!(wrong.status, 401);
    assert!(wrong.field("www-authenticate").is_some());
    // This machine is no proxy here, and says nothing about users or places.
    let forged = "X-User: staff\r\nX-Forwarded-For: 10.1.2.3\r\n";
    assert_eq!(by_token.ask("GET", path, forged).status, 451);
    let by_place = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.places = vec!["staff 127.0.0.1".parse().unwrap()];
    });
    assert_eq!(by_place.get(path).status, 200);
    let behind_proxy = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.proxies = vec!["127.0.0.1".parse().unwrap()];
        settings.places = vec!["staff 10.1.0.0/16".parse().unwrap()];
    });
    assert_eq!(behind_proxy.get(path).status, 451);
    let from = |address: &str| {
        let field = format!("X-Forwarded-For: {address}\r\n");
        behind_proxy.ask("GET", path, &field).status
    };
    assert_eq!(from("10.1.2.3"), 200);
    assert_eq!(from("10.1.2.3, 203.0.113.5"), 451, "the last one counts");
}

#[test]
fn staff_is_told_the_rule_and_nobody_else() {
    let mut made = Made::new();
    made.html("http://blocked.example/", "20260101000000", "a");
    made.html("http://secret.example/", "20260101000000", "a");
    made.html("http://old.example/", "20150101000000", "a");
    made.publish(1);
    let rules = "example,blocked)/ - {\"access\": \"block\"}\n\
        example,secret)/ - {\"access\": \"exclude\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    let served = made.serve_with(|settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.embargo = "before 2020".parse().unwrap();
        settings.proxies = vec!["127.0.0.1".parse().unwrap()];
        settings.user_header = "X-User".into();
        settings.staff = vec!["keeper".into()];
    });
    let blocked = "rules.aclj:1: example,blocked)/";
    let secret = "rules.aclj:2: example,secret)/";
    let embargo = "access.embargo = \"before 2020\"";
    for (path, status, rule) in [
        ("/web/2026mp_/http://blocked.example/", 451, blocked),
        ("/web/20260101000000/http://blocked.example/", 451, blocked),
        ("/web/2026mp_/http://secret.example/", 404, secret),
        ("/web/*/http://secret.example/", 404, secret),
        ("/web/http://secret.example/", 404, secret),
        ("/web/timemap/link/http://secret.example/", 404, secret),
        ("/web/cdx?url=secret.example", 200, secret),
        ("/web/2015id_/http://old.example/", 404, embargo),
        ("/web/cdx?url=old.example", 200, embargo),
        ("/web/timemap/cdxj/http://old.example/", 404, embargo),
    ] {
        let staff = served.ask("GET", path, "X-User: keeper\r\n");
        assert_eq!(
            (staff.status, staff.field("x-ecluse-rule")),
            (status, Some(rule)),
            "{path}"
        );
        let other = served.ask("GET", path, "X-User: other\r\n");
        assert_eq!(
            (other.status, other.field("x-ecluse-rule")),
            (status, None),
            "{path}"
        );
        assert!(!other.text().contains("rules.aclj"), "{path}");
    }
    let path = "/web/2026mp_/http://blocked.example/";
    let page = served.ask("GET", path, "X-User: keeper\r\nAccept-Language: fr\r\n");
    assert!(page.text().contains("Règle d"), "{}", page.text());
}

#[test]
fn where_only_staff_may_have_copies_readers_see_and_do_not_take() {
    let mut made = Made::new();
    let head = "Content-Type: text/html\r\nContent-Disposition: attachment; filename=a.html\r\n";
    made.page("http://a.example/", "20260101000000", head, b"a");
    made.publish(1);
    let served = made.serve_with(|settings| {
        settings.download = ecluse_config::AccessDownload::Staff;
        settings.proxies = vec!["127.0.0.1".parse().unwrap()];
        settings.user_header = "X-User".into();
        settings.staff = vec!["keeper".into()];
    });
    let file = "1-1-20260101000000000-00000-test.warc.gz";
    for path in [
        "/web/2026id_/http://a.example/".to_owned(),
        format!("/web/path/{file}"),
        "/web/cdx?url=a.example&fl=offset".to_owned(),
        "/web/cdx?url=a.example&fl=url,filename&output=json".to_owned(),
        "/web/cdx?url=a.example&filter=filename:test".to_owned(),
        "/web/cdx?url=a.example&filter=test.warc".to_owned(),
        "/web/cdx?url=a.example&collapse=offset".to_owned(),
    ] {
        assert_eq!(served.get(&path).status, 403, "{path}");
        let staff = served.ask("GET", &path, "X-User: keeper\r\n");
        assert_eq!(staff.status, 200, "{path}");
    }
    for output in ["", "&output=json", "&output=text", "&output=link"] {
        let path = format!("/web/cdx?url=a.example{output}");
        let answer = served.get(&path);
        assert_eq!(
            (answer.status, answer.text().lines().count()),
            (200, 1),
            "{path}"
        );
        let text = answer.text();
        assert!(
            !text.contains("warc.gz") && !text.contains("offset"),
            "{text}"
        );
        assert!(text.contains("a.example"), "{text}");
    }
    let shown = served.get("/web/2026mp_/http://a.example/");
    assert_eq!(shown.status, 200);
    assert!(
        !shown.head.contains("attachment") && !shown.head.contains("warc.gz"),
        "{}",
        shown.head
    );
    assert!(
        !shown
            .field("content-security-policy")
            .unwrap()
            .contains("allow-downloads")
    );
    let staff = served.ask(
        "GET",
        "/web/2026mp_/http://a.example/",
        "X-User: keeper\r\n",
    );
    assert!(
        staff.head.contains("attachment") && staff.head.contains("warc.gz"),
        "{}",
        staff.head
    );
}

#[test]
fn an_embargo_keeps_what_pywbs_keeps() {
    let times = ["1999", "2019", "2020", "2021", "2025"].map(|year| format!("{year}0101000000"));
    let mut made = Made::new();
    for time in &times {
        made.html("http://a.example/", time, "a");
    }
    made.publish(1);
    let script = "import sys, json\n\
        from pywb.warcserver.access_checker import AccessChecker\n\
        checker = AccessChecker.__new__(AccessChecker)\n\
        checker.embargo = checker.parse_embargo(json.loads(sys.argv[1]))\n\
        for time in sys.argv[2:]:\n    print('keeps', time, checker.check_embargo('http://a.example/', time))\n";
    for (ours, theirs) in [
        ("before 20200101000000", "{\"before\": \"20200101000000\"}"),
        ("after 20200101000000", "{\"after\": \"20200101000000\"}"),
        ("newer 3 years", "{\"newer\": {\"years\": 3}}"),
        (
            "older 3 years 6 months 2 weeks 1 days",
            "{\"older\": {\"years\": 3, \"months\": 6, \"weeks\": 2, \"days\": 1}}",
        ),
    ] {
        let output = std::process::Command::new(ecluse_peers::python())
            .args(["-c", script, theirs])
            .args(&times)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let kept = |time: &String| said.contains(&format!("keeps {time} exclude"));
        let expected: Vec<&String> = times.iter().filter(|time| !kept(time)).collect();
        assert!(
            !expected.is_empty() && expected.len() < times.len(),
            "{ours}: {said}"
        );
        let served = made.serve_with(|settings| settings.embargo = ours.parse().unwrap());
        let listed = served
            .get("/web/cdx?url=a.example&fl=timestamp&output=text")
            .text();
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected, "{ours}");
    }
}
