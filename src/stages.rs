//! The stages this program holds.

use ecluse_stage::Entry;

/// Every shipped stage, in the order of the chain.
pub const ALL: &[Entry] = &[
    Entry::of::<ecluse_crawl::Crawl>(),
    Entry::of::<ecluse_ingest::Ingest>(),
    Entry::of::<ecluse_index::Index>(),
    Entry::of::<ecluse_transfer::Transfer>(),
    Entry::of::<ecluse_backup::Backup>(),
    Entry::of::<ecluse_delete::Delete>(),
    Entry::of::<ecluse_merge::Merge>(),
    Entry::of::<ecluse_bigmerge::Bigmerge>(),
    Entry::of::<ecluse_clean::Clean>(),
];

#[cfg(test)]
mod tests {
    use ecluse_config::Pipeline;

    use super::*;

    #[test]
    fn the_shipped_file_has_every_stage_in_order_and_every_key() {
        let shipped = Pipeline::default();
        let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(shipped.chain.stages, names);
        for entry in ALL {
            (entry.check)(&shipped).expect(entry.name);
        }
    }
}
