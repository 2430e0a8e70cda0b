//! The freeze: a check found a copy that is not what it should be, and nothing is removed until a person has looked.

use ecluse_manifest::Manifest;
use ecluse_stage::Failure;

/// Returns when removals are allowed. Asked before a file is judged, and again before it goes: long reads lie between.
///
/// # Errors
/// Defers while the archive is frozen; halts when the manifest cannot be asked.
pub fn must_not_be_frozen(manifest: &Manifest) -> Result<(), Failure> {
    match manifest.frozen().map_err(Failure::halt)? {
        Some(frozen) => Err(Failure::defer(format!(
            "nothing is removed since {}: {}; `ecluse verify --release` lifts it",
            frozen.since, frozen.why
        ))),
        None => Ok(()),
    }
}
