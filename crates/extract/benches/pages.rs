//! How fast are links found? A page of HTML should be read at over 100 MB a CPU-second; under that, extraction would show in
//! a crawl, which has about 0.3 CPU-seconds for 1,000 URLs.
//!
//! `cargo bench -p ecluse-extract` prints MB a CPU-second of this thread, best of several rounds.

use std::fmt::Write;
use std::hint::black_box;

use ecluse_extract::{Context, Url, extract};
use rustix::time::{ClockId, clock_gettime};

fn main() {
    for (name, content_type, document) in [
        ("news page", "text/html; charset=utf-8", news_page(100)),
        (
            "article, mostly text",
            "text/html; charset=utf-8",
            article(400),
        ),
        (
            "shop page, heavy markup",
            "text/html; charset=utf-8",
            shop_page(150),
        ),
        (
            "links and nothing else",
            "text/html; charset=utf-8",
            links(5_000),
        ),
        (
            "article in windows-1252",
            "text/html; charset=windows-1252",
            article(400),
        ),
        ("style sheet", "text/css", style_sheet(1_500)),
        ("script", "application/javascript", script(1_500)),
        ("JSON", "application/json", json(3_000)),
        ("sitemap", "application/xml", sitemap(5_000)),
    ] {
        let (speed, links) = megabytes_a_second(content_type, document.as_bytes());
        println!(
            "{speed:>7.0} MB/s  {name} ({} kB, {links} links)",
            document.len() / 1000
        );
    }
}

fn megabytes_a_second(content_type: &str, document: &[u8]) -> (f64, usize) {
    const ROUNDS: usize = 15;
    let url = Url::parse("https://www.lock.example/news/").expect("a URL");
    let context = Context::new(&url, Some(content_type));
    let repeats = (4_000_000 / document.len()).max(1);
    let mut links = 0;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = cpu_seconds();
        for _ in 0..repeats {
            let mut reader = black_box(document);
            let report = extract(&mut reader, &context, &mut |link| {
                black_box(link);
            });
            links = report.expect("memory can be read").counts.links;
        }
        best = best.min(cpu_seconds() - start);
    }
    ((document.len() * repeats) as f64 / 1e6 / best, links)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

const WORDS: &str = "The lock keeper opened the upper gate at noon, and three barges loaded with gravel came down to the \
    basin while the water fell; nobody on the quay could remember a drier summer, or a slower one. ";

fn head() -> String {
    let mut page = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>The Lock</title>\n\
         <link rel=\"canonical\" href=\"https://www.lock.example/news/\">\n<link rel=\"icon\" href=\"/favicon.ico\">\n\
         <meta property=\"og:image\" content=\"https://www.lock.example/og.jpg\">\n",
    );
    for number in 0..12 {
        let _ = writeln!(
            page,
            "<link rel=\"stylesheet\" href=\"/assets/css/part-{number}.min.css?v=5.8.{number}\" media=\"all\">\n\
             <script src=\"/assets/js/module-{number}.min.js\" async></script>"
        );
    }
    page.push_str("<style>body{margin:0;font:16px/1.5 sans-serif}.hero{background:url(/img/hero.jpg) center/cover}</style>\n");
    page.push_str("<script>window.dataLayer=window.dataLayer||[];function gtag(){dataLayer.push(arguments)}gtag('js',new Date());gtag('config','G-0123456789',{'anonymize_ip':true});</script>\n</head>\n<body class=\"home page template-front\">\n");
    page
}

fn navigation(page: &mut String, entries: usize) {
    page.push_str("<nav class=\"main-nav\" role=\"navigation\"><ul>\n");
    for number in 0..entries {
        let _ = writeln!(
            page,
            "<li class=\"menu-item menu-item-{number}\"><a class=\"menu-link\" href=\"/section-{number}/\"><span>Section {number}</span></a></li>"
        );
    }
    page.push_str("</ul></nav>\n");
}

fn news_page(teasers: usize) -> String {
    let mut page = head();
    navigation(&mut page, 40);
    for number in 0..teasers {
        let _ = writeln!(
            page,
            "<article id=\"post-{number}\" class=\"teaser teaser--wide\">\n  <a href=\"/news/2026/11/{number}/the-gates-open\" class=\"teaser__link\">\n    <img class=\"teaser__image\" src=\"/img/{number}-400.jpg\" srcset=\"/img/{number}-400.jpg 400w, /img/{number}-800.jpg 800w\" alt=\"A lock\" width=\"400\" height=\"300\" loading=\"lazy\">\n    <h2 class=\"teaser__title\">The gates open at noon, part {number}</h2>\n  </a>\n  <p class=\"teaser__text\">{WORDS}{WORDS}</p>\n  <footer class=\"teaser__meta\"><time datetime=\"2026-11-17\">17 November</time> <span class=\"author\">by the keeper</span></footer>\n</article>"
        );
    }
    page.push_str("<script type=\"application/ld+json\">{\"@context\":\"https://schema.org\",\"@type\":\"NewsMediaOrganization\",\"url\":\"https://www.lock.example/\",\"logo\":\"https://www.lock.example/logo.png\"}</script>\n");
    navigation(&mut page, 40);
    page.push_str("</body></html>\n");
    page
}

fn article(paragraphs: usize) -> String {
    let mut page = head();
    navigation(&mut page, 30);
    for number in 0..paragraphs {
        let _ = writeln!(
            page,
            "<p>{WORDS}<a href=\"/wiki/Lock_{number}\">{WORDS}</a> {WORDS}</p>"
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn shop_page(products: usize) -> String {
    let mut page = head();
    for number in 0..products {
        let _ = writeln!(
            page,
            "<div class=\"grid__item small--one-half medium-up--one-quarter\" data-product-id=\"{number}\" data-price=\"1299\"><div class=\"card\"><div class=\"card__inner color-background-2 gradient ratio\" style=\"--ratio-percent: 100%;\"><a href=\"/products/rope-{number}?variant=40{number}\" class=\"full-unstyled-link\" onclick=\"track('product',{number})\"><img data-src=\"/cdn/rope-{number}_300x.jpg\" class=\"lazyload\" alt=\"Rope\" width=\"300\" height=\"300\"></a><span class=\"badge\" aria-hidden=\"true\">Sale</span></div><h3 class=\"card__heading h5\" id=\"title-{number}\"><a href=\"/products/rope-{number}\">Rope {number}</a></h3><div class=\"price price--on-sale\"><span class=\"price-item\">€12.99</span></div></div></div>"
        );
    }
    let _ = writeln!(page, "<script>{}</script></body></html>", script(60));
    page
}

fn links(count: usize) -> String {
    let mut page = String::from("<!doctype html><title>x</title>");
    for number in 0..count {
        let _ = writeln!(page, "<a href=\"/page/{number}\">page {number}</a>");
    }
    page
}

fn style_sheet(rules: usize) -> String {
    let mut sheet = String::from("@charset \"utf-8\";@import url(base.css);\n");
    for number in 0..rules {
        let _ = writeln!(
            sheet,
            ".block-{number}>.item:not(.is-hidden),.block-{number} a:hover{{display:flex;margin:0 auto;padding:1.5rem 2rem;color:rgba(0,0,0,.8);transition:opacity .3s ease}}"
        );
        if number % 20 == 0 {
            let _ = writeln!(
                sheet,
                "/* icons */.icon-{number}{{background-image:url(\"../img/icon-{number}.svg\")}}"
            );
        }
    }
    sheet
}

fn script(functions: usize) -> String {
    let mut script = String::new();
    for number in 0..functions {
        let _ = write!(
            script,
            "function f{number}(e,t){{var n=t||{{}},r=e.querySelectorAll(\".item-{number}\");for(var i=0;i<r.length;i++){{if(r[i].getAttribute(\"data-id\")===n.id)return r[i].classList.add(\"is-open\"),/^[a-z]+$/i.test(n.name)}}return n.count/2}}"
        );
        if number % 10 == 0 {
            let _ = write!(
                script,
                "var u{number}=\"/api/v1/items/{number}\",m{number}='image/png';"
            );
        }
    }
    script
}

fn json(items: usize) -> String {
    let mut json = String::from("[");
    for number in 0..items {
        let _ = write!(
            json,
            "{{\"id\":{number},\"title\":\"The gates open\",\"date\":\"2026-11-17\",\"url\":\"https:\\/\\/www.lock.example\\/news\\/{number}\",\"tags\":[\"lock\",\"water\"]}},"
        );
    }
    json.push(']');
    json
}

fn sitemap(entries: usize) -> String {
    let mut map = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
    );
    for number in 0..entries {
        let _ = writeln!(
            map,
            "<url><loc>https://www.lock.example/news/{number}</loc><lastmod>2026-11-17</lastmod><changefreq>daily</changefreq></url>"
        );
    }
    map.push_str("</urlset>\n");
    map
}
