//! The sample stages as programs, built with failpoints and known-bad variants, apart from the
//! ordinary build; and the checker that judges what they leave.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Where the programs lie.
pub(crate) struct Samples {
    dir: PathBuf,
}

impl Samples {
    /// Builds them.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let workspace = workspace();
        let target = target().join("torture");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .current_dir(&workspace)
            .args([
                "build",
                "--quiet",
                "--release",
                "--package",
                "ecluse-testkit",
            ])
            // Without the driver: it would bring every shipped stage with it.
            .args([
                "--no-default-features",
                "--features",
                "failpoints,mutants,jetstream",
            ])
            .arg("--target-dir")
            .arg(&target)
            .status()
            .context("cannot run cargo")?;
        if !status.success() {
            bail!("cannot build the sample stages");
        }
        Ok(Self {
            dir: target.join("release"),
        })
    }

    /// Builds them as they are, without failpoints and not optimised, with the driver that has them: as tests do.
    pub(crate) fn build_plain() -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .current_dir(workspace())
            .args(["build", "--quiet", "--package", "ecluse-testkit", "--bins"])
            .args(["--features", "jetstream"])
            .status()
            .context("cannot run cargo")?;
        if !status.success() {
            bail!("cannot build the sample stages");
        }
        Ok(Self::plain())
    }

    /// Returns what [`Samples::build_plain`] built.
    pub(crate) fn plain() -> Self {
        Self {
            dir: target().join("debug"),
        }
    }

    /// Returns the program of a stage.
    pub(crate) fn program(&self, stage: &str) -> PathBuf {
        self.dir.join(format!("ecluse-{stage}"))
    }

    /// Lets the checker judge the tree under `root`. It prints its findings and its last line, which
    /// begins with `words`; the answer says whether it found nothing.
    pub(crate) fn judge(&self, root: &Path, given: &Path, words: &str) -> anyhow::Result<Judged> {
        let output = Command::new(self.dir.join("ecluse-checker"))
            .args([root, given])
            .arg(words)
            .output()
            .context("cannot run the checker")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let clean = match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            _ => bail!("{}", String::from_utf8_lossy(&output.stderr).trim()),
        };
        let (findings, last) = said.trim_end().rsplit_once('\n').unwrap_or(("", &said));
        Ok(Judged {
            clean,
            findings: findings.to_owned(),
            last: last.trim_end().to_owned(),
        })
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// What the checker said.
pub(crate) struct Judged {
    /// Nothing lost, nothing twice, nothing bad.
    pub(crate) clean: bool,
    /// All lines but the last.
    pub(crate) findings: String,
    /// The last line.
    pub(crate) last: String,
}
