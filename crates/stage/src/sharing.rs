//! Whether several hosts write the manifest on a file system that cannot bear it.
//!
//! The manifest is an SQLite database: its writers lock parts of one file, and each must see at once what another wrote.
//! File systems whose clients keep caches of their own can break that: GlusterFS with default caching did.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use ecluse_config::Pipeline;
use ecluse_spool::{Fs, Host, RealFs, WorkTree, WorkerId};

/// How the file system of the manifest is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestSharing {
    /// It is one machine's own.
    OneMachine,
    /// A server keeps the locks for all: NFS, CephFS, and what is not known.
    ByServer,
    /// Each client has caches of its own: FUSE, SMB.
    ByClients,
}

/// That several hosts write one manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharingTrouble {
    /// A file system of this kind has spoilt one.
    pub is_critical: bool,
    /// What is wrong, and what helps.
    pub what: String,
}

impl ManifestSharing {
    /// Looks at the file system of a directory.
    pub fn of(directory: &Path) -> Self {
        const CACHED: [u64; 4] = [
            0x6573_5546, // FUSE
            0x517b,      // SMB, and its two successors
            0xff53_4d42,
            0xfe53_4d42,
        ];
        let kind = rustix::fs::statfs(directory).map(|stat| (stat.f_type as u64) & 0xffff_ffff);
        match kind {
            _ if RealFs.is_one_machines(directory) => Self::OneMachine,
            Ok(kind) if CACHED.contains(&kind) => Self::ByClients,
            _ => Self::ByServer,
        }
    }

    /// Judges that workers of these hosts write a manifest there.
    pub fn judge(self, hosts: &BTreeSet<String>) -> Option<SharingTrouble> {
        let (is_critical, why) = match self {
            _ if hosts.len() < 2 => return None,
            Self::OneMachine => return None,
            Self::ByClients => (
                true,
                "a file system whose clients have caches of their own, which can spoil it",
            ),
            Self::ByServer => (
                false,
                "a network file system, where it is only as sound as the server's locks",
            ),
        };
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        Some(SharingTrouble {
            is_critical,
            what: format!(
                "the manifest is written by {} on {why}: run the stages from ingest to clean on one host; see docs/file-systems.md",
                hosts.join(", ")
            ),
        })
    }
}

/// Returns the hosts that have living workers in these stages.
pub fn hosts_at_work<'a>(
    tree: &WorkTree,
    pipeline: &Pipeline,
    stages: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let mut hosts = BTreeSet::new();
    for stage in stages {
        let lease = pipeline.shell(stage).lease.0;
        // A stage that cannot be looked at shows elsewhere.
        let workers = tree.workers(stage, lease).unwrap_or_default();
        let living = workers.into_iter().filter(|worker| worker.alive);
        let ids = living.filter_map(|worker| WorkerId::parse(OsStr::new(&worker.id)));
        hosts.extend(ids.map(|id| id.host().to_owned()));
    }
    hosts
}

/// Warns when a stage of this host is about to write a manifest together with those beside it in the chain on other hosts.
pub(crate) fn warn_of_sharing(tree: &WorkTree, pipeline: &Pipeline, stage: &str, manifest: &Path) {
    let is_beside = |other: &&str| {
        *other == stage
            || pipeline.next_of(stage).contains(other)
            || pipeline.next_of(other).contains(&stage)
    };
    let stages = tree.stages().unwrap_or_default();
    let stages = stages.iter().map(String::as_str).filter(is_beside);
    let mut hosts = hosts_at_work(tree, pipeline, stages);
    let this = WorkerId::new(&Host::this().name, "", 0, 0);
    hosts.insert(this.host().to_owned());
    if let Some(trouble) = ManifestSharing::of(manifest).judge(&hosts) {
        tracing::warn!("{}", trouble.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn several_hosts_may_not_write_one_manifest_over_a_network() {
        use ManifestSharing::{ByClients, ByServer, OneMachine};
        let judge = |kind: ManifestSharing, names: &[&str]| {
            kind.judge(&hosts(names)).map(|trouble| trouble.is_critical)
        };
        for kind in [OneMachine, ByServer, ByClients] {
            assert_eq!(judge(kind, &[]), None);
            assert_eq!(judge(kind, &["a"]), None);
        }
        // Two names of one machine, as containers have them.
        assert_eq!(judge(OneMachine, &["a", "b"]), None);
        assert_eq!(judge(ByServer, &["a", "b"]), Some(false));
        assert_eq!(judge(ByClients, &["a", "b"]), Some(true));
        let told = ByClients.judge(&hosts(&["alpha", "beta"])).unwrap().what;
        assert!(told.contains("by alpha, beta on"), "{told}");
        assert!(told.contains("on one host"), "{told}");
    }

    #[test]
    fn hosts_are_known_by_their_workers() {
        let dir = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(dir.path());
        let pipeline = Pipeline::load(None).unwrap();
        for (stage, worker) in [
            ("ingest", "alpha-01234567-1-00000001"),
            ("index@b", "beta-2-01234567-1-00000002"),
            ("crawl", "gamma-01234567-1-00000003"),
        ] {
            let home = tree.init(stage).unwrap().claim().join(worker);
            std::fs::create_dir(&home).unwrap();
            std::fs::write(home.join(".lease"), "{}").unwrap();
        }
        let stages = ["ingest", "index@b", "merge"].into_iter();
        let found = hosts_at_work(&tree, &pipeline, stages);
        assert_eq!(found, hosts(&["alpha", "beta-2"]));
        assert_eq!(
            ManifestSharing::of(Path::new("/proc/self")),
            ManifestSharing::ByServer
        );
    }
}
