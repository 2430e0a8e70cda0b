//! The small web: which host answers what.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::page::{MOMENT, Page};
use super::{calendar, canal, files, museum, slow};

/// The hosts, the one to begin with first. Names below `.localhost` are always this machine.
pub(crate) const HOSTS: [&str; 5] = [
    "canal.localhost",
    "museum.localhost",
    "calendar.localhost",
    "files.localhost",
    "slow.localhost",
];
/// How far from a seed the demo goes: nothing but the endless calendar is deeper.
pub(crate) const DEPTH: u32 = 6;

/// What a server is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) cookie: String,
    pub(crate) none_match: String,
    pub(crate) modified_since: String,
}

/// The small web, and what it remembers.
pub(crate) struct Web {
    port: u16,
    asked: Mutex<HashSet<String>>,
}

impl Web {
    pub(crate) fn new(port: u16) -> Self {
        Self {
            port,
            asked: Mutex::default(),
        }
    }

    /// Returns the answer to a request.
    pub(crate) fn answer(&self, request: &Request) -> Page {
        let host = request.host.split(':').next().unwrap_or_default();
        let path = request.path.as_str();
        let page = match host {
            "canal.localhost" => canal::page(path, self.port, &request.cookie),
            "museum.localhost" => museum::page(path, self.port),
            "calendar.localhost" => calendar::page(path),
            "files.localhost" => files::page(path, self.port),
            "slow.localhost" => slow::page(path, || self.first_time(path)),
            _ => None,
        };
        let page = page.unwrap_or_else(|| Page::missing(path));
        match page.validates && is_same(&page, request) {
            true => page.unchanged(),
            false => page,
        }
    }

    /// Tells whether a path is asked for the first time.
    fn first_time(&self, path: &str) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(path.to_owned())
    }
}

fn is_same(page: &Page, request: &Request) -> bool {
    match request.none_match.as_str() {
        "" => request.modified_since == MOMENT,
        tag => tag == page.tag(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(web: &Web, host: &str, path: &str) -> Page {
        web.answer(&Request {
            host: format!("{host}:8470"),
            path: path.into(),
            ..Request::default()
        })
    }

    #[test]
    fn every_host_has_a_first_page_and_says_what_it_lacks() {
        let web = Web::new(8470);
        for host in HOSTS {
            assert_eq!(get(&web, host, "/").status, 200, "{host}");
            assert_eq!(get(&web, host, "/nowhere").status, 404, "{host}");
        }
        assert_eq!(get(&web, "else.localhost", "/").status, 404);
    }

    #[test]
    fn the_same_is_answered_again_and_a_tag_is_honoured() {
        let web = Web::new(8470);
        let page = get(&web, HOSTS[0], "/locks/3");
        assert_eq!(page.body, get(&web, HOSTS[0], "/locks/3").body);
        let again = web.answer(&Request {
            host: HOSTS[0].into(),
            path: "/locks/3".into(),
            none_match: page.tag(),
            ..Request::default()
        });
        assert_eq!((again.status, again.body.len()), (304, 0));
    }

    #[test]
    fn the_busy_page_is_overloaded_once() {
        let web = Web::new(8470);
        let first = get(&web, "slow.localhost", "/busy");
        assert_eq!(first.status, 503);
        assert!(first.headers.contains(&("Retry-After", "1".into())));
        assert_eq!(get(&web, "slow.localhost", "/busy").status, 200);
    }

    #[test]
    fn two_addresses_have_the_same_bytes() {
        let web = Web::new(8470);
        let page = |path| get(&web, HOSTS[0], path).body;
        assert_eq!(page("/plan.html"), page("/print/plan.html"));
    }

    #[test]
    fn the_calendar_never_ends() {
        let web = Web::new(8470);
        let page = get(&web, "calendar.localhost", "/calendar/2026/12/");
        let text = String::from_utf8(page.body).unwrap();
        assert!(text.contains("/calendar/2027/1/") && text.contains("/calendar/2026/11/"));
    }
}
