//! What `[stage.transfer]` may say.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};

use ecluse_config::Free;
use ecluse_stage::Failure;
use serde::Deserialize;

use crate::layout::Layout;

/// What `[stage.transfer]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Where files are stored.
    pub locations: Locations,
    /// Which location gets the next file.
    pub choose: Choose,
    /// Free space that stays in every location.
    pub leave_free: Free,
    /// The folder of a file in its location.
    pub layout: Layout,
    /// The manifest.
    pub manifest: PathBuf,
}

/// Where files are stored: at least one place, each with a name of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Location>")]
pub struct Locations(Vec<Location>);

impl Locations {
    /// Returns them as configured.
    pub fn as_slice(&self) -> &[Location] {
        &self.0
    }
}

/// One place where files are stored.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Location {
    /// What it is called in logs, receipts and the manifest.
    pub name: String,
    /// A directory. A relative path is below the root and is made; any other must be there, so that
    /// a disk that is not mounted is not mistaken for an empty one.
    pub path: PathBuf,
    /// Free space that stays here, instead of what the stage says.
    #[serde(default)]
    pub leave_free: Option<Free>,
}

/// Which location gets the next file, of those with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The first.
    FirstFit,
    /// The one with the most free space.
    MostFree,
    /// Each in its turn.
    RoundRobin,
}

impl TryFrom<Vec<Location>> for Locations {
    type Error = Failure;

    fn try_from(locations: Vec<Location>) -> Result<Self, Failure> {
        if locations.is_empty() {
            return Err(Failure::config("at least one location must be named"));
        }
        let mut names = BTreeSet::new();
        let mut paths = BTreeSet::new();
        for location in &locations {
            let name = &location.name;
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(Failure::config(format!(
                    "{name:?} is no name for a location"
                )));
            }
            let leaves_root = |step| matches!(step, Component::ParentDir);
            let path = location.path.display();
            if location.path.as_os_str().is_empty() || location.path.components().any(leaves_root) {
                return Err(Failure::config(format!(
                    "location {name} is at {path:?}: write a path without '..'"
                )));
            }
            if !names.insert(name) || !paths.insert(&location.path) {
                return Err(Failure::config(format!(
                    "location {name} at {path} is named twice"
                )));
            }
        }
        Ok(Self(locations))
    }
}
