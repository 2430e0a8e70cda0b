//! A file system in an image, on a loop device, whose power can be cut.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

/// Large enough that nothing is ever full.
const IMAGE_BYTES: u64 = 1 << 30;

/// Says in one line what is missing, if anything is.
pub(crate) fn check_means(kinds: &[&str]) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("needs root, to mount a file system whose power can be cut");
    }
    let mkfs = kinds.iter().map(|kind| format!("mkfs.{kind}"));
    let others = ["xfs_io", "losetup", "mount", "umount"].map(str::to_owned);
    for program in mkfs.chain(others) {
        if which(&program).is_none() {
            bail!("needs {program}, which is not installed (e2fsprogs, xfsprogs, mount)");
        }
    }
    Ok(())
}

/// Finds a program, also where an ordinary user does not look.
fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// A mounted image. Dropping it unmounts it and frees its loop device.
pub(crate) struct Disk {
    device: String,
    mount_point: PathBuf,
}

impl Disk {
    /// Makes an image in `dir`, a file system in it, and mounts that.
    pub(crate) fn make(kind: &str, dir: &Path) -> anyhow::Result<Self> {
        let image = dir.join("image");
        let mount_point = dir.join("mnt");
        std::fs::create_dir(&mount_point)?;
        File::create_new(&image)?.set_len(IMAGE_BYTES)?;
        let force = if kind == "xfs" { "-f" } else { "-F" };
        call(
            &format!("mkfs.{kind}"),
            &["-q".as_ref(), force.as_ref(), image.as_ref()],
        )?;
        let device = call(
            "losetup",
            &["-f".as_ref(), "--show".as_ref(), image.as_ref()],
        )?;
        let disk = Self {
            device: device.trim().to_owned(),
            mount_point,
        };
        disk.mount()?;
        Ok(disk)
    }

    /// Returns where it is mounted.
    pub(crate) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Cuts the power: from now on every call fails and nothing more is written.
    pub(crate) fn cut(&self) -> anyhow::Result<()> {
        let [x, c, shutdown] = ["-x", "-c", "shutdown"].map(Path::new);
        let called = call("xfs_io", &[x, c, shutdown, &self.mount_point]);
        // What xfs_io looks at afterwards may fail with all the rest: the disk itself is asked.
        match File::create(self.mount_point.join("after-the-cut")) {
            Err(_) => Ok(()),
            Ok(_) => {
                called?;
                bail!("xfs_io did not cut the power")
            }
        }
    }

    /// Turns the power on again. Nobody may hold a file there.
    pub(crate) fn mount_again(&self) -> anyhow::Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&self) -> anyhow::Result<()> {
        // Without it every removal would wait for a discard of its blocks.
        let [o, nodiscard] = ["-o", "nodiscard"].map(Path::new);
        call(
            "mount",
            &[o, nodiscard, self.device.as_ref(), &self.mount_point],
        )?;
        Ok(())
    }

    fn unmount(&self) -> anyhow::Result<()> {
        let mut tries = 0;
        loop {
            match call("umount", &[&self.mount_point]) {
                Ok(_) => return Ok(()),
                Err(error) if tries == 100 => return Err(error),
                Err(_) => tries += 1,
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let freed = self
            .unmount()
            .or_else(|_| call("umount", &["-l".as_ref(), self.mount_point.as_path()]).map(drop))
            .and_then(|()| call("losetup", &["-d".as_ref(), self.device.as_ref()]));
        if let Err(error) = freed {
            eprintln!(
                "{} is left mounted on {}: {error:#}",
                self.device,
                self.mount_point.display()
            );
        }
    }
}

fn call(program: &str, arguments: &[&Path]) -> anyhow::Result<String> {
    let path = which(program).with_context(|| format!("no {program}"))?;
    let output = Command::new(path)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
