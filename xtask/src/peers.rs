//! `cargo xtask peers`: installs the programs that tests and benches compare with.
//!
//! Python's go into `target/interop`, the crates' into `target/peers`; nothing outside `target` is touched, and what
//! is there already stays.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::flags::Flags;

/// The Python packages, each of the version that tests speak of; `pywb` needs the last one.
const PYTHON: [&str; 4] = [
    "surt==0.3.1",
    "cdxj-indexer==1.5",
    "pywb==2.10.0",
    "setuptools<81",
];

/// The programs under `benches/peers`, each with a lock file of its own.
const CRATES: [&str; 2] = ["fastwarc", "spider"];

pub(crate) fn main(flags: Flags) -> anyhow::Result<bool> {
    flags.end()?;
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    python(&root.join("target/interop"))?;
    crates(root)?;
    Ok(true)
}

fn python(directory: &Path) -> anyhow::Result<()> {
    if !directory.join("bin/cdxj-indexer").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
        let mut pip = Command::new(directory.join("bin/pip"));
        run(pip.args(["install", "--quiet"]).args(PYTHON))?;
    }
    println!("{}", directory.join("bin/cdxj-indexer").display());
    Ok(())
}

fn crates(root: &Path) -> anyhow::Result<()> {
    let target = root.join("target/peers");
    for name in CRATES {
        let manifest = root.join(format!("benches/peers/{name}/Cargo.toml"));
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args([
                "build",
                "--release",
                "--quiet",
                "--locked",
                "--manifest-path",
            ])
            .arg(manifest)
            .arg("--target-dir")
            .arg(&target);
        run(&mut cargo)?;
        println!("{}", target.join(format!("release/peer-{name}")).display());
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_owned();
    let shown = OsStr::new(&name).display().to_string();
    let status = command
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}
