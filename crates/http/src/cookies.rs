//! The cookies of one job: what RFC 6265bis asks of a browser, as far as a crawler needs it.
//!
//! Names and values are bytes as servers sent them. A cookie for a public suffix is refused, by Mozilla's list. The jar
//! is bounded, whatever servers send, and each domain's cookies can be written out and read back. Times are seconds since 1970, and are the
//! caller's.

use serde::{Deserialize, Serialize};

use crate::head::Head;
use crate::request::Scheme;

/// A longer `Cookie` field is refused by many servers.
const LONGEST_FIELD: usize = 8 << 10;

/// What a name and value may have together, and what an attribute may have.
const PAIR_BYTES: usize = 4096;
const ATTRIBUTE_BYTES: usize = 1024;
/// The longest that a cookie lives: 400 days.
const LONGEST_SECONDS: i64 = 400 * 24 * 3600;

/// What bounds a jar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JarLimits {
    /// Cookies of one registered domain.
    pub per_domain: usize,
    /// Cookies in all.
    pub cookies: usize,
}

impl Default for JarLimits {
    fn default() -> Self {
        Self {
            per_domain: 50,
            cookies: 100_000,
        }
    }
}

/// The cookies of one job.
#[derive(Debug, Clone, Default)]
pub struct Jar {
    limits: JarLimits,
    /// By registered domain, so that a look-up sees few.
    domains: std::collections::BTreeMap<String, Vec<Cookie>>,
    cookies: usize,
}

/// One cookie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cookie {
    /// Its name.
    #[serde(with = "as_text")]
    pub name: Vec<u8>,
    /// Its value.
    #[serde(with = "as_text")]
    pub value: Vec<u8>,
    /// The host it is for, in lower case.
    pub domain: String,
    /// Whether hosts below that one are meant too.
    pub reach: CookieReach,
    /// The path it is for.
    pub path: String,
    /// Only over TLS.
    pub is_secure: bool,
    /// When it ends; never, within this job, if the server did not say.
    pub expires: Option<i64>,
    /// When it was first set.
    pub created: i64,
    /// When it was last sent or set.
    pub used: i64,
}

/// Bytes as a text of as many letters.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(
            &bytes
                .iter()
                .map(|byte| char::from(*byte))
                .collect::<String>(),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = text.chars().map(|letter| u8::try_from(letter).ok());
        bytes
            .collect::<Option<_>>()
            .ok_or_else(|| serde::de::Error::custom("a letter that is no byte"))
    }
}

/// Which hosts a cookie is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CookieReach {
    /// The one that set it.
    Host,
    /// That of its domain and all below.
    Domain,
}

/// Whom a cookie comes from or goes to.
#[derive(Debug, Clone, Copy)]
pub struct CookiePlace<'a> {
    /// Encrypted or not.
    pub scheme: Scheme,
    /// The host, in lower case.
    pub host: &'a str,
    /// The path of the URL, without the query.
    pub path: &'a str,
}

impl Jar {
    /// Makes an empty jar.
    #[must_use]
    pub fn new(limits: JarLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns how many cookies it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cookies
    }

    /// Tells whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cookies == 0
    }

    /// Takes the cookies of a response, and returns for which registered domain, if there were any: a host sets none for
    /// another's.
    pub fn take<'h>(&mut self, place: CookiePlace<'h>, head: &Head, now: i64) -> Option<&'h str> {
        let mut fields = head.all("Set-Cookie").peekable();
        fields.peek()?;
        for field in fields {
            self.set(place, &field.value(), now);
        }
        Some(registered_domain(place.host))
    }

    /// The cookies of a registered domain, to be written down.
    #[must_use]
    pub fn of_domain(&self, domain: &str) -> &[Cookie] {
        self.domains.get(domain).map_or(&[], Vec::as_slice)
    }

    /// Puts cookies back that were written down.
    pub fn put_back(&mut self, cookies: Vec<Cookie>) {
        self.cookies += cookies.len();
        for cookie in cookies {
            let key = registered_domain(&cookie.domain).to_owned();
            self.domains.entry(key).or_default().push(cookie);
        }
    }

    /// Takes one `Set-Cookie` value; one that is not acceptable is passed over.
    pub fn set(&mut self, place: CookiePlace<'_>, value: &[u8], now: i64) {
        let Some(cookie) = parse(place, value, now) else {
            return;
        };
        let key = registered_domain(&cookie.domain).to_owned();
        let shelf = self.domains.entry(key.clone()).or_default();
        let is_same = |other: &Cookie| {
            (&other.name, &other.domain, &other.path, other.reach)
                == (&cookie.name, &cookie.domain, &cookie.path, cookie.reach)
        };
        // A cookie set in the clear must not put itself in the place of a secure one.
        let is_shadow = place.scheme == Scheme::Http
            && shelf.iter().any(|other| {
                other.is_secure
                    && other.name == cookie.name
                    && (domain_matches(&other.domain, &cookie.domain)
                        || domain_matches(&cookie.domain, &other.domain))
                    && path_matches(&cookie.path, &other.path)
            });
        if !is_shadow {
            let before = shelf.len();
            let created = shelf
                .iter()
                .find(|other| is_same(other))
                .map_or(now, |other| other.created);
            shelf.retain(|other| !is_same(other) && other.is_alive(now));
            if cookie.is_alive(now) {
                shelf.push(Cookie { created, ..cookie });
                if shelf.len() > self.limits.per_domain {
                    drop_least_used(shelf);
                }
            }
            self.cookies = self.cookies - before + shelf.len();
        }
        if shelf.is_empty() {
            self.domains.remove(&key);
        }
        self.keep_within_limit(now);
    }

    /// Returns the value of the `Cookie` field for a request, if there are cookies for it.
    pub fn field(&mut self, place: CookiePlace<'_>, now: i64) -> Option<Vec<u8>> {
        let host = place.host.to_ascii_lowercase();
        let shelf = self.domains.get_mut(registered_domain(&host))?;
        let mut fitting: Vec<&mut Cookie> = shelf
            .iter_mut()
            .filter(|cookie| cookie.is_for(place.scheme, &host, place.path) && cookie.is_alive(now))
            .collect();
        fitting.sort_by_key(|cookie| (std::cmp::Reverse(cookie.path.len()), cookie.created));
        let mut field = Vec::new();
        for cookie in fitting {
            // A neighbour in the domain may set as many as it likes, and servers refuse longer fields.
            let bytes = cookie.name.len() + cookie.value.len() + "; =".len();
            if field.len() + bytes > LONGEST_FIELD {
                continue;
            }
            cookie.used = now;
            if !field.is_empty() {
                field.extend_from_slice(b"; ");
            }
            if !cookie.name.is_empty() {
                field.extend_from_slice(&cookie.name);
                field.push(b'=');
            }
            field.extend_from_slice(&cookie.value);
        }
        (!field.is_empty()).then_some(field)
    }

    /// Makes room a tenth at a time, so that a full jar is not searched at every cookie.
    fn keep_within_limit(&mut self, now: i64) {
        if self.cookies <= self.limits.cookies {
            return;
        }
        let mut uses: Vec<i64> = self
            .domains
            .values()
            .flatten()
            .map(|cookie| cookie.used)
            .collect();
        uses.sort_unstable();
        let excess = self.cookies - self.limits.cookies + self.limits.cookies / 10;
        let oldest = uses
            .get(excess.saturating_sub(1))
            .copied()
            .unwrap_or(i64::MAX);
        let mut left = excess;
        self.domains.retain(|_, shelf| {
            shelf.retain(|cookie| {
                let goes = !cookie.is_alive(now) || (left > 0 && cookie.used <= oldest);
                left = left.saturating_sub(usize::from(goes));
                !goes
            });
            !shelf.is_empty()
        });
        self.cookies = self.domains.values().map(Vec::len).sum();
    }
}

impl Cookie {
    fn is_alive(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    fn is_for(&self, scheme: Scheme, host: &str, path: &str) -> bool {
        let is_host = match self.reach {
            CookieReach::Host => host == self.domain,
            CookieReach::Domain => domain_matches(host, &self.domain),
        };
        is_host && path_matches(path, &self.path) && (!self.is_secure || scheme == Scheme::Https)
    }
}

fn drop_least_used(shelf: &mut Vec<Cookie>) {
    let least = shelf
        .iter()
        .enumerate()
        .min_by_key(|(_, cookie)| (cookie.used, cookie.created))
        .map(|(index, _)| index);
    if let Some(least) = least {
        shelf.remove(least);
    }
}

/// Reads a `Set-Cookie` value: RFC 6265bis sections 5.6 and 5.7.
fn parse(place: CookiePlace<'_>, value: &[u8], now: i64) -> Option<Cookie> {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 10..=31 | 127);
    if value.iter().any(is_control) {
        return None;
    }
    let mut parts = value.split(|&byte| byte == b';');
    let pair = parts.next().unwrap_or_default();
    let (name, value) = match pair.iter().position(|&byte| byte == b'=') {
        Some(at) => (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii()),
        None => (&b""[..], pair.trim_ascii()),
    };
    if name.is_empty() && value.is_empty() || name.len() + value.len() > PAIR_BYTES {
        return None;
    }
    let host = place.host.to_ascii_lowercase();
    let mut cookie = Cookie {
        name: name.to_vec(),
        value: value.to_vec(),
        domain: host.clone(),
        reach: CookieReach::Host,
        path: default_path(place.path),
        is_secure: false,
        expires: None,
        created: now,
        used: now,
    };
    let attributes = Attributes::read(parts, now);
    if let Some(path) = attributes.path {
        cookie.path = path;
    }
    cookie.is_secure = attributes.is_secure;
    cookie.expires = attributes
        .ends_by_age
        .or(attributes.ends_by_date)
        .map(|expires| expires.min(now.saturating_add(LONGEST_SECONDS)));
    if let Some(domain) = attributes.domain.filter(|domain| !domain.is_empty()) {
        if is_public_suffix(&domain) {
            // A host that is a public suffix itself may set a cookie for itself alone.
            if domain != host {
                return None;
            }
        } else if domain_matches(&host, &domain) {
            cookie.domain = domain;
            cookie.reach = CookieReach::Domain;
        } else {
            return None;
        }
    }
    let is_encrypted = place.scheme == Scheme::Https;
    if cookie.is_secure && !is_encrypted {
        return None;
    }
    let begins = |prefix: &[u8]| {
        // A cookie without a name must not look as if it had such a one.
        [&cookie.name, &cookie.value]
            .into_iter()
            .take(1 + usize::from(cookie.name.is_empty()))
            .any(|bytes| {
                bytes.len() >= prefix.len() && bytes[..prefix.len()].eq_ignore_ascii_case(prefix)
            })
    };
    if begins(b"__Secure-") && !cookie.is_secure {
        return None;
    }
    if begins(b"__Host-")
        && !(cookie.is_secure && cookie.reach == CookieReach::Host && attributes.has_root_path)
    {
        return None;
    }
    Some(cookie)
}

#[derive(Debug, Default)]
struct Attributes {
    domain: Option<String>,
    path: Option<String>,
    has_root_path: bool,
    is_secure: bool,
    ends_by_age: Option<i64>,
    ends_by_date: Option<i64>,
}

impl Attributes {
    fn read<'a>(parts: impl Iterator<Item = &'a [u8]>, now: i64) -> Self {
        let mut found = Self::default();
        for part in parts {
            let (name, value) = match part.iter().position(|&byte| byte == b'=') {
                Some(at) => (part[..at].trim_ascii(), part[at + 1..].trim_ascii()),
                None => (part.trim_ascii(), &b""[..]),
            };
            if value.len() > ATTRIBUTE_BYTES {
                continue;
            }
            let text = String::from_utf8_lossy(value);
            match name.to_ascii_lowercase().as_slice() {
                b"domain" => {
                    let domain = text.strip_prefix('.').unwrap_or(&text);
                    found.domain = Some(domain.to_ascii_lowercase());
                }
                b"path" => {
                    let is_path = text.starts_with('/');
                    found.has_root_path = text == "/";
                    found.path = is_path.then(|| text.into_owned());
                }
                b"secure" => found.is_secure = true,
                b"max-age" => {
                    if let Some(seconds) = max_age(&text) {
                        found.ends_by_age = Some(now.saturating_add(seconds));
                    }
                }
                b"expires" => {
                    if let Some(date) = date(value) {
                        found.ends_by_date = Some(date);
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// Reads `Max-Age`; nothing but digits, with a minus perhaps. Nought and less is the past.
fn max_age(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if text.starts_with('-') {
        return Some(i64::MIN / 2);
    }
    match digits.parse::<i64>() {
        Ok(0) => Some(i64::MIN / 2),
        Ok(seconds) => Some(seconds.min(LONGEST_SECONDS)),
        Err(_) => Some(LONGEST_SECONDS),
    }
}

/// Reads a date as RFC 6265 section 5.1.1 says: by its parts, in any order.
fn date(bytes: &[u8]) -> Option<i64> {
    let is_delimiter =
        |byte: &u8| matches!(byte, 0x09 | 0x20..=0x2f | 0x3b..=0x40 | 0x5b..=0x60 | 0x7b..=0x7e);
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in bytes.split(is_delimiter).filter(|token| !token.is_empty()) {
        if time.is_none()
            && let Some(found) = clock(token)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some(found) = number(token, 1, 2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = month_of(token)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some(found) = number(token, 2, 4)
        {
            year = Some(found);
        }
    }
    let year = match year? {
        year @ 70..=99 => year + 1900,
        year @ 0..=69 => year + 2000,
        year => year,
    };
    let (hour, minute, second) = time?;
    if year < 1601 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let date = jiff::civil::Date::new(
        i16::try_from(year).ok()?,
        i8::try_from(month?).ok()?,
        i8::try_from(day?).ok()?,
    )
    .ok()?;
    let days = i64::from((date - jiff::civil::date(1970, 1, 1)).get_days());
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Reads `h:m:s`, and passes over what follows.
fn clock(token: &[u8]) -> Option<(i64, i64, i64)> {
    let mut parts = token.splitn(3, |&byte| byte == b':');
    let hour = number_alone(parts.next()?)?;
    let minute = number_alone(parts.next()?)?;
    let second = number(parts.next()?, 1, 2)?;
    Some((hour, minute, second))
}

fn number_alone(token: &[u8]) -> Option<i64> {
    token
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| number(token, 1, 2))?
}

/// Reads a number of so many digits; what is behind it may be anything but a digit.
fn number(token: &[u8], least: usize, most: usize) -> Option<i64> {
    let digits = token
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if !(least..=most).contains(&digits) {
        return None;
    }
    std::str::from_utf8(&token[..digits]).ok()?.parse().ok()
}

fn month_of(token: &[u8]) -> Option<i64> {
    const MONTHS: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";
    let start = token.get(..3)?.to_ascii_lowercase();
    let at = MONTHS.chunks(3).position(|month| month == start)?;
    i64::try_from(at + 1).ok()
}

fn default_path(path: &str) -> String {
    match path.rfind('/') {
        Some(last) if last > 0 && path.starts_with('/') => path[..last].to_owned(),
        _ => "/".to_owned(),
    }
}

fn path_matches(path: &str, cookie_path: &str) -> bool {
    let path = if path.starts_with('/') { path } else { "/" };
    path.strip_prefix(cookie_path)
        .is_some_and(|rest| rest.is_empty() || cookie_path.ends_with('/') || rest.starts_with('/'))
}

fn domain_matches(host: &str, domain: &str) -> bool {
    if host == domain {
        return true;
    }
    let is_below = host
        .strip_suffix(domain)
        .is_some_and(|rest| rest.ends_with('.'));
    is_below && host.parse::<std::net::IpAddr>().is_err()
}

fn is_public_suffix(domain: &str) -> bool {
    psl::suffix_str(domain).is_some_and(|suffix| suffix == domain)
}

/// Returns the part of a host by which its cookies are kept: all that may share cookies have it in common.
fn registered_domain(host: &str) -> &str {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return host;
    }
    psl::domain_str(host).unwrap_or(host)
}

#[cfg(test)]
mod tests;
