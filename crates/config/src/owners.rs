//! Things that one host at a time may write, whatever carries the parcels: files that several stages share.
//!
//! With servers between hosts, the host that has such a thing owns it by a lease in the store; the stages of other hosts that
//! need it stand by. The stages of one thing go together: whoever owns it does all that is to be done with it. A copy of the
//! crawl has jobs of its own, on the disk of its host: `jobs@beta` is another thing than `jobs@alpha`.

use std::fmt;

/// What one host owns at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnedThing {
    /// The manifest, and what is told in it: stored files, the index, packages.
    Manifest,
    /// The register of domains.
    Register,
    /// Jobs of the crawl, their files, and the table of turns at servers.
    Jobs,
    /// Links and ranks.
    Links,
    /// What is known of the changes of pages.
    Changes,
}

impl OwnedThing {
    /// All of them.
    pub const ALL: [OwnedThing; 5] = [
        OwnedThing::Manifest,
        OwnedThing::Register,
        OwnedThing::Jobs,
        OwnedThing::Links,
        OwnedThing::Changes,
    ];

    /// Returns what it is called, in the store and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Register => "register",
            Self::Jobs => "jobs",
            Self::Links => "links",
            Self::Changes => "changes",
        }
    }

    /// Returns the stages that need it.
    pub const fn stages(self) -> &'static [&'static str] {
        match self {
            Self::Manifest => &[
                "ingest", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package",
                "deposit",
            ],
            Self::Register => &["plan"],
            Self::Jobs => &["crawl"],
            Self::Links => &["rank"],
            Self::Changes => &["change"],
        }
    }

    /// Returns the keys of the settings that say where it lies: every host that may own it must reach these places.
    pub const fn places(self) -> &'static str {
        match self {
            Self::Manifest => {
                "archive.manifest, archive.harvested, archive.repository, archive.index and archive.packages"
            }
            Self::Register => "archive.register and its runs",
            Self::Jobs => "stage.crawl.jobs, stage.crawl.digests and archive.harvested",
            Self::Links => "archive.links",
            Self::Changes => "archive.changes",
        }
    }
}

/// What a stage needs that one host owns at a time: a thing that all of its stages share, or what one copy has for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owned {
    /// What kind of thing.
    pub thing: OwnedThing,
    /// The copy that has it for itself: `beta` of `crawl@beta`.
    pub copy: Option<String>,
}

impl Owned {
    /// Returns what a stage needs, if it needs something that one host owns.
    pub fn by_stage(stage: &str) -> Option<Self> {
        let (base, copy) = match stage.split_once('@') {
            Some((base, copy)) => (base, Some(copy)),
            None => (stage, None),
        };
        let mut all = OwnedThing::ALL.into_iter();
        let thing = all.find(|thing| thing.stages().contains(&base))?;
        match (base, copy) {
            // It only sends files to ingest, which tells the manifest.
            ("ingest", Some(_)) => None,
            ("crawl", Some(copy)) => Some(Self {
                thing,
                copy: Some(copy.to_owned()),
            }),
            _ => Some(Self { thing, copy: None }),
        }
    }
}

impl fmt::Display for Owned {
    /// Writes what it is called, in the store and in messages: `manifest`, `jobs@beta`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.thing.name())?;
        match &self.copy {
            Some(copy) => write!(f, "@{copy}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_needs_one_thing_or_none() {
        for thing in OwnedThing::ALL {
            for stage in thing.stages() {
                let owned = Owned::by_stage(stage).unwrap();
                assert_eq!((owned.thing, &owned.copy), (thing, &None));
                assert_eq!(owned.to_string(), thing.name());
            }
        }
        let shared = Owned::by_stage("merge").unwrap();
        assert_eq!(Owned::by_stage("merge@beta"), Some(shared));
        for stage in ["index", "index@alpha", "dns-filter", "preload", "one"] {
            assert_eq!(Owned::by_stage(stage), None, "{stage}");
        }
    }

    #[test]
    fn a_copy_of_the_crawl_has_jobs_of_its_own_and_one_of_ingest_needs_nothing() {
        let beta = Owned::by_stage("crawl@beta").unwrap();
        assert_eq!(beta.to_string(), "jobs@beta");
        assert_ne!(Owned::by_stage("crawl@gamma"), Some(beta.clone()));
        assert_ne!(Owned::by_stage("crawl"), Some(beta));
        assert_eq!(Owned::by_stage("ingest@beta"), None);
    }
}
