//! `cargo xtask peers [--python]`: installs the programs that tests and benches compare with.
//!
//! Python's go into `target/interop` (tests install these by themselves), the crates' into `target/peers`; nothing
//! outside `target` is touched, and what is there already stays.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Error, bail};

use crate::flags::Flags;

/// The programs under `benches/peers`, each with a lock file of its own.
const CRATES: [&str; 3] = ["fastwarc", "spider", "webgraph"];

pub(crate) fn main(mut flags: Flags) -> anyhow::Result<bool> {
    let only_python = flags.switch("--python");
    flags.end()?;
    println!("{}", ecluse_peers::install().map_err(Error::msg)?.display());
    if !only_python {
        crates(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")))?;
    }
    Ok(true)
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
