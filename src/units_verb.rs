//! `ecluse units`: writes the systemd units for the stages of this pipeline.toml.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ecluse_config::Pipeline;
use ecluse_stage::{Entry, Exit};

use crate::cli::UnitsOptions;
use crate::desk::{Desk, Trouble};
use crate::units::{self, Options, Reach, Start, UnitPath, UnitStage};

pub(crate) fn units(desk: &Desk, asked: &UnitsOptions) -> Result<ExitCode, Trouble> {
    let root = std::path::absolute(&desk.root)?;
    let options = Options {
        root: unit_path(&root)?,
        programs: unit_path(&asked.programs)?,
        config: desk.config.as_deref().map(unit_path).transpose()?,
        start: if asked.path_units {
            Start::OnWork
        } else {
            Start::Resident
        },
    };
    let stages = stages_of(&desk.pipeline, desk.entries, &root)?;
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
        write(desk, &asked.out.join(&name), &content, "")?;
    }
    for (kind, content) in [
        ("sysusers.d", units::render_sysusers(&options)),
        ("tmpfiles.d", units::render_tmpfiles(&stages, &options)),
    ] {
        let to = asked.out.join(kind).join("ecluse.conf");
        write(
            desk,
            &to,
            &content,
            &format!("; it belongs into /etc/{kind}"),
        )?;
    }
    for name in stages.iter().map(UnitStage::name) {
        if name.contains('@') {
            desk.say(&format!(
                "on its machine alone: systemctl enable --now ecluse@{name}"
            ))?;
        }
    }
    Ok(Exit::Done.into())
}

fn write(desk: &Desk, to: &Path, content: &str, note: &str) -> Result<(), Trouble> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(to, content))
        .map_err(|e| Trouble::new(Exit::Machine, format!("cannot write {}: {e}", to.display())))?;
    desk.say(&format!("wrote {}{note}", to.display()))
}

fn unit_path(path: &Path) -> Result<UnitPath, Trouble> {
    let absolute = std::path::absolute(path)?;
    UnitPath::new(&absolute).map_err(|e| Trouble::new(Exit::Config, e))
}

/// Returns the stages of a pipeline with what the settings ask of their units.
fn stages_of(
    pipeline: &Pipeline,
    entries: &[Entry],
    root: &Path,
) -> Result<Vec<UnitStage>, Trouble> {
    let mut stages = Vec::new();
    for name in pipeline.stage_names() {
        // A place where results are taken from is no program.
        let base = ecluse_config::base_of(name);
        let Some(entry) = entries.iter().find(|entry| entry.name == base) else {
            continue;
        };
        let mut stage = UnitStage::new(name).ok_or_else(|| {
            Trouble::new(
                Exit::Config,
                format!("{name:?} cannot be the name of a unit"),
            )
        })?;
        stage.grace = pipeline.shell(name).grace.0;
        for written in (entry.writes)(pipeline, root) {
            stage.writable.push(unit_path(&written)?);
        }
        if pipeline.metrics.listen.is_some() && stage.reach == Reach::Nothing {
            stage.reach = Reach::Loopback;
        }
        if let Some(file) = pipeline.metrics.textfile_of(name)
            && let Some(dir) = file.parent()
        {
            stage.figures = Some(unit_path(&root.join(dir))?);
        }
        stages.push(stage);
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_the_settings_they_are_written_for() {
        let settings = r#"
            [chain]
            stages = ["ingest", "index", "transfer", "out"]
            [stage.ingest]
            next = ["index@alpha", "index@beta"]
            [metrics]
            listen = "127.0.0.1:9464"
            textfile = "/var/lib/prometheus/node-exporter/ecluse-{stage}.prom"
        "#;
        let pipeline = Pipeline::parse(settings, "pipeline.toml").unwrap();
        let stages = stages_of(&pipeline, crate::stages::ALL, Path::new("/srv/ecluse")).unwrap();
        let names: Vec<&str> = stages.iter().map(UnitStage::name).collect();
        for name in ["ingest", "index@alpha", "index@beta", "transfer"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"out"), "a place is no program");
        for stage in &stages {
            let figures = stage.figures.as_ref().map(UnitPath::as_str);
            assert_eq!(figures, Some("/var/lib/prometheus/node-exporter"));
            let expected = match stage.name() {
                "transfer" => Reach::World,
                _ => Reach::Loopback,
            };
            assert_eq!(stage.reach, expected, "{}", stage.name());
        }
    }
}
