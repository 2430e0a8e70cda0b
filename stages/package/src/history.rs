//! What the receipts tell of a file on its way through the chain.

use ecluse_manifest::Damage;
use ecluse_spool::{Engine, ParcelId, Receipt};
use ecluse_stage::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::SeenFacts;

/// The steps of one file, and what the index pass counted in it. The package has it too: an archive that came back from its
/// packages has no other.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FileHistory {
    pub(crate) steps: Vec<Step>,
    pub(crate) seen: SeenFacts,
}

/// One receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) deed: Deed,
    pub(crate) at: String,
    pub(crate) version: String,
    /// What was learned: where to, or what was wrong.
    pub(crate) outcome: String,
}

/// What a stage did to a file, as PREMIS calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Deed {
    Digest,
    Validation,
    Transfer,
    Replication,
    Deletion,
}

impl Deed {
    const ALL: [(&'static str, Self); 5] = [
        ("ingest", Self::Digest),
        ("index", Self::Validation),
        ("transfer", Self::Transfer),
        ("backup", Self::Replication),
        ("delete", Self::Deletion),
    ];

    pub(crate) fn stage(self) -> &'static str {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, deed)| *deed == self);
        found.map_or("", |(stage, _)| stage)
    }
}

/// The stages of this archive that have receipts of files: those of the chain, each machine's own.
pub(crate) struct FileReceipts<'a> {
    engine: &'a dyn Engine,
    stages: Vec<(String, Deed)>,
}

impl<'a> FileReceipts<'a> {
    pub(crate) fn of(engine: &'a dyn Engine) -> Result<Self, Failure> {
        let mut stages = Vec::new();
        for name in engine.stages()? {
            let base = name.split('@').next().unwrap_or(&name);
            let deed = Deed::ALL.iter().find(|(stage, _)| *stage == base);
            if let Some((_, deed)) = deed {
                stages.push((name.clone(), *deed));
            }
        }
        Ok(Self { engine, stages })
    }

    /// Returns the steps of the file that went through the chain as this parcel.
    pub(crate) fn of_parcel(&self, parcel: &str) -> Result<FileHistory, Failure> {
        let mut history = FileHistory::default();
        let Ok(id) = ParcelId::new(parcel) else {
            return Ok(history);
        };
        for (stage, deed) in &self.stages {
            let Some(filed) = self.engine.receipt(stage, &id)? else {
                continue;
            };
            let receipt = filed.receipt;
            if *deed == Deed::Validation {
                history.seen = seen(&receipt);
            }
            history.steps.push(Step {
                deed: *deed,
                outcome: outcome(*deed, &receipt),
                at: receipt.finished,
                version: receipt.version,
            });
        }
        history
            .steps
            .sort_by(|one, other| (one.deed, &one.at).cmp(&(other.deed, &other.at)));
        Ok(history)
    }
}

fn seen(receipt: &Receipt) -> SeenFacts {
    let seen = receipt.facts.get("seen").cloned().unwrap_or(Value::Null);
    let mut seen: SeenFacts = serde_json::from_value(seen).unwrap_or_default();
    let records = receipt.facts.get("records").and_then(Value::as_u64);
    seen.records = records.unwrap_or(0);
    seen
}

fn outcome(deed: Deed, receipt: &Receipt) -> String {
    let names = |key: &str| -> String {
        let names = receipt.facts.get(key).and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names.collect::<Vec<&str>>().join(", ")
    };
    match deed {
        Deed::Digest => match receipt.facts.contains_key("sha512") {
            true => "SHA-256, SHA-512".into(),
            false => "SHA-256".into(),
        },
        Deed::Validation => match receipt.facts.get("damages").and_then(Value::as_u64) {
            None | Some(0) => "every record can be read".into(),
            // One by one, as they are this file's own.
            Some(count) => {
                let told = receipt.facts.get("damage").cloned().unwrap_or(Value::Null);
                let told: Vec<Damage> = serde_json::from_value(told).unwrap_or_default();
                let told: Vec<String> = told.iter().map(ToString::to_string).collect();
                format!("{count} places cannot be read: {}", told.join("; "))
            }
        },
        Deed::Transfer => format!("to {}", names("locations")),
        Deed::Replication => format!("to {}", names("backups")),
        Deed::Deletion => {
            "the working copy; stored copy and backups were read or proved before".into()
        }
    }
}
