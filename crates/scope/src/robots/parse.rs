//! The lines of a robots.txt and the groups they form.
//!
//! Tolerant where Google's parser is, since that is what sites are tested with: a colon may be missing, and the
//! frequent misspellings count.

use std::time::Duration;

use super::{Robots, RobotsLimits};

/// A longer delay is a mistake, or a way to say no; the order's own limit is below it.
const LONGEST_DELAY: Duration = Duration::from_secs(7 * 86_400);

/// What is kept of a line, to be shown.
const LONGEST_TEXT: usize = 256;

/// Crawlers that are named together, and what they are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    /// As the file writes them.
    pub(super) agents: Vec<String>,
    pub(super) rules: Vec<GroupRule>,
    pub(super) delay: Option<Duration>,
    /// An allow or a disallow was seen, maybe an empty one: the next user agent begins another group.
    is_closed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupRule {
    pub(super) path: Box<[u8]>,
    pub(super) allows: bool,
    pub(super) line: u32,
    pub(super) text: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    UserAgent,
    Allow,
    Disallow,
    Sitemap,
    CrawlDelay,
}

/// The keys and their frequent misspellings.
const KEYS: [(&str, Key); 14] = [
    ("user-agent", Key::UserAgent),
    ("useragent", Key::UserAgent),
    ("user agent", Key::UserAgent),
    ("allow", Key::Allow),
    ("disallow", Key::Disallow),
    ("dissallow", Key::Disallow),
    ("dissalow", Key::Disallow),
    ("disalow", Key::Disallow),
    ("diasllow", Key::Disallow),
    ("disallaw", Key::Disallow),
    ("sitemap", Key::Sitemap),
    ("site-map", Key::Sitemap),
    ("crawl-delay", Key::CrawlDelay),
    ("crawldelay", Key::CrawlDelay),
];

pub(super) fn parse(bytes: &[u8], limits: &RobotsLimits) -> Robots {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (bytes, is_cut) = cut(bytes, limits.size);
    let mut robots = Robots {
        groups: Vec::new(),
        sitemaps: Vec::new(),
        is_cut,
    };
    for (number, line) in (1..).zip(lines(bytes)) {
        let line = &line[..line.len().min(limits.line)];
        let Some((key, value)) = read_line(line) else {
            continue;
        };
        match key {
            Key::UserAgent => {
                if robots.groups.last().is_none_or(|group| group.is_closed) {
                    robots.groups.push(Group::default());
                }
                if let Some(group) = robots.groups.last_mut() {
                    group.agents.push(text_of(value));
                }
            }
            Key::Sitemap if !value.is_empty() => {
                robots
                    .sitemaps
                    .push(String::from_utf8_lossy(value).into_owned());
            }
            Key::Sitemap => {}
            Key::Allow | Key::Disallow => {
                // Before the first user agent a rule speaks to nobody.
                let Some(group) = robots.groups.last_mut() else {
                    continue;
                };
                group.is_closed = true;
                // An empty path matches nothing.
                if !value.is_empty() {
                    group.rules.push(GroupRule {
                        path: value.into(),
                        allows: key == Key::Allow,
                        line: number,
                        text: text_of(line.trim_ascii()).into(),
                    });
                }
            }
            Key::CrawlDelay => {
                if let Some(group) = robots.groups.last_mut() {
                    // The RFC: records that are not its own must not end a group.
                    group.delay = group.delay.max(delay_of(value));
                }
            }
        }
    }
    robots
}

/// Cuts at the limit, and then at the end of the last whole line: half a path would forbid too much.
fn cut(bytes: &[u8], size: usize) -> (&[u8], bool) {
    if bytes.len() <= size {
        return (bytes, false);
    }
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let read = &bytes[..size];
    if is_end(&bytes[size]) {
        return (read, true);
    }
    let end = read.iter().rposition(is_end).map_or(0, |at| at + 1);
    (&read[..end], true)
}

/// Lines that end in LF, CR or both.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
            rest = None;
            return Some(bytes);
        };
        let length = if bytes[end..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        rest = Some(&bytes[end + length..]);
        Some(&bytes[..end])
    })
}

fn read_line(line: &[u8]) -> Option<(Key, &[u8])> {
    let line = match memchr::memchr(b'#', line) {
        Some(at) => &line[..at],
        None => line,
    };
    let line = trim(line);
    let (key, value) = match memchr::memchr(b':', line) {
        Some(at) => (&line[..at], &line[at + 1..]),
        // Without a colon a line of exactly two words is a key and its value.
        None => {
            let at = memchr::memchr2(b' ', b'\t', line)?;
            let value = trim(&line[at..]);
            if value.iter().any(u8::is_ascii_whitespace) {
                return None;
            }
            (&line[..at], value)
        }
    };
    let key = trim(key);
    let (_, key) = KEYS
        .iter()
        .find(|(name, _)| key.eq_ignore_ascii_case(name.as_bytes()))?;
    Some((*key, trim(value)))
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let Some(begin) = bytes.iter().position(|byte| !is_space(byte)) else {
        return &[];
    };
    let end = bytes.iter().rposition(|byte| !is_space(byte));
    &bytes[begin..=end.unwrap_or(begin)]
}

fn text_of(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(LONGEST_TEXT)];
    String::from_utf8_lossy(bytes).into_owned()
}

/// Seconds, maybe with a fraction; what stands after the number is not looked at.
fn delay_of(value: &[u8]) -> Option<Duration> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = value.iter().position(|byte| !is_number(byte));
    let number = &value[..end.unwrap_or(value.len())];
    let seconds: f64 = str::from_utf8(number).ok()?.parse().ok()?;
    let delay = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_DELAY);
    Some(delay.min(LONGEST_DELAY))
}

/// How well a group's user agent fits a crawler: the length of the token, 0 for `*`.
///
/// The RFC gives product tokens letters, `-` and `_`. Crawlers with a dot or a digit in their name exist, and sites
/// name them in full; so the full token is compared first, and then, for a group that is named by the RFC's part of
/// it, that part.
pub(super) fn specificity(agent: &str, tokens: &[&str]) -> Option<usize> {
    if agent == "*"
        || agent
            .strip_prefix('*')
            .is_some_and(|rest| rest.starts_with([' ', '\t']))
    {
        return Some(0);
    }
    let full = token_of(agent);
    if full.is_empty() {
        return None;
    }
    tokens
        .iter()
        .filter_map(|token| {
            let short = rfc_token_of(token);
            (full.eq_ignore_ascii_case(token) || full.eq_ignore_ascii_case(short))
                .then_some(full.len())
        })
        .max()
}

/// The product at the front of a user agent: `ecluse` of `ecluse/1.0 (archive)`.
fn token_of(agent: &str) -> &str {
    leading(agent, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
    })
}

fn rfc_token_of(agent: &str) -> &str {
    leading(agent, |byte| {
        byte.is_ascii_alphabetic() || b"-_".contains(&byte)
    })
}

fn leading(text: &str, holds: impl Fn(u8) -> bool) -> &str {
    let end = text.bytes().position(|byte| !holds(byte));
    &text[..end.unwrap_or(text.len())]
}
