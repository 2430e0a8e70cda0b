//! The servers of an engine beyond one machine, on loopback and in a directory of their own: NATS with JetStream, and an S3
//! store.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ecluse_spool::{Fs, RealFs};
use tempfile::TempDir;

use crate::nats_accounts::NatsAccounts;
use crate::repository::TestAuthority;
use crate::root::until;

/// The keys that the store accepts.
const ACCESS: &str = "ecluse";
const SECRET: &str = "not-so-secret";
/// How long certificates are good for.
const LAST_YEAR: i32 = 2099;
/// The bucket that is there.
pub const BUCKET: &str = "archive";

/// A NATS server and an S3 store.
pub struct EngineServers {
    dir: TempDir,
    /// Whether both speak TLS only, and the one asks for credentials.
    is_guarded: bool,
    nats: Nats,
    weed: Child,
    s3_port: u16,
    filer_port: u16,
}

/// Who may use the servers, where it is not everybody with the one key.
#[derive(Debug, Clone, Default)]
pub struct ServerUsers {
    /// The store's list of who may do what, in JSON.
    pub store: String,
    /// More of the configuration of the NATS server.
    pub nats: String,
}

/// A NATS server.
struct Nats {
    child: Option<Child>,
    port: u16,
    program: PathBuf,
    /// With JetStream, as it should be.
    has_streams: bool,
    /// What else stands in its configuration: TLS, accounts, users.
    guard: String,
}

impl EngineServers {
    /// Starts both; `nats` and `weed` are their programs.
    pub fn start(nats: &Path, weed: &Path) -> Self {
        Self::start_as(nats, weed, false, None)
    }

    /// The same for these users. [`EngineServers::settings`] names the files of a key that the store does not know then.
    pub fn start_for(nats: &Path, weed: &Path, users: &ServerUsers) -> Self {
        Self::start_as(nats, weed, false, Some(users))
    }

    /// Starts both with TLS, and the NATS server with accounts. What there is to know them and to be known by lies in files
    /// ([`EngineServers::file`]): `ca.pem` and `user.creds`, and with the same form and no worth here `other-ca.pem` and
    /// `other-user.creds`.
    pub fn start_guarded(nats: &Path, weed: &Path) -> Self {
        Self::start_as(nats, weed, true, None)
    }

    fn start_as(nats: &Path, weed: &Path, is_guarded: bool, users: Option<&ServerUsers>) -> Self {
        let dir =
            TempDir::with_prefix("ecluse-servers-").expect("a temporary directory can be made");
        let mut guard = match is_guarded {
            true => write_guard(dir.path()).expect("a directory takes files"),
            false => String::new(),
        };
        let config = write_identities(dir.path()).expect("a directory takes files");
        if let Some(users) = users {
            fs::write(&config, &users.store).expect("a directory takes files");
            guard.push_str(&users.nats);
        }
        let (weed, s3_port, filer_port) = start_store(weed, dir.path(), &config, is_guarded);
        let mut nats = Nats {
            child: None,
            port: free_port(),
            program: nats.to_owned(),
            has_streams: true,
            guard,
        };
        nats.start(dir.path());
        Self {
            dir,
            is_guarded,
            nats,
            weed,
            s3_port,
            filer_port,
        }
    }

    /// Returns the `[engine]` table of settings for an archive of its own on these servers.
    pub fn settings(&self, prefix: &str) -> String {
        let file = |name: &str| self.file(name).display().to_string();
        let (nats, http) = match self.is_guarded {
            true => ("tls", "https"),
            false => ("nats", "http"),
        };
        let mut settings = format!(
            "[engine]\nkind = \"jetstream\"\nservers = [\"{nats}://127.0.0.1:{}\"]\nreplicas = 1\nack-wait = \"2s\"\ncollect-after = \"30d\"\n\
             endpoint = \"{http}://127.0.0.1:{}\"\nbucket = \"{BUCKET}\"\nprefix = \"{prefix}\"\n\
             key-file = \"{}\"\nsecret-file = \"{}\"\n",
            self.nats.port,
            self.s3_port,
            file("key"),
            file("secret"),
        );
        if self.is_guarded {
            settings.push_str(&format!(
                "credentials = \"{}\"\nservers-ca = \"{1}\"\nstore-ca = \"{1}\"\n",
                file("user.creds"),
                file("ca.pem"),
            ));
        }
        settings
    }

    /// Returns the path of a file that they were started with.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Copies every object of an archive on these servers into a directory, by its key. Not asked of the S3 service: by the
    /// store's own door beside it.
    ///
    /// # Errors
    /// When the store does not answer, or the directory takes nothing.
    pub fn mirror(&self, prefix: &str, into: &Path) -> io::Result<()> {
        mirror_archive(on_loopback(self.filer_port), prefix, into)
    }

    /// Removes an object of the bucket by its key, through the store's own door.
    ///
    /// # Errors
    /// When the store does not answer so.
    pub fn remove(&self, key: &str) -> io::Result<()> {
        let target = format!("/buckets/{BUCKET}/{key}");
        let answer = http(on_loopback(self.filer_port), "DELETE", &target);
        match answer.is_some_and(|answer| answer.contains(" 204 ")) {
            true => Ok(()),
            false => Err(io::Error::other(format!("{key} is not removed"))),
        }
    }

    /// Returns the port of the store's own door beside the S3 service: objects lie below `/buckets/` and the bucket.
    pub fn own_door(&self) -> u16 {
        self.filer_port
    }

    /// Returns what the NATS server has logged.
    pub fn nats_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default()
    }

    /// Kills the NATS server, removes all it knew, and starts it again.
    pub fn lose_all_messages(&mut self) {
        self.nats.kill();
        let _ = RealFs.remove_tree(&self.dir.path().join("nats"));
        self.nats.start(self.dir.path());
    }

    /// Starts the NATS server anew, without streams.
    pub fn be_without_streams(&mut self) {
        self.nats.kill();
        self.nats.has_streams = false;
        self.nats.start(self.dir.path());
    }
}

impl Drop for EngineServers {
    fn drop(&mut self) {
        self.nats.kill();
        let _ = self.weed.kill();
        let _ = self.weed.wait();
    }
}

impl Nats {
    fn start(&mut self, dir: &Path) {
        let config = dir.join("nats.conf");
        let store = dir.join("nats");
        let streams = match self.has_streams {
            true => format!("jetstream {{ store_dir: {store:?}, sync_interval: always }}\n"),
            false => String::new(),
        };
        let text = format!(
            "listen: \"127.0.0.1:{}\"\n{streams}{}",
            self.port, self.guard
        );
        fs::write(&config, text).expect("a directory takes files");
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&config);
        let log = dir.join("nats.log");
        let mut child = quiet(&mut command, &log);
        let port = self.port;
        until("the NATS server", || {
            let ended = child.try_wait().ok().flatten();
            let said = || fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "the NATS server ended: {}", said());
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        self.child = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Copies every object of an archive into a directory, by its key, from the store's own door at `filer`.
///
/// # Errors
/// When the store does not answer, or the directory takes nothing.
pub fn mirror_archive(filer: SocketAddr, prefix: &str, into: &Path) -> io::Result<()> {
    mirror(filer, &format!("/buckets/{BUCKET}/{prefix}"), into)
}

/// Makes the bucket through the store's own door at `filer`, as soon as that opens.
pub fn make_bucket(filer: SocketAddr) {
    until("the bucket", || {
        let made = http(filer, "POST", &format!("/buckets/{BUCKET}/"))?;
        made.contains(" 201 ").then_some(())
    });
}

/// Writes the files `key` and `secret`, and a list of who may use the store, whose path is returned.
///
/// # Errors
/// When the directory takes no files.
pub fn write_identities(dir: &Path) -> io::Result<PathBuf> {
    fs::write(dir.join("key"), ACCESS)?;
    fs::write(dir.join("secret"), SECRET)?;
    let identities = format!(
        "{{\"identities\":[{{\"name\":\"ecluse\",\"credentials\":[{{\"accessKey\":\"{ACCESS}\",\"secretKey\":\"{SECRET}\"}}],\
         \"actions\":[\"Admin\",\"Read\",\"Write\",\"List\",\"Tagging\"]}}]}}"
    );
    let config = dir.join("s3.json");
    fs::write(&config, identities)?;
    Ok(config)
}

/// Writes certificates and credentials; returns what the NATS server's configuration says of them.
fn write_guard(dir: &Path) -> io::Result<String> {
    let (authority, other) = (TestAuthority::default(), TestAuthority::default());
    fs::write(dir.join("ca.pem"), authority.pem())?;
    fs::write(dir.join("other-ca.pem"), other.pem())?;
    let (certificate, key) = authority.server_pem("127.0.0.1", LAST_YEAR);
    fs::write(dir.join("server.pem"), certificate)?;
    fs::write(dir.join("server.key"), key)?;
    let accounts = NatsAccounts::new(1);
    fs::write(dir.join("user.creds"), accounts.credentials())?;
    let others = NatsAccounts::new(2);
    fs::write(dir.join("other-user.creds"), others.credentials())?;
    Ok(format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}\n{}",
        dir.join("server.pem"),
        dir.join("server.key"),
        accounts.configuration()
    ))
}

fn start_store(program: &Path, dir: &Path, config: &Path, is_guarded: bool) -> (Child, u16, u16) {
    let data = dir.join("store");
    fs::create_dir(&data).expect("a directory takes directories");
    // Held together until all are known, so that no two are the same.
    let bound: Vec<TcpListener> = (0..8).map(|_| bind()).collect();
    let ports: Vec<u16> = bound.iter().map(port_of).collect();
    drop(bound);
    let mut command = Command::new(program);
    command.args([
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-master.telemetry=false",
    ]);
    command.args([
        "-master.volumeSizeLimitMB=64",
        "-volume.max=100",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
    ]);
    command.arg(format!("-dir={}", data.display()));
    command.arg(format!("-s3.config={}", config.display()));
    if is_guarded {
        for (flag, file) in [("cert", "server.pem"), ("key", "server.key")] {
            command.arg(format!("-s3.{flag}.file={}", dir.join(file).display()));
        }
    }
    for (name, port) in ["master", "volume", "filer", "s3"]
        .iter()
        .zip(ports.chunks(2))
    {
        command.arg(format!("-{name}.port={}", port[0]));
        command.arg(format!("-{name}.port.grpc={}", port[1]));
    }
    let child = quiet(&mut command, &dir.join("store.log"));
    let (filer, s3) = (ports[4], ports[6]);
    make_bucket(on_loopback(filer));
    // Without a signature it knows whom it may serve, and without TLS whom it may hear.
    let refusal = if is_guarded { " 400 " } else { " 403 " };
    until("the S3 store", || {
        http(on_loopback(s3), "GET", &format!("/{BUCKET}"))?
            .contains(refusal)
            .then_some(())
    });
    (child, s3, filer)
}

fn quiet(command: &mut Command, log: &Path) -> Child {
    let log = fs::File::create(log).expect("a directory takes files");
    let errors = log.try_clone().expect("a file can be had twice");
    let started = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn();
    started.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Copies what a directory of the store holds.
fn mirror(filer: SocketAddr, directory: &str, into: &Path) -> io::Result<()> {
    fs::create_dir_all(into)?;
    let mut last = String::new();
    loop {
        let query = format!(
            "{}/?limit=1000&lastFileName={}",
            escaped(directory),
            escaped(&last)
        );
        let Some(page) = read(filer, &query)? else {
            return Ok(());
        };
        let page: serde_json::Value = serde_json::from_slice(&page)?;
        let entries = page["Entries"].as_array().cloned().unwrap_or_default();
        for entry in &entries {
            let path = entry["FullPath"].as_str().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or_default();
            name.clone_into(&mut last);
            let to = into.join(name);
            // As Go writes the mode of a directory.
            if entry["Mode"].as_u64().unwrap_or(0) >> 31 == 1 {
                mirror(filer, path, &to)?;
            } else if let Some(bytes) = read(filer, &escaped(path))? {
                fs::write(to, bytes)?;
            }
        }
        if entries.len() < 1000 {
            return Ok(());
        }
    }
}

/// Reads from the store's own door; `None` when nothing is there.
fn read(filer: SocketAddr, path: &str) -> io::Result<Option<Vec<u8>>> {
    let mut stream = TcpStream::connect(filer)?;
    // In the older way: the answer comes in one piece and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let head = head.ok_or_else(|| io::Error::other(format!("no answer to {path}")))?;
    let line = String::from_utf8_lossy(&answer[..head]).into_owned();
    match line.split(' ').nth(1) {
        Some("200") => Ok(Some(answer.split_off(head + 4))),
        Some("404") => Ok(None),
        _ => Err(io::Error::other(format!(
            "{path}: {}",
            line.lines().next().unwrap_or_default()
        ))),
    }
}

fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Asks a server of ours; returns the first line of its answer.
fn http(server: SocketAddr, method: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(server).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next().map(str::to_owned)
}

fn on_loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn bind() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports")
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("it is bound").port()
}

fn free_port() -> u16 {
    port_of(&bind())
}
