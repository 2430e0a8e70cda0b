//! `museum.localhost`: a sitemap that only robots.txt names, and a server that cannot say whether something has changed.

use super::page::{Page, links};

/// Rooms that the first page names.
const ROOMS: usize = 10;
/// Pages that only the sitemap names.
const CELLARS: usize = 5;

pub(crate) fn page(path: &str, port: u16) -> Option<Page> {
    let page = match path {
        "/" => {
            let rooms = (1..=ROOMS).map(|room| ("a room", format!("/rooms/{room}")));
            let body = format!(
                "<p>Ten rooms, and a cellar that nobody speaks of.</p>\n{}\n<a href=\"/private/vault\">The vault</a>",
                links(rooms)
            );
            Page::html("The museum", &body)
        }
        "/robots.txt" => Page::text(&format!(
            "User-agent: *\nDisallow: /private/\nAllow: /\n\nSitemap: http://museum.localhost:{port}/sitemap.xml\n"
        )),
        "/sitemap.xml" => sitemap(port),
        "/style.css" => Page::of("text/css", "h1 { list-style-image: url(/img/door.svg) }\n"),
        "/img/door.svg" => Page::picture("a door", 5),
        "/private/vault" => Page::html("The vault", "<p>Locked.</p>"),
        _ => return numbered(path),
    };
    Some(Page {
        validates: false,
        ..page
    })
}

fn sitemap(port: u16) -> Page {
    let urls: String = (1..=CELLARS)
        .map(|cellar| {
            format!("<url><loc>http://museum.localhost:{port}/cellar/{cellar}</loc></url>\n")
        })
        .collect();
    Page::of(
        "application/xml",
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n{urls}</urlset>\n"
        ),
    )
}

fn numbered(path: &str) -> Option<Page> {
    let number = |prefix: &str, most: usize| {
        let n = path.strip_prefix(prefix)?.parse::<usize>().ok()?;
        (1..=most).contains(&n).then_some(n)
    };
    let page = if let Some(n) = number("/rooms/", ROOMS) {
        Page::html(
            &format!("Room {n}"),
            &format!("<p>{} boats.</p><a href=\"/\">Out</a>", n * 3),
        )
    } else {
        let n = number("/cellar/", CELLARS)?;
        Page::html(&format!("Cellar {n}"), "<p>Found through the sitemap.</p>")
    };
    Some(Page {
        validates: false,
        ..page
    })
}
