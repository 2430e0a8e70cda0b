//! `canal.localhost`: most of what a page can be made of.

use super::page::{Manner, Page, links};

/// How many locks the canal has, each with a page.
const LOCKS: usize = 12;

pub(crate) fn page(path: &str, port: u16, cookie: &str) -> Option<Page> {
    let page = match path {
        "/" => home(port),
        "/robots.txt" => Page::text("User-agent: *\nDisallow: /staff/\n"),
        "/favicon.ico" => Page::of("image/x-icon", vec![0, 0, 1, 0]),
        "/style.css" => Page::of(
            "text/css",
            "@import \"base.css\";\nbody { background: url(img/wave.svg) }\n",
        ),
        "/base.css" => Page::of(
            "text/css",
            "@font-face { font-family: lock; src: url('/font/lock.woff') }\nh1 { background-image: url(\"img/gate.svg\") }\n",
        ),
        "/font/lock.woff" => Page::of("font/woff", b"wOFF\x00\x01\x00\x00".to_vec()),
        "/map.js" => Page::of(
            "text/javascript",
            "var plan = \"/maps/canal.svg\";\nfetch('/data/levels.json').then(draw);\n",
        ),
        "/maps/canal.svg" => Page::picture("the canal", 3),
        "/data/levels.json" => Page::of(
            "application/json",
            "{\"levels\": [3.1, 4.6, 6.0], \"more\": \"/about.html\"}\n",
        ),
        "/gallery.html" => gallery(),
        "/about.html" => Page::html(
            "About the canal",
            "<p>Built in 1842.</p><p><a href=\"/\">Home</a> <a href=\"mailto:keeper@canal.localhost\">The keeper</a></p>",
        ),
        "/old" => Page::redirect(301, "/older"),
        "/older" => Page::redirect(302, "/oldest?from=older"),
        "/oldest?from=older" => Page::redirect(307, "/locks/1"),
        "/moved.html" => Page::html(
            "Moved",
            "<meta http-equiv=\"refresh\" content=\"0; url=/about.html\">",
        ),
        "/news.html" => news().gzipped(),
        "/log.html" => log().sent(Manner::Chunked),
        // The same page twice, for readers and for printers.
        "/plan.html" | "/print/plan.html" => {
            Page::html("The plan", "<p>Twelve locks, one level a day.</p>")
        }
        "/visit" => Page::redirect(302, "/visit/in").with("Set-Cookie", "ticket=1; Path=/"),
        "/visit/in" => {
            let word = if cookie.contains("ticket=1") {
                "with"
            } else {
                "without"
            };
            let page = Page::html("A visit", &format!("<p>You came {word} a ticket.</p>"));
            Page {
                validates: false,
                ..page
            }
        }
        "/staff/" => Page::html("Staff", "<p>Nobody should read this.</p>"),
        _ => return numbered(path),
    };
    Some(page)
}

fn home(port: u16) -> Page {
    let here = [
        ("Old address", "/old"),
        ("Moved", "/moved.html"),
        ("News", "/news.html"),
        ("Log", "/log.html"),
        ("Plan", "/plan.html"),
        ("Plan to print", "/print/plan.html"),
        ("Visit", "/visit"),
        ("Gallery", "/gallery.html"),
        ("Locks", "/locks/1"),
        ("Staff", "/staff/"),
        ("A dead link", "/locks/99"),
    ];
    let here = here.map(|(name, path)| (name, path.to_owned()));
    let there = ["museum", "calendar", "files", "slow"]
        .map(|host| (host, format!("http://{host}.localhost:{port}/")));
    let body = format!(
        "<p>Everything a crawl meets, on one small canal.</p>\n{}\n{}\n<img src=\"/img/lock0.svg\" alt=\"a lock\">\n\
         <img src=\"/img/lost.svg\" alt=\"a dead picture\">\n<script src=\"/map.js\"></script>",
        links(here),
        links(there)
    );
    Page::html("The canal", &body)
}

fn gallery() -> Page {
    Page::html(
        "Gallery",
        "<img src=\"/img/lock1.svg\" srcset=\"/img/lock2.svg 2x, /img/lock3.svg 3x\" alt=\"\">\n\
         <picture><source srcset=\"/img/lock4.svg 800w, /img/lock5.svg 1600w\"><img data-src=\"/img/lock6.svg\" alt=\"\"></picture>\n\
         <div style=\"background: url('/img/lock7.svg')\"></div>",
    )
}

fn news() -> Page {
    let items: String = (1..=40)
        .map(|day| {
            format!(
                "<p>Day {day}: the level is {} cm.</p>\n",
                300 + day * 7 % 50
            )
        })
        .collect();
    Page::html("News", &items)
}

fn log() -> Page {
    let rows: String = (1..=60)
        .map(|boat| {
            format!(
                "<p>Boat {boat} went {}.</p>\n",
                if boat % 2 == 0 { "up" } else { "down" }
            )
        })
        .collect();
    Page::html("Log", &rows)
}

/// The locks and their pictures.
fn numbered(path: &str) -> Option<Page> {
    if path == "/img/wave.svg" || path == "/img/gate.svg" {
        return Some(Page::picture(path, path.len()));
    }
    let number = |rest: &str| rest.parse::<usize>().ok().filter(|n| *n <= LOCKS);
    if let Some(rest) = path.strip_prefix("/img/lock") {
        let n = number(rest.strip_suffix(".svg")?)?;
        return Some(Page::picture(&format!("lock {n}"), n));
    }
    let n = number(path.strip_prefix("/locks/")?).filter(|n| *n > 0)?;
    // Every lock names them all: the way to each is short, whichever was found first.
    let all = (1..=LOCKS).map(|other| ("a lock", format!("/locks/{other}")));
    Some(Page::html(
        &format!("Lock {n}"),
        &format!(
            "<img src=\"/img/lock{n}.svg\" alt=\"lock {n}\">\n<p>It lifts {} cm.</p>\n{}",
            200 + n * 13,
            links(all)
        ),
    ))
}
