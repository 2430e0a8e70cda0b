//! URLs and the keys that `surt` 0.3.1 gives them, by what each tests.
//!
//! The URLs are ours; the keys were made with the Python package, and `compare_with_python.rs` does the same at large.

use ecluse_surt::{Surt, SurtError};

fn check(cases: &[(&str, &str)]) {
    for (url, expected) in cases {
        let key = Surt::of(url.as_bytes()).map(|key| key.to_string());
        assert_eq!(key.as_deref(), Ok(*expected), "{url:?}");
    }
}

#[test]
fn the_empty_url_has_a_key() {
    check(&[("", "-")]);
}

#[test]
fn no_key() {
    for blank in [" ", "\t\n"] {
        assert_eq!(Surt::of(blank.as_bytes()), Err(SurtError::Blank));
    }
    for authority in ["h:x", "h:65536", "h:-1", "h:80:81", "user:pass", "h:8%30"] {
        let outcome = Surt::of(format!("http://{authority}/").as_bytes());
        assert!(
            matches!(outcome, Err(SurtError::BadPort { .. })),
            "{authority} gave {outcome:?}"
        );
    }
}

#[test]
fn bytes_that_are_no_text() {
    let key = |url: &[u8]| Surt::of(url).unwrap().to_string();
    assert_eq!(key(b"http://h/\xe9?\xff=\x80"), "h)/%e9?%ff=%80");
    assert_eq!(key(b"http://\xe9cluse.example/"), "example,cluse)/");
    assert_eq!(
        Surt::of(b"filedesc:\xff").unwrap().as_bytes(),
        b"filedesc:\xff"
    );
}

#[test]
fn scheme_and_host() {
    check(&[
        ("http://lock.example", "example,lock)/"),
        ("http://lock.example/", "example,lock)/"),
        ("https://LOCK.Example/", "example,lock)/"),
        ("lock.example", "example,lock)/"),
        ("lock.example/a", "example,lock)/a"),
        ("//lock.example/a", "example,lock)/a"),
        ("www.lock.example", "example,lock)/"),
        ("http://www.lock.example/", "example,lock)/"),
        ("http://www7.lock.example/", "example,lock)/"),
        ("http://WWW042.lock.example/", "example,lock)/"),
        ("http://www7a.lock.example/", "example,lock,www7a)/"),
        ("http://www.www.lock.example/", "example,lock,www)/"),
        ("http://www/", "www)/"),
        ("http://lock.example./", "example,lock)/"),
        ("http://..lock...example../", "example,,lock)/"),
        ("http://www...lock.example/", "example,lock,)/"),
        ("http://lock_keeper.example/", "example,lock_keeper)/"),
        ("http://a,b.example/", "example,a,b)/"),
        ("http://lock%2eexample/", "example,lock)/"),
        ("http://lock%252Eexample%2fa/b", "example/a,lock)/b"),
    ]);
}

#[test]
fn other_schemes() {
    check(&[
        ("dns:Lock.Example", "dns:lock.example"),
        ("dns:www.lock.example", "dns:www.lock.example"),
        (
            "dns://www.ns.example/lock.example",
            "example,ns,www)/lock.example",
        ),
        ("ftp://www.lock.example:21/Pub/", "example,lock:21)/pub"),
        (
            "whois://whois.example/lock.example",
            "example,whois)/lock.example",
        ),
        ("urn:UUID:6F9619FF-8B86", "urn:uuid:6f9619ff-8b86"),
        ("URN:x/", "URN:x"),
        ("mailto:Keeper@Lock.example", "mailto:keeper@lock.example"),
        (
            "mailto:a@b.example?subject=B&cc=A",
            "mailto:a@b.example?cc=a&subject=b",
        ),
        ("warcinfo:crawl-1.warc.gz", "warcinfo:crawl-1.warc.gz"),
        ("warcinfo", "warcinfo)/"),
        ("filedesc:crawl 1.arc", "filedesc:crawl 1.arc"),
        ("filedesc://Crawl-1.ARC?", "filedesc://Crawl-1.ARC?"),
        ("Filedesc:A", "Filedesc:a"),
        (
            "metadata://netarchive.example/crawl/setup/Order.xml?heritrixVersion=3&harvestid=1",
            "example,netarchive)/crawl/setup/order.xml?harvestid=1&heritrixversion=3",
        ),
        (
            "screenshot:http://www.Lock.example/",
            "screenshot:http://www.lock.example",
        ),
        ("data:text/plain,A%20B", "data:text/plain,a%20b"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("about:blank", "about:blank"),
        ("file:///C:/A/../B", "file:/c:/a/../b"),
        ("x:", "x:"),
        ("x:/", "x:/"),
        ("x://", "x:"),
        ("x:?a", "x:/?a"),
        ("x:#a", "x:"),
        ("lock.example:80/a", "lock.example:80/a"),
        ("localhost:8080", "localhost:8080"),
    ]);
}

#[test]
fn what_is_typed_wrong() {
    check(&[
        ("  http://lock.example/a b  ", "example,lock)/a%20b"),
        ("\t\nhttp://lock.example/\r\n", "example,lock)/"),
        ("http://lock.example/a\tb\nc\rd", "example,lock)/abcd"),
        (
            "http://lock.example/a\u{b}b\u{c}c\0d",
            "example,lock)/a%0bb%0cc%00d",
        ),
        ("http:/lock.example/a", "example,lock)/a"),
        ("http:lock.example", "example,lock)/"),
        ("http:////lock.example//a", "example,lock)/a"),
        ("https:///www.lock.example:80/a", "example:80,lock)/a"),
        ("http://:8080/lock.example/a", "example,lock:8080)/a"),
        ("HTTP:/lock.example/a", "HTTP:/lock.example/a"),
        ("http://http://lock.example/", "example,lock)/"),
        ("http://https://www.lock.example:443/", "example,lock)/"),
        ("http://http//lock.example", "http)/lock.example"),
        ("http://https:/lock.example", "https)/lock.example"),
        ("http:\\\\lock.example\\a", "example\\a,\\\\lock)/"),
        ("http://lock.example\\a/b", "example\\a,lock)/b"),
        ("http://?a", "http:/?a"),
        ("http://#a", "http:"),
        ("http:///", "http:/"),
        ("http:", "http:"),
        ("-", "-)/"),
        (":", "http:"),
        ("a b", "a%20b)/"),
    ]);
}

#[test]
fn ports_and_users() {
    check(&[
        ("http://lock.example:80/", "example,lock)/"),
        ("https://lock.example:443/", "example,lock)/"),
        ("http://lock.example:443/", "example,lock:443)/"),
        ("https://lock.example:80/", "example,lock:80)/"),
        ("http://lock.example:0080/", "example,lock)/"),
        ("http://lock.example:0/", "example,lock)/"),
        ("http://lock.example:/", "example,lock)/"),
        ("http://lock.example:::/", "example,lock)/"),
        ("http://lock.example:65535/", "example,lock:65535)/"),
        ("HTTPS://lock.example:443/", "example,lock)/"),
        ("ftp://lock.example:80/", "example,lock:80)/"),
        ("http://user:pass@lock.example/", "example,lock)/"),
        ("http://a@b@lock.example:81/", "example,lock:81)/"),
        ("http://user:80@/lock.example", "example,lock)/"),
    ]);
}

#[test]
fn addresses() {
    check(&[
        ("http://192.0.2.1/", "1,2,0,192)/"),
        ("http://3221225985/", "1,2,0,192)/"),
        ("http://4294967296/", "0,0,0,0)/"),
        ("http://0/", "0,0,0,0)/"),
        ("http://192.513/", "1,2,0,192)/"),
        ("http://192.0.513/", "1,2,0,192)/"),
        ("http://0300.0.02.01/", "1,2,0,192)/"),
        ("http://192.0.2.010/", "8,2,0,192)/"),
        ("http://192.0.2.08/", "08,2,0,192)/"),
        ("http://192.0.2.256/", "256,2,0,192)/"),
        ("http://192.0.2.1.5/", "5,1,2,0,192)/"),
        ("http://0xc0000201/", "0xc0000201)/"),
        ("http://%31%39%32.0.2.1/", "1,2,0,192)/"),
        ("http://192.0.2.1%0a/", "1%0a,2,0,192)/"),
        ("http://www.192.0.2.1/", "1,2,0,192)/"),
        ("http://[2001:DB8::1]:8080/a", "2001:db8::1:8080)/a"),
        ("http://[::1", "::1)/"),
        ("http://[fe80::1%25Eth0]/", "fe80::1%25eth0)/"),
    ]);
}

#[test]
fn international() {
    check(&[
        ("http://écluse.example/É", "example,xn--cluse-9ra)/%c3%89"),
        ("http://%C3%A9cluse.example/", "example,xn--cluse-9ra)/"),
        ("http://%c3%89CLUSE.example/", "example,xn--cluse-9ra)/"),
        ("http://straße.example/", "example,strasse)/"),
        ("http://ＬＯＣＫ．example/", "example,lock)/"),
        ("http://港。example/", "example,xn--j6w)/"),
        ("http://e\u{301}cluse.example/", "example,xn--cluse-9ra)/"),
        ("http://😀.example/", "example,xn--e28h)/"),
        ("http://\u{5d0}\u{5d1}.example/", "example,xn--4dbc)/"),
        ("http://\u{5d0}1.example/", "example,%d7%901)/"),
        ("http://xn--é.example/", "example,xn--%c3%a9)/"),
        ("http://é..example/", "example,%c3%a9)/"),
        ("http://t%EF%BF%BD.example/", "example,t%ef%bf%bd)/"),
        ("http://a%FFb.example/", "example,ab)/"),
        ("http://%FF/a//b", "http:/a//b"),
        ("http://Ⴀ.example/", "example,xn--rkj)/"),
        ("http://Ϲ.example/", "example,xn--4xa)/"),
    ]);
}

#[test]
fn paths() {
    check(&[
        ("http://h/A//b///c/", "h)/a/b/c"),
        ("http://h/a/./b/../c/.", "h)/a/c"),
        ("http://h/a/b/..", "h)/a"),
        ("http://h/../a", "h)/../a"),
        ("http://h/../../a", "h)/a"),
        ("http://h/a//../b", "h)/a/b"),
        ("http://h/%2E%2e/a", "h)/../a"),
        ("http://h/.well-known/a", "h)/.well-known/a"),
        ("http://h/...", "h)/..."),
        ("http://h//", "h)/"),
        ("http://h/a;b=C", "h)/a;b=c"),
        ("http://h/%7Ea%2Fb%2520c%25", "h)/~a/b%20c%25"),
        ("http://h/%", "h)/%25"),
        ("http://h/%zz%4", "h)/%25zz%254"),
        ("http://h/%%34%31", "h)/a"),
        ("http://h/%252525252541", "h)/a"),
        ("http://h/a#b#c", "h)/a"),
        ("http://h/a%23b%3Fc", "h)/a%23b?c"),
        ("http://h/a|b\"c<d>^`{}", "h)/a|b\"c<d>^`{}"),
        ("http://h/%C3%A9%E9", "h)/%c3%a9%e9"),
        ("http://h/a/%20/", "h)/a/%20"),
    ]);
}

#[test]
fn queries() {
    check(&[
        ("http://h/?", "h)/"),
        ("http://h?a", "h)/?a"),
        ("http://h/a?b#c", "h)/a?b"),
        ("http://h/a?B=2&a=1&A=0", "h)/a?a=0&a=1&b=2"),
        ("http://h/a?b&a&", "h)/a?&a&b"),
        ("http://h/a?&", "h)/a?&"),
        ("http://h/a?a=&a&a=1", "h)/a?a&a=&a=1"),
        ("http://h/a?a-b=1&a=2&ab=3", "h)/a?a=2&a-b=1&ab=3"),
        ("http://h/a?a=b=c&a=b", "h)/a?a=b&a=b=c"),
        ("http://h/a?x?y?", "h)/a?x?y?"),
        ("http://h/a?b=%26a=1", "h)/a?a=1&b="),
        ("http://h/a?b=%2526&a=%23", "h)/a?&a=%23&b="),
        ("http://h/a?b+c=d e", "h)/a?b+c=d%20e"),
        ("http://h/?a=1&amp;b=2", "h)/?a=1&amp;b=2"),
        ("http://h/a/?", "h)/a"),
        ("http://h/a?%", "h)/a?%25"),
        ("urn:a?c&b", "urn:a?b&c"),
    ]);
}

#[test]
fn sessions() {
    check(&[
        (
            "http://h/a?jsessionid=0123456789abcdef0123456789ABCDEF",
            "h)/a",
        ),
        (
            "http://h/a?x=1&JSESSIONID=0123456789abcdef0123456789ABCDEF&b=2",
            "h)/a?b=2&x=1",
        ),
        (
            "http://h/a?PHPSESSID=0123456789abcdef0123456789ABCDEF&phpsessid=0123456789abcdef0123456789ABCDEF",
            "h)/a?phpses",
        ),
        (
            "http://h/a?b=1&SID=0123456789abcdef0123456789ABCDEF",
            "h)/a?&b=1",
        ),
        (
            "http://h/a?sid=0123456789abcdef0123456789ABCDEF0",
            "h)/a?sid=0123456789abcdef0123456789abcdef0",
        ),
        ("http://h/a?sid=0123456789abcdef0123456789ABCDE%30", "h)/a"),
        (
            "http://h/a?ASPSESSIONIDABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX&b",
            "h)/a?b",
        ),
        ("http://h/a?CFID=1&CFTOKEN=2&z=1", "h)/a?z=1"),
        (
            "http://h/a?cfid=1&z=1&cftoken=2",
            "h)/a?cfid=1&cftoken=2&z=1",
        ),
        (
            "http://h/a;jsessionid=0123456789abcdef0123456789ABCDEF",
            "h)/a;jsessionid=0123456789abcdef0123456789abcdef",
        ),
        ("http://h/(S(abcdefghijklmnopqrstuvwx))/a.aspx", "h)/a.aspx"),
        (
            "http://h/(abcdefghijklmnopqrstuvwx)/a/B.ASPX?c",
            "h)/a/b.aspx?c",
        ),
        (
            "http://h/(a(abcdefghijklmnopqrstuvwx)f(abcdefghijklmnopqrstuvwx))/(abcdefghijklmnopqrstuvwx)/b.aspx",
            "h)/b.aspx",
        ),
        (
            "http://h/(abcdefghijklmnopqrstuvwx)/a.asp",
            "h)/(abcdefghijklmnopqrstuvwx)/a.asp",
        ),
        (
            "http://h/(abcdefghijklmnopqrstuvwx)/.aspx",
            "h)/(abcdefghijklmnopqrstuvwx)/.aspx",
        ),
        (
            "http://h/%28abcdefghijklmnopqrstuvwx%29/a.aspx",
            "h)/a.aspx",
        ),
    ]);
}
