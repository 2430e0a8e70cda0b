//! What the archive's files are like, as the manifest knows it: what `status` and `check` tell of them.

use ecluse_manifest::{Frozen, Manifest, ManifestError};
use serde::Serialize;

use crate::desk::Desk;
use crate::survey::Need;

/// The archive's files at one moment.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Holdings {
    /// Files of which something could not be read.
    pub(crate) damaged: u64,
    /// Why nothing is removed, if so.
    pub(crate) frozen: Option<Frozen>,
}

impl Desk {
    /// Asks the manifest. One that cannot be read shows elsewhere: its stages are halted.
    pub(crate) fn holdings(&self) -> Holdings {
        let path = crate::verify::manifest_path(self);
        if !path.exists() {
            return Holdings::default();
        }
        let ask = || -> Result<Holdings, ManifestError> {
            let manifest = Manifest::open_to_read(&path)?;
            Ok(Holdings {
                damaged: manifest.damaged()?,
                frozen: manifest.frozen()?,
            })
        };
        ask().unwrap_or_default()
    }
}

impl Holdings {
    /// Returns what a person has to look at.
    pub(crate) fn needs(&self, desk: &Desk) -> Vec<Need> {
        let mut needs = Vec::new();
        if let Some(frozen) = &self.frozen {
            needs.push(Need {
                stage: "delete".into(),
                parcel: None,
                what: format!("nothing is removed since {}: {}", frozen.since, frozen.why),
                command: desk.command("verify --release --why \"…\""),
            });
        }
        needs
    }

    /// Returns the line of `status` that tells of damaged files; nothing where there are none.
    pub(crate) fn damage_line(&self, desk: &Desk) -> String {
        let files = match self.damaged {
            0 => return String::new(),
            1 => "1 damaged file".to_owned(),
            files => format!("{files} damaged files"),
        };
        format!(
            "  {files}, kept as they came: {}\n\n",
            desk.command("find damaged")
        )
    }
}
