//! The check of a storage root: what it declares, and every object in it.

use std::fs;
use std::path::{Path, PathBuf};

use ecluse_bag::{ValidateError, ValidateOptions};
use serde_json::Value;

use crate::fault::{OcflFault, OcflReport};
use crate::object::validate_object;
use crate::{ROOT, SPECS, is_object};

/// What was found of a storage root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootReport {
    /// The version of the specification that it declares.
    pub spec: String,
    /// What is wrong with the root itself.
    pub faults: Vec<OcflFault>,
    /// Its objects, by their paths below it.
    pub objects: Vec<(PathBuf, OcflReport)>,
}

impl RootReport {
    /// Tells whether the root and all its objects are valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.faults.is_empty() && self.objects.iter().all(|(_, object)| object.is_valid())
    }

    fn fault(&mut self, code: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.faults.push(OcflFault { code, text });
    }
}

/// Checks a storage root and all objects in it.
///
/// # Errors
/// As [`validate_object`].
pub fn validate_root(
    root: &Path,
    options: ValidateOptions,
    going: &(dyn Fn(u64) -> bool + Sync),
) -> Result<RootReport, ValidateError> {
    let mut report = RootReport::default();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ValidateError::Io { path, source }
    };
    let mut spec = 0;
    let mut declarations = 0;
    let mut directories = Vec::new();
    for entry in fs::read_dir(root).map_err(at(root))? {
        let entry = entry.map_err(at(root))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(at(root))?;
        if kind.is_dir() {
            match name.as_str() {
                "extensions" => check_extensions(&entry.path(), &mut report).map_err(at(root))?,
                _ => directories.push(entry.path()),
            }
            continue;
        }
        let known = SPECS
            .iter()
            .position(|spec| name == format!("0={ROOT}{spec}"));
        if let Some(known) = known {
            declarations += 1;
            spec = known;
            report.spec = SPECS[known].to_owned();
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if text != format!("{ROOT}{}\n", SPECS[known]) {
                report.fault("E080", format!("{name} says something else than its name"));
            }
        } else if name == "ocfl_layout.json" {
            check_layout(&entry.path(), &mut report);
        }
    }
    if declarations != 1 {
        report.fault(
            "E069",
            format!("there are {declarations} declarations, 0=ocfl_…"),
        );
    }
    while let Some(directory) = directories.pop() {
        if is_object(&directory) {
            let object = validate_object(&directory, options, going)?;
            let below = directory
                .strip_prefix(root)
                .unwrap_or(&directory)
                .to_owned();
            let is_later =
                declarations > 0 && SPECS.iter().position(|spec| object.spec == *spec) > Some(spec);
            if is_later {
                report.fault(
                    "E081",
                    format!("{} is of a later specification", below.display()),
                );
            }
            report.objects.push((below, object));
            continue;
        }
        let shown = directory
            .strip_prefix(root)
            .unwrap_or(&directory)
            .display()
            .to_string();
        let mut is_empty = true;
        for entry in fs::read_dir(&directory).map_err(at(&directory))? {
            let entry = entry.map_err(at(&directory))?;
            is_empty = false;
            match entry.file_type().map_err(at(&directory))?.is_dir() {
                true => directories.push(entry.path()),
                false => {
                    report.fault("E072", format!("{shown} is no object and holds files"));
                    break;
                }
            }
        }
        if is_empty {
            report.fault("E073", format!("{shown} is empty"));
        }
    }
    report
        .objects
        .sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(report)
}

fn check_layout(path: &Path, report: &mut RootReport) {
    let value = fs::read(path).ok();
    let value: Option<Value> = value.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let has = |key: &str| {
        let field = value.as_ref().and_then(|value| value.get(key));
        field.is_some_and(Value::is_string)
    };
    if !has("extension") || !has("description") {
        report.fault(
            "E070",
            "ocfl_layout.json does not name an extension and describe it",
        );
    }
}

fn check_extensions(path: &Path, report: &mut RootReport) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            report.fault("E112", format!("extensions/{name} is no directory"));
        }
    }
    Ok(())
}
