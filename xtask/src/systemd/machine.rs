//! A machine without a machine: systemd as the first process of its own namespaces.
//!
//! It has its own processes, mounts, network, host name and cgroups, and sees the host's files
//! through an overlay. It ends with this process, however this process ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const BOOT: &str = include_str!("boot.sh");

/// Enters the cgroup `$1`, then the namespaces. Both processes in between die with their parents.
const ENTER: &str = r#"
echo $$ >"$1/cgroup.procs"
exec setpriv --pdeathsig KILL \
    unshare --fork --kill-child --pid --mount --uts --ipc --net --cgroup sh "$2/boot.sh" "$2" "$3" "$4"
"#;

/// A running systemd.
pub(super) struct Machine {
    outer: Child,
    /// The process id of its systemd, as the host sees it.
    init: u32,
    cgroup: PathBuf,
}

impl Machine {
    /// Boots into the unit `goal`, with the files of `tree` put over the host's.
    pub(super) fn boot(scratch: &Path, tree: &Path, goal: &str) -> Result<Machine> {
        for directory in ["up", "root"] {
            fs::create_dir_all(scratch.join(directory))?;
        }
        fs::write(scratch.join("boot.sh"), BOOT)?;
        let log = fs::File::create(scratch.join("boot.log"))?;
        let cgroup = new_cgroup()?;
        let outer = Command::new("sh")
            .args(["-euc", ENTER, "sh"])
            .args([&cgroup, scratch, tree])
            .arg(goal)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start a shell")?;
        let mut machine = Machine {
            outer,
            init: 0,
            cgroup,
        };
        machine.await_systemd().with_context(|| {
            let log = fs::read_to_string(scratch.join("boot.log")).unwrap_or_default();
            format!("systemd does not come up\n{log}")
        })?;
        Ok(machine)
    }

    fn await_systemd(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if let Some(status) = self.outer.try_wait()? {
                bail!("it ended at once: {status}");
            }
            self.init = child_of(self.outer.id())?.unwrap_or(0);
            let name = fs::read_to_string(format!("/proc/{}/comm", self.init));
            // Before it is systemd it is the script, which has not changed its root yet.
            if name.is_ok_and(|name| name.trim() == "systemd")
                && self
                    .show("sysinit.target", "ActiveState")
                    .is_ok_and(|state| state == "active")
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("sysinit.target is not active after 60 s")
    }

    /// Runs a program in there.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<Output> {
        Command::new("nsenter")
            .args(["--target", &self.init.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--root", "--wd"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("cannot run nsenter")
    }

    /// Runs a program that must succeed; returns what it prints.
    pub(super) fn must(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} fails ({}): {text}\n{complaint}",
            arguments.join(" "),
            output.status
        );
        Ok(text)
    }

    /// Returns a property of a unit.
    pub(super) fn show(&self, unit: &str, property: &str) -> Result<String> {
        self.must(&["systemctl", "show", "--value", "--property", property, unit])
    }

    /// Returns where the host finds a path of the machine.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.run(&["systemctl", "--no-block", "poweroff"]);
        let until = Instant::now() + Duration::from_secs(30);
        while matches!(self.outer.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        // Takes systemd with it, and that everything else.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
        // What was killed takes a moment to be gone, and its cgroup stays so long.
        let until = Instant::now() + Duration::from_secs(10);
        while self.cgroup.exists() && Instant::now() < until {
            let _ = Command::new("find")
                .arg(&self.cgroup)
                .args(["-depth", "-type", "d", "-exec", "rmdir", "{}", "+"])
                .stderr(Stdio::null())
                .status();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Makes a cgroup below this process's own, for a systemd that wants a tree to itself.
fn new_cgroup() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .and_then(|line| line.split(' ').nth(4))
        .context("no cgroup2 file system is mounted here")?;
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))
        .context("this process has no cgroup2")?;
    let name = format!("ecluse-xtask-{}", std::process::id());
    let cgroup = Path::new(mount).join(own).join(name);
    fs::create_dir(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
    Ok(cgroup)
}

/// Returns the child of a process that has one.
fn child_of(parent: u32) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while it is looked at.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // The name, in brackets, may hold anything; state and parent follow it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if after_name.split_whitespace().nth(1) == Some(&parent.to_string()) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
