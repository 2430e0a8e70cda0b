//! Three NATS servers as one cluster, each on a host of its own, and an S3 store on a fourth: master, three volume servers
//! that keep everything twice, filer and S3 service, each a process that can be killed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ecluse_spool::{Fs, RealFs};
use ecluse_testkit::servers::{BUCKET, make_bucket, write_identities};

use super::ailing_store::StoreDoor;
use super::network::{Network, outside};

/// The hosts that work, with a NATS server each.
pub(crate) const HOSTS: usize = 3;
/// The one with the store.
const STORE_HOST: usize = HOSTS;
/// The volume servers of the store; each object lies on two.
pub(crate) const VOLUMES: usize = 3;
/// How long servers may take to be there.
const STARTING: Duration = Duration::from_secs(120);

const NATS_PORT: u16 = 4222;
const S3_PORT: u16 = 8333;
const FILER_PORT: u16 = 8888;
const MASTER_PORT: u16 = 9333;
const VOLUME_PORT: u16 = 8080;

/// All servers.
pub(crate) struct Cluster {
    pub(crate) network: Network,
    pub(crate) door: StoreDoor,
    dir: PathBuf,
    nats_program: PathBuf,
    weed_program: PathBuf,
    nats: [Option<Child>; HOSTS],
    volumes: [Option<Child>; VOLUMES],
    /// Of the store: master, filer and the S3 service.
    store: Vec<Child>,
}

impl Cluster {
    /// Starts everything below a directory.
    pub(crate) fn start(dir: &Path, nats: &Path, weed: &Path) -> anyhow::Result<Self> {
        let network = Network::make(HOSTS + 1)?;
        let store = format!("{}:{S3_PORT}", network.address(STORE_HOST));
        let mut cluster = Self {
            door: StoreDoor::open(&format!("{}:{S3_PORT}", outside()), store)?,
            network,
            dir: dir.to_owned(),
            nats_program: nats.to_owned(),
            weed_program: weed.to_owned(),
            nats: [const { None }; HOSTS],
            volumes: [const { None }; VOLUMES],
            store: Vec::new(),
        };
        for host in 0..HOSTS {
            cluster.start_nats(host)?;
        }
        cluster.start_store()?;
        Ok(cluster)
    }

    /// Returns the `[engine]` table of settings for an archive of its own on these servers.
    pub(crate) fn settings(&self, prefix: &str) -> String {
        let servers: Vec<String> = (0..HOSTS)
            .map(|host| format!("\"nats://{}:{NATS_PORT}\"", self.network.address(host)))
            .collect();
        format!(
            "[engine]\nkind = \"jetstream\"\nservers = [{}]\nreplicas = {HOSTS}\nack-wait = \"2s\"\n\
             endpoint = \"http://{}:{S3_PORT}\"\nbucket = \"{BUCKET}\"\nprefix = \"{prefix}\"\n\
             key-file = \"{}\"\nsecret-file = \"{}\"\n",
            servers.join(", "),
            outside(),
            self.dir.join("key").display(),
            self.dir.join("secret").display(),
        )
    }

    /// Returns where the store's own door is, beside S3.
    pub(crate) fn filer(&self) -> anyhow::Result<SocketAddr> {
        let address = format!("{}:{FILER_PORT}", self.network.address(STORE_HOST));
        Ok(address.parse()?)
    }

    /// Starts the NATS server of a host with what it knew.
    pub(crate) fn start_nats(&mut self, host: usize) -> anyhow::Result<()> {
        let address = self.network.address(host);
        let routes: Vec<String> = (0..HOSTS)
            .map(|other| format!("nats://{}:6222", self.network.address(other)))
            .collect();
        let text = format!(
            "server_name: {}\nlisten: \"{address}:{NATS_PORT}\"\n\
             jetstream {{ store_dir: {:?}, sync_interval: always }}\n\
             cluster {{ name: ecluse, listen: \"{address}:6222\", routes: [ {} ] }}\n",
            node(host),
            self.nats_store(host),
            routes.join(", "),
        );
        let config = self.dir.join(format!("{}.conf", node(host)));
        fs::write(&config, text)?;
        let mut command = self.network.command(host, &self.nats_program);
        let child = spawn(command.arg("-c").arg(&config), &self.log(&node(host)))?;
        self.nats[host] = Some(child);
        Ok(())
    }

    /// Kills the NATS server of a host.
    pub(crate) fn kill_nats(&mut self, host: usize) {
        end(self.nats[host].take());
    }

    /// Removes all that the NATS server of a host, which was killed, knew.
    pub(crate) fn wipe_nats(&self, host: usize) -> anyhow::Result<()> {
        Ok(RealFs.remove_tree(&self.nats_store(host))?)
    }

    fn nats_store(&self, host: usize) -> PathBuf {
        self.dir.join(format!("{}.store", node(host)))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    fn weed(&self, verb: &str, port: u16) -> Command {
        let mut command = self.network.command(STORE_HOST, &self.weed_program);
        let address = self.network.address(STORE_HOST);
        command
            .arg(format!("-logdir={}", self.dir.display()))
            .arg(verb)
            .arg(format!("-ip.bind={address}"))
            .arg(format!("-port={port}"));
        if verb != "s3" {
            command.arg(format!("-ip={address}"));
        }
        command
    }

    fn start_store(&mut self) -> anyhow::Result<()> {
        let address = self.network.address(STORE_HOST).to_owned();
        let config = write_identities(&self.dir)?;
        let directory = |name: &str| {
            let path = self.dir.join(name);
            fs::create_dir(&path).map(|()| path)
        };
        let (master, filer) = (directory("master")?, directory("filer")?);
        for number in 0..VOLUMES {
            directory(&volume(number))?;
        }
        let mut command = self.weed("master", MASTER_PORT);
        // Twice, on two servers.
        command.args(["-defaultReplication=001", "-volumeSizeLimitMB=64"]);
        command.arg("-telemetry=false");
        command.arg(format!("-mdir={}", master.display()));
        self.store.push(spawn(&mut command, &self.log("master"))?);
        self.wait_for(STORE_HOST, MASTER_PORT)?;
        for number in 0..VOLUMES {
            self.start_volume(number)?;
        }
        let mut command = self.weed("filer", FILER_PORT);
        command.arg(format!("-master={address}:{MASTER_PORT}"));
        command.arg(format!("-defaultStoreDir={}", filer.display()));
        command.arg("-defaultReplicaPlacement=001");
        self.store.push(spawn(&mut command, &self.log("filer"))?);
        self.wait_for(STORE_HOST, FILER_PORT)?;
        let mut command = self.weed("s3", S3_PORT);
        command.arg(format!("-filer={address}:{FILER_PORT}"));
        command.arg(format!("-config={}", config.display()));
        command.args([
            "-port.iceberg=0",
            "-port.lance=0",
            "-autoCreateBucket=false",
        ]);
        self.store.push(spawn(&mut command, &self.log("s3"))?);
        make_bucket(self.filer()?);
        self.wait_for(STORE_HOST, S3_PORT)
    }

    /// Starts a volume server with what it had.
    pub(crate) fn start_volume(&mut self, number: usize) -> anyhow::Result<()> {
        let port = VOLUME_PORT + u16::try_from(number)?;
        let name = volume(number);
        let mut command = self.weed("volume", port);
        let address = self.network.address(STORE_HOST);
        command.arg(format!("-master={address}:{MASTER_PORT}"));
        command.arg(format!("-dir={}", self.dir.join(&name).display()));
        command.arg("-max=100");
        self.volumes[number] = Some(spawn(&mut command, &self.log(&name))?);
        self.wait_for(STORE_HOST, port)
    }

    /// Kills a volume server.
    pub(crate) fn kill_volume(&mut self, number: usize) {
        end(self.volumes[number].take());
    }

    /// Waits until somebody listens.
    fn wait_for(&self, host: usize, port: u16) -> anyhow::Result<()> {
        let address = format!("{}:{port}", self.network.address(host)).parse()?;
        let deadline = Instant::now() + STARTING;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if Instant::now() > deadline {
                bail!("nobody listens on {address}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nats.iter_mut().chain(&mut self.volumes) {
            end(child.take());
        }
        for child in self.store.drain(..) {
            end(Some(child));
        }
    }
}

/// Returns the name of the NATS server of a host.
pub(crate) fn node(host: usize) -> String {
    format!("n{}", host + 1)
}

fn volume(number: usize) -> String {
    format!("volume{}", number + 1)
}

fn spawn(command: &mut Command, log: &Path) -> anyhow::Result<Child> {
    let log = File::options().append(true).create(true).open(log)?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}
