//! Where a stage is at home: what it may know beside its own settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ecluse_config::{Archive, Pipeline, ShellSettings, Site};
use ecluse_spool::{Engine, WorkTree};
use ecluse_telemetry::Metrics;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::pool::nexts;

/// The surroundings of a stage.
#[derive(Clone)]
pub struct Home {
    /// What it is called here: `index`, or `index@alpha` on a machine of its own.
    pub stage: String,
    /// Everything lies under here.
    pub root: PathBuf,
    /// Whose archive this is.
    pub site: Site,
    /// Where the archive lies, as the settings say.
    pub archive: Archive,
    /// Where results go.
    pub next: Vec<String>,
    /// The earlier stages that results may go back to.
    pub back: Vec<String>,
    /// Which harvests have an index of their own: `stage.ingest.collections`, which plan must agree with.
    pub collections: Vec<HarvestCollection>,
    /// What the shell around it does.
    pub shell: ShellSettings,
    /// Where the parcels live.
    pub engine: Arc<dyn Engine>,
    /// The stage's figures.
    pub metrics: Metrics,
}

/// A collection with an index of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HarvestCollection {
    /// Its name: `index/<name>/current`.
    pub name: String,
    /// A pattern that its harvest ids match as a whole.
    pub harvests: String,
}

/// What others read of ingest's table.
#[derive(Deserialize)]
struct IngestView {
    #[serde(default)]
    collections: Vec<HarvestCollection>,
    /// Its other keys are its own.
    #[serde(flatten)]
    _more: BTreeMap<String, IgnoredAny>,
}

impl Home {
    /// Returns the surroundings of a stage under a root.
    pub fn of(pipeline: &Pipeline, stage: &str, root: &Path) -> Self {
        Self {
            stage: stage.to_owned(),
            root: root.to_owned(),
            site: pipeline.site.clone(),
            archive: pipeline.archive.clone(),
            next: nexts(pipeline, stage),
            back: pipeline.back_of(stage).to_vec(),
            // What is wrong with them ingest says itself.
            collections: pipeline
                .stage_settings("ingest")
                .map_or_else(|_| Vec::new(), |of: IngestView| of.collections),
            shell: pipeline.shell(stage),
            // Whoever only checks settings touches nothing; the shell puts the engine in its place.
            engine: Arc::new(WorkTree::open(&root.join("work"))),
            metrics: Metrics::new(stage),
        }
    }

    /// Returns a path of the settings: relative ones begin at the root.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> PathBuf {
        self.path(&self.archive.manifest)
    }

    /// Returns the directory of the manifest: a database makes files beside itself.
    pub fn manifest_directory(&self) -> PathBuf {
        let path = self.manifest();
        path.parent()
            .map_or_else(|| self.root.clone(), Path::to_owned)
    }

    /// Returns the directory of the indexes.
    pub fn index(&self) -> PathBuf {
        self.path(&self.archive.index)
    }

    /// Returns the directory of the packages.
    pub fn packages(&self) -> PathBuf {
        self.path(&self.archive.packages)
    }

    /// Returns the directory of what is known of the changes of pages.
    pub fn changes(&self) -> PathBuf {
        self.path(&self.archive.changes)
    }

    /// Returns the directory of the register.
    pub fn register(&self) -> PathBuf {
        self.path(&self.archive.register)
    }

    /// Returns the directory of links and ranks.
    pub fn links(&self) -> PathBuf {
        self.path(&self.archive.links)
    }

    /// Returns the harvested directories.
    pub fn harvested(&self) -> Vec<PathBuf> {
        let paths = self.archive.harvested.iter();
        paths.map(|path| self.path(path)).collect()
    }

    /// Returns where temporary files of this stage may be made: on this machine, beside its parcels.
    pub fn temporary(&self) -> PathBuf {
        self.engine.temporary(&self.stage)
    }
}
