//! The pages that Heritrix tries its own extractors with, and what it finds in them (`ExtractorHTMLTest` and
//! `JerichoExtractorHTMLTest` of heritrix3, at 5ada2a78). Where we differ, the table says how and why, and so does
//! `docs/formats/extraction.md`. Its scripts and strings are in `scripts.rs`.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;

use ecluse_extract::{Context, Url, extract};

struct Vector {
    base: &'static str,
    page: &'static str,
    theirs: &'static [&'static str],
    /// What is found instead, and why.
    ours: Option<(&'static [&'static str], &'static str)>,
}

const fn same(base: &'static str, page: &'static str, theirs: &'static [&'static str]) -> Vector {
    Vector {
        base,
        page,
        theirs,
        ours: None,
    }
}

const VECTORS: &[Vector] = &[
    same(
        "http://www.archive.org/start/",
        r#"<a href="http://www.slashdot.org"/>yellow journalism A"#,
        &["L http://www.slashdot.org/"],
    ),
    same(
        "http://www.archive.org/start/",
        "<a href='http://www.slashdot.org'/>yellow journalism A",
        &["L http://www.slashdot.org/"],
    ),
    same(
        "http://www.archive.org/start/",
        "<a href=http://www.slashdot.org/>yellow journalism A",
        &["L http://www.slashdot.org/"],
    ),
    same(
        "http://www.archive.org/start/",
        r#"<img src="foo.gif"> IMG"#,
        &["E http://www.archive.org/start/foo.gif"],
    ),
    same(
        "http://www.example.com/",
        r#"<frame name="main"src="http://expected.example.com/"> "#,
        &["E http://expected.example.com/"],
    ),
    same(
        "http://www.example.com/",
        r#"<form method="get" action="/ok1"> <form action="/ok2" method="get"> <form method="post" action="/notok"> <form action="/ok3"> "#,
        &[
            "L http://www.example.com/ok1",
            "L http://www.example.com/ok2",
            "L http://www.example.com/ok3",
        ],
    ),
    same(
        "http://www.example.com/",
        r#"<meta property="og:video" content="/absolute.mp4" /> <meta property="og:video" content="/relative.mp4" /> <meta property="og:video:height" content="333" /><meta property="og:video:type" content="video/mp4" /><meta property="strangeproperty" content="notaurl" meaninglessurl="http://www.example.com/no.html" />"#,
        &[
            "E http://www.example.com/absolute.mp4",
            "E http://www.example.com/relative.mp4",
        ],
    ),
    Vector {
        base: "http://www.example.com/",
        page: "<meta name='robots' content='index,nofollow'><a href='blahblah'>blah</a> blahblah",
        theirs: &[],
        ours: Some((
            &["L http://www.example.com/blahblah"],
            "the page's wish is told beside its links, and the order says whether it is heeded",
        )),
    },
    same(
        "http://www.example.com/",
        r#"<a href="example.html;jsessionid=deadbeef:deadbeed?parameter=this:value"/><a href="example.html?parameter=this:value"/>"#,
        &[
            "L http://www.example.com/example.html;jsessionid=deadbeef:deadbeed?parameter=this:value",
            "L http://www.example.com/example.html?parameter=this:value",
        ],
    ),
    same(
        "http://www.example.com/",
        "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=='>",
        &[],
    ),
    same(
        "https://www.example.de/forum/index.php/mv/msg/7627/0/",
        "<base href=\"/first/\"/>\n<base href=\"/forum/\"/>\n<img src=\"index.php/fa/89652/0/\" alt=\"index.php/fa/89652/0/\" />",
        &["E https://www.example.de/first/index.php/fa/89652/0/"],
    ),
    Vector {
        base: "https://www.example.com/",
        page: r#"<script type="text/javascript">_parameter="www.anotherexample.com";_anotherparameter="www.example.com/index.html";</script>"#,
        theirs: &[
            "X http://www.anotherexample.com/",
            "X https://www.example.com/index.html",
        ],
        ours: Some((
            &[
                "X http://www.anotherexample.com/",
                "X http://www.example.com/index.html",
            ],
            "a host without a scheme is asked by http, whichever it is",
        )),
    },
    same(
        "http://www.example.com/en/fiche/dossier/322/",
        r#"<script type="text/javascript">var gaJsHost = (("https:" == document.location.protocol) ? "https://ssl." : "http://www."); document.write(unescape("%3Cscript src='" + gaJsHost + "google-analytics.com/ga.js' type='text/javascript'%3E%3C/script%3E"));</script>"#,
        &[],
    ),
    Vector {
        base: "http://www.example.com/abc/index.html",
        page: r#"<base href="http://www.example.com/"><a href="def/another1.html"><a href="ghi/another2.html">"#,
        theirs: &[
            "L http://www.example.com/",
            "L http://www.example.com/def/another1.html",
            "L http://www.example.com/ghi/another2.html",
        ],
        ours: Some((
            &[
                "L http://www.example.com/def/another1.html",
                "L http://www.example.com/ghi/another2.html",
            ],
            "a base is no link; nobody can click on it",
        )),
    },
    Vector {
        base: "http://www.example.com/",
        page: r#"<object classid="clsid:D27C"><param name="flashvars" value="zoomifyXMLPath=Param.xml"><param name="src" value="Viewer.swf"><embed flashvars="zoomifyXMLPath=Embed.xml" src="Viewer.swf"></object>"#,
        theirs: &[
            "E http://www.example.com/Embed.xml",
            "E http://www.example.com/Param.xml",
            "E http://www.example.com/Viewer.swf",
        ],
        ours: Some((
            &["E http://www.example.com/Viewer.swf"],
            "what Flash did with its variables was its own affair, and no browser has it any more",
        )),
    },
    same(
        "http://www.example.com/",
        r#"<!--[if IE 6]><img src="foo.gif"><![endif]--><!--[if IE 6]><script src="foo.js"><![endif]-->"#,
        &[
            "E http://www.example.com/foo.gif",
            "E http://www.example.com/foo.js",
        ],
    ),
    same(
        "http://www.example.com/",
        r#"<img src="/images/foo.jpg" srcset="a,b,c,,, /images/foo1.jpg 800w,data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7 700w, /images/foo2.jpg 480w(data:,foo, ,), /images/foo3.jpg 96w(x" sizes="(max-width: 800px) 100vw, 800px">"#,
        &[
            "E http://www.example.com/a,b,c",
            "E http://www.example.com/images/foo.jpg",
            "E http://www.example.com/images/foo1.jpg",
            "E http://www.example.com/images/foo2.jpg",
            "E http://www.example.com/images/foo3.jpg",
        ],
    ),
    same(
        "http://www.example.com/",
        r#"<picture><source media="(min-width: 992px)" srcset="images/foo1.jpg"> <source SRCSET="images/foo2.jpg"> <source srcSet="images/foo3-1x.jpg 1x, images/foo3-2x.jpg 2x"> <img src="images/foo.jpg" alt=""> </picture>"#,
        &[
            "E http://www.example.com/images/foo.jpg",
            "E http://www.example.com/images/foo1.jpg",
            "E http://www.example.com/images/foo2.jpg",
            "E http://www.example.com/images/foo3-1x.jpg",
            "E http://www.example.com/images/foo3-2x.jpg",
        ],
    ),
    same(
        "https://www.20minutes.fr/",
        r#"<img class="b-lazy" width="120" height="78"data-src="https://img.20mn.fr/sh/120x78_avocat.jpg"sizes="7.5em"/><img data-srcset="https://img.20mn.fr/sh/a.jpg 120w,https://img.20mn.fr/sh/b.jpg 240w"/>"#,
        &[
            "E https://img.20mn.fr/sh/120x78_avocat.jpg",
            "E https://img.20mn.fr/sh/a.jpg",
            "E https://img.20mn.fr/sh/b.jpg",
        ],
    ),
    same(
        "https://www.telerama.fr/",
        r#"<img src="/themes/tr/images/trans.gif" data-original="https://www.telerama.fr/public/standup.jpg?itok=w1aDSzBQsc=1012e84e"/><source data-original-set="http://focus.nouvelobs.com/640/59de545.jpeg"srcset="http://focus.nouvelobs.com/640/59de545.jpeg">"#,
        &[
            "E http://focus.nouvelobs.com/640/59de545.jpeg",
            "E https://www.telerama.fr/public/standup.jpg?itok=w1aDSzBQsc=1012e84e",
            "E https://www.telerama.fr/themes/tr/images/trans.gif",
        ],
    ),
    same(
        "https://www.slate.fr/",
        r#"<img data-full-src="/files/330x188/unsplash.jpg" srcset="/resizer/opD2=/120x75/cloudfront.example/P.jpg 120w,  /resizer/xZlm=/240x150/cloudfront.example/P.jpg 240w" >"#,
        &[
            "E https://www.slate.fr/files/330x188/unsplash.jpg",
            "E https://www.slate.fr/resizer/opD2=/120x75/cloudfront.example/P.jpg",
            "E https://www.slate.fr/resizer/xZlm=/240x150/cloudfront.example/P.jpg",
        ],
    ),
    same(
        "https://www.lemonde.fr/",
        r#"<source data-lazy-srcset="https://img.lemde.fr/a-0318.JPG"> <img class="js-media-live" data-lazy="https://img.lemde.fr/b-0318.JPG" alt=""> <source data-srcset="/rimage/ftw_240/image/10/1c38 240w, /rimage/ftw_288/image/10/1c38 288w" data-aspectratio="1.7776666666667">"#,
        &[
            "E https://img.lemde.fr/a-0318.JPG",
            "E https://img.lemde.fr/b-0318.JPG",
            "E https://www.lemonde.fr/rimage/ftw_240/image/10/1c38",
            "E https://www.lemonde.fr/rimage/ftw_288/image/10/1c38",
        ],
    ),
    same(
        "https://www.104.fr/",
        r#"<img src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
data-src-small="http://www.104.fr/c80-468ffd.jpg, http://www.104.fr/c233-f551d3.jpg"
data-src="http://www.104.fr/c8f5db0.jpg, http://www.104.fr/c84eebf.jpg" alt=""/>"#,
        &[
            "E http://www.104.fr/c233-f551d3.jpg",
            "E http://www.104.fr/c80-468ffd.jpg",
            "E http://www.104.fr/c84eebf.jpg",
            "E http://www.104.fr/c8f5db0.jpg",
        ],
    ),
    Vector {
        base: "https://www.example.org/",
        page: "<link href='/pingback' rel='pingback'><link href='/style.css' rel=stylesheet><link rel='my stylesheet rocks' href=/style2.css><link rel=icon href=/icon.ico><link href='http://dns-prefetch.example.com/' rel=dns-prefetch><link href=/without-rel><link href=/empty-rel rel=><link href=/just-spaces rel='   '><link href=/canonical rel=canonical><link href=/unknown rel=unknown>",
        theirs: &[
            "E https://www.example.org/icon.ico",
            "E https://www.example.org/style.css",
            "E https://www.example.org/style2.css",
            "L https://www.example.org/canonical",
            "L https://www.example.org/unknown",
        ],
        ours: Some((
            &[
                "E https://www.example.org/icon.ico",
                "E https://www.example.org/style.css",
                "E https://www.example.org/style2.css",
                "L https://www.example.org/canonical",
                "L https://www.example.org/empty-rel",
                "L https://www.example.org/just-spaces",
                "L https://www.example.org/unknown",
                "L https://www.example.org/without-rel",
            ],
            "a link that does not say what it is may be anything",
        )),
    },
    same(
        "https://www.example.org/",
        "<a href=/normal><a href=/nofollow rel=nofollow><a href=/both><a href=/both rel=nofollow>",
        &[
            "L https://www.example.org/both",
            "L https://www.example.org/nofollow",
            "L https://www.example.org/normal",
        ],
    ),
];

#[test]
fn heritrixs_pages_give_what_heritrix_finds_or_what_we_say() {
    let mut wrong = Vec::new();
    // Heritrix reads pages of either type; the second is in no list.
    for content_type in ["text/html", "application/xhtml"] {
        for vector in VECTORS {
            let url = Url::parse(vector.base).unwrap();
            let context = Context::new(&url, Some(content_type));
            let mut found = BTreeSet::new();
            extract(&mut vector.page.as_bytes(), &context, &mut |link| {
                found.insert(format!("{} {}", link.hop, link.url));
            })
            .unwrap();
            let (wanted, why) = vector.ours.unwrap_or((vector.theirs, "as Heritrix"));
            if !found.iter().map(String::as_str).eq(wanted.iter().copied()) {
                wrong.push(format!(
                    "{content_type}: {}\n  found {found:?}\n  not   {wanted:?} ({why})",
                    vector.page
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
