//! Whether a domain belongs to the nation's web: several criteria, each with its evidence, weighed and added up.
//!
//! No criterion decides alone: half of a nation's documents are outside its top-level domain, and most of its servers may stand
//! abroad. What librarians force in or out is asked before all of this.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ecluse_register::Countries;
use serde::{Deserialize, Serialize};

use crate::news::LINKING;
use crate::record_view::RecordView;

/// So many of the sites that link to one are shown.
const SHOWN: usize = 3;

/// What `[stage.plan.perimeter]` may say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PerimeterSettings {
    /// So many points make a domain part of it; 0: everything is.
    pub threshold: u32,
    /// The last labels that count, and what they are worth.
    pub tlds: Vec<String>,
    /// What such a label is worth.
    pub tld: u32,
    /// The countries in which an address counts.
    pub countries: Vec<String>,
    /// An mmdb file that knows in which country an address is; empty for none.
    pub country_file: PathBuf,
    /// What such an address is worth.
    pub address: u32,
    /// The languages that count.
    pub languages: Vec<String>,
    /// What such a language is worth.
    pub language: u32,
    /// From how many sites inside a domain must be linked.
    pub links: u64,
    /// What that is worth.
    pub linked: u32,
    /// The sources that count.
    pub lists: Vec<String>,
    /// What being on one of them is worth.
    pub list: u32,
    /// The media types that are wanted: `text/html`, `image/*`.
    pub media_types: Vec<String>,
    /// What having one is worth.
    pub media: u32,
}

/// The perimeter, ready to be asked.
pub struct Perimeter {
    settings: PerimeterSettings,
    countries: Option<Countries>,
}

/// What the criteria come to for one domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PerimeterScore {
    /// Each criterion that is worth something.
    pub criteria: Vec<CriterionScore>,
    /// What they add up to.
    pub points: u32,
    /// How much is needed.
    pub threshold: u32,
}

/// What one criterion says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CriterionScore {
    /// Its name in the settings.
    pub criterion: &'static str,
    /// What it gives.
    pub points: u32,
    /// What it could give.
    pub of: u32,
    /// What is known.
    pub evidence: String,
}

impl PerimeterScore {
    /// Tells whether the domain is inside.
    pub fn is_inside(&self) -> bool {
        self.points >= self.threshold
    }
}

impl PerimeterSettings {
    /// Returns the criteria with what they are worth.
    fn weights(&self) -> [(&'static str, u32); 6] {
        [
            ("tld", self.tld),
            ("address", self.address),
            ("language", self.language),
            ("linked", self.linked),
            ("list", self.list),
            ("media", self.media),
        ]
    }

    /// Returns what is wrong, with the key.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.threshold == 0 {
            return faults;
        }
        let weights = self.weights();
        for (key, weight) in weights {
            if weight >= self.threshold {
                faults.push((
                    key,
                    format!(
                        "{weight} points would decide alone, the threshold is {}",
                        self.threshold
                    ),
                ));
            }
        }
        let sum: u32 = weights.iter().map(|(_, weight)| *weight).sum();
        if sum < self.threshold {
            faults.push((
                "threshold",
                format!("no domain can have more than {sum} points"),
            ));
        }
        if self.linked > 0 && self.links > LINKING as u64 {
            faults.push((
                "links",
                format!("no more than {LINKING} sites that link to one are counted"),
            ));
        }
        if self.address > 0 && self.country_file.as_os_str().is_empty() {
            faults.push((
                "country-file",
                "is needed to tell where an address is".to_owned(),
            ));
        }
        faults
    }
}

impl Perimeter {
    /// Opens what it needs; relative paths begin at the root.
    ///
    /// # Errors
    /// When the file of countries cannot be read.
    pub fn open(settings: &PerimeterSettings, root: &Path) -> Result<Self, String> {
        let mut countries = None;
        if !settings.country_file.as_os_str().is_empty() {
            let path = root.join(&settings.country_file);
            countries = Some(Countries::open(&path)?);
        }
        Ok(Self {
            settings: settings.clone(),
            countries,
        })
    }

    /// Tells whether a domain is inside.
    pub fn is_inside(&self, record: &RecordView<'_>) -> bool {
        self.settings.threshold == 0 || self.score(record).is_inside()
    }

    /// Adds up what is known of a domain.
    pub fn score(&self, record: &RecordView<'_>) -> PerimeterScore {
        let settings = &self.settings;
        let mut criteria = Vec::new();
        for (criterion, of) in settings.weights() {
            if of == 0 {
                continue;
            }
            let (is_met, evidence) = match criterion {
                "tld" => self.tld(record),
                "address" => self.address(record),
                "language" => self.language(record),
                "linked" => self.linked(record),
                "list" => self.list(record),
                _ => self.media(record),
            };
            criteria.push(CriterionScore {
                criterion,
                points: if is_met { of } else { 0 },
                of,
                evidence,
            });
        }
        PerimeterScore {
            points: criteria.iter().map(|found| found.points).sum(),
            criteria,
            threshold: settings.threshold,
        }
    }

    fn tld(&self, record: &RecordView<'_>) -> (bool, String) {
        let label = record.domain.rsplit('.').next().unwrap_or_default();
        (
            self.settings.tlds.iter().any(|tld| tld == label),
            format!(".{label}"),
        )
    }

    fn address(&self, record: &RecordView<'_>) -> (bool, String) {
        let Some(countries) = &self.countries else {
            return (false, "no file of countries".to_owned());
        };
        let mut evidence = Vec::new();
        let mut is_met = false;
        for text in &record.more.addresses {
            let Ok(address) = text.parse::<IpAddr>() else {
                continue;
            };
            let country = countries.of(address).unwrap_or_else(|| "?".to_owned());
            is_met |= self.settings.countries.contains(&country);
            evidence.push(format!("{address} in {country}"));
        }
        (is_met, or_unknown(evidence.join(", ")))
    }

    fn language(&self, record: &RecordView<'_>) -> (bool, String) {
        let found = record.evidence("language");
        let is_met = found.is_some_and(|found| self.settings.languages.contains(&found.value));
        (is_met, told(found))
    }

    fn linked(&self, record: &RecordView<'_>) -> (bool, String) {
        let found = record.evidence("links");
        let links = found.and_then(|found| found.value.parse::<u64>().ok());
        let evidence = match found {
            Some(found) if !found.from.is_empty() => {
                let shown: Vec<&str> = found.from.iter().take(SHOWN).map(String::as_str).collect();
                let more = if found.from.len() > SHOWN {
                    ", …"
                } else {
                    ""
                };
                format!(
                    "from {} ({}{more}) on {}",
                    found.value,
                    shown.join(", "),
                    found.day
                )
            }
            found => told(found),
        };
        (
            links.is_some_and(|links| links >= self.settings.links.max(1)),
            evidence,
        )
    }

    fn list(&self, record: &RecordView<'_>) -> (bool, String) {
        let on: Vec<&str> = record.sources().collect();
        let is_met = on
            .iter()
            .any(|name| self.settings.lists.iter().any(|list| list == name));
        (is_met, or_unknown(on.join(", ")))
    }

    fn media(&self, record: &RecordView<'_>) -> (bool, String) {
        let found = record.evidence("media");
        let types = found.map_or("", |found| found.value.as_str()).split(',');
        let is_met = types.filter(|have| !have.is_empty()).any(|have| {
            let wanted = self.settings.media_types.iter();
            wanted.clone().any(|wanted| match wanted.strip_suffix('*') {
                Some(begin) => have.starts_with(begin),
                None => have == wanted,
            })
        });
        (is_met, told(found))
    }
}

fn told(found: Option<&crate::record_view::EvidenceView>) -> String {
    found.map_or("not known".to_owned(), |found| {
        format!("{} on {}", found.value, found.day)
    })
}

fn or_unknown(text: String) -> String {
    if text.is_empty() {
        "not known".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_criterion_decides_alone_and_what_nobody_can_reach_is_refused() {
        let good = PerimeterSettings {
            threshold: 3,
            tld: 2,
            language: 2,
            links: 1,
            ..PerimeterSettings::default()
        };
        assert_eq!(good.faults(), []);
        let faults = |change: fn(&mut PerimeterSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            let faults = settings.faults().into_iter();
            faults.map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(faults(|settings| settings.language = 3), ["language"]);
        assert_eq!(
            faults(|settings| settings.threshold = 2),
            ["tld", "language"]
        );
        assert_eq!(faults(|settings| settings.threshold = 5), ["threshold"]);
        assert_eq!(faults(|settings| settings.address = 1), ["country-file"]);
        let many = |settings: &mut PerimeterSettings| {
            (settings.linked, settings.links) = (1, LINKING as u64 + 1);
        };
        assert_eq!(faults(many), ["links"]);
        // Without a threshold everything is inside, whatever the weights are.
        assert_eq!(faults(|settings| settings.threshold = 0), [""; 0]);
    }
}
