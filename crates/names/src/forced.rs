//! What librarians force in and out: their word wins over every list.

use std::collections::HashMap;
use std::path::Path;

use memchr::memrchr;
use serde::Deserialize;

use crate::{NameFlags, Normaliser, key_of};

/// The rules of `forced.toml`.
#[derive(Debug, Default)]
pub struct ForcedRules {
    /// By the key of the domain.
    domains: HashMap<Vec<u8>, ForcedDomain>,
    prefixes: Vec<ForcedPrefix>,
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

/// A rule for a domain and all below it.
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
    /// What it says.
    pub verdict: ForcedVerdict,
    /// The key of its host.
    pub key: String,
    /// How the URLs begin.
    pub url: String,
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
                let told = ForcedDomain {
                    verdict: rule.verdict,
                    who: rule.who.clone(),
                    when: rule.when.clone(),
                    why: rule.why.clone(),
                };
                match self.domains.insert(key_of(found.name).into_bytes(), told) {
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
                let key = key_of(found.name);
                let verdict = rule.verdict;
                if self.prefixes.iter().any(|known| known.url == url) {
                    return Err(format!("a second rule for {url:?}"));
                }
                self.prefixes.push(ForcedPrefix { verdict, key, url });
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
        let fitting = self
            .prefixes
            .iter()
            .filter(|rule| url.starts_with(&rule.url));
        let longest = fitting.max_by_key(|rule| rule.url.len());
        longest.is_some_and(|rule| rule.verdict == ForcedVerdict::Out)
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
            .filter(|rule| rule.verdict == ForcedVerdict::In)
    }

    /// Returns the text they were read from; none where there is no file.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
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
    }
}
