//! Hosts of a small network that nobody else sees: namespaces joined by a bridge, each of which can be cut off.
//!
//! All of it lies in namespaces of the process that makes it, and ends with that.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// The network's first three bytes. Nobody outside sees it, so that it cannot be in use.
const NET: &str = "10.99.0";
/// Says that this process is inside.
const INSIDE: &str = "ECLUSE_FAULTS_INSIDE";

/// Where whoever makes the network stands, on the bridge itself.
pub(crate) fn outside() -> String {
    format!("{NET}.254")
}

/// Tells whether this process is inside.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again inside namespaces of its own, which end with it; says whether it ended well.
///
/// # Errors
/// Without root, or without the programs for it.
pub(crate) fn run_inside(words: &[String]) -> anyhow::Result<bool> {
    if !rustix::process::geteuid().is_root() {
        bail!("namespaces need root");
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "--"])
        .arg(std::env::current_exe()?)
        .args(words)
        .env(INSIDE, "1")
        .status()
        .context("cannot run unshare (util-linux)")?;
    Ok(status.success())
}

/// The network.
pub(crate) struct Network {
    hosts: Vec<NetworkHost>,
}

/// One host: a namespace that a sleeping process holds.
struct NetworkHost {
    holder: Child,
    address: String,
    link: String,
}

impl Network {
    /// Makes a network of so many hosts.
    pub(crate) fn make(hosts: usize) -> anyhow::Result<Self> {
        ip("link set lo up")?;
        ip("link add bridge type bridge")?;
        ip(&format!("addr add {}/24 dev bridge", outside()))?;
        ip("link set bridge up")?;
        let mut network = Self { hosts: Vec::new() };
        for number in 1..=hosts {
            let mut holder = Command::new("unshare")
                .args(["--net", "--", "sh", "-c", "echo made; exec sleep infinity"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot run unshare")?;
            let made = holder.stdout.take().context("it has an output")?;
            BufReader::new(made).read_line(&mut String::new())?;
            let host = NetworkHost {
                address: format!("{NET}.{number}"),
                link: format!("host{number}"),
                holder,
            };
            let (pid, link) = (host.holder.id(), host.link.clone());
            network.hosts.push(host);
            ip(&format!(
                "link add {link} type veth peer name eth0 netns {pid}"
            ))?;
            ip(&format!("link set {link} master bridge up"))?;
            for words in [
                &format!("addr add {NET}.{number}/24 dev eth0") as &str,
                "link set eth0 up",
                "link set lo up",
            ] {
                let mut command = network.command(number - 1, Path::new("ip"));
                run(command.args(words.split(' ')))?;
            }
        }
        Ok(network)
    }

    /// Returns the address of a host.
    pub(crate) fn address(&self, host: usize) -> &str {
        &self.hosts[host].address
    }

    /// Returns what must stand before a command that shall run on a host. It becomes that command.
    pub(crate) fn door(&self, host: usize) -> Vec<String> {
        let pid = self.hosts[host].holder.id();
        vec!["nsenter".to_owned(), format!("--net=/proc/{pid}/ns/net")]
    }

    /// Returns a command that runs on a host.
    pub(crate) fn command(&self, host: usize, program: &Path) -> Command {
        let door = self.door(host);
        let mut command = Command::new(&door[0]);
        command.args(&door[1..]).arg(program);
        command
    }

    /// Cuts a host off, so that what is sent to it or by it is lost.
    pub(crate) fn cut(&self, host: usize) -> anyhow::Result<()> {
        ip(&format!("link set {} down", self.hosts[host].link))
    }

    /// Joins a host again.
    pub(crate) fn heal(&self, host: usize) -> anyhow::Result<()> {
        ip(&format!("link set {} up", self.hosts[host].link))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            let _ = host.holder.kill();
            let _ = host.holder.wait();
        }
        let _ = ip("link del bridge");
    }
}

fn ip(words: &str) -> anyhow::Result<()> {
    run(Command::new("ip").args(words.split(' ')))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", said.trim());
    }
    Ok(())
}
