//! All stages of a process in one exposition.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::family::{Exposition, Family, write_sample};
use crate::metrics::Metrics;

/// The figures of every stage in this process; a clone is the same registry.
#[derive(Clone, Debug)]
pub struct Registry {
    version: Arc<str>,
    stages: Arc<Mutex<Vec<Metrics>>>,
}

impl Registry {
    /// A registry without stages, of a program of this version.
    pub fn new(version: &str) -> Registry {
        Registry {
            version: version.into(),
            stages: Arc::default(),
        }
    }

    /// Returns a stage's figures; the same ones each time.
    pub fn stage(&self, stage: &str) -> Metrics {
        let mut stages = self.stages();
        if let Some(known) = stages.iter().find(|known| known.stage() == stage) {
            return known.clone();
        }
        let metrics = Metrics::new(stage);
        stages.push(metrics.clone());
        metrics
    }

    /// Adds figures that were made elsewhere; those of a stage it has already are replaced.
    pub fn add(&self, metrics: &Metrics) {
        let mut stages = self.stages();
        stages.retain(|known| known.stage() != metrics.stage());
        stages.push(metrics.clone());
    }

    /// Renders everything. OpenMetrics ends in `# EOF`, so that a cut is seen.
    pub fn render(&self, exposition: Exposition) -> String {
        let stages = self.stages().clone();
        let mut text = String::with_capacity(1_024 + 4_096 * stages.len());
        for family in Family::ALL {
            family.write_head(exposition, &mut text);
            if family == Family::Build {
                write_sample(&mut text, family.name(), &[("version", &self.version)], &1);
            }
            for stage in &stages {
                stage.write_samples(family, &mut text);
            }
        }
        if exposition == Exposition::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn stages(&self) -> MutexGuard<'_, Vec<Metrics>> {
        // A list of handles is never half changed; a panic elsewhere must not end the figures.
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
