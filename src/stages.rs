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
