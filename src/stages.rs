//! The stages this program holds.

use ecluse_stage::StageEntry;

/// Every shipped stage, in the order of the chain.
pub const ALL: &[StageEntry] = &[
    StageEntry::of::<ecluse_preload::Preload>(),
    StageEntry::of::<ecluse_dns_filter::DnsFilter>(),
    StageEntry::of::<ecluse_plan::Plan>(),
    StageEntry::of::<ecluse_crawl::Crawl>(),
    StageEntry::of::<ecluse_ingest::Ingest>(),
    StageEntry::of::<ecluse_index::Index>(),
    StageEntry::of::<ecluse_transfer::Transfer>(),
    StageEntry::of::<ecluse_backup::Backup>(),
    StageEntry::of::<ecluse_delete::Delete>(),
    StageEntry::of::<ecluse_merge::Merge>(),
    StageEntry::of::<ecluse_bigmerge::Bigmerge>(),
    StageEntry::of::<ecluse_clean::Clean>(),
    StageEntry::of::<ecluse_package::Package>(),
    StageEntry::of::<ecluse_deposit::Deposit>(),
    StageEntry::of::<ecluse_rank::Rank>(),
    StageEntry::of::<ecluse_change::ChangeStage>(),
    StageEntry::of::<ecluse_range::RangeStage>(),
];

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use ecluse_config::Pipeline;

    use super::*;

    #[test]
    fn the_shipped_file_has_every_stage_in_order_and_every_key() {
        let shipped = Pipeline::default();
        let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(shipped.chain.stages, names);
        for entry in ALL {
            let root = tempfile::tempdir().unwrap();
            assert_eq!((entry.check)(&shipped, root.path()), [], "{}", entry.name);
        }
    }

    /// What the stages say of a text of settings, in order.
    fn complaints(text: &str, root: &Path) -> Vec<String> {
        let pipeline = Pipeline::parse(text, "pipeline.toml").unwrap();
        let checked = ALL.iter().map(|entry| (entry.check)(&pipeline, root));
        let mut lines: Vec<String> = checked.flatten().map(|p| p.to_string()).collect();
        lines.sort();
        lines.dedup();
        lines
    }

    #[test]
    fn what_a_stage_would_stumble_over_is_said_with_its_line_and_key() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("key"), "k").unwrap();
        std::fs::write(at("secret"), "s").unwrap();
        std::fs::set_permissions(at("secret"), Permissions::from_mode(0o644)).unwrap();
        std::fs::write(at("no-program"), "").unwrap();
        let text = format!(
            r#"[archive]
harvested = ["harvested", "/nowhere/harvested"]
manifest = "db/manifest.sqlite"
repository = [
  {{ name = "a", path = "a" }},
  {{ name = "b", path = "/nowhere/b" }},
]
[stage.ingest]
names = ["(", '(?<job>\d+)']
collections = [{{ name = "current", harvests = "[" }}]
[stage.backup]
targets = [
  {{ name = "same", kind = "directory", path = "a" }},
  {{ name = "tape", kind = "command", command = ["{}"] }},
  {{ name = "shop", kind = "s3", endpoint = "https://s3.example.org", bucket = "b", key-file = "no-key", secret-file = "secret" }},
]
[chain]
stages = ["crawl", "ingest", "index", "transfer", "backup", "delete", "merge"]
"#,
            at("no-program").display()
        );
        let said = complaints(&text, root.path());
        for (line, key, words) in [
            (2, "archive.harvested[1]", "no directory /nowhere/harvested"),
            (3, "archive.manifest", "no directory"),
            (6, "archive.repository[1].path", "no directory /nowhere/b"),
            (9, "stage.ingest.names[0]", "bad pattern"),
            (10, "stage.ingest.collections[0].harvests", "bad pattern"),
            (
                10,
                "stage.ingest.collections[0].name",
                "cannot name an index",
            ),
            (
                13,
                "stage.backup.targets[0].path",
                "is the same directory as",
            ),
            (14, "stage.backup.targets[1].command", "no program"),
            (15, "stage.backup.targets[2].key-file", "cannot read"),
            (15, "stage.backup.targets[2].secret-file", "mode 644"),
        ] {
            let begins = [
                format!("pipeline.toml:{line}: '{key}': "),
                format!("pipeline.toml:{line}: warning: '{key}': "),
            ];
            let is_it = |said: &&String| begins.iter().any(|begin| said.starts_with(begin));
            let found = said.iter().find(is_it);
            assert!(
                found.is_some_and(|line| line.contains(words)),
                "{key}: {said:#?}"
            );
        }
        // Merge has nothing after it in this chain.
        assert!(said.iter().any(|line| line.contains("'stage.merge.next'")));
        assert_eq!(said.len(), 11, "{said:#?}");
    }
}
