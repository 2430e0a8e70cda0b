//! What holds for a site between two fetches of its robots.txt, also when there is none to be had.
//!
//! RFC 9309, section 2.3.1: a file that is *unavailable* (4xx, too many redirects) forbids nothing; while it is
//! *unreachable* (5xx, no answer) everything is forbidden, or the last copy holds, for up to 30 days. A 429 is no
//! statement about the file, so it counts as unreachable, as it does for Google.

use std::fmt;
use std::time::Duration;

use super::{AgentRules, Robots, RobotsLimits, RobotsReason, RobotsVerdict};

/// What came back when robots.txt was asked for; redirects have been followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RobotsAnswer<'a> {
    /// A response, after at most five redirects.
    Response {
        /// The HTTP status.
        status: u16,
        /// The content, decoded.
        body: &'a [u8],
    },
    /// More redirects than are followed.
    RedirectedTooOften,
    /// No response.
    Failed {
        /// What went wrong, in a word or two.
        why: &'a str,
    },
}

/// Why there are no rules to go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The site has none.
    Unavailable {
        /// The HTTP status.
        status: u16,
    },
    /// It was redirected too often.
    RedirectedTooOften,
    /// The server fails to give it.
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// There was no answer.
    Unreachable {
        /// What went wrong.
        why: String,
    },
    /// It has been unreachable for so long that it counts as absent.
    LongUnreachable,
}

/// For how long answers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// A robots.txt, or its absence; the RFC asks for at most 24 hours.
    pub keep: Duration,
    /// Until it is tried again, while it is unreachable.
    pub retry: Duration,
    /// Unreachable for so long, it counts as absent.
    pub give_up: Duration,
}

impl Default for Freshness {
    fn default() -> Freshness {
        Freshness {
            keep: Duration::from_secs(86_400),
            retry: Duration::from_secs(900),
            give_up: Duration::from_secs(30 * 86_400),
        }
    }
}

/// What holds for a site, and until when. Times are since the Unix epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    holds: Holds,
    /// From then on it is to be fetched again.
    pub until: Duration,
    /// Since when it has been unreachable.
    pub unreachable_since: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Holds {
    Rules(AgentRules),
    Everything(Ground),
    Nothing(Ground),
}

/// How robots.txt is read and kept.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The names the crawler goes by.
    pub tokens: &'a [&'a str],
    /// How much is read.
    pub limits: &'a RobotsLimits,
    /// How long it is kept.
    pub freshness: &'a Freshness,
}

impl Standing {
    /// Says what follows from an answer; `before` is what held until now.
    pub fn of(
        reading: Reading<'_>,
        answer: RobotsAnswer<'_>,
        before: Option<Standing>,
        now: Duration,
    ) -> Standing {
        let unreachable = match answer {
            RobotsAnswer::Response {
                status: 200..=299,
                body,
            } => {
                let robots = Robots::parse(body, reading.limits);
                return Standing {
                    holds: Holds::Rules(robots.rules_for(reading.tokens)),
                    until: now.saturating_add(reading.freshness.keep),
                    unreachable_since: None,
                };
            }
            RobotsAnswer::Response {
                status: status @ (429 | 500..),
                ..
            } => Ground::Refused { status },
            RobotsAnswer::Response { status, .. } => {
                return Standing::absent(Ground::Unavailable { status }, reading.freshness, now);
            }
            RobotsAnswer::RedirectedTooOften => {
                return Standing::absent(Ground::RedirectedTooOften, reading.freshness, now);
            }
            RobotsAnswer::Failed { why } => Ground::Unreachable {
                why: why.to_owned(),
            },
        };
        Standing::unreachable(unreachable, before, reading.freshness, now)
    }

    fn absent(ground: Ground, freshness: &Freshness, now: Duration) -> Standing {
        Standing {
            holds: Holds::Everything(ground),
            until: now.saturating_add(freshness.keep),
            unreachable_since: None,
        }
    }

    fn unreachable(
        ground: Ground,
        before: Option<Standing>,
        freshness: &Freshness,
        now: Duration,
    ) -> Standing {
        let since = before.as_ref().and_then(|before| before.unreachable_since);
        let since = since.unwrap_or(now);
        let holds = match before.map(|before| before.holds) {
            // The RFC lets the last copy stand in for as long as there is no other.
            Some(Holds::Rules(rules)) => Holds::Rules(rules),
            _ if now.saturating_sub(since) >= freshness.give_up => {
                Holds::Everything(Ground::LongUnreachable)
            }
            Some(Holds::Everything(_) | Holds::Nothing(_)) | None => Holds::Nothing(ground),
        };
        Standing {
            holds,
            until: now.saturating_add(freshness.retry),
            unreachable_since: Some(since),
        }
    }

    /// Tells whether everything is forbidden because there is neither a file nor a last copy to be had.
    pub fn is_unknown(&self) -> bool {
        matches!(self.holds, Holds::Nothing(_))
    }

    /// Tells whether it still holds.
    pub fn is_fresh(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Says whether a URL may be fetched; [`RobotsVerdict::under`] then applies the policy.
    pub fn judge(&self, url: &str) -> RobotsVerdict {
        match &self.holds {
            Holds::Rules(rules) => rules.judge(url),
            Holds::Everything(ground) => RobotsVerdict {
                allowed: true,
                why: RobotsReason::Absent(ground.clone()),
            },
            Holds::Nothing(ground) => RobotsVerdict {
                allowed: super::target_of(url) == "/robots.txt",
                why: RobotsReason::Absent(ground.clone()),
            },
        }
    }

    /// What it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let rules = match &self.holds {
            Holds::Rules(rules) => rules.memory_bytes(),
            Holds::Everything(_) | Holds::Nothing(_) => 0,
        };
        size_of::<Self>() + rules
    }

    /// The pause that is asked for between two requests.
    pub fn crawl_delay(&self) -> Option<Duration> {
        match &self.holds {
            Holds::Rules(rules) => rules.crawl_delay(),
            Holds::Everything(_) | Holds::Nothing(_) => None,
        }
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ground::Unavailable { status } => write!(f, "there is no robots.txt (status {status})"),
            Ground::RedirectedTooOften => {
                f.write_str("there is no robots.txt (redirected too often)")
            }
            Ground::Refused { status } => write!(f, "robots.txt cannot be had (status {status})"),
            Ground::Unreachable { why } => {
                write!(f, "robots.txt cannot be had ({})", why.escape_debug())
            }
            Ground::LongUnreachable => {
                f.write_str("robots.txt could not be had for so long that it counts as absent")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);
    const PAGE: &str = "http://lock.example/page";

    fn after(before: Option<Standing>, answer: RobotsAnswer<'_>, now: Duration) -> Standing {
        let reading = Reading {
            tokens: &["ecluse"],
            limits: &RobotsLimits::default(),
            freshness: &Freshness::default(),
        };
        Standing::of(reading, answer, before, now)
    }

    fn status(status: u16) -> RobotsAnswer<'static> {
        RobotsAnswer::Response {
            status,
            body: b"user-agent: *\ndisallow: /",
        }
    }

    const SILENCE: RobotsAnswer<'static> = RobotsAnswer::Failed { why: "timeout" };

    #[test]
    fn an_unavailable_file_forbids_nothing() {
        for answer in [
            status(400),
            status(401),
            status(403),
            status(404),
            status(410),
            status(304),
            RobotsAnswer::RedirectedTooOften,
        ] {
            let standing = after(None, answer, DAY);
            assert!(standing.judge(PAGE).allowed, "{answer:?}");
            assert!(standing.is_fresh(DAY + 23 * HOUR) && !standing.is_fresh(DAY + 24 * HOUR));
        }
    }

    #[test]
    fn an_unreachable_file_forbids_everything_but_itself() {
        for answer in [status(500), status(503), status(429), status(599), SILENCE] {
            let standing = after(None, answer, DAY);
            assert!(!standing.judge(PAGE).allowed, "{answer:?}");
            assert!(standing.is_unknown(), "{answer:?}");
            assert!(standing.judge("http://lock.example/robots.txt").allowed);
            assert!(standing.is_fresh(DAY + HOUR / 5) && !standing.is_fresh(DAY + HOUR));
            assert_eq!(standing.crawl_delay(), None);
        }
        let standing = after(None, SILENCE, DAY);
        assert_eq!(
            standing.judge(PAGE).why.to_string(),
            "robots.txt cannot be had (timeout)"
        );
    }

    #[test]
    fn after_thirty_days_without_it_all_is_allowed() {
        let mut standing = after(None, SILENCE, DAY);
        standing = after(Some(standing), status(502), 30 * DAY);
        assert!(!standing.judge(PAGE).allowed);
        standing = after(Some(standing), SILENCE, 31 * DAY);
        assert!(standing.judge(PAGE).allowed);
        standing = after(Some(standing), SILENCE, 32 * DAY);
        assert!(standing.judge(PAGE).allowed);
        // It came back: the count begins anew.
        standing = after(Some(standing), status(404), 33 * DAY);
        standing = after(Some(standing), SILENCE, 34 * DAY);
        assert!(!standing.judge(PAGE).allowed);
    }

    #[test]
    fn the_last_copy_holds_while_the_file_is_unreachable() {
        let body = b"User-agent: *\nDisallow: /page\nCrawl-delay: 2";
        let first = after(None, RobotsAnswer::Response { status: 200, body }, DAY);
        let later = after(Some(first), SILENCE, 90 * DAY);
        assert!(!later.judge(PAGE).allowed && !later.is_unknown());
        assert!(later.judge("http://lock.example/other").allowed);
        assert_eq!(later.crawl_delay(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_file_of_many_short_rules_takes_a_few_times_its_size() {
        let mut body = b"User-agent: *\n".to_vec();
        while body.len() < 490_000 {
            body.extend_from_slice(b"Disallow:/a\nSitemap:b\n");
        }
        let answer = RobotsAnswer::Response {
            status: 200,
            body: &body,
        };
        let standing = after(None, answer, DAY);
        assert!(!standing.judge("http://lock.example/a").allowed);
        let taken = standing.memory_bytes();
        assert!(taken < 3 * body.len(), "{taken} of {}", body.len());
    }

    #[test]
    fn no_time_overflows() {
        let standing = after(None, SILENCE, Duration::MAX);
        assert!(!standing.is_fresh(Duration::MAX));
        assert!(
            !after(Some(standing), SILENCE, Duration::ZERO)
                .judge(PAGE)
                .allowed
        );
    }
}
