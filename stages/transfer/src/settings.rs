//! What `[stage.transfer]` may say.

use ecluse_config::Free;
use serde::Deserialize;

use crate::layout::FolderLayout;

/// What `[stage.transfer]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Which location gets the next file.
    pub choose: Choose,
    /// Free space that stays in every location.
    pub leave_free: Free,
    /// The folder of a file in its location.
    pub layout: FolderLayout,
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
