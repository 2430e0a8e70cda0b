//! The subjects on which Heritrix tries its own extractors and its URLs (`ExtractorHTMLTest`, `UsableURIFactoryTest`), with pages
//! and URLs of our own. Each case says what Heritrix finds; where we find something else, it says what and why, and so
//! does `docs/formats/extraction.md`. Scripts and strings are in `scripts.rs`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;

use ecluse_extract::{Context, ExtractLimits, Url, extract, extract_headers};

/// A page at `http://lock.example/a/`, what Heritrix finds in it, and what we find instead.
struct PageCase {
    page: &'static str,
    theirs: &'static [&'static str],
    ours: Option<(&'static [&'static str], &'static str)>,
}

const fn same(page: &'static str, theirs: &'static [&'static str]) -> PageCase {
    PageCase {
        page,
        theirs,
        ours: None,
    }
}

const PAGES: &[PageCase] = &[
    same(
        r#"<a href="http://gate.example"/>upper"#,
        &["L http://gate.example/"],
    ),
    same(
        "<a href=http://gate.example/>upper",
        &["L http://gate.example/"],
    ),
    same("<img src='gate.gif'>", &["E /a/gate.gif"]),
    same(r#"<frame name="upper"src="/gate/">"#, &["E /gate/"]),
    same(
        "<form method=get action=/1></form><form action=/2 method=get></form><form method=post action=/3></form><form action=/4></form>",
        &["L /1", "L /2", "L /4"],
    ),
    same(
        "<meta property='og:video' content='/lock.mp4'><meta property='og:video:width' content='640'><meta property='og:video:type' content='video/mp4'><meta property=odd content=word other=/no.html>",
        &["E /lock.mp4"],
    ),
    PageCase {
        page: "<meta name=robots content='index,nofollow'><a href=gate>x</a>",
        theirs: &[],
        ours: Some((
            &["L /a/gate"],
            "the page's wish is told beside its links, and the order says whether it is heeded",
        )),
    },
    same(
        "<a href='gate.html;jsessionid=0a1b:2c3d?level=3:4'>x</a><a href='gate.html?level=3:4'>y</a>",
        &[
            "L /a/gate.html;jsessionid=0a1b:2c3d?level=3:4",
            "L /a/gate.html?level=3:4",
        ],
    ),
    same(
        "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        &[],
    ),
    same(
        "<base href=/first/><base href=/second/><img src=gate.png alt=gate.png>",
        &["E /first/gate.png"],
    ),
    PageCase {
        page: "<base href=/first/><a href=x>x</a>",
        theirs: &["L /first/", "L /first/x"],
        ours: Some((&["L /first/x"], "a base is no link; nobody can click on it")),
    },
    same(
        r#"<script>var h="https:"==document.location.protocol?"https://ssl.":"http://www.";document.write(unescape("%3Cscript src='"+h+"stats.example/s.js' type='text/javascript'%3E%3C/script%3E"));</script>"#,
        &[],
    ),
    PageCase {
        page: "<object><param name=flashvars value='plan=Plan.xml'><param name=src value=Lock.swf><embed flashvars='plan=Other.xml' src=Lock.swf></object>",
        theirs: &["E /a/Lock.swf", "E /a/Other.xml", "E /a/Plan.xml"],
        ours: Some((
            &["E /a/Lock.swf"],
            "what Flash did with its variables was its own affair, and no browser has it any more",
        )),
    },
    same(
        "<!--[if IE 6]><img src=gate.gif><![endif]--><!--[if IE 6]><script src=gate.js></script><![endif]-->",
        &["E /a/gate.gif", "E /a/gate.js"],
    ),
    same(
        "<img src=/1.jpg srcset='x,y,z,,, /2.jpg 800w,data:image/gif;base64,R0lGOD 700w, /3.jpg 480w(data:,a, ,), /4.jpg 96w(x'>",
        &["E /1.jpg", "E /2.jpg", "E /3.jpg", "E /4.jpg", "E /a/x,y,z"],
    ),
    same(
        "<picture><source srcset=1.jpg><source SRCSET=2.jpg><source srcSet='3.jpg 1x, 4.jpg 2x'><img src=5.jpg></picture>",
        &[
            "E /a/1.jpg",
            "E /a/2.jpg",
            "E /a/3.jpg",
            "E /a/4.jpg",
            "E /a/5.jpg",
        ],
    ),
    same(
        r#"<img height="78"data-src="/1.jpg"sizes="7em"><img data-srcset="/2.jpg 120w,/3.jpg 240w"><img data-original="/4.jpg?x=1="><source data-original-set="/5.jpeg"srcset="/6.jpeg">"#,
        &[
            "E /1.jpg",
            "E /2.jpg",
            "E /3.jpg",
            "E /4.jpg?x=1=",
            "E /5.jpeg",
            "E /6.jpeg",
        ],
    ),
    same(
        "<img data-full-src=/1.jpg><source data-lazy-srcset=/2.JPG><img data-lazy=/3.JPG><source data-srcset='/x/240 240w, /x/288 288w' data-aspectratio=1.77>",
        &["E /1.jpg", "E /2.JPG", "E /3.JPG", "E /x/240", "E /x/288"],
    ),
    same(
        "<img data-src-small='/1.jpg, /2.jpg' data-src='/3.jpg, /4.jpg'>",
        &["E /1.jpg", "E /2.jpg", "E /3.jpg", "E /4.jpg"],
    ),
    PageCase {
        page: "<link href=/1 rel=pingback><link href=/2.css rel=stylesheet><link rel='odd stylesheet word' href=/3.css><link rel=icon href=/4.ico><link href=http://gate.example/ rel=dns-prefetch><link href=/5><link href=/6 rel=><link href=/7 rel='  '><link href=/8 rel=canonical><link href=/9 rel=odd>",
        theirs: &["E /2.css", "E /3.css", "E /4.ico", "L /8", "L /9"],
        ours: Some((
            &[
                "E /2.css", "E /3.css", "E /4.ico", "L /5", "L /6", "L /7", "L /8", "L /9",
            ],
            "a link that does not say what it is may be anything",
        )),
    },
    same(
        "<a href=/1>x</a><a href=/2 rel=nofollow>x</a><a href=/3>x</a><a href=/3 rel=nofollow>x</a>",
        &["L /1", "L /2", "L /3"],
    ),
];

#[test]
fn pages_give_what_heritrix_finds_or_what_we_say() {
    let mut wrong = Vec::new();
    let url = Url::parse("http://lock.example/a/").unwrap();
    // Heritrix reads pages of either type; the second is in no list.
    for content_type in ["text/html", "application/xhtml"] {
        for case in PAGES {
            let context = Context::new(&url, Some(content_type));
            let mut found = BTreeSet::new();
            extract(&mut case.page.as_bytes(), &context, &mut |link| {
                let path = link.url.strip_prefix("http://lock.example");
                found.insert(format!("{} {}", link.hop, path.unwrap_or(&link.url)));
            })
            .unwrap();
            let (wanted, why) = case.ours.unwrap_or((case.theirs, "as Heritrix"));
            if !found.iter().map(String::as_str).eq(wanted.iter().copied()) {
                wrong.push(format!(
                    "{content_type}: {}\n  found {found:?}\n  not   {wanted:?} ({why})",
                    case.page
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A reference on the page `http://lock.example/b/c/d;p?q`, what Heritrix makes of it (nothing, if it refuses it), and what we make
/// of it where that is something else.
type UrlCase = (
    &'static str,
    Option<&'static str>,
    Option<(Option<&'static str>, &'static str)>,
);

const URLS: &[UrlCase] = &[
    // RFC 3986, section 5.4, without the fragments.
    ("g", Some("http://lock.example/b/c/g"), None),
    ("./g/", Some("http://lock.example/b/c/g/"), None),
    ("/g", Some("http://lock.example/g"), None),
    ("//g", Some("http://g/"), None),
    ("?y", Some("http://lock.example/b/c/d;p?y"), None),
    ("g;x?y#s", Some("http://lock.example/b/c/g;x?y"), None),
    ("..", Some("http://lock.example/b/"), None),
    ("../../g", Some("http://lock.example/g"), None),
    ("../../../../g", Some("http://lock.example/g"), None),
    ("g:h", None, None),
    ("x//y", Some("http://lock.example/b/c/x//y"), None),
    (":x", Some("http://lock.example/b/c/:x"), None),
    ("http:x", Some("http://lock.example/b/c/x"), None),
    (
        "http//gate.example",
        Some("http://lock.example/b/c/http//gate.example"),
        None,
    ),
    // Schemes, hosts and ports.
    (
        " HTTP://Gate.Example/A ",
        Some("http://gate.example/A"),
        None,
    ),
    (
        "http://gate.example:0080",
        Some("http://gate.example/"),
        None,
    ),
    (
        "http://gate.example:81/",
        Some("http://gate.example:81/"),
        None,
    ),
    (
        "http:///gate.example/x",
        Some("http://gate.example/x"),
        None,
    ),
    (
        "http:////gate.example/x",
        Some("http://gate.example/x"),
        None,
    ),
    (
        "http://a_b.gate.example/",
        Some("http://a_b.gate.example/"),
        None,
    ),
    ("http://0gate.example/", Some("http://0gate.example/"), None),
    (
        "http://www.écluse.example/",
        Some("http://www.xn--cluse-9ra.example/"),
        None,
    ),
    (
        "http://例子.測試",
        Some("http://xn--fsqu00a.xn--g6w251d/"),
        None,
    ),
    ("http://gate.example:a/", None, None),
    ("http://gate.example:80808/", None, None),
    ("http://gate.example:81.gate.example/", None, None),
    ("http://gate.example</a", None, None),
    ("http://C|/gate.gif", None, None),
    (
        "http://gate{x}.example/",
        None,
        Some((
            Some("http://gate{x}.example/"),
            "the URL standard allows it, and the DNS says no",
        )),
    ),
    ("http://upper gate.example/", None, None),
    ("http://", None, None),
    (
        "ftp://u:p@gate.example/x/",
        Some("ftp://u:p@gate.example/x/"),
        None,
    ),
    (
        "http://gate..example/",
        None,
        Some((
            Some("http://gate..example/"),
            "browsers try it, and the DNS says no",
        )),
    ),
    (
        "https://gate.example:0/",
        None,
        Some((
            Some("https://gate.example:0/"),
            "the fetch refuses the port",
        )),
    ),
    (
        "http://gate.example%20/",
        Some("http://gate.example/"),
        Some((None, "browsers refuse it")),
    ),
    (
        "http://josefßon.example/",
        Some("http://josefsson.example/"),
        Some((
            Some("http://xn--josefon-4va.example/"),
            "IDNA 2008: ß is a letter of its own",
        )),
    ),
    (
        "http://gate.example./x",
        Some("http://gate.example/x"),
        Some((
            Some("http://gate.example./x"),
            "kept as it was asked for; the frontier's key has no dot",
        )),
    ),
    // Escapes.
    ("/~keeper", Some("http://lock.example/~keeper"), None),
    (
        "/a%25 .html",
        Some("http://lock.example/a%25%20.html"),
        None,
    ),
    (
        "/a%25\u{3000}.html",
        Some("http://lock.example/a%25%E3%80%80.html"),
        None,
    ),
    (
        "/a b/é.html",
        Some("http://lock.example/a%20b/%C3%A9.html"),
        None,
    ),
    (
        "/a%20b/%C3%A9.html",
        Some("http://lock.example/a%20b/%C3%A9.html"),
        None,
    ),
    (
        "/%a%%%%.html",
        Some("http://lock.example/%a%%%%.html"),
        None,
    ),
    (
        "/pa%20th%?q=x%",
        Some("http://lock.example/pa%20th%?q=x%"),
        None,
    ),
    ("/a?x={y}", Some("http://lock.example/a?x={y}"), None),
    (
        "/a{x}.html",
        Some("http://lock.example/a%7Bx%7D.html"),
        None,
    ),
    (
        "/a;b:c@d&e'f=g+h$i,j!k(l)m?n#o",
        Some("http://lock.example/a;b:c@d&e'f=g+h$i,j!k(l)m?n"),
        None,
    ),
    (
        "http://ga\tte.exa\nmple/i\r\nndex.html",
        Some("http://gate.example/index.html"),
        None,
    ),
    (
        "/../../a/../b/./c..c/",
        Some("http://lock.example/b/c..c/"),
        None,
    ),
    ("/a\\b", Some("http://lock.example/a/b"), None),
    (
        "/a?x^|'\">,<",
        Some("http://lock.example/a?x^|'%22%3E,%3C"),
        Some((
            Some("http://lock.example/a?x^|%27%22%3E,%3C"),
            "browsers escape the apostrophe too",
        )),
    ),
    (
        "/\u{A0}x.html\u{A0}",
        Some("http://lock.example/%20x.html"),
        Some((
            Some("http://lock.example/%C2%A0x.html%C2%A0"),
            "a no-break space is a character like others",
        )),
    ),
];

#[test]
fn references_are_resolved_as_heritrix_does_or_as_we_say() {
    let base = Url::parse("http://lock.example/b/c/d;p?q").unwrap();
    let limits = ExtractLimits::default();
    let mut wrong = Vec::new();
    let mut check = |reference: &str, wanted: Option<&str>, why: &str| {
        let mut found = None;
        let fields = [("Location", reference.as_bytes())];
        extract_headers(&base, fields, &limits, &mut |link| found = Some(link.url));
        if found.as_deref() != wanted {
            wrong.push(format!("{reference:?}: {found:?}, not {wanted:?} ({why})"));
        }
    };
    for (reference, theirs, ours) in URLS {
        let (wanted, why) = ours.unwrap_or((*theirs, "as Heritrix"));
        check(reference, wanted, why);
    }
    // Heritrix takes 2,083 characters, escaped.
    let long = format!("http://lock.example/{}", "x".repeat(3_000));
    check(&long, Some(&long), "up to the limit for URLs");
    check(&format!("{long}{long}"), None, "beyond it");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
