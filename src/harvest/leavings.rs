//! Files of a harvest that the crawl has closed and nobody has taken in yet.
//!
//! Between the crawl and ingest there is no parcel, only a directory: for a moment the chain looks still although a file waits.

use std::path::PathBuf;

use ecluse_manifest::Manifest;

use super::run::HarvestRun;
use crate::context::{DriverContext, Trouble};

/// Where to look, and for what.
#[derive(Debug, Clone)]
pub(crate) struct Leavings {
    harvested: PathBuf,
    manifest: PathBuf,
    root: PathBuf,
    mark: String,
}

impl Leavings {
    /// Looks for files of a harvest.
    pub(crate) fn of(context: &DriverContext, run: &HarvestRun) -> Result<Self, Trouble> {
        Ok(Self {
            harvested: context.root.join(context.pipeline.archive.crawled()),
            manifest: crate::verify::manifest_path(context),
            root: context.root.clone(),
            mark: format!("{}-", run.name()),
        })
    }

    /// Tells whether there is one.
    pub(crate) fn any(&self) -> Result<bool, Trouble> {
        let mut closed = Vec::new();
        for entry in std::fs::read_dir(&self.harvested)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_closed = name.ends_with(".warc.gz") || name.ends_with(".warc");
            if is_closed && !name.starts_with('.') && name.contains(&self.mark) {
                closed.push(name);
            }
        }
        if closed.is_empty() {
            return Ok(false);
        }
        let manifest = Manifest::open(&self.manifest, &self.root)?;
        for name in closed {
            if manifest.file(&name)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
