//! What makes a URL relevant by itself: the criterion vector of the perimeter.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::evidence::{PageText, SiteCriteria};
use crate::settings::RelevanceSettings;

/// What the settings and the librarians' seeds say of a URL.
pub(crate) struct Criteria {
    settings: RelevanceSettings,
    /// Keys of single URLs.
    urls: BTreeSet<String>,
    /// Keys of domains, without a path.
    domains: BTreeSet<String>,
    /// The last labels, as keys.
    tlds: BTreeSet<String>,
}

impl Criteria {
    /// Reads the seeds; a file that is not there has none.
    pub(crate) fn read(settings: &RelevanceSettings, seeds: Option<&Path>) -> io::Result<Self> {
        let text = match seeds.map(std::fs::read_to_string) {
            None => String::new(),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(text) => text?,
        };
        let (mut urls, mut domains) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.contains("://") {
                urls.extend(key_of(line));
            } else {
                domains.insert(ecluse_names::key_of(&line.to_ascii_lowercase()));
            }
        }
        Ok(Self {
            urls,
            domains,
            tlds: settings
                .tlds
                .iter()
                .map(|tld| tld.to_ascii_lowercase())
                .collect(),
            settings: settings.clone(),
        })
    }

    /// Tells whether any URL can be more relevant than another.
    pub(crate) fn is_empty(&self) -> bool {
        let is_listed = !self.urls.is_empty() || !self.domains.is_empty() || !self.tlds.is_empty();
        !is_listed && !self.asks_sites()
    }

    /// Tells whether what is known of sites counts.
    pub(crate) fn asks_sites(&self) -> bool {
        self.settings.asks_sites()
    }

    /// Returns what a page is worth by what others know of it and of its site.
    pub(crate) fn of_evidence(&self, text: PageText, site: SiteCriteria) -> f32 {
        let by_site = if site.is_in_language { 1.0 } else { 0.0 };
        let language = text.words.map_or(by_site, |words| words.share);
        let address = if site.is_in_country { 1.0 } else { 0.0 };
        (self.settings.language * language + self.settings.address * address) as f32
    }

    /// Tells whether a URL is a seed: its relevance is the maximum, whatever its links say.
    pub(crate) fn is_seed(&self, surt: &str) -> bool {
        if self.urls.contains(surt) {
            return true;
        }
        if self.domains.is_empty() {
            return false;
        }
        let host = host_of(surt);
        let ends = host.match_indices(',').map(|(at, _)| at);
        ends.chain([host.len()])
            .any(|end| self.domains.contains(&host[..end]))
    }

    /// Returns what the URL is worth by itself.
    pub(crate) fn of(&self, surt: &str) -> f32 {
        let mut worth = 0.0;
        if self.is_seed(surt) {
            worth += self.settings.seed;
        }
        if !self.tlds.is_empty() {
            let host = host_of(surt);
            let tld = host.split(',').next().unwrap_or(host);
            worth += match self.tlds.contains(tld) {
                true => self.settings.tld,
                false => self.settings.foreign,
            };
        }
        worth as f32
    }
}

/// Returns the host of a key, without its port.
pub(crate) fn host_of(surt: &str) -> &str {
    let host = surt.split(')').next().unwrap_or(surt);
    host.split(':').next().unwrap_or(host)
}

/// Returns the key of a URL, if it has one that may stand in a line of links.
pub(crate) fn key_of(url: &str) -> Option<String> {
    let mut key = Vec::new();
    ecluse_surt::surt(url.as_bytes(), &mut key).ok()?;
    let breaks_line = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if key.first().is_none_or(|byte| *byte < b'$') || key.iter().any(breaks_line) {
        return None;
    }
    String::from_utf8(key).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_last_labels_are_worth_something() {
        let directory = tempfile::tempdir().unwrap();
        let seeds = directory.path().join("seeds.txt");
        std::fs::write(&seeds, "# ours\nExample.FR\nhttps://b.com/x\n").unwrap();
        let settings = RelevanceSettings {
            tlds: vec!["fr".into()],
            tld: 1.0,
            foreign: -0.25,
            seed: 4.0,
            ..RelevanceSettings::default()
        };
        let criteria = Criteria::read(&settings, Some(&seeds)).unwrap();
        for (surt, worth) in [
            ("fr,example)/", 5.0),
            ("fr,example,blog:81)/x", 5.0),
            ("fr,example-2)/", 1.0),
            ("com,b)/x", 3.75),
            ("com,b)/", -0.25),
        ] {
            assert_eq!(criteria.of(surt), worth, "{surt}");
        }
        let missing = directory.path().join("none");
        let criteria = Criteria::read(&RelevanceSettings::default(), Some(&missing)).unwrap();
        assert!(criteria.is_empty());
    }
}
