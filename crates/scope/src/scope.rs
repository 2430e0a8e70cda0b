//! Which URLs belong to a job: ordered rules, of which the last that speaks decides.
//!
//! This is the model of Heritrix. A rule may accept, reject, or have nothing to say; so an order reads from the general
//! to the particular, and `ecluse why` can show every rule that spoke. Deciding asks the rules from the last to the
//! first and stops at the one that speaks; [`Scope::judge`] asks them all.

mod dates;
mod evidence;
mod path;
mod pattern;
mod query;
mod rule;
mod traps;

use std::fmt;
use std::io;
use std::path::Path;

use ecluse_config::{Bytes, Key};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limit::Limit;
use crate::seed::Seed;
use crate::surts::{Reach, SeedSurts, SurtPrefixError};

pub use self::dates::CalendarOrder;
pub use self::evidence::Evidence;
pub use self::pattern::{RegexFault, RegexReach};

use self::rule::{Parts, Rule};

/// The rules there are, in the order in which they are asked unless the order says otherwise.
///
/// `own` stands for the order's own rules that the sequence does not name.
pub const SEQUENCE: [&str; 19] = [
    "nothing",
    "seeds",
    "accept",
    "hops",
    "depth",
    "transclusion",
    "repetition",
    "segments",
    "calendar",
    "arguments",
    "traps",
    "extensions",
    "size",
    "seed",
    "prerequisites",
    "reject",
    "own",
    "length",
    "schemes",
];

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeVerdict {
    /// The URL belongs to the job.
    Accept,
    /// It does not.
    Reject,
}

/// The scope of a job, as its order says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ScopeOrder {
    /// How much around each seed belongs to the job.
    pub reach: Reach,
    /// Whether a URL that a seed redirects to is a seed too.
    pub seed_redirects: bool,
    /// Hops from the seed, of any kind.
    pub hops: Limit<u32>,
    /// Pages from the seed: links, forms and sitemaps followed.
    pub depth: Limit<u32>,
    /// Hops from a page to a document that is shown inside of it, redirects not counted.
    pub transclusion_hops: u32,
    /// Hops from a page to a file that belongs to it, through whatever files and documents, redirects not counted.
    pub requisite_hops: u32,
    /// How many of these may be guesses.
    pub speculative_hops: u32,
    /// Redirects among the hops after a page.
    pub redirect_hops: u32,
    /// SURT prefixes that belong to the job too.
    pub accept_surts: Vec<String>,
    /// Regular expressions for URLs that belong to the job too.
    pub accept_regexes: Vec<String>,
    /// SURT prefixes that do not belong to the job.
    pub reject_surts: Vec<String>,
    /// Regular expressions for URLs that do not belong to the job.
    pub reject_regexes: Vec<String>,
    /// What part of a URL an expression must match.
    pub regexes: RegexReach,
    /// File types that are not fetched, by the end of the path.
    pub reject_extensions: Vec<String>,
    /// The schemes that are fetched.
    pub schemes: Vec<String>,
    /// Bytes of a URL.
    pub url_length: u32,
    /// Bytes of a document, where the size is known before it is fetched.
    pub size: Limit<Bytes>,
    /// How often a part of the path may repeat itself in a row.
    pub repetitions: Limit<u32>,
    /// How often a segment may stand in a path.
    pub occurrences: Limit<u32>,
    /// Segments of a path.
    pub segments: Limit<u32>,
    /// Arguments of a query.
    pub arguments: Limit<u32>,
    /// How often an argument may stand in a query.
    pub same_argument: Limit<u32>,
    /// Arguments that choose a facet.
    pub facets: Limit<u32>,
    /// How many times over an escape may be escaped.
    pub nesting: Limit<u32>,
    /// The years in which a date in a URL may lie.
    pub calendar: CalendarOrder,
    /// Crawler traps.
    pub traps: TrapsOrder,
    /// The order in which rules are asked.
    pub sequence: Vec<String>,
    /// The order's own rules.
    pub rules: Vec<OwnRule>,
}

/// Crawler traps: regular expressions on whole URLs, in any case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TrapsOrder {
    /// Whether the shipped ones are set.
    pub shipped: bool,
    /// Shipped ones that are left out, by name.
    pub except: Vec<String>,
    /// More of them.
    pub also: Vec<String>,
}

/// A rule of the order's own. It speaks when all its conditions hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OwnRule {
    /// By which logs name it.
    pub name: String,
    /// What it says.
    pub verdict: ScopeVerdict,
    /// The URL matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The URL lies in one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub surts: Vec<String>,
    /// The path ends in one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// The way from the seed matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<String>,
    /// The page that led to it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The source tag of its seed is this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl Default for ScopeOrder {
    fn default() -> ScopeOrder {
        ScopeOrder {
            reach: Reach::Domain,
            seed_redirects: true,
            hops: Limit::At(20),
            depth: Limit::None,
            transclusion_hops: 2,
            requisite_hops: 50,
            speculative_hops: 1,
            redirect_hops: 10,
            accept_surts: Vec::new(),
            accept_regexes: Vec::new(),
            reject_surts: Vec::new(),
            reject_regexes: Vec::new(),
            regexes: RegexReach::Anywhere,
            reject_extensions: Vec::new(),
            schemes: vec!["http".to_owned(), "https".to_owned()],
            url_length: 4_000,
            size: Limit::None,
            repetitions: Limit::At(2),
            occurrences: Limit::At(6),
            segments: Limit::At(20),
            arguments: Limit::At(30),
            same_argument: Limit::At(10),
            facets: Limit::At(4),
            nesting: Limit::At(2),
            calendar: CalendarOrder::default(),
            traps: TrapsOrder::default(),
            sequence: SEQUENCE.map(str::to_owned).to_vec(),
            rules: Vec::new(),
        }
    }
}

impl Default for TrapsOrder {
    fn default() -> TrapsOrder {
        TrapsOrder {
            shipped: true,
            except: Vec::new(),
            also: Vec::new(),
        }
    }
}

/// A URL about to be queued, and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateUrl<'a> {
    /// The URL, as the WHATWG parser writes it.
    pub url: &'a str,
    /// Its SURT key.
    pub surt: &'a [u8],
    /// The way from the seed, one letter a hop; empty for a seed.
    pub hops: &'a str,
    /// The URL it was found on.
    pub via: Option<&'a str>,
    /// The source tag of its seed.
    pub tag: Option<&'a str>,
    /// Its size in bytes, when that is known.
    pub size: Option<u64>,
    /// Whether it is known to be a document of its own that a page shows: what an `iframe` holds.
    pub framed: bool,
}

impl<'a> CandidateUrl<'a> {
    /// A seed.
    pub fn seed(url: &'a str, surt: &'a [u8]) -> CandidateUrl<'a> {
        CandidateUrl {
            url,
            surt,
            hops: "",
            via: None,
            tag: None,
            size: None,
            framed: false,
        }
    }
}

/// What the scope says of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What the last rule said.
    pub verdict: ScopeVerdict,
    /// Every rule that spoke, in the order in which they are asked; the last decided.
    pub spoke: Vec<Spoken>,
}

/// What one rule said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The rule's name.
    pub rule: String,
    /// What it said.
    pub verdict: ScopeVerdict,
    /// Why, in a few words.
    pub why: String,
}

/// The verdict and the one rule that decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What it said.
    pub verdict: ScopeVerdict,
    /// The rule's name.
    pub rule: &'a str,
    /// Why.
    pub why: Evidence<'a>,
}

/// One thing in an order by which no scope can be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("rule {rule:?}: {fault}")]
#[non_exhaustive]
pub struct ScopeError {
    /// The rule.
    pub rule: String,
    /// Where in the scope of the order it stands.
    pub key: Vec<Key<'static>>,
    /// What is wrong.
    pub fault: ScopeFault,
}

/// What can be wrong with a rule.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ScopeFault {
    /// A regular expression.
    #[error(transparent)]
    Regex(#[from] RegexFault),
    /// A SURT prefix.
    #[error(transparent)]
    Surt(#[from] SurtPrefixError),
    /// The sequence names a rule that does not exist.
    #[error("there is no such rule; rules are {known}")]
    Unknown {
        /// Those there are.
        known: String,
    },
    /// The sequence leaves the rule out, although it has something to look at.
    #[error("is not in the sequence, so this would never be looked at")]
    NeverAsked,
    /// A name that is taken.
    #[error("stands twice")]
    Twice,
    /// A name that cannot be one.
    #[error("a rule's name is a-z, 0-9 and '-', and none of the built-in ones")]
    BadName,
    /// A rule that would always speak.
    #[error("has no condition; give it one of regex, surts, extensions, hops, via, tag")]
    NoCondition,
    /// A shipped trap that does not exist.
    #[error("there is no shipped trap {name:?}; they are {known}")]
    UnknownTrap {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A list that must not be empty is.
    #[error("would reject every URL; name at least one")]
    Empty,
    /// A number out of bounds.
    #[error("must be at least {least}")]
    TooSmall {
        /// The least that works.
        least: u32,
    },
    /// An extension that is none.
    #[error("{text:?} is no file type; write \"zip\" or \"tar.gz\"")]
    BadExtension {
        /// What was written.
        text: String,
    },
}

/// Everything in an order by which no scope can be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", lines(.0))]
pub struct ScopeErrors(pub Vec<ScopeError>);

fn lines(errors: &[ScopeError]) -> String {
    let lines: Vec<String> = errors.iter().map(ScopeError::to_string).collect();
    lines.join("\n")
}

/// The compiled scope of a job. It does not change but by new seeds; a changed order is compiled anew.
#[derive(Debug)]
pub struct Scope {
    order: ScopeOrder,
    seeds: SeedSurts,
    rules: Vec<(String, Rule)>,
    year: u32,
}

impl Scope {
    /// Compiles an order for a crawl that begins in `year`. Every fault is found, not only the first.
    pub fn compile(order: &ScopeOrder, seeds: &[Seed], year: u32) -> Result<Scope, ScopeErrors> {
        let rules = rule::compile(order).map_err(ScopeErrors)?;
        let mut scope = Scope {
            order: order.clone(),
            seeds: SeedSurts::default(),
            rules,
            year,
        };
        for seed in seeds {
            let added = scope.add_seed(seed);
            added.expect("in memory nothing fails");
        }
        Ok(scope)
    }

    /// Keeps what belongs to seeds that are added from now on in files of this directory, beyond a few megabytes of them.
    /// The files have no names.
    pub fn keep_seeds_in(&mut self, directory: &Path) {
        self.seeds.keep_in(directory);
    }

    /// Adds what belongs to one more seed: one given while the job runs, or where a seed redirects to.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn add_seed(&mut self, seed: &Seed) -> io::Result<()> {
        let reach = seed.reach.unwrap_or(self.order.reach);
        self.seeds.insert(&seed.url, reach)
    }

    /// Puts the files of seeds together, now that most are added: decisions are faster then.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn gather_seeds(&mut self) -> io::Result<()> {
        self.seeds.gather()
    }

    /// The order it was compiled from.
    pub fn order(&self) -> &ScopeOrder {
        &self.order
    }

    /// The names of the rules, in the order in which they are asked.
    pub fn rule_names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|(name, _)| name.as_str())
    }

    /// Decides about a URL, and says by which rule. What no rule speaks of is rejected.
    ///
    /// # Errors
    /// When a file of seeds cannot be read.
    pub fn decide<'a>(&'a self, candidate: &CandidateUrl<'a>) -> io::Result<Decision<'a>> {
        let parts = Parts::of(candidate.url);
        for (name, rule) in self.rules.iter().rev() {
            if let Some((verdict, why)) = rule.ask(self, candidate, &parts)? {
                return Ok(Decision {
                    verdict,
                    rule: name,
                    why,
                });
            }
        }
        Ok(Decision {
            verdict: ScopeVerdict::Reject,
            rule: "",
            why: Evidence::Silence,
        })
    }

    /// Asks every rule about a URL.
    ///
    /// # Errors
    /// When a file of seeds cannot be read.
    pub fn judge(&self, candidate: &CandidateUrl<'_>) -> io::Result<Judgement> {
        let parts = Parts::of(candidate.url);
        let mut spoke = Vec::new();
        for (name, rule) in &self.rules {
            if let Some((verdict, why)) = rule.ask(self, candidate, &parts)? {
                spoke.push(Spoken {
                    rule: name.clone(),
                    verdict,
                    why: why.to_string(),
                });
            }
        }
        Ok(Judgement {
            verdict: spoke
                .last()
                .map_or(ScopeVerdict::Reject, |last| last.verdict),
            spoke,
        })
    }
}

impl fmt::Display for ScopeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScopeVerdict::Accept => "accept",
            ScopeVerdict::Reject => "reject",
        })
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.verdict, self.why)
    }
}
