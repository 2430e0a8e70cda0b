//! Who may see what: pywb's `.aclj` files, read as they are.
//!
//! A line is `KEY - {"access": "block", …}`. The rule with the longest key that a capture's key begins with counts; `KEY###` means
//! this key alone, `*,` every key. Of several with one key, that of the reader's user counts, else the one without a user. A file that
//! changes is read again; one that cannot be read then leaves the rules as they were.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use ecluse_config::{AccessRule, CalendarAge, Embargo};
use serde::Deserialize;

use crate::moment::{Moment, civil, days_of};
use crate::reader::Reader;

/// What ends the key of a rule for one URL alone.
const EXACT: &[u8] = b"###";
/// The key of a rule for everything.
const EVERYTHING: &[u8] = b"*,";

/// Why the rules cannot be had: file, line, and what is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is no rule.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// The rules of an archive.
pub(crate) struct AccessRules {
    files: Vec<PathBuf>,
    otherwise: AccessRule,
    embargo: Embargo,
    read: RwLock<Arc<ReadRules>>,
}

#[derive(Default)]
struct ReadRules {
    by_key: HashMap<Vec<u8>, Vec<Rule>>,
    longest: usize,
    /// Length and time of each file when it was read.
    seen: Vec<Option<(u64, SystemTime)>>,
}

/// One line of a file.
#[derive(Debug, Clone, Deserialize)]
struct Rule {
    access: RuleAccess,
    /// File and line, for those who ask why.
    #[serde(skip)]
    origin: Arc<str>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    before: Option<String>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    newer: Option<CalendarAge>,
    #[serde(default)]
    older: Option<CalendarAge>,
}

/// What a rule says, in pywb's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RuleAccess {
    Allow,
    /// Allow, even what the embargo keeps back.
    AllowIgnoreEmbargo,
    Block,
    Exclude,
}

/// What holds for all captures of one key and one reader.
#[derive(Debug, Clone)]
pub(crate) struct KeyAccess {
    rule: Option<Rule>,
    otherwise: AccessRule,
    embargo: Embargo,
    now: i64,
}

impl AccessRules {
    /// Reads the rules.
    pub(crate) fn open(
        files: Vec<PathBuf>,
        otherwise: AccessRule,
        embargo: Embargo,
    ) -> Result<Self, RulesError> {
        let read = ReadRules::read(&files)?;
        Ok(Self {
            files,
            otherwise,
            embargo,
            read: RwLock::new(Arc::new(read)),
        })
    }

    fn current(&self) -> Arc<ReadRules> {
        let known = Arc::clone(&self.read.read().unwrap_or_else(PoisonError::into_inner));
        if self.files.is_empty() || known.seen == seen(&self.files) {
            return known;
        }
        match ReadRules::read(&self.files) {
            Ok(newer) => {
                let newer = Arc::new(newer);
                tracing::info!("rules of access read again");
                *self.read.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&newer);
                newer
            }
            Err(error) => {
                tracing::error!(%error, "rules of access cannot be read, the old ones hold");
                known
            }
        }
    }

    /// Returns what holds for the captures of a key.
    pub(crate) fn of_key(&self, key: &[u8], reader: &Reader) -> KeyAccess {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        KeyAccess {
            rule: self.current().find(key, &reader.users).cloned(),
            otherwise: self.otherwise,
            embargo: self.embargo.clone(),
            now: now.map_or(0, |now| now.as_secs().try_into().unwrap_or(i64::MAX)),
        }
    }

    /// Says which rule keeps a capture from being listed, by its line; none where it may be.
    pub(crate) fn keeps_from(&self, line: &[u8], reader: &Reader) -> Option<String> {
        if self.files.is_empty()
            && self.otherwise == AccessRule::Allow
            && self.embargo == Embargo::None
        {
            return None;
        }
        let key = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let rest = line.get(key.len() + 1..).unwrap_or_default();
        let moment = crate::capture_list::moment_of(rest);
        let access = self.of_key(key, reader);
        (access.at(moment) == AccessRule::Exclude).then(|| access.reason(moment))
    }
}

impl KeyAccess {
    /// Returns what holds for a capture of this time.
    pub(crate) fn at(&self, moment: Moment) -> AccessRule {
        let ruled = match self.rule_at(moment) {
            None => self.otherwise,
            Some(rule) => match rule.access {
                RuleAccess::AllowIgnoreEmbargo => return AccessRule::Allow,
                RuleAccess::Allow => AccessRule::Allow,
                RuleAccess::Block => AccessRule::Block,
                RuleAccess::Exclude => AccessRule::Exclude,
            },
        };
        match self.is_kept_back(moment) {
            true => AccessRule::Exclude,
            false => ruled,
        }
    }

    /// Says which rule holds for a capture of this time.
    pub(crate) fn reason(&self, moment: Moment) -> String {
        let rule = self.rule_at(moment);
        let lifts = rule.is_some_and(|rule| rule.access == RuleAccess::AllowIgnoreEmbargo);
        if self.is_kept_back(moment) && !lifts {
            return format!("access.embargo = \"{}\"", self.embargo);
        }
        match rule {
            Some(rule) => rule.origin.to_string(),
            None => "access.default-rule".to_owned(),
        }
    }

    /// Says whether the embargo keeps a capture back; it names those that it keeps, as pywb's does.
    fn is_kept_back(&self, moment: Moment) -> bool {
        let limit = |digits: &String| Moment::first_of(digits);
        match &self.embargo {
            Embargo::None => false,
            Embargo::Before(before) => limit(before).is_some_and(|before| moment < before),
            Embargo::After(after) => limit(after).is_some_and(|after| moment > after),
            Embargo::Older(age) => moment.seconds() < so_long_before(*age, self.now),
            Embargo::Newer(age) => moment.seconds() > so_long_before(*age, self.now),
        }
    }

    /// Returns the rule, if its times are those of the capture.
    fn rule_at(&self, moment: Moment) -> Option<&Rule> {
        let rule = self.rule.as_ref()?;
        // A date that is cut short means its end, as in pywb.
        let limit = |digits: &String| Moment::last_of(digits);
        let fits = if let Some(before) = &rule.before {
            limit(before).is_none_or(|before| moment < before)
        } else if let Some(after) = &rule.after {
            limit(after).is_none_or(|after| moment > after)
        } else if let Some(age) = rule.newer {
            moment.seconds() > so_long_before(age, self.now)
        } else if let Some(age) = rule.older {
            moment.seconds() < so_long_before(age, self.now)
        } else {
            true
        };
        fits.then_some(rule)
    }
}

/// Returns the second that was so long ago, by the calendar.
fn so_long_before(age: CalendarAge, now: i64) -> i64 {
    let (year, month, day) = civil(now.div_euclid(86_400));
    let months = year * 12 + (month - 1) - age.years * 12 - age.months;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let next = match month {
        12 => days_of(year + 1, 1, 1),
        month => days_of(year, month + 1, 1),
    };
    let days = (days_of(year, month, 1) + day - 1).min(next - 1);
    (days - age.weeks * 7 - age.days) * 86_400 + now.rem_euclid(86_400)
}

fn seen(files: &[PathBuf]) -> Vec<Option<(u64, SystemTime)>> {
    let look = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    files.iter().map(look).collect()
}

impl ReadRules {
    fn read(files: &[PathBuf]) -> Result<Self, RulesError> {
        let mut rules = Self {
            seen: seen(files),
            ..Self::default()
        };
        for path in files {
            let text = fs::read_to_string(path).map_err(|source| RulesError::Read {
                path: path.clone(),
                source,
            })?;
            for (at, line) in text.lines().enumerate() {
                if line.trim().is_empty() {
                    continue;
                }
                let refuse = |reason: String| RulesError::Line {
                    path: path.clone(),
                    line: at + 1,
                    reason,
                };
                let mut parts = line.splitn(3, ' ');
                let (Some(key), Some(_), Some(json)) = (parts.next(), parts.next(), parts.next())
                else {
                    return Err(refuse("no key, time and rule".to_owned()));
                };
                let mut rule: Rule =
                    serde_json::from_str(json).map_err(|error| refuse(error.to_string()))?;
                let file = path.file_name().unwrap_or_default().display();
                rule.origin = format!("{file}:{}: {key}", at + 1).into();
                for limit in [&rule.before, &rule.after].into_iter().flatten() {
                    if Moment::first_of(limit).is_none() {
                        return Err(refuse(format!("{limit:?} is no time")));
                    }
                }
                rules.longest = rules.longest.max(key.len());
                let of_key = rules.by_key.entry(key.as_bytes().to_vec()).or_default();
                of_key.push(rule);
            }
        }
        Ok(rules)
    }

    fn find(&self, key: &[u8], users: &[String]) -> Option<&Rule> {
        let chosen = |key: &[u8]| {
            let rules = self.by_key.get(key)?;
            let of = |user: &String| rules.iter().find(|rule| rule.user.as_ref() == Some(user));
            let own = users.iter().find_map(of);
            own.or_else(|| rules.iter().find(|rule| rule.user.is_none()))
        };
        let exact = [key, EXACT].concat();
        let lengths = (1..=key.len().min(self.longest)).rev();
        let prefixes = || {
            lengths
                .into_iter()
                .find_map(|length| chosen(&key[..length]))
        };
        chosen(&exact)
            .or_else(prefixes)
            .or_else(|| chosen(EVERYTHING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> (tempfile::TempDir, AccessRules) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.aclj");
        fs::write(&path, text).unwrap();
        let rules = AccessRules::open(vec![path], AccessRule::Allow, Embargo::None).unwrap();
        (directory, rules)
    }

    fn reader(user: Option<&str>) -> Reader {
        Reader {
            users: user.into_iter().map(str::to_owned).collect(),
            ..Reader::default()
        }
    }

    fn access(rules: &AccessRules, key: &str, user: Option<&str>, time: &str) -> AccessRule {
        rules
            .of_key(key.as_bytes(), &reader(user))
            .at(Moment::first_of(time).unwrap())
    }

    #[test]
    fn the_longest_key_and_the_readers_own_rule_count() {
        let (_directory, rules) = rules(
            "com,example,www)/a - {\"access\": \"allow\", \"url\": \"x\"}\n\
             com,example)/a### - {\"access\": \"exclude\"}\n\
             com,example)/ - {\"access\": \"block\", \"user\": \"guest\"}\n\
             com,example)/ - {\"access\": \"block\"}\n\
             com,example)/ - {\"access\": \"allow\", \"user\": \"staff\"}\n\
             com,example - {\"access\": \"exclude\"}\n\
             \n\
             org,only)/ - {\"access\": \"block\", \"user\": \"guest\"}\n",
        );
        let at = |key: &str, user: Option<&str>| access(&rules, key, user, "2026");
        assert_eq!(at("com,example)/a", None), AccessRule::Exclude);
        assert_eq!(at("com,example)/ab", None), AccessRule::Block);
        assert_eq!(at("com,example)/ab", Some("staff")), AccessRule::Allow);
        assert_eq!(at("com,example)/ab", Some("other")), AccessRule::Block);
        assert_eq!(at("com,example,shop)/", None), AccessRule::Exclude);
        assert_eq!(at("com,example,www)/a", None), AccessRule::Allow);
        assert_eq!(at("org,only)/", None), AccessRule::Allow, "of another user");
        assert_eq!(at("org,only)/", Some("guest")), AccessRule::Block);
        assert_eq!(at("net,other)/", None), AccessRule::Allow);
    }

    #[test]
    fn times_bound_a_rule() {
        let (_directory, rules) = rules(
            "a)/ - {\"access\": \"exclude\", \"before\": \"2019\"}\n\
             b)/ - {\"access\": \"exclude\", \"after\": \"2019\"}\n\
             c)/ - {\"access\": \"block\", \"newer\": {\"years\": 1}}\n\
             d)/ - {\"access\": \"block\", \"older\": {\"years\": 20}}\n\
             *, - {\"access\": \"block\"}\n",
        );
        let at = |key: &str, time: &str| access(&rules, key, None, time);
        assert_eq!(at("a)/", "2019"), AccessRule::Exclude);
        assert_eq!(at("a)/", "2020"), AccessRule::Allow);
        assert_eq!(at("b)/", "2020"), AccessRule::Exclude);
        assert_eq!(at("b)/", "2019"), AccessRule::Allow);
        assert_eq!(at("c)/", "2999"), AccessRule::Block);
        assert_eq!(at("c)/", "1999"), AccessRule::Allow);
        assert_eq!(at("d)/", "1996"), AccessRule::Block);
        assert_eq!(at("e)/", "2026"), AccessRule::Block, "everything else");
    }

    #[test]
    fn ages_go_by_the_calendar() {
        let seconds = |digits: &str| Moment::first_of(digits).unwrap().seconds();
        let age = |years, months, weeks, days| CalendarAge {
            years,
            months,
            weeks,
            days,
        };
        let now = seconds("20240331120000");
        assert_eq!(
            so_long_before(age(1, 0, 0, 0), now),
            seconds("20230331120000")
        );
        assert_eq!(
            so_long_before(age(0, 1, 0, 0), now),
            seconds("20240229120000")
        );
        assert_eq!(
            so_long_before(age(0, 0, 1, 1), now),
            seconds("20240323120000")
        );
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_bad_one_is_not() {
        let (directory, rules) = rules("a)/ - {\"access\": \"block\"}\n");
        let path = directory.path().join("rules.aclj");
        assert_eq!(access(&rules, "a)/", None, "2026"), AccessRule::Block);
        fs::write(&path, "a)/ - {\"access\": \"exclude\"}\n\n").unwrap();
        assert_eq!(access(&rules, "a)/", None, "2026"), AccessRule::Exclude);
        for bad in [
            "a)/ nonsense",
            "a)/ - {\"access\": \"perhaps\"}",
            "a)/ - {\"access\": \"block\", \"before\": \"x\"}",
        ] {
            fs::write(&path, bad).unwrap();
            assert_eq!(access(&rules, "a)/", None, "2026"), AccessRule::Exclude);
            let error =
                AccessRules::open(vec![path.clone()], AccessRule::Allow, Embargo::None).err();
            assert!(error.unwrap().to_string().contains("rules.aclj:1: "));
        }
        // A directory in its place cannot be read either.
        let path = directory.path().to_owned();
        let elsewhere = AccessRules::open(vec![path], AccessRule::Allow, Embargo::None);
        assert!(matches!(elsewhere, Err(RulesError::Read { .. })));
    }

    #[test]
    fn an_embargo_keeps_what_it_names_and_a_rule_may_lift_it() {
        let (_directory, mut rules) = rules(
            "a)/ - {\"access\": \"allow\"}\n\
             b)/ - {\"access\": \"allow_ignore_embargo\"}\n\
             c)/ - {\"access\": \"block\"}\n\
             d)/ - {\"access\": \"allow_ignore_embargo\", \"user\": \"staff\"}\n",
        );
        for (embargo, shown, kept) in [
            ("before 2020", "2020", "2019"),
            ("after 2020", "2020", "2021"),
            ("older 6 months", "2999", "1999"),
            ("newer 6 months", "1999", "2999"),
        ] {
            rules.embargo = embargo.parse().unwrap();
            let at = |key: &str, time: &str| access(&rules, key, None, time);
            assert_eq!(at("a)/", shown), AccessRule::Allow, "{embargo}");
            assert_eq!(at("a)/", kept), AccessRule::Exclude, "{embargo}");
            assert_eq!(at("b)/", kept), AccessRule::Allow, "{embargo}");
            assert_eq!(at("c)/", shown), AccessRule::Block, "{embargo}");
            assert_eq!(at("c)/", kept), AccessRule::Exclude, "{embargo}");
            assert_eq!(at("d)/", kept), AccessRule::Exclude, "{embargo}");
            let staff = access(&rules, "d)/", Some("staff"), kept);
            assert_eq!(staff, AccessRule::Allow, "{embargo}");
            let line = format!("a)/ {kept} {{}}");
            assert_eq!(
                rules.keeps_from(line.as_bytes(), &reader(None)),
                Some(format!("access.embargo = \"{embargo}\""))
            );
        }
    }

    #[test]
    fn of_several_users_the_readers_own_counts_before_that_of_the_place() {
        let (_directory, rules) = rules(
            "a)/ - {\"access\": \"block\"}\n\
             a)/ - {\"access\": \"allow\", \"user\": \"room\"}\n\
             a)/ - {\"access\": \"exclude\", \"user\": \"child\"}\n",
        );
        let told = |users: &[&str]| {
            let reader = Reader {
                users: users.iter().map(ToString::to_string).collect(),
                ..Reader::default()
            };
            let moment = Moment::first_of("2026").unwrap();
            let access = rules.of_key(b"a)/", &reader);
            (access.at(moment), access.reason(moment))
        };
        let says = |line: usize| format!("rules.aclj:{line}: a)/");
        assert_eq!(told(&["child", "room"]), (AccessRule::Exclude, says(3)));
        assert_eq!(told(&["keeper", "room"]), (AccessRule::Allow, says(2)));
        assert_eq!(told(&[]), (AccessRule::Block, says(1)));
    }
}
