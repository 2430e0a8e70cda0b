//! `[stage.crawl]`: what holds for every job.

use std::path::PathBuf;

use ecluse_config::{Bytes, Span};
use serde::Deserialize;

/// What holds for every job of this stage.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Where jobs have their directories.
    pub jobs: PathBuf,
    /// The database of what finished jobs captured.
    pub digests: PathBuf,
    /// What librarians force out.
    pub forced: PathBuf,
    /// Threads of a job that look for links and pack; 0 for as many as there are cores.
    pub pack_threads: usize,
    /// How often what was fetched is made durable.
    pub commit: Span,
    /// Queues of a job in memory.
    pub active_queues: usize,
    /// Memory of a job's frontier.
    pub frontier_memory: Bytes,
}

impl Settings {
    /// The number of threads meant.
    pub(crate) fn threads(&self) -> usize {
        match self.pack_threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(16)),
            threads => threads,
        }
    }
}
