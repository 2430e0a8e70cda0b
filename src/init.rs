//! `ecluse init` and `ecluse man`: the first and the last things an installer does.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::CommandFactory;
use ecluse_config::{Pipeline, SHIPPED};
use ecluse_spool::WorkTree;
use ecluse_stage::Exit;

use crate::cli::Cli;
use crate::context::{DriverContext, Trouble};

/// The word by which this program is the other process of a trial; for its own use.
pub(crate) const TRY_FILE_SYSTEM: &str = "try-file-system";

pub(crate) fn init(cli: &Cli) -> Result<ExitCode, Trouble> {
    let root = cli.root();
    let machine = |path: &Path| {
        let shown = path.display().to_string();
        move |e: std::io::Error| Trouble::new(Exit::Machine, format!("cannot make {shown}: {e}"))
    };
    fs::create_dir_all(&root).map_err(machine(&root))?;
    let path = root.join("pipeline.toml");
    let made = match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            file.write_all(SHIPPED.as_bytes()).map_err(machine(&path))?;
            true
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(e) => return Err(machine(&path)(e)),
    };
    let config = Pipeline::locate(cli.config.as_deref(), &root);
    let pipeline = Pipeline::load(config.as_deref()).map_err(|e| Trouble::new(Exit::Config, e))?;
    let tree = WorkTree::open(&root.join("work"));
    fs::create_dir_all(tree.work()).map_err(machine(tree.work()))?;
    for stage in pipeline.stage_names() {
        tree.init(stage)?;
    }
    if let Some(stage) = pipeline.stage_names().first() {
        let faults = tree.fitness_for_two(stage, second_process)?;
        if !faults.is_empty() {
            let lines: Vec<String> = faults
                .iter()
                .map(|fault| format!("{} cannot carry an archive: {fault}", root.display()))
                .collect();
            return Err(Trouble::new(
                Exit::Config,
                format!("{}\ndocs/file-systems.md says what can", lines.join("\n")),
            ));
        }
    }
    for harvested in &pipeline.archive.harvested {
        let harvested = root.join(harvested);
        fs::create_dir_all(&harvested).map_err(machine(&harvested))?;
    }
    let context = DriverContext::open(cli, &[])?;
    let pipeline_toml = if made { "wrote" } else { "kept" };
    context.say(&format!("{pipeline_toml} {}", path.display()))?;
    context.say(&format!(
        "work directories for {} under {}",
        crate::show::count(pipeline.stage_names().len(), "stage", "stages"),
        tree.work().display()
    ))?;
    Ok(Exit::Done.into())
}

/// Returns the command of the other process that tries a file system: this program once more.
pub(crate) fn second_process(dir: &Path) -> Command {
    let itself = std::env::current_exe();
    let mut command = Command::new(itself.unwrap_or_else(|_| "ecluse".into()));
    command.arg(TRY_FILE_SYSTEM).arg(dir);
    command
}

/// Is that other process.
pub(crate) fn try_file_system(dir: &str) -> ExitCode {
    let (orders, answers) = (std::io::stdin().lock(), std::io::stdout().lock());
    match ecluse_spool::second_process(Path::new(dir), orders, answers) {
        Ok(()) => Exit::Done.into(),
        Err(_) => Exit::Machine.into(),
    }
}

pub(crate) fn man(out: Option<&Path>) -> Result<ExitCode, Trouble> {
    let command = Cli::command();
    match out {
        Some(dir) => {
            let made = fs::create_dir_all(dir);
            made.and_then(|()| clap_mangen::generate_to(command, dir))
                .map_err(|e| {
                    let line = format!("cannot write to {}: {e}", dir.display());
                    Trouble::new(Exit::Machine, line)
                })?;
        }
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
    }
    Ok(Exit::Done.into())
}
