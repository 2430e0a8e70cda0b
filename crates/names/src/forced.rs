//! What librarians force in and out: their word wins over every list.

use std::collections::HashMap;
use std::path::Path;

use memchr::memrchr;
use serde::Deserialize;
use url::Url;

use crate::{NameFlags, Normaliser, key_of, name_of};

/// The rules of `forced.toml`.
#[derive(Debug, Default)]
pub struct ForcedRules {
    /// By the key of the domain.
    domains: HashMap<Vec<u8>, ForcedDomain>,
    /// By the key of their host.
    prefixes: Vec<ForcedPrefix>,
    /// Places of prefixes by the host and port they begin with, as [`UrlForm`] has them.
    by_host: HashMap<String, Vec<usize>>,
    text: Option<String>,
}

/// Whether something is forced in or out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForcedVerdict {
    /// It is harvested, whatever lists and scores say.
    In,
    /// It is not.
    Out,
}

/// A rule for a domain and all below it: what a librarian said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedDomain {
    /// What it says.
    pub verdict: ForcedVerdict,
    /// Who said so.
    pub who: String,
    /// On which day.
    pub when: String,
    /// For what reason.
    pub why: String,
}

/// A rule for every URL that begins so.
#[derive(Debug, PartialEq, Eq)]
pub struct ForcedPrefix {
    /// The key of its host.
    pub key: String,
    /// How the URLs begin.
    pub url: String,
    /// What it says, and who said so, when and why.
    pub rule: ForcedDomain,
    form: UrlForm,
}

/// The rule by which a URL is forced out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedOut<'a> {
    /// The domain or the prefix it is about.
    pub what: String,
    /// What it says.
    pub rule: &'a ForcedDomain,
}

/// What URLs are held against prefixes by: http and https are the same, and so are `www.` and none, an unreserved character and its
/// escape, one slash and several.
#[derive(Debug, Default, PartialEq, Eq)]
struct UrlForm {
    /// Host and port.
    host: String,
    /// Path and query.
    path: String,
}

impl ForcedVerdict {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Rule {
    verdict: ForcedVerdict,
    domain: Option<String>,
    prefix: Option<String>,
    who: String,
    when: String,
    why: String,
}

impl ForcedRules {
    /// Reads the file; where there is none there are no rules.
    ///
    /// # Errors
    /// What is wrong with it, and which rule.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(format!("cannot read {shown}: {error}")),
        };
        Self::parse(&text).map_err(|fault| format!("{shown}: {fault}"))
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// As [`ForcedRules::read`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: RuleFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut rules = Self {
            text: Some(text.to_owned()),
            ..Self::default()
        };
        for (number, rule) in file.rule.iter().enumerate() {
            rules
                .add(rule)
                .map_err(|fault| format!("rule {}: {fault}", number + 1))?;
        }
        rules
            .prefixes
            .sort_by(|left, right| (&left.key, &left.url).cmp(&(&right.key, &right.url)));
        for (place, prefix) in rules.prefixes.iter().enumerate() {
            let host = prefix.form.host.clone();
            rules.by_host.entry(host).or_default().push(place);
        }
        Ok(rules)
    }

    fn add(&mut self, rule: &Rule) -> Result<(), String> {
        for (key, text) in [("who", &rule.who), ("when", &rule.when), ("why", &rule.why)] {
            if text.trim().is_empty() {
                return Err(format!("'{key}' is empty"));
            }
        }
        if !is_date(&rule.when) {
            return Err(format!(
                "'when' is no date such as 2026-10-02: {:?}",
                rule.when
            ));
        }
        let said = ForcedDomain {
            verdict: rule.verdict,
            who: rule.who.clone(),
            when: rule.when.clone(),
            why: rule.why.clone(),
        };
        let mut normaliser = Normaliser::new();
        match (&rule.domain, &rule.prefix) {
            (Some(domain), None) => {
                let found = normaliser
                    .read(domain.as_bytes())
                    .map_err(|e| format!("{domain:?} names nothing: {}", e.reason))?;
                let cut = NameFlags::PATH.with(NameFlags::PORT);
                if found.flags.has(NameFlags::PATH) || found.flags.has(NameFlags::PORT) {
                    return Err(format!(
                        "{domain:?} is a URL ({}): use 'prefix'",
                        NameFlags::from_bits(cut.bits() & found.flags.bits())
                    ));
                }
                match self.domains.insert(key_of(found.name).into_bytes(), said) {
                    None => Ok(()),
                    Some(_) => Err(format!("a second rule for {:?}", found.name)),
                }
            }
            (None, Some(prefix)) => {
                let found = normaliser
                    .read_url(prefix.as_bytes())
                    .map_err(|e| format!("{prefix:?} names nothing: {}", e.reason))?;
                let Some(url) = found.url else {
                    return Err(format!("{prefix:?} has no path: use 'domain'"));
                };
                let form = UrlForm::of(&url);
                if let Some(known) = self.prefixes.iter().find(|known| known.form == form) {
                    return Err(format!("{url:?} says the same as {:?}", known.url));
                }
                self.prefixes.push(ForcedPrefix {
                    key: key_of(found.name),
                    url,
                    rule: said,
                    form,
                });
                Ok(())
            }
            _ => Err("one of 'domain' and 'prefix' must be there".to_owned()),
        }
    }

    /// Returns the rule for a name, that of the longest domain that has one, and that domain's key.
    pub fn of_name<'a>(&self, key: &'a [u8]) -> Option<(&ForcedDomain, &'a [u8])> {
        if self.domains.is_empty() {
            return None;
        }
        let mut rest = key;
        loop {
            if let Some(rule) = self.domains.get(rest) {
                return Some((rule, rest));
            }
            rest = &rest[..memrchr(b',', rest)?];
        }
    }

    /// Tells whether a URL is forced out by the longest prefix that it has.
    pub fn is_out(&self, url: &str) -> bool {
        self.prefix_of(url)
            .is_some_and(|prefix| prefix.rule.verdict == ForcedVerdict::Out)
    }

    /// Returns the rule by which a URL is forced out: that of its domain, or else of the longest prefix that it has. What a domain's
    /// rule forces out no prefix forces in.
    pub fn out(&self, url: &Url) -> Option<ForcedOut<'_>> {
        if self.domains.is_empty() && self.prefixes.is_empty() {
            return None;
        }
        let host = url.host_str()?.trim_end_matches('.');
        let key = key_of(host).into_bytes();
        if let Some((rule, domain)) = self.of_name(&key)
            && rule.verdict == ForcedVerdict::Out
        {
            let what = text_of_key(domain);
            return Some(ForcedOut { what, rule });
        }
        let prefix = self.prefix_of(url.as_str())?;
        (prefix.rule.verdict == ForcedVerdict::Out).then(|| ForcedOut {
            what: prefix.url.clone(),
            rule: &prefix.rule,
        })
    }

    /// Returns the rules for what lies below a domain, each with what it is about: names, then prefixes, in order.
    pub fn below(&self, key: &str) -> Vec<(String, &ForcedDomain)> {
        let is_below = |other: &[u8]| {
            let rest = other.strip_prefix(key.as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b','))
        };
        let names = self.domains.iter().filter(|(other, _)| is_below(other));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable_by_key(|(other, _)| *other);
        let names = names
            .into_iter()
            .map(|(other, rule)| (text_of_key(other), rule));
        let prefixes = self
            .prefixes
            .iter()
            .filter(|prefix| prefix.key == key || is_below(prefix.key.as_bytes()))
            .map(|prefix| (prefix.url.clone(), &prefix.rule));
        names.chain(prefixes).collect()
    }

    fn prefix_of(&self, url: &str) -> Option<&ForcedPrefix> {
        if self.prefixes.is_empty() {
            return None;
        }
        let form = UrlForm::of(url);
        let of_host = self.by_host.get(&form.host)?.iter();
        of_host
            .map(|place| &self.prefixes[*place])
            .filter(|prefix| form.path.starts_with(&prefix.form.path))
            .max_by_key(|prefix| prefix.form.path.len())
    }

    /// Returns the keys of the domains that are forced in, in order.
    pub fn domains_in(&self) -> Vec<&[u8]> {
        let forced = self
            .domains
            .iter()
            .filter(|(_, rule)| rule.verdict == ForcedVerdict::In);
        let mut keys: Vec<&[u8]> = forced.map(|(key, _)| key.as_slice()).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the prefixes that are forced in, in order.
    pub fn prefixes_in(&self) -> impl Iterator<Item = &ForcedPrefix> {
        self.prefixes
            .iter()
            .filter(|prefix| prefix.rule.verdict == ForcedVerdict::In)
    }

    /// Returns the text they were read from; none where there is no file.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl UrlForm {
    /// Reads a URL as the WHATWG parser writes it.
    fn of(url: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (host, ""),
        };
        let host = host.trim_end_matches('.');
        let host = host.strip_prefix("www.").unwrap_or(host);
        let rest = rest.split('#').next().unwrap_or(rest);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let mut form = plain(path, true);
        if let Some(query) = query {
            form.push('?');
            form += &plain(query, false);
        }
        Self {
            host: format!("{host}:{port}"),
            path: form,
        }
    }
}

/// Writes unreserved characters as themselves and escapes in upper case; in a path slashes in a row as one.
fn plain(text: &str, is_path: bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let escaped = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let byte = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(char::from(byte));
                rest = &rest[3..];
            }
            Some(_) => {
                plain += &rest[..3].to_ascii_uppercase();
                rest = &rest[3..];
            }
            None => {
                if !(is_path && letter == '/' && plain.ends_with('/')) {
                    plain.push(letter);
                }
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    plain
}

fn text_of_key(key: &[u8]) -> String {
    let mut name = Vec::new();
    name_of(key, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}

fn is_date(text: &str) -> bool {
    let shape = text.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let part = |from: usize, to: usize| text.get(from..to).and_then(|text| text.parse::<u8>().ok());
    text.len() == 10
        && shape
        && part(5, 7).is_some_and(|m| (1..=12).contains(&m))
        && part(8, 10).is_some_and(|d| (1..=31).contains(&d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verdict: &str, what: &str) -> String {
        format!(
            "[[rule]]\nverdict = \"{verdict}\"\n{what}\nwho = \"M. Duval\"\nwhen = \"2026-10-02\"\nwhy = \"asked for\"\n"
        )
    }

    #[test]
    fn the_longest_rule_decides() {
        let text = rule("out", "domain = \"Blogspot.com\"")
            + &rule("in", "domain = \"bon.blogspot.com\"")
            + &rule("out", "prefix = \"exemple.fr/blog/\"")
            + &rule("in", "prefix = \"http://exemple.fr/blog/bon/\"");
        let rules = ForcedRules::parse(&text).unwrap();
        let of = |name: &str| {
            rules
                .of_name(key_of(name).as_bytes())
                .map(|(rule, _)| rule.verdict)
        };
        assert_eq!(of("x.blogspot.com"), Some(ForcedVerdict::Out));
        assert_eq!(of("blogspot.com"), Some(ForcedVerdict::Out));
        assert_eq!(of("bon.blogspot.com"), Some(ForcedVerdict::In));
        assert_eq!(of("a.bon.blogspot.com"), Some(ForcedVerdict::In));
        assert_eq!(of("notblogspot.com"), None);
        assert!(rules.is_out("http://exemple.fr/blog/x"));
        assert!(!rules.is_out("http://exemple.fr/blog/bon/x"));
        assert!(!rules.is_out("http://exemple.fr/"));
        assert_eq!(rules.domains_in(), [b"com,blogspot,bon"]);
        assert_eq!(rules.prefixes_in().count(), 1);
    }

    #[test]
    fn a_url_is_out_in_whatever_form_it_is_written() {
        let text = rule("out", "domain = 'blog.exemple.fr'")
            + &rule("in", "domain = 'bon.blog.exemple.fr'")
            + &rule("out", "prefix = 'http://exemple.fr/prive/'")
            + &rule("in", "prefix = 'https://www.exemple.fr/prive/ouvert/'")
            + &rule("out", "prefix = 'exemple.fr:8080/a?id=7'")
            + &rule("in", "prefix = 'http://blog.exemple.fr/bon/'");
        let rules = ForcedRules::parse(&text).unwrap();
        let what = |url: &str| rules.out(&Url::parse(url).unwrap()).map(|out| out.what);
        let prefix = Some("http://exemple.fr/prive/".to_owned());
        for url in [
            "http://exemple.fr/prive/",
            "https://exemple.fr/prive/a",
            "https://www.exemple.fr/prive/a?b#c",
            "http://u:p@EXEMPLE.fr.:80/x/../%70rive/a",
            "http://exemple.fr//prive//a",
        ] {
            assert_eq!(what(url), prefix, "{url}");
        }
        let domain = Some("blog.exemple.fr".to_owned());
        for url in [
            "http://blog.exemple.fr/",
            "https://a.blog.exemple.fr:8443/b",
            "http://blog.exemple.fr/bon/a",
        ] {
            assert_eq!(what(url), domain, "{url}");
        }
        assert!(what("http://exemple.fr:8080/a?id=7&b").is_some());
        for url in [
            "http://exemple.fr/",
            "http://exemple.fr/privee",
            "http://exemple.fr/Prive/",
            "http://exemple.fr/a?b=/prive/",
            "http://exemple.fr:8080/prive/",
            "http://exemple.fr/a?id=7",
            "http://autre.exemple.fr/prive/",
            "https://exemple.fr/prive/ouvert/a",
            "http://bon.blog.exemple.fr/",
            "http://127.0.0.1/prive/",
            "http://[::1]:81/prive/",
            "data:text/plain,prive",
        ] {
            assert_eq!(what(url), None, "{url}");
        }
        let below: Vec<String> = rules
            .below("fr,exemple")
            .into_iter()
            .map(|(what, rule)| format!("{} {what} {}", rule.verdict.word(), rule.why))
            .collect();
        assert_eq!(
            below,
            [
                "out blog.exemple.fr asked for",
                "in bon.blog.exemple.fr asked for",
                "out http://exemple.fr/prive/ asked for",
                "out http://exemple.fr:8080/a?id=7 asked for",
                "in http://blog.exemple.fr/bon/ asked for",
                "in https://www.exemple.fr/prive/ouvert/ asked for",
            ]
        );
        assert!(rules.below("fr,autre").is_empty());
    }

    #[test]
    fn a_rule_says_who_when_and_why() {
        let good = rule("in", "domain = \"a.fr\"");
        assert!(ForcedRules::parse(&good).is_ok());
        for (from, to) in [
            ("who = \"M. Duval\"\n", ""),
            ("M. Duval", " "),
            ("2026-10-02", "yesterday"),
            ("2026-10-02", "2026-13-02"),
            ("why", "because"),
            ("\"in\"", "\"maybe\""),
            ("domain = \"a.fr\"", ""),
            (
                "domain = \"a.fr\"",
                "domain = \"a.fr\"\nprefix = \"a.fr/b\"",
            ),
            ("domain = \"a.fr\"", "domain = \"a.fr/b\""),
            ("domain = \"a.fr\"", "prefix = \"a.fr\""),
            ("a.fr", "127.0.0.1"),
        ] {
            let text = good.replacen(from, to, 1);
            assert!(ForcedRules::parse(&text).is_err(), "{text}");
        }
        assert!(
            ForcedRules::parse(&(good.clone() + &good)).is_err(),
            "twice"
        );
        let two =
            rule("in", "prefix = 'http://a.fr/b'") + &rule("out", "prefix = 'https://www.a.fr/b'");
        assert!(ForcedRules::parse(&two).is_err(), "the same prefix");
    }
}
