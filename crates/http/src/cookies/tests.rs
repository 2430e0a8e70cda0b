//! What the jar keeps, sends and forgets; RFC 6265 and what browsers do beyond it.

use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_700_000_000;

fn https<'a>(host: &'a str, path: &'a str) -> CookiePlace<'a> {
    CookiePlace {
        scheme: Scheme::Https,
        host,
        path,
    }
}

fn http<'a>(host: &'a str, path: &'a str) -> CookiePlace<'a> {
    CookiePlace {
        scheme: Scheme::Http,
        ..https(host, path)
    }
}

/// What is sent to `to` after `from` has set these.
fn sent(from: CookiePlace<'_>, values: &[&str], to: CookiePlace<'_>) -> String {
    let mut jar = Jar::default();
    for value in values {
        jar.set(from, value.as_bytes(), NOW);
    }
    String::from_utf8(jar.field(to, NOW).unwrap_or_default()).unwrap()
}

#[test]
fn hosts_and_domains() {
    let from = https("www.example.org", "/");
    let cases = [
        ("a=1", "www.example.org", "a=1"),
        ("a=1", "WWW.Example.ORG", "a=1"),
        ("a=1", "example.org", ""),
        ("a=1", "x.www.example.org", ""),
        ("a=1; Domain=example.org", "example.org", "a=1"),
        ("a=1; Domain=.Example.Org", "other.example.org", "a=1"),
        ("a=1; domain=www.example.org", "x.www.example.org", "a=1"),
        ("a=1; Domain=www.example.org", "example.org", ""),
        ("a=1; Domain=ample.org", "www.example.org", ""),
        ("a=1; Domain=example.com", "example.com", ""),
        ("a=1; Domain=org", "www.example.org", ""),
        ("a=1; Domain=", "www.example.org", "a=1"),
        (
            "a=1; Domain=x.example.org; Domain=example.org",
            "example.org",
            "a=1",
        ),
    ];
    for (value, host, expected) in cases {
        assert_eq!(
            sent(from, &[value], https(host, "/")),
            expected,
            "{value} to {host}"
        );
    }
}

#[test]
fn public_suffixes_share_nothing() {
    for (host, suffix) in [
        ("shop.co.uk", "co.uk"),
        ("a.github.io", "github.io"),
        ("site.asso.fr", "asso.fr"),
    ] {
        let value = format!("a=1; Domain={suffix}");
        assert_eq!(sent(https(host, "/"), &[&value], https(host, "/")), "");
    }
    // The suffix's own host keeps its cookie for itself.
    let from = https("github.io", "/");
    assert_eq!(sent(from, &["a=1; Domain=github.io"], from), "a=1");
    assert_eq!(
        sent(from, &["a=1; Domain=github.io"], https("a.github.io", "/")),
        ""
    );
}

#[test]
fn addresses_match_only_themselves() {
    let from = http("127.0.0.1", "/");
    assert_eq!(sent(from, &["a=1"], from), "a=1");
    assert_eq!(sent(from, &["a=1; Domain=0.0.1"], from), "");
    assert_eq!(
        sent(http("localhost", "/"), &["a=1"], http("localhost", "/")),
        "a=1"
    );
}

#[test]
fn paths() {
    let cases = [
        ("/a/b/c", "a=1", "/a/b", "a=1"),
        ("/a/b/c", "a=1", "/a/b/x", "a=1"),
        ("/a/b/c", "a=1", "/a/bc", ""),
        ("/a/b/c", "a=1", "/a", ""),
        ("/a", "a=1", "/", "a=1"),
        ("", "a=1", "/x", "a=1"),
        ("/x", "a=1; Path=/p", "/p/q", "a=1"),
        ("/x", "a=1; Path=/p/", "/p/q", "a=1"),
        ("/x", "a=1; Path=/p/", "/p", ""),
        ("/x", "a=1; Path=relative", "/", "a=1"),
    ];
    for (from, value, to, expected) in cases {
        let outcome = sent(https("a.test", from), &[value], https("a.test", to));
        assert_eq!(outcome, expected, "{value} from {from} to {to}");
    }
}

#[test]
fn longer_paths_and_older_cookies_come_first() {
    let values = ["one=1; Path=/", "two=2; Path=/a", "three=3; Path=/"];
    let outcome = sent(https("a.test", "/"), &values, https("a.test", "/a/b"));
    assert_eq!(outcome, "two=2; one=1; three=3");
}

#[test]
fn setting_again_replaces_and_keeps_the_place() {
    let mut jar = Jar::default();
    let place = https("a.test", "/");
    jar.set(place, b"a=1", NOW);
    jar.set(place, b"b=2", NOW + 1);
    jar.set(place, b"a=3", NOW + 2);
    assert_eq!(jar.field(place, NOW + 3).unwrap(), b"a=3; b=2");
    assert_eq!(jar.len(), 2);
    jar.set(place, b"a=; Max-Age=0", NOW + 4);
    assert_eq!(jar.field(place, NOW + 5).unwrap(), b"b=2");
    jar.set(place, b"b=; expires=Thu, 01 Jan 1970 00:00:00 GMT", NOW + 6);
    assert!(jar.is_empty());
    assert_eq!(jar.field(place, NOW + 7), None);
}

#[test]
fn cookies_end() {
    let mut jar = Jar::default();
    let place = https("a.test", "/");
    jar.set(
        place,
        b"age=1; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        NOW,
    );
    jar.set(place, b"date=1; Expires=Tue, 14 Nov 2023 22:13:40 GMT", NOW);
    jar.set(place, b"ever=1", NOW);
    jar.set(place, b"long=1; Max-Age=99999999999999999999", NOW);
    assert_eq!(
        jar.field(place, NOW + 9).unwrap(),
        b"age=1; date=1; ever=1; long=1"
    );
    assert_eq!(
        jar.field(place, NOW + 10).unwrap(),
        b"date=1; ever=1; long=1"
    );
    assert_eq!(jar.field(place, NOW + 20).unwrap(), b"ever=1; long=1");
    assert_eq!(jar.field(place, NOW + LONGEST_SECONDS).unwrap(), b"ever=1");
}

#[test]
fn secure_cookies_and_prefixes() {
    let (safe, clear) = (https("a.test", "/"), http("a.test", "/"));
    assert_eq!(sent(safe, &["a=1; Secure"], safe), "a=1");
    assert_eq!(sent(safe, &["a=1; Secure"], clear), "");
    assert_eq!(sent(clear, &["a=1; Secure"], safe), "");
    assert_eq!(sent(safe, &["__Secure-a=1"], safe), "");
    assert_eq!(sent(safe, &["__secure-a=1; Secure"], safe), "__secure-a=1");
    assert_eq!(
        sent(safe, &["__Host-a=1; Secure; Path=/"], safe),
        "__Host-a=1"
    );
    assert_eq!(sent(safe, &["__Host-a=1; Secure"], safe), "");
    assert_eq!(
        sent(safe, &["__Host-a=1; Secure; Path=/; Domain=a.test"], safe),
        ""
    );
    assert_eq!(sent(safe, &["=__Host-a=1; Path=/"], safe), "");

    let mut jar = Jar::default();
    jar.set(safe, b"a=safe; Secure", NOW);
    jar.set(clear, b"a=clear", NOW);
    assert_eq!(jar.field(safe, NOW).unwrap(), b"a=safe");
}

#[test]
fn odd_values() {
    let place = https("a.test", "/");
    let cases: &[(&[u8], &[u8])] = &[
        (b"  a  =  b c  ; Path=/", b"a=b c"),
        (b"a=\"quoted\"", b"a=\"quoted\""),
        (b"a=b=c", b"a=b=c"),
        (b"novalue", b"novalue"),
        (b"=value", b"value"),
        (b"a=", b"a="),
        (b"a=caf\xe9", b"a=caf\xe9"),
        (b"a=1;;; HttpOnly ; SameSite=Lax;=;x", b"a=1"),
        (b"a=1\x00", b""),
        (b"a=1\r\nb=2", b""),
        (b"=", b""),
        (b"", b""),
        (b";a=1", b""),
    ];
    for (value, expected) in cases {
        let mut jar = Jar::default();
        jar.set(place, value, NOW);
        let found = jar.field(place, NOW).unwrap_or_default();
        assert_eq!(found, *expected, "{}", value.escape_ascii());
    }
    let mut jar = Jar::default();
    jar.set(place, &[b"a=".as_slice(), &[b'x'; 4095]].concat(), NOW);
    assert_eq!(jar.len(), 1);
    jar.set(place, &[b"b=".as_slice(), &[b'x'; 4096]].concat(), NOW);
    assert_eq!(jar.len(), 1);
}

#[test]
fn dates() {
    let cases = [
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
        ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
        ("06 nov 1994 8:49:37", Some(784_111_777)),
        ("Thu, 01-Jan-1970 00:00:00 GMT", Some(0)),
        ("1 Jan 69 0:0:0", Some(3_124_224_000)),
        ("Mon, 31 Feb 2020 00:00:00 GMT", None),
        ("Mon, 10 Feb 1500 00:00:00 GMT", None),
        ("10 Feb 2020 24:00:00", None),
        ("10 Feb 2020", None),
        ("", None),
        ("0", None),
    ];
    for (text, expected) in cases {
        assert_eq!(date(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn a_jar_is_bounded() {
    let mut jar = Jar::new(JarLimits {
        per_domain: 5,
        cookies: 40,
    });
    for index in 0..20 {
        jar.set(
            https("a.test", "/"),
            format!("c{index}=1").as_bytes(),
            NOW + index,
        );
        assert!(jar.len() <= 5);
    }
    let field = jar.field(https("a.test", "/"), NOW + 30).unwrap();
    assert_eq!(field, b"c15=1; c16=1; c17=1; c18=1; c19=1");
    for index in 0..1000 {
        let host = format!("h{index}.test");
        jar.set(https(&host, "/"), b"a=1", NOW + 40 + index);
        assert!(jar.len() <= 40);
        assert!(jar.field(https(&host, "/"), NOW + 40 + index).is_some());
    }
    assert_eq!(jar.len(), jar.domains.values().map(Vec::len).sum::<usize>());
}

#[test]
fn a_jar_is_written_and_read_back() {
    let mut jar = Jar::default();
    jar.set(
        https("www.example.org", "/"),
        b"a=caf\xe9; Domain=example.org; Secure; Max-Age=50",
        NOW,
    );
    jar.set(http("a.test", "/p/q"), b"b=2", NOW);
    let mut again = Jar::default();
    for domain in ["example.org", "a.test"] {
        let text = serde_json::to_string(jar.of_domain(domain)).unwrap();
        again.put_back(serde_json::from_str(&text).unwrap());
    }
    assert!(jar.of_domain("example.net").is_empty());
    assert_eq!(again.len(), 2);
    for place in [https("x.example.org", "/"), http("a.test", "/p/")] {
        assert_eq!(again.field(place, NOW + 1), jar.field(place, NOW + 1));
        assert!(again.field(place, NOW + 1).is_some());
    }
}

#[test]
fn all_cookies_of_a_head_are_taken() {
    let head =
        Head::parse(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n\r\n".to_vec());
    let mut jar = Jar::default();
    let taken = jar.take(
        https("x.a.test", "/"),
        &Head::parse(b"HTTP/1.1 200\r\n\r\n".to_vec()),
        NOW,
    );
    assert_eq!(taken, None);
    let taken = jar.take(https("a.test", "/"), &head, NOW);
    assert_eq!(taken, Some("a.test"));
    assert_eq!(jar.field(https("a.test", "/"), NOW).unwrap(), b"a=1; b=2");
}

proptest! {
    #[test]
    fn any_bytes_can_be_set(values: Vec<Vec<u8>>, host in "[a-z.]{0,12}", path in "/?[a-z/]{0,8}", now: i64) {
        let mut jar = Jar::new(JarLimits { per_domain: 3, cookies: 5 });
        for value in &values {
            jar.set(https(&host, &path), value, now);
            prop_assert!(jar.len() <= 5);
        }
        let field = jar.field(https(&host, &path), now).unwrap_or_default();
        prop_assert!(!field.contains(&b'\n') && !field.contains(&b'\r'));
        prop_assert_eq!(jar.len(), jar.domains.values().map(Vec::len).sum::<usize>());
    }

    #[test]
    fn any_attributes_can_be_read(attributes in "(; ?(Domain|Path|Max-Age|Expires|Secure)=?[ -~]{0,30}){0,4}", now: i64) {
        let mut jar = Jar::default();
        jar.set(https("www.example.org", "/a"), format!("a=1{attributes}").as_bytes(), now);
        prop_assert!(jar.len() <= 1);
    }
}

#[test]
fn a_neighbour_cannot_make_the_field_too_long_for_a_server() {
    let from = https("evil.example.org", "/");
    let values: Vec<String> = (0..50)
        .map(|number| format!("c{number}={}; Domain=example.org", "x".repeat(4000)))
        .collect();
    let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
    values.push("small=1; Domain=example.org");
    let field = sent(from, &values, https("www.example.org", "/"));
    assert!(field.len() <= LONGEST_FIELD, "{} bytes", field.len());
    assert!(field.ends_with("small=1"), "what fits is sent");
}
