//! `robots.txt` as RFC 9309 has it: read, asked, and kept for as long as it may be.
//!
//! Every answer names the line that gave it, so that a log can say why a page is missing. What is fetched, and when, is
//! left to the crawl; [`Standing`] tells it how long an answer holds and what follows from having none.

mod parse;
mod pattern;
mod standing;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::hops;

pub use self::standing::{Freshness, Ground, Reading, RobotsAnswer, Standing};

use self::parse::{Group, GroupRule};
use self::pattern::{Pattern, normalise};

/// Whether robots.txt is heeded.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RobotsPolicy {
    /// It is obeyed.
    #[default]
    Obey,
    /// It is not asked.
    Ignore,
    /// It is obeyed, except for what a page needs to be shown: images, styles, scripts.
    Requisites,
}

/// How much of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobotsLimits {
    /// Bytes after which the rest is left unread; the RFC asks for at least 500 KiB.
    pub size: usize,
    /// Bytes of a line after which its rest is left unread.
    pub line: usize,
}

impl Default for RobotsLimits {
    fn default() -> RobotsLimits {
        RobotsLimits {
            size: 500 * 1024,
            // What Google's parser takes: eight times the longest URL that browsers once took.
            line: 16_664,
        }
    }
}

/// A robots.txt, all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Robots {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
    is_cut: bool,
}

/// What a robots.txt says to one crawler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRules {
    /// The most specific first, an allow before a disallow of the same length: the first that matches decides.
    rules: Box<[AgentRule]>,
    /// The patterns and the texts of all rules: a file may have tens of thousands, of a few bytes each.
    bytes: Box<[u8]>,
    group: Option<String>,
    delay: Option<Duration>,
}

/// Where a rule stands in the bytes: its pattern, and its text behind that.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AgentRule {
    start: u32,
    pattern: u32,
    line: u32,
    text: u16,
    allows: bool,
    is_anchored: bool,
}

/// What robots.txt says about one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsVerdict {
    /// Whether it may be fetched.
    pub allowed: bool,
    /// Why.
    pub why: RobotsReason,
}

/// Why robots.txt allows or forbids a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RobotsReason {
    /// A rule decided.
    Rule(RuleLine),
    /// No rule speaks of it.
    NoRule,
    /// robots.txt itself may always be fetched.
    RobotsTxt,
    /// The policy is to ignore it.
    Ignored,
    /// A rule forbids it, but it is a page requisite and the policy lets those through.
    Requisite(RuleLine),
    /// There is no robots.txt to go by.
    Absent(Ground),
    /// It is a page requisite; the missing robots.txt forbids everything else.
    RequisiteOfAbsent(Ground),
}

/// A rule of a robots.txt, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// The line, counted from one.
    pub line: u32,
    /// Its text, without what surrounds it.
    pub text: String,
}

impl Robots {
    /// Reads a robots.txt. Whatever the bytes are, they have a meaning; at worst it is that nothing is forbidden.
    pub fn parse(bytes: &[u8], limits: &RobotsLimits) -> Robots {
        parse::parse(bytes, limits)
    }

    /// Returns what is said to a crawler that goes by these product tokens.
    ///
    /// The longest token that has a group decides; its groups are joined, as the RFC asks. Without one, the groups
    /// for `*` hold.
    pub fn rules_for(&self, tokens: &[&str]) -> AgentRules {
        let best = self
            .groups
            .iter()
            .flat_map(|group| &group.agents)
            .filter_map(|agent| parse::specificity(agent, tokens))
            .max();
        let Some(best) = best else {
            return AgentRules::default();
        };
        let mut chosen = AgentRules::default();
        let (mut rules, mut bytes) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let agent = group
                .agents
                .iter()
                .find(|agent| parse::specificity(agent, tokens) == Some(best));
            let Some(agent) = agent else {
                continue;
            };
            chosen.group.get_or_insert_with(|| agent.clone());
            let stored = group.rules.iter();
            rules.extend(stored.filter_map(|rule| AgentRule::store(rule, &mut bytes)));
            // Two delays for one crawler: the longer one offends nobody.
            chosen.delay = chosen.delay.max(group.delay);
        }
        rules.sort_by(|a, b| {
            let longer = b.octets().cmp(&a.octets());
            longer
                .then(b.allows.cmp(&a.allows))
                .then(a.line.cmp(&b.line))
        });
        chosen.rules = rules.into();
        chosen.bytes = bytes.into();
        chosen
    }

    /// The sitemaps that are named, as written.
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }

    /// Whether the file was longer than the limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl AgentRule {
    /// Puts a rule behind those before it; none that is beyond four gigabytes.
    fn store(rule: &GroupRule, bytes: &mut Vec<u8>) -> Option<AgentRule> {
        let start = u32::try_from(bytes.len()).ok()?;
        let is_anchored = pattern::append(&rule.path, bytes);
        let pattern = u32::try_from(bytes.len()).ok()? - start;
        bytes.extend_from_slice(rule.text.as_bytes());
        Some(AgentRule {
            start,
            pattern,
            line: rule.line,
            text: rule.text.len().try_into().ok()?,
            allows: rule.allows,
            is_anchored,
        })
    }

    /// How specific it is: the longest pattern that matches decides.
    fn octets(&self) -> u32 {
        self.pattern + u32::from(self.is_anchored)
    }
}

impl AgentRules {
    /// Says whether a URL may be fetched, by these rules alone.
    pub fn judge(&self, url: &str) -> RobotsVerdict {
        let target = target_of(url);
        if target == "/robots.txt" {
            return RobotsVerdict {
                allowed: true,
                why: RobotsReason::RobotsTxt,
            };
        }
        let path = normalise(target.as_bytes());
        let mut rules = self.rules.iter();
        match rules.find(|rule| self.pattern(rule).matches(&path)) {
            Some(rule) => RobotsVerdict {
                allowed: rule.allows,
                why: RobotsReason::Rule(self.shown(rule)),
            },
            None => RobotsVerdict {
                allowed: true,
                why: RobotsReason::NoRule,
            },
        }
    }

    fn pattern(&self, rule: &AgentRule) -> Pattern<'_> {
        let start = rule.start as usize;
        let pieces = &self.bytes[start..start + rule.pattern as usize];
        Pattern::stored(pieces, rule.is_anchored)
    }

    fn shown(&self, rule: &AgentRule) -> RuleLine {
        let start = rule.start as usize + rule.pattern as usize;
        let text = &self.bytes[start..start + usize::from(rule.text)];
        RuleLine {
            line: rule.line,
            text: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// The pause that is asked for between two requests.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.delay
    }

    /// What it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let group = self.group.as_ref().map_or(0, String::len);
        size_of::<Self>() + size_of_val(&*self.rules) + self.bytes.len() + group
    }

    /// The name of the group that was chosen, as the file writes it.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Tells whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl RobotsVerdict {
    /// Lets a verdict through the policy of the job: what is forbidden may still be fetched.
    ///
    /// `hops` is the way from the seed: its end tells whether this is a page requisite.
    pub fn under(self, policy: RobotsPolicy, hops: &str) -> RobotsVerdict {
        match policy {
            RobotsPolicy::Obey => self,
            RobotsPolicy::Ignore => RobotsVerdict {
                allowed: true,
                why: RobotsReason::Ignored,
            },
            RobotsPolicy::Requisites if self.allowed || !hops::is_requisite(hops) => self,
            RobotsPolicy::Requisites => RobotsVerdict {
                allowed: true,
                why: match self.why {
                    RobotsReason::Rule(rule) => RobotsReason::Requisite(rule),
                    RobotsReason::Absent(ground) => RobotsReason::RequisiteOfAbsent(ground),
                    other @ (RobotsReason::NoRule
                    | RobotsReason::RobotsTxt
                    | RobotsReason::Ignored
                    | RobotsReason::Requisite(_)
                    | RobotsReason::RequisiteOfAbsent(_)) => other,
                },
            },
        }
    }
}

impl fmt::Display for RuleLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text comes from the web, and this may reach a terminal.
        write!(f, "line {}: {}", self.line, self.text.escape_debug())
    }
}

impl fmt::Display for RobotsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RobotsReason::Rule(rule) => write!(f, "robots.txt {rule}"),
            RobotsReason::NoRule => f.write_str("no rule in robots.txt speaks of it"),
            RobotsReason::RobotsTxt => f.write_str("robots.txt may always be fetched"),
            RobotsReason::Ignored => f.write_str("robots.txt is ignored by order"),
            RobotsReason::Requisite(rule) => {
                write!(f, "a page requisite, in spite of robots.txt {rule}")
            }
            RobotsReason::Absent(ground) => ground.fmt(f),
            RobotsReason::RequisiteOfAbsent(ground) => {
                write!(f, "a page requisite, although {ground}")
            }
        }
    }
}

/// The path and the query of a URL: what rules are matched against.
fn target_of(url: &str) -> Cow<'_, str> {
    let url = url.split('#').next().unwrap_or_default();
    let after_scheme = match url.split_once("://") {
        Some((scheme, rest))
            if scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) =>
        {
            rest
        }
        // A path, or `//host/path`.
        _ => match url.strip_prefix("//") {
            Some(rest) => rest,
            None if url.starts_with('/') => return Cow::Borrowed(url),
            None => url,
        },
    };
    match after_scheme.find(['/', '?', ';']) {
        Some(at) if after_scheme[at..].starts_with('/') => Cow::Borrowed(&after_scheme[at..]),
        Some(at) => Cow::Owned(format!("/{}", &after_scheme[at..])),
        None => Cow::Borrowed("/"),
    }
}
