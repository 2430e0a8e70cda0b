//! Several NATS servers on loopback that keep every message together, each synced.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::root::until;

/// A cluster of NATS servers with JetStream.
pub struct NatsCluster {
    _dir: TempDir,
    children: Vec<Child>,
    ports: Vec<u16>,
}

impl NatsCluster {
    /// Starts so many servers below a directory; `program` is theirs.
    ///
    /// # Panics
    /// When they cannot be started.
    pub fn start(program: &Path, below: &Path, servers: usize) -> Self {
        let dir = TempDir::with_prefix_in("nats-", below).expect("a directory can be made");
        // Held together until all are known, so that no two are the same.
        let bound: Vec<TcpListener> = (0..servers * 2)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports"))
            .collect();
        let ports: Vec<u16> = bound
            .iter()
            .map(|listener| listener.local_addr().expect("it is bound").port())
            .collect();
        drop(bound);
        let (clients, routes) = ports.split_at(servers);
        let all: Vec<String> = routes
            .iter()
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect();
        let children = (0..servers).map(|number| {
            let home = dir.path().join(format!("n{number}"));
            fs::create_dir(&home).expect("a directory takes directories");
            let config = home.join("nats.conf");
            let text = format!(
                "server_name: n{number}\nlisten: \"127.0.0.1:{}\"\n\
                 jetstream {{ store_dir: {:?}, sync_interval: always }}\n\
                 cluster {{ name: ecluse, listen: \"127.0.0.1:{}\", routes: {all:?} }}\n",
                clients[number],
                home.join("store"),
                routes[number],
            );
            fs::write(&config, text).expect("a directory takes files");
            let log = fs::File::create(home.join("log")).expect("a directory takes files");
            let errors = log.try_clone().expect("a file can be had twice");
            let started = Command::new(program)
                .arg("-c")
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors)
                .spawn();
            started.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
        });
        let cluster = Self {
            children: children.collect(),
            ports: clients.to_vec(),
            _dir: dir,
        };
        for port in &cluster.ports {
            until("a NATS server", || {
                TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).ok()
            });
        }
        cluster
    }

    /// Kills the server of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn kill(&mut self, name: &str) {
        let number = name.strip_prefix('n').and_then(|name| name.parse().ok());
        let child: &mut Child = number
            .and_then(|number: usize| self.children.get_mut(number))
            .unwrap_or_else(|| panic!("there is no server {name}"));
        child.kill().expect("it lives");
        child.wait().expect("it is ours");
    }

    /// Returns the addresses of the servers.
    pub fn addresses(&self) -> Vec<String> {
        let ports = self.ports.iter();
        ports
            .map(|port| format!("nats://127.0.0.1:{port}"))
            .collect()
    }

    /// Returns a table `[engine]` with these servers, and a copy of every message on each of them, in place of what it named.
    pub fn settings(&self, engine: &str) -> String {
        let lines = engine.lines().map(|line| match line.split(' ').next() {
            Some("servers") => format!("servers = {:?}\n", self.addresses()),
            Some("replicas") => format!("replicas = {}\n", self.ports.len()),
            Some("ack-wait") => "ack-wait = \"60s\"\n".to_owned(),
            _ => format!("{line}\n"),
        });
        lines.collect()
    }
}

impl Drop for NatsCluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
