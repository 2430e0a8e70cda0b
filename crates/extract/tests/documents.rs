//! Golden documents: for every rule what is found, and what is not, whole and in pieces.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{self, Read};

use ecluse_extract::{
    CharsetSource, Context, DocumentKind, Ended, ExtractError, Link, Report, Url, extract,
};

/// Gives its bytes in pieces of one length.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

fn read(url: &str, content_type: Option<&str>, document: &[u8]) -> (Vec<Link>, Report) {
    let url = Url::parse(url).unwrap();
    let mut links = Vec::new();
    let report = extract(
        &mut Pieces(document, 1000),
        &Context::new(&url, content_type),
        &mut |link| links.push(link),
    );
    (links, report.unwrap())
}

/// Returns the links as `hop url context`, those of the site without it; `+` marks what a page needs.
fn found(content_type: &str, document: &str) -> Vec<String> {
    told(
        &read(
            "http://lock.example/a/b",
            Some(content_type),
            document.as_bytes(),
        )
        .0,
    )
}

fn told(links: &[Link]) -> Vec<String> {
    links
        .iter()
        .map(|link| {
            let url = link
                .url
                .strip_prefix("http://lock.example")
                .unwrap_or(&link.url);
            let mark = if link.requisite { "+" } else { "" };
            format!("{}{mark} {url} {}", link.hop, link.context)
        })
        .collect()
}

fn check(content_type: &str, cases: &[(&str, &[&str])]) {
    for (document, expected) in cases {
        assert_eq!(found(content_type, document), *expected, "{document}");
    }
}

#[test]
fn elements_that_lead_somewhere() {
    check(
        "text/html",
        &[
            ("<a href=x>", &["L /a/x a/@href"]),
            (
                "<A HREF='/x?a=1&amp;b=2&copy=3#f'>",
                &["L /x?a=1&b=2&copy=3 a/@href"],
            ),
            ("<a href=' \n/x\t '>", &["L /x a/@href"]),
            ("<a href=/x rel=nofollow>", &["L /x a/@href"]),
            ("<map><area href=/x></map>", &["L /x area/@href"]),
            ("<form action=/s>", &["L /s form/@action"]),
            ("<form action=/s method=GET>", &["L /s form/@action"]),
            ("<button formaction=/s>", &["L /s button/@formaction"]),
            (
                "<blockquote cite=/q><img longdesc=/d>",
                &["L /q blockquote/@cite", "L /d img/@longdesc"],
            ),
            (
                "<link rel=canonical href=/c><link rel=alternate href=/d><link rel='next' href=/e>",
                &["L /c link/@href", "L /d link/@href", "L /e link/@href"],
            ),
            (
                "<meta http-equiv=Refresh content='5; url=/next'>",
                &["R /next meta/@content"],
            ),
            (
                "<meta property=og:url content=/og>",
                &["L /og meta/@content"],
            ),
            ("<svg><a xlink:href=/x></a></svg>", &["L /x a/@xlink:href"]),
            (
                "<select><option value=/jump/page.html><option value=3><option value=fr></select>",
                &["X /jump/page.html option/@value"],
            ),
        ],
    );
}

#[test]
fn elements_that_show_something() {
    check(
        "text/html",
        &[
            ("<img src=x.png>", &["E+ /a/x.png img/@src"]),
            (
                "<img srcset='x.png 1x, y.png 2x'>",
                &["E+ /a/x.png img/@srcset", "E+ /a/y.png img/@srcset"],
            ),
            (
                "<picture><source srcset='/x.avif 800w,/y.avif 400w'></picture>",
                &["E+ /x.avif source/@srcset", "E+ /y.avif source/@srcset"],
            ),
            ("<script src=/x.js></script>", &["E+ /x.js script/@src"]),
            (
                "<iframe src=/f></iframe><frame src=/g>",
                &["E+ /f iframe/@src", "E+ /g frame/@src"],
            ),
            (
                "<iframe srcdoc='&lt;img src=/x.png>'></iframe>",
                &["E+ /x.png img/@src"],
            ),
            (
                "<embed src=/x.swf><object data=/y.swf></object>",
                &["E+ /x.swf embed/@src", "E+ /y.swf object/@data"],
            ),
            (
                "<object codebase=/c/ data=y archive='u.jar,v.jar'></object>",
                &[
                    "E+ /c/y object/@data",
                    "E+ /c/u.jar object/@archive",
                    "E+ /c/v.jar object/@archive",
                ],
            ),
            (
                "<applet code=Gate codebase=/java/>",
                &["E+ /java/Gate.class applet/@code"],
            ),
            (
                "<param name=movie value=/x.swf><param name=quality value=/high.swf>",
                &["E+ /x.swf param/@value"],
            ),
            (
                "<video src=/v.mp4 poster=/p.jpg><source src=/v.webm><track src=/v.vtt></video><audio src=/a.ogg>",
                &[
                    "E+ /v.mp4 video/@src",
                    "E+ /p.jpg video/@poster",
                    "E+ /v.webm source/@src",
                    "E+ /v.vtt track/@src",
                    "E+ /a.ogg audio/@src",
                ],
            ),
            (
                "<input type=image src=/i.png><input type=text src=/j.png>",
                &["E+ /i.png input/@src"],
            ),
            (
                "<body background=/b.gif><td background=/c.gif>",
                &["E+ /b.gif body/@background", "E+ /c.gif td/@background"],
            ),
            (
                "<link rel=stylesheet href=/s.css><link rel='shortcut icon' href=/i.ico>",
                &["E+ /s.css link/@href", "E+ /i.ico link/@href"],
            ),
            (
                "<link rel=preload as=image imagesrcset='/x.png 1x'><link rel=manifest href=/m.json>",
                &["E+ /x.png link/@imagesrcset", "E+ /m.json link/@href"],
            ),
            (
                "<link rel=prefetch href=/p><meta property=og:image content=/o.jpg><meta name=twitter:image content=/t.jpg>",
                &[
                    "E /p link/@href",
                    "E /o.jpg meta/@content",
                    "E /t.jpg meta/@content",
                ],
            ),
            (
                "<svg><image href=/x.png /><use xlink:href='/s.svg#i'/></svg>",
                &["E+ /x.png image/@href", "E+ /s.svg use/@xlink:href"],
            ),
            (
                "<div style='background:url(&quot;/x.png&quot;)'>",
                &["E+ /x.png =CSS"],
            ),
            (
                "<style>@import '/i.css'; a{background:url(/x.png)}</style>",
                &["E+ /i.css =CSS", "E+ /x.png =CSS"],
            ),
            (
                "<style></style><style>b{c:url(/y.png)}</style>",
                &["E+ /y.png =CSS"],
            ),
            (
                "<html manifest=/cache.appcache>",
                &["E+ /cache.appcache html/@manifest"],
            ),
            ("<amp-img src=/x.png>", &["E+ /x.png amp-img/@src"]),
        ],
    );
}

#[test]
fn pictures_that_wait() {
    check(
        "text/html",
        &[
            ("<img data-src=x>", &["E+ /a/x img/@data-src"]),
            (
                "<img data-srcset='/x.png 1x, /y.png 2x'>",
                &["E+ /x.png img/@data-srcset", "E+ /y.png img/@data-srcset"],
            ),
            (
                "<img data-original=/x.png>",
                &["E+ /x.png img/@data-original"],
            ),
            (
                "<img data-lazy-src=/x.png data-lazy=/y.png>",
                &["E+ /x.png img/@data-lazy-src", "E+ /y.png img/@data-lazy"],
            ),
            ("<div data-bg=/x.jpg>", &["E+ /x.jpg div/@data-bg"]),
            (
                "<div data-background-image=\"url('/x.jpg')\">",
                &["E+ /x.jpg =CSS"],
            ),
            (
                "<iframe data-src=https://gate.example/v></iframe>",
                &["E+ https://gate.example/v iframe/@data-src"],
            ),
            (
                "<div data-href=/x/y data-id=/3>",
                &["L /x/y div/@data-href"],
            ),
            (
                "<div data-href=/x/y.css data-url=/x/z>",
                &["X /x/y.css div/@data-href", "X /x/z div/@data-url"],
            ),
            (
                "<img data-src='/x.jpg, http://gate.example/y.jpg' data-src-small='/z.jpg, /w.jpg'>",
                &[
                    "E+ /x.jpg img/@data-src",
                    "E+ http://gate.example/y.jpg img/@data-src",
                    "E+ /z.jpg img/@data-src-small",
                    "E+ /w.jpg img/@data-src-small",
                ],
            ),
            (
                "<img data-src='/w_100,h_50/x.jpg'>",
                &["E+ /w_100,h_50/x.jpg img/@data-src"],
            ),
            (
                "<div data-props='{\"url\":\"/api/items\",\"n\":1}'>",
                &["X /api/items =JSON_MISC"],
            ),
            (
                "<div data-props='{&quot;src&quot;:&quot;/x.png&quot;}'>",
                &["X /x.png =JSON_MISC"],
            ),
            (
                "<img data-lazy=true data-src=false data-bg=dark data-image=3 data-thumb=1/2>",
                &[],
            ),
        ],
    );
}

#[test]
fn scripts_in_a_page() {
    check(
        "text/html",
        &[
            ("<script>x='/a/b.png'</script>", &["X /a/b.png =JS_MISC"]),
            (
                "<script type=text/javascript><!--\nx='/a/b.png'\n//--></script>",
                &["X /a/b.png =JS_MISC"],
            ),
            (
                "<script type=module>import '/m.js'</script>",
                &["E+ /m.js =JS_MISC"],
            ),
            (
                "<script>x='</scr'+'ipt>';y='/a.png'</script><a href=/b>",
                &["X /a.png =JS_MISC", "L /b a/@href"],
            ),
            (
                "<a href=\"javascript:open('/x.html')\">",
                &["X /x.html =JS_MISC"],
            ),
            (
                "<a onclick=\"location='/x.html'\">",
                &["X /x.html =JS_MISC"],
            ),
            (
                "<script type=application/ld+json>{\"@context\":\"https://schema.org\",\"url\":\"/x\"}</script>",
                &["X /x =JSON_MISC"],
            ),
            (
                "<script type=importmap>{\"imports\":{\"a\":\"/a.js\"}}</script>",
                &["X /a.js =JSON_MISC"],
            ),
            (
                "<script type=application/json>{\"a\":\"text/html\"}</script>",
                &[],
            ),
            (
                "<script type=text/template><a href=/t><a href=/u/{{id}}></script>",
                &["L /t a/@href"],
            ),
            ("<script type=text/x-shader>'/a.png'</script>", &[]),
        ],
    );
}

#[test]
fn what_browsers_without_script_or_sense_see() {
    check(
        "text/html",
        &[
            (
                "<noscript><img src=/x.png><a href=/y></noscript>",
                &["E+ /x.png img/@src", "L /y a/@href"],
            ),
            (
                "<noscript><style>a{b:url(/x.png)}</style></noscript>",
                &["E+ /x.png =CSS"],
            ),
            (
                "<frameset><noframes><a href=/y></noframes></frameset>",
                &["L /y a/@href"],
            ),
            (
                "<!--[if lt IE 9]><script src=/ie.js></script><![endif]-->",
                &["E+ /ie.js script/@src"],
            ),
            (
                "<!--[if !IE]><!--><a href=/x><!--<![endif]-->",
                &["L /x a/@href"],
            ),
            (
                "<template><img src=/x.png></template>",
                &["E+ /x.png img/@src"],
            ),
        ],
    );
}

#[test]
fn what_leads_nowhere() {
    for document in [
        "<a href>",
        "<a href=''><a href=#top><a href=b><a href='b#x'>",
        "<a href=mailto:keeper@lock.example><a href=tel:1><a href=javascript:void(0)>",
        "<a href=data:,x><a href=about:blank><a href=blob:x><a href=urn:x>",
        "<a href='{{url}}'><a href='${x}'><img src='<%= x %>'>",
        "<form action=/s method=post><form action=/t method=dialog>",
        "<link rel=dns-prefetch href=//gate.example><link rel=preconnect href=//gate.example>",
        "<link rel=pingback href=/x.php><link rel=stylesheet>",
        "<!-- <a href=/x> --><!--[if IE]> no <![endif]-->",
        "<textarea><a href=/x></textarea><title><a href=/x></title>",
        "<meta http-equiv=refresh content=30><meta name=description content=/x.png>",
        "<div style='color:red' class=/x.png alt=/x.png title=http://gate.example/>",
        "<img usemap=#m alt=/x.png>",
        "<a name=/x>",
        "text http://gate.example/ text",
        "",
    ] {
        assert_eq!(found("text/html", document), [] as [&str; 0], "{document}");
    }
}

#[test]
fn the_base_counts_from_where_it_stands() {
    check(
        "text/html",
        &[
            ("<base href=/base/><a href=x>", &["L /base/x a/@href"]),
            (
                "<base href=../c/ target=_top><base href=/d/><img src=x>",
                &["E+ /c/x img/@src"],
            ),
            (
                "<base target=_top><base href=//gate.example/z/><a href=x>",
                &["L http://gate.example/z/x a/@href"],
            ),
            (
                "<link rel=icon href=x><base href=/base/><a href=x>",
                &["E+ /a/x link/@href", "L /base/x a/@href"],
            ),
            ("<base href='javascript:x'><a href=x>", &["L /a/x a/@href"]),
            (
                "<base href=/base/><style>a{b:url(x)}</style><script>c='y/z.png'</script>",
                &["E+ /base/x =CSS", "X /base/y/z.png =JS_MISC"],
            ),
        ],
    );
}

#[test]
fn xhtml_and_svg_are_read_as_xml() {
    check(
        "application/xhtml+xml",
        &[
            (
                "<?xml version='1.0'?><html><head><script src='/x.js'/><link rel='stylesheet' href='/s.css'/></head><a href='/y?a=1&amp;b=2'/></html>",
                &[
                    "E+ /x.js script/@src",
                    "E+ /s.css link/@href",
                    "L /y?a=1&b=2 a/@href",
                ],
            ),
            (
                "<html><style><![CDATA[a{b:url(/x.png)}]]></style><script>//<![CDATA[\nx='/y.png'\n//]]></script><noscript><img src='/z.png'/></noscript></html>",
                &["E+ /x.png =CSS", "X /y.png =JS_MISC", "E+ /z.png img/@src"],
            ),
        ],
    );
    check(
        "image/svg+xml",
        &[(
            "<?xml-stylesheet href='/s.css'?><svg xmlns='http://www.w3.org/2000/svg'><image xlink:href='/x.png'/><a href='/y'/><style>a{b:url(/z.png)}</style></svg>",
            &[
                "E+ /s.css ?xml-stylesheet/@href",
                "E+ /x.png image/@xlink:href",
                "L /y a/@href",
                "E+ /z.png =CSS",
            ],
        )],
    );
}

#[test]
fn style_sheets_scripts_and_json() {
    check(
        "text/css",
        &[(
            "@import 'x.css';a{b:url(/y.png)}",
            &["E+ /a/x.css =CSS", "E+ /y.png =CSS"],
        )],
    );
    check(
        "application/javascript",
        &[("x='/y.png';y='text/css'", &["X /y.png =JS_MISC"])],
    );
    check(
        "application/json",
        &[("{\"a\":\"/y.png\",\"b\":\"/c\"}", &["X /y.png =JSON_MISC"])],
    );
}

#[test]
fn a_script_is_relative_to_its_page_and_its_modules_to_itself() {
    let url = Url::parse("http://cdn.example/lib/x.js").unwrap();
    let via = Url::parse("http://lock.example/a/page").unwrap();
    let mut context = Context::new(&url, Some("text/javascript"));
    context.via = Some(&via);
    let mut links = Vec::new();
    let script = "import './y.js';z='img/z.png'";
    extract(&mut script.as_bytes(), &context, &mut |link| {
        links.push(link);
    })
    .unwrap();
    assert_eq!(
        told(&links),
        [
            "E+ http://cdn.example/lib/y.js =JS_MISC",
            "X /a/img/z.png =JS_MISC"
        ]
    );
}

/// What a script at `url` says, on the page `http://lock.example/guide/intro`.
fn script(url: &str, script: &str) -> Vec<String> {
    let url = Url::parse(url).unwrap();
    let via = Url::parse("http://lock.example/guide/intro").unwrap();
    let mut context = Context::new(&url, Some("text/javascript"));
    context.via = Some(&via);
    let mut links = Vec::new();
    extract(&mut script.as_bytes(), &context, &mut |link| {
        links.push(link);
    })
    .unwrap();
    links
        .iter()
        .map(|link| format!("{} {}", link.hop, link.url))
        .collect()
}

#[test]
fn the_files_of_a_bundle_lie_beside_its_script() {
    // Vite
    assert_eq!(
        script(
            "http://lock.example/docs/assets/app.js",
            r#"const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["assets/Home-1.js","./Home-2.css"])))=>i.map(i=>d[i]);x=new URL("lock.wasm",import.meta.url);y="img/z.png";location.replace("next")"#
        ),
        [
            "X http://lock.example/docs/assets/Home-1.js",
            "E http://lock.example/docs/assets/Home-2.css",
            "E http://lock.example/docs/assets/lock.wasm",
            "X http://lock.example/guide/img/z.png",
        ]
    );
    // webpack, as Docusaurus has it
    let runtime = r#"(()=>{r.u=e=>"assets/js/"+({7:"c4f5",9:"content---docs"}[e]||e)+"."+{7:"a1",8:"b2",9:"c3"}[e]+".js",r.miniCssF=e=>{},r.p="/docs/"})()"#;
    let expected = [
        "E http://lock.example/docs/assets/js/c4f5.a1.js",
        "E http://lock.example/docs/assets/js/8.b2.js",
        "E http://lock.example/docs/assets/js/content---docs.c3.js",
    ];
    assert_eq!(
        script("http://lock.example/docs/assets/js/runtime.js", runtime),
        expected
    );
    let nowhere = runtime.replace("r.p=\"/docs/\"", "r.p=auto()");
    assert_eq!(
        script("http://lock.example/docs/assets/js/runtime.js", &nowhere),
        expected
    );
    // Tables may be long, and come in pieces.
    let table: Vec<String> = (0..5000).map(|n| format!("{n}:\"{n:08x}\"")).collect();
    let long = format!("r.u=e=>\"js/\"+e+\".\"+{{{}}}[e]+\".js\"", table.join(","));
    let found = script("http://lock.example/js/runtime.js", &long);
    assert_eq!(found.len(), 5000);
    assert!(found.contains(&"E http://lock.example/js/4999.00001387.js".to_owned()));
}

#[test]
fn a_link_is_a_link_wherever_it_stands() {
    let markup =
        r#"<p><a href=\"https://gate.example/post\">x</a><img src=\"https://gate.example/x.png\">"#;
    let expected = [
        "L https://gate.example/post",
        "X https://gate.example/x.png",
    ];
    let hops = |content_type: &str, document: &str| {
        let (links, _) = read(
            "http://lock.example/a/b",
            Some(content_type),
            document.as_bytes(),
        );
        let told = links
            .iter()
            .map(|link| format!("{} {}", link.hop, link.url));
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        hops(
            "application/json",
            &format!("{{\"rendered\":\"{markup}\"}}")
        ),
        expected
    );
    assert_eq!(
        hops("text/javascript", &format!("x=\"{markup}\"")),
        expected
    );
    let template = format!(
        "<script type=text/template>{}</script>",
        markup.replace('\\', "")
    );
    assert_eq!(hops("text/html", &template), expected);
    assert_eq!(
        hops(
            "application/json",
            r#"{"link":"https://gate.example/post","href":"https://gate.example/a.css","url":"https://gate.example/x"}"#
        ),
        [
            "L https://gate.example/post",
            "X https://gate.example/a.css",
            "X https://gate.example/x"
        ]
    );
}

#[test]
fn a_link_says_what_its_element_does() {
    let page = "<a href=/1 rel='noopener NoFollow'>x</a><a href=/2 charset=latin2>y</a><script src=/3.js charset=' SJIS '></script>\
                <iframe src=/4></iframe><img src=/5><link rel=stylesheet href=/6.css charset=nonsense>";
    let (links, report) = read("http://lock.example/", Some("text/html"), page.as_bytes());
    let told: Vec<_> = links
        .iter()
        .map(|link| (link.nofollow, link.charset, link.framed))
        .collect();
    assert_eq!(
        told,
        [
            (true, None, false),
            (false, Some("ISO-8859-2"), false),
            (false, Some("Shift_JIS"), false),
            (false, None, true),
            (false, None, false),
            (false, None, false),
        ]
    );
    assert!(!report.nofollow);
}

#[test]
fn sitemaps_name_pages_and_sitemaps() {
    check(
        "application/xml",
        &[
            (
                "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc> http://lock.example/x?a=1&amp;b=2 </loc><lastmod>2026-11-17</lastmod><image:image><image:loc>/i.png</image:loc></image:image><xhtml:link rel='alternate' hreflang='fr' href='/fr'/></url><url><loc><![CDATA[http://lock.example/y?a&b]]></loc></url></urlset>",
                &[
                    "M /x?a=1&b=2 =MANIFEST_MISC",
                    "E /i.png =MANIFEST_MISC",
                    "L /fr link/@href",
                    "M /y?a&b =MANIFEST_MISC",
                ],
            ),
            (
                "<sitemapindex><sitemap><loc>/s1.xml.gz</loc></sitemap><sitemap><loc>/s2.xml</loc></sitemap></sitemapindex>",
                &["M /s1.xml.gz =MANIFEST_MISC", "M /s2.xml =MANIFEST_MISC"],
            ),
        ],
    );
    let (_, report) = read(
        "http://lock.example/sitemap.xml",
        Some("text/xml"),
        b"<urlset/>",
    );
    assert_eq!(report.kind, DocumentKind::Sitemap);
}

#[test]
fn feeds_name_pages_media_and_markup() {
    check(
        "application/rss+xml",
        &[(
            "<?xml version='1.0'?><?xml-stylesheet href='/f.css'?><rss xmlns:media='http://search.yahoo.com/mrss/'><channel><link>http://lock.example/</link><docs>http://gate.example/docs</docs><image><url>/logo.png</url></image><item><title>/t.png</title><link>/1</link><guid>http://lock.example/?p=1</guid><guid isPermaLink='false'>http://lock.example/?p=2</guid><enclosure url='/e.mp3' type='audio/mpeg'/><media:content url='/m.mp4'/><description>&lt;img src=&quot;/d.png&quot;&gt; &amp;amp;</description><content:encoded><![CDATA[<a href=\"/c?a&amp;b\">]]></content:encoded></item></channel></rss>",
            &[
                "E+ /f.css ?xml-stylesheet/@href",
                "L / =XML_MISC",
                "E /logo.png =XML_MISC",
                "L /1 =XML_MISC",
                "X /?p=1 =XML_MISC",
                "E /e.mp3 enclosure/@url",
                "E /m.mp4 content/@url",
                "E+ /d.png img/@src",
                "L /c?a&b a/@href",
            ],
        )],
    );
    check(
        "application/atom+xml",
        &[(
            "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='/base/'><link rel='self' href='/feed'/><link rel='hub' href='/hub'/><icon>i.png</icon><entry><id>tag:1</id><link href='1'/><link rel='enclosure' href='e.mp3'/><content type='xhtml'><div><a href='/x'/></div></content><summary type='html'>&lt;a href='/y'&gt;</summary></entry></feed>",
            &[
                "L /feed link/@href",
                "E /base/i.png =XML_MISC",
                "L /base/1 link/@href",
                "E /base/e.mp3 link/@href",
                "L /x a/@href",
                "L /y a/@href",
            ],
        )],
    );
    check(
        "application/xml",
        &[(
            "<data xmlns='http://gate.example/ns' xsi:schemaLocation='http://gate.example/x.xsd'><item href='/x' id='/y'>http://gate.example/z</item><note>see http://gate.example/no</note></data>",
            &["X /x item/@href", "X http://gate.example/z =XML_MISC"],
        )],
    );
}

#[test]
fn robots_and_lists_name_sitemaps_and_pages() {
    let told_at = |url, document: &str| told(&read(url, Some("text/plain"), document.as_bytes()).0);
    assert_eq!(
        told_at(
            "http://lock.example/robots.txt",
            "User-agent: *\nSitemap: /s.xml\n"
        ),
        ["M /s.xml =MANIFEST_MISC"]
    );
    assert_eq!(
        told_at("http://lock.example/sitemap.txt", "http://lock.example/x\n"),
        ["M /x =MANIFEST_MISC"]
    );
    assert_eq!(
        told_at("http://lock.example/notes.txt", "Sitemap: /s.xml\n"),
        [] as [&str; 0]
    );
}

#[test]
fn every_character_set_is_read() {
    let page = "<meta charset=x><a href='/é/ü?q=é'>";
    let utf16: Vec<u8> = page.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16be: Vec<u8> = page.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let marked = [b"\xFF\xFE".as_slice(), &utf16].concat();
    let latin = b"<meta charset=iso-8859-1><a href='/\xE9/\xFC?q=\xE9'>".as_slice();
    // 表 ends in 0x5C, a backslash to whoever reads it as ASCII.
    let shift_jis = b"<meta charset=Shift_JIS><a href='/\x95\x5C?q=\x95\x5C'>".as_slice();
    for (name, content_type, document, expected, charset, source) in [
        (
            "header",
            "text/html;charset=utf-8",
            page.as_bytes(),
            "/%C3%A9/%C3%BC?q=%C3%A9",
            "UTF-8",
            CharsetSource::Header,
        ),
        (
            "guess",
            "text/html",
            page.as_bytes(),
            "/%C3%A9/%C3%BC?q=%C3%A9",
            "UTF-8",
            CharsetSource::Detected,
        ),
        (
            "UTF-16",
            "text/html",
            &utf16,
            "/%C3%A9/%C3%BC?q=%C3%A9",
            "UTF-16LE",
            CharsetSource::Mark,
        ),
        (
            "UTF-16BE",
            "text/html",
            &utf16be,
            "/%C3%A9/%C3%BC?q=%C3%A9",
            "UTF-16BE",
            CharsetSource::Mark,
        ),
        (
            "mark",
            "text/html; charset=latin1",
            &marked,
            "/%C3%A9/%C3%BC?q=%C3%A9",
            "UTF-16LE",
            CharsetSource::Mark,
        ),
        (
            "latin",
            "text/html",
            latin,
            "/%C3%A9/%C3%BC?q=%E9",
            "windows-1252",
            CharsetSource::Declared,
        ),
        (
            "Shift_JIS",
            "text/html",
            shift_jis,
            "/%E8%A1%A8?q=%95\\",
            "Shift_JIS",
            CharsetSource::Declared,
        ),
    ] {
        let (links, report) = read("http://lock.example/", Some(content_type), document);
        assert_eq!(
            (report.charset, report.charset_source),
            (charset, source),
            "{name}"
        );
        assert_eq!(links.len(), 1, "{name}");
        assert_eq!(
            links[0].url,
            format!("http://lock.example{expected}"),
            "{name}"
        );
    }
}

#[test]
fn a_character_set_nobody_names_is_guessed_or_hinted() {
    let french = "<p>Le péage de l'écluse est fermé aux bateaux après l'été, même chargés de blé.</p><a href='/péage'>";
    let latin: Vec<u8> = french
        .chars()
        .map(|letter| u8::try_from(u32::from(letter)).unwrap())
        .collect();
    let (links, report) = read("http://lock.example/", Some("text/html"), &latin);
    assert_eq!(
        (report.charset, report.charset_source),
        ("windows-1252", CharsetSource::Detected)
    );
    assert_eq!(links[0].url, "http://lock.example/p%C3%A9age");

    let url = Url::parse("http://lock.example/").unwrap();
    let mut context = Context::new(&url, Some("text/css"));
    context.charset = Some("koi8-r");
    let mut links = Vec::new();
    let report = extract(
        &mut b"a{b:url(\xC1.png)}".as_slice(),
        &context,
        &mut |link| links.push(link),
    )
    .unwrap();
    assert_eq!(report.charset_source, CharsetSource::Hint);
    assert_eq!(links[0].url, "http://lock.example/%D0%B0.png");
}

#[test]
fn pieces_of_any_length_give_the_same_links() {
    let mut page = String::from("<base href=/base/>");
    for number in 0..500 {
        page.push_str(&format!(
            "<a class='é' href='/p/{number}?a&amp;b'>ä</a><style>a{{b:url(i{number}.png)}}</style><script>x='/s/{number}.js'</script><!--[if IE]><img src=c{number}.png><![endif]--><noscript><img src=/n{number}.png></noscript>"
        ));
    }
    let url = Url::parse("http://lock.example/").unwrap();
    let links = |length: usize, pad: usize| {
        let mut context = Context::new(&url, Some("text/html; charset=utf-8"));
        context.limits.links = 100_000;
        context.limits.fragments = 100_000;
        let document = format!("{}{page}", " ".repeat(pad));
        let mut links = Vec::new();
        extract(
            &mut Pieces(document.as_bytes(), length),
            &context,
            &mut |link| links.push(link),
        )
        .unwrap();
        links.sort_by(|a, b| (&a.url, a.hop).cmp(&(&b.url, b.hop)));
        links
    };
    let whole = links(usize::MAX, 0);
    assert_eq!(whole.len(), 2_500);
    // The padding moves every window's edge through the tags.
    for pad in [1, 2, 3, 5, 7, 11, 13, 17, 50, 101, 151, 199, 211] {
        assert!(links(pad, pad) == whole, "{pad}");
    }
}

#[test]
fn a_source_that_fails_has_given_what_it_had() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            const PAGE: &[u8] = b"<a href=/x>..........";
            if self.0 == 0 {
                return Err(io::Error::other("the member is damaged"));
            }
            self.0 -= 1;
            let length = PAGE.len().min(buffer.len());
            buffer[..length].copy_from_slice(&PAGE[..length]);
            Ok(length)
        }
    }
    let url = Url::parse("http://lock.example/").unwrap();
    let context = Context::new(&url, Some("text/html"));
    for reads in [0, 5_000] {
        let mut links = 0;
        let failed = extract(&mut Broken(reads), &context, &mut |_| links += 1);
        let ExtractError::Read { report, source } = failed.unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(links, report.counts.links);
        assert_eq!(links > 0, reads > 0);
        assert!(report.bytes <= reads as u64 * 21 && report.bytes >= reads as u64 * 20);
        assert_eq!(source.to_string(), "the member is damaged");
    }
}

#[test]
fn the_report_says_why_it_ended() {
    let url = Url::parse("http://lock.example/").unwrap();
    let mut context = Context::new(&url, Some("text/html"));
    context.limits.links = 2;
    let page = b"<meta name=robots content='noindex, NOFOLLOW'><a href=/1><a href=/2><a href=/3>"
        .as_slice();
    let ended = |context: &Context<'_>| extract(&mut &*page, context, &mut |_| {}).unwrap();
    let report = ended(&context);
    assert_eq!(
        (report.ended, report.counts.links, report.nofollow),
        (Ended::Links, 2, true)
    );
    context.limits.links = 6_000;
    assert_eq!(ended(&context).ended, Ended::Complete);
    context.limits.document_bytes = 60;
    let report = ended(&context);
    assert_eq!((report.ended, report.bytes), (Ended::Bytes, 60));
}
