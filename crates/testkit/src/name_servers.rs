//! Real name servers on loopback: nsd, which knows zones, and unbound, which finds out; and a relay that loses datagrams.
//!
//! They are programs of others, from Debian's packages. Each ends when the test lets go of it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::root::until_so;

/// A name server that is a program of its own.
pub struct NameServer {
    address: SocketAddr,
    child: Child,
    _dir: TempDir,
}

impl NameServer {
    /// Starts nsd with zones: the name of each, without its last dot, and the text of its file.
    pub fn nsd(zones: &[(&str, &str)]) -> Self {
        Self::start("nsd", |dir, address| {
            let place = dir.display();
            let mut settings = format!(
                "server:\n  ip-address: {}\n  port: {}\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{place}\"\n  pidfile: \"\"\n  \
                 xfrdfile: \"{place}/xfrd\"\n  zonelistfile: \"{place}/zones\"\n  database: \"\"\n  logfile: \"{place}/log\"\n  \
                 rrl-ratelimit: 0\n  minimal-responses: yes\nremote-control:\n  control-enable: no\n",
                address.ip(),
                address.port()
            );
            for (name, text) in zones {
                let head = format!(
                    "$ORIGIN {name}.\n$TTL 300\n@ SOA ns.{name}. hostmaster.{name}. 1 3600 600 86400 60\n@ NS ns.{name}.\nns A 127.0.0.1\n"
                );
                fs::write(dir.join(format!("{name}.zone")), head + text).expect("it is ours");
                settings += &format!("zone:\n  name: \"{name}.\"\n  zonefile: \"{name}.zone\"\n");
            }
            let path = dir.join("nsd.conf");
            fs::write(&path, settings).expect("it is ours");
            let mut command = Command::new("nsd");
            command.arg("-d").arg("-c").arg(path);
            command
        })
    }

    /// Starts unbound, which asks others for zones: the name of each, and who knows it. `more` are settings of its own.
    pub fn unbound(zones: &[(&str, SocketAddr)], more: &str) -> Self {
        Self::start("unbound", |dir, address| {
            let mut settings = format!(
                "server:\n  interface: {}@{}\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  directory: \"{}\"\n  \
                 pidfile: \"\"\n  use-syslog: no\n  logfile: \"log\"\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n  \
                 qname-minimisation: no\n  outgoing-range: 900\n  num-queries-per-thread: 4096\n  msg-cache-size: 64m\n  \
                 rrset-cache-size: 64m\n  ede: yes\n  infra-host-ttl: 1\n  {}\nremote-control:\n  control-enable: no\n",
                address.ip(),
                address.port(),
                dir.display(),
                more.replace('\n', "\n  ")
            );
            for (name, server) in zones {
                settings += &format!(
                    "stub-zone:\n  name: \"{name}.\"\n  stub-addr: {}@{}\n  stub-first: no\n",
                    server.ip(),
                    server.port()
                );
            }
            let path = dir.join("unbound.conf");
            fs::write(&path, settings).expect("it is ours");
            let mut command = Command::new("unbound");
            command.arg("-d").arg("-c").arg(path);
            command
        })
    }

    /// Tells whether a program is there to be started.
    pub fn is_there(program: &str) -> bool {
        let mut command = Command::new(program);
        command.arg("-h").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    }

    fn start(program: &str, make: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        let dir = TempDir::with_prefix("ecluse-dns-").expect("a temporary directory can be made");
        let address = free_port();
        let mut command = make(dir.path(), address);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("{program}, of the Debian package of that name: {error}")
        });
        let server = Self {
            address,
            child,
            _dir: dir,
        };
        until_so(program, || server.answers());
        server
    }

    fn answers(&self) -> bool {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let wait = Some(Duration::from_millis(200));
        socket.set_read_timeout(wait).expect("it can wait");
        // The root's name servers, in 17 bytes.
        let question = *b"\x07\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
        socket.send_to(&question, self.address).is_ok() && socket.recv(&mut [0; 512]).is_ok()
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // nsd has children, which end with it when it is asked to.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A port that is free for both UDP and TCP now.
fn free_port() -> SocketAddr {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// A relay that loses every so many of the datagrams that pass it, in either direction.
pub struct LossyRelay {
    address: SocketAddr,
    lost: Arc<AtomicU64>,
}

impl LossyRelay {
    /// Starts a relay to a server that loses so many of a hundred.
    pub fn start(to: SocketAddr, percent: u64) -> Self {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = front.local_addr().expect("it is bound");
        let lost = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&lost);
        thread::spawn(move || relay(&front, to, percent, &count));
        Self { address, lost }
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many were lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn relay(front: &UdpSocket, to: SocketAddr, percent: u64, lost: &Arc<AtomicU64>) {
    let mut ways: std::collections::HashMap<SocketAddr, Arc<UdpSocket>> = Default::default();
    let mut dice = Dice(1);
    let mut buffer = [0; 4096];
    while let Ok((bytes, client)) = front.recv_from(&mut buffer) {
        let way = ways.entry(client).or_insert_with(|| {
            let back = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"));
            back.connect(to).expect("it is an address");
            let (from, front) = (Arc::clone(&back), front.try_clone().expect("it is open"));
            let lost = Arc::clone(lost);
            thread::spawn(move || {
                let mut dice = Dice(u64::from(client.port()));
                let mut buffer = [0; 4096];
                while let Ok(bytes) = from.recv(&mut buffer) {
                    if dice.falls(percent) {
                        lost.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let _ = front.send_to(&buffer[..bytes], client);
                    }
                }
            });
            back
        });
        if dice.falls(percent) {
            lost.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = way.send(&buffer[..bytes]);
        }
    }
}

struct Dice(u64);

impl Dice {
    fn falls(&mut self, percent: u64) -> bool {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % 100 < percent
    }
}
