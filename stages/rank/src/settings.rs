//! `[stage.rank]`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use ecluse_config::Bytes;
use ecluse_links::{LinkKind, SLICE_PAGES};
use serde::Deserialize;

use crate::sweep::DanglingRule;

/// What `[stage.rank]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// How many generations stay.
    pub keep: NonZeroU32,
    /// The kinds of links that count.
    pub kinds: Vec<KindName>,
    /// How many URLs a slice has.
    pub slice: NonZeroU32,
    /// Threads of a sweep.
    pub threads: NonZeroU32,
    /// Memory for merging and sorting.
    pub memory: Bytes,
    /// The part of its rank that a page passes on.
    pub damping: f64,
    /// What becomes of the rank of pages that link to nothing.
    pub dangling: DanglingRule,
    /// How interest is computed.
    pub interest: InterestForm,
    /// Sweeps end when ranks are this close to their end.
    pub tolerance: f64,
    /// But there are no more of them than this.
    pub sweeps: NonZeroU32,
    /// How often a sweep goes through the links inside of a slice.
    pub inner: NonZeroU32,
    /// What is relevant.
    pub perimeter: RelevanceSettings,
}

/// `[stage.rank.perimeter]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RelevanceSettings {
    /// A file of domains and URLs that are relevant; may be missing.
    pub seeds: PathBuf,
    /// What a seed is worth.
    pub seed: f64,
    /// Last labels.
    pub tlds: Vec<String>,
    /// What one of these is worth.
    pub tld: f64,
    /// What any other is worth.
    pub foreign: f64,
    /// Languages, by two letters, that count.
    pub languages: Vec<String>,
    /// What a page in such a language is worth: its share of words of the list of change, or else that of its site's language.
    pub language: f64,
    /// Countries, by two letters, in which an address counts.
    pub countries: Vec<String>,
    /// A file that knows in which country an address is; empty for none.
    pub country_file: PathBuf,
    /// What a site with such an address is worth.
    pub address: f64,
    /// Over which links relevance goes.
    pub direction: RelevanceDirection,
    /// What is left of it after one link.
    pub decay: f64,
}

impl RelevanceSettings {
    /// Tells whether what is known of sites counts.
    pub(crate) fn asks_sites(&self) -> bool {
        self.language != 0.0 || self.address != 0.0
    }
}

/// Over which links relevance goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelevanceDirection {
    /// A page is as relevant as what it links to.
    Out,
    /// A page is as relevant as what links to it.
    In,
    /// Both together.
    #[default]
    Both,
}

/// How interest is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterestForm {
    /// A page has a part of the interest of each page it links to.
    Sum,
    /// The mean of them, for comparison.
    Mean,
}

/// The name of a kind of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// A reader follows it.
    A,
    /// Embedded.
    Embed,
    /// Redirect.
    Redirect,
    /// Canonical.
    Canonical,
}

impl KindName {
    fn kind(self) -> LinkKind {
        match self {
            Self::A => LinkKind::Anchor,
            Self::Embed => LinkKind::Embed,
            Self::Redirect => LinkKind::Redirect,
            Self::Canonical => LinkKind::Canonical,
        }
    }
}

impl Settings {
    pub(crate) fn memory_bytes(&self) -> usize {
        usize::try_from(self.memory.0).unwrap_or(usize::MAX)
    }

    /// Tells whether links of a kind count.
    pub(crate) fn counts(&self, kind: LinkKind) -> bool {
        self.kinds.iter().any(|name| name.kind() == kind)
    }

    /// Returns what is wrong, with the key.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.slice.get() > SLICE_PAGES {
            let message = format!("a slice has at most {SLICE_PAGES} URLs");
            faults.push(("stage.rank.slice", message));
        }
        if !(0.0..1.0).contains(&self.damping) {
            let message = "the damping is at least 0 and below 1".to_owned();
            faults.push(("stage.rank.damping", message));
        }
        if self.tolerance.is_nan() || self.tolerance <= 0.0 {
            let message = "the tolerance is above 0".to_owned();
            faults.push(("stage.rank.tolerance", message));
        }
        if !(0.0..1.0).contains(&self.perimeter.decay) {
            let message = "the decay is at least 0 and below 1".to_owned();
            faults.push(("stage.rank.perimeter.decay", message));
        }
        if self.perimeter.address != 0.0 && self.perimeter.country_file.as_os_str().is_empty() {
            let message = "is needed to tell where an address is".to_owned();
            faults.push(("stage.rank.perimeter.country-file", message));
        }
        faults
    }
}
