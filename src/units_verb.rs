//! `ecluse units`: writes the systemd units for the stages of this pipeline.toml.

use std::fs;
use std::process::ExitCode;

use ecluse_stage::Exit;

use crate::cli::UnitsOptions;
use crate::desk::{Desk, Trouble};
use crate::units::{self, Options, Start, UnitPath, UnitStage};

pub(crate) fn units(desk: &Desk, asked: &UnitsOptions) -> Result<ExitCode, Trouble> {
    let path = |path: &std::path::Path| {
        let absolute = std::path::absolute(path)?;
        UnitPath::new(&absolute).map_err(|e| Trouble::new(Exit::Config, e))
    };
    let options = Options {
        root: path(&desk.root)?,
        programs: path(&asked.programs)?,
        config: desk.config.as_deref().map(path).transpose()?,
        start: if asked.path_units {
            Start::OnWork
        } else {
            Start::Resident
        },
    };
    let mut stages = Vec::new();
    for name in desk.pipeline.stage_names() {
        // A place where results are taken from is no program.
        let mut entries = desk.entries.iter();
        let Some(entry) = entries.find(|entry| entry.name == name) else {
            continue;
        };
        let mut stage = UnitStage::new(name).ok_or_else(|| {
            Trouble::new(
                Exit::Config,
                format!("{name:?} cannot be the name of a unit"),
            )
        })?;
        stage.grace = desk.pipeline.shell(name).grace.0;
        let root = std::path::absolute(&desk.root)?;
        for written in (entry.writes)(&desk.pipeline, &root) {
            stage.writable.push(path(&written)?);
        }
        stages.push(stage);
    }
    if stages.is_empty() {
        return Err(Trouble::new(
            Exit::Config,
            format!(
                "{}: no stage to write units for: name some in [chain] stages",
                desk.pipeline.file()
            ),
        ));
    }
    for (name, content) in units::render(&stages, &options) {
        let to = asked.out.join(&name);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&to, content).map_err(|e| {
            Trouble::new(Exit::Machine, format!("cannot write {}: {e}", to.display()))
        })?;
        desk.say(&format!("wrote {}", to.display()))?;
    }
    Ok(Exit::Done.into())
}
