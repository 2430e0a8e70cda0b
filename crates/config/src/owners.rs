//! Things that one host at a time may write, whatever carries the parcels: files that several stages share.
//!
//! With servers between hosts, the host that has such a thing owns it by a lease in the store; the stages of other hosts that
//! need it stand by. The stages of one thing go together: whoever owns it does all that is to be done with it.

use crate::pipeline::base_of;

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

    /// Returns what a stage needs, if it needs something that one host owns.
    pub fn of_stage(stage: &str) -> Option<Self> {
        let base = base_of(stage);
        let mut all = Self::ALL.into_iter();
        all.find(|thing| thing.stages().contains(&base))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_needs_one_thing_or_none() {
        for thing in OwnedThing::ALL {
            for stage in thing.stages() {
                assert_eq!(OwnedThing::of_stage(stage), Some(thing));
                assert_eq!(OwnedThing::of_stage(&format!("{stage}@beta")), Some(thing));
            }
        }
        for stage in ["index", "index@alpha", "dns-filter", "preload", "one"] {
            assert_eq!(OwnedThing::of_stage(stage), None, "{stage}");
        }
    }
}
