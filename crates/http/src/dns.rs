//! Asks the DNS for addresses, and keeps the answer as text for the `dns:` record.
//!
//! Answers are remembered for as long as they say, within bounds, and so is that a name does not exist. Failures are
//! not: a server that fails now may not in a minute. Only NXDOMAIN and NODATA say something about the name.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as HickoryDnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// What bounds a resolver.
#[derive(Debug, Clone)]
pub struct ResolverSettings {
    /// Whom to ask.
    pub servers: Servers,
    /// A hosts file, in which names are looked for before anybody is asked. It is read once.
    pub hosts: Option<PathBuf>,
    /// What to ask for.
    pub families: Families,
    /// How long to wait for one answer.
    pub timeout: Duration,
    /// How often to ask.
    pub attempts: usize,
    /// The shortest time that an answer is remembered.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
    /// How many names are remembered, at most.
    pub names: usize,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: Servers::System,
            hosts: Some(PathBuf::from("/etc/hosts")),
            families: Families::Both,
            timeout: Duration::from_secs(5),
            attempts: 2,
            shortest: Duration::from_secs(60),
            longest: Duration::from_secs(6 * 3600),
            names: 100_000,
        }
    }
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub enum Servers {
    /// Those of the system.
    System,
    /// These.
    Given(Vec<SocketAddr>),
}

/// Which addresses to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4.
    V4,
    /// IPv4 and IPv6; IPv4 comes first.
    Both,
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The name that was asked for.
    pub name: String,
    /// Its addresses, IPv4 first. Never empty.
    pub addresses: Vec<IpAddr>,
    /// The records of the answer, aliases included, one a line; empty for a name that is an address.
    pub records: String,
    /// When the answer came.
    pub at: SystemTime,
    /// Until when it is remembered.
    pub until: SystemTime,
}

impl Resolved {
    /// Returns the block of the `dns:` record, as Heritrix writes it: the time, then the records.
    #[must_use]
    pub fn block(&self) -> String {
        let time = jiff::Timestamp::try_from(self.at).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        format!("{}\n{}", time.strftime("%Y%m%d%H%M%S"), self.records)
    }
}

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// The DNS, now: worth a `dns:` record.
    Asked,
    /// Memory.
    Remembered,
    /// The hosts file.
    HostsFile,
    /// The name is an address.
    Literal,
}

/// The addresses of a host and where they come from, or why it has none.
pub type KnownAddresses = Result<(Arc<Resolved>, AnswerSource), DnsError>;

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DnsError {
    /// It is no name.
    #[error("{name:?} is no name: {detail}")]
    BadName {
        /// What was asked for.
        name: String,
        /// What the library said.
        detail: String,
    },
    /// NXDOMAIN: it does not exist.
    #[error("{name} does not exist")]
    NoSuchName {
        /// What was asked for.
        name: String,
    },
    /// NODATA: it exists, without an address.
    #[error("{name} has no address")]
    NoAddress {
        /// What was asked for.
        name: String,
    },
    /// A server answered with an error: SERVFAIL, REFUSED, …
    #[error("{code} for {name}")]
    ServerFailed {
        /// What was asked for.
        name: String,
        /// The code, by its name.
        code: String,
    },
    /// No server answered in time.
    #[error("no answer for {name} in time")]
    Timeout {
        /// What was asked for.
        name: String,
    },
    /// This machine has no socket left to ask with.
    #[error("cannot ask for {name}: {detail}")]
    Exhausted {
        /// What was asked for.
        name: String,
        /// What the system said.
        detail: String,
    },
    /// Anything else.
    #[error("cannot resolve {name}: {detail}")]
    Other {
        /// What was asked for.
        name: String,
        /// What the library said.
        detail: String,
    },
}

impl DnsError {
    /// Returns the status that crawl.log has for it, as Heritrix numbers them.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::BadName { .. } => -7,
            Self::Exhausted { .. } => -5,
            Self::NoSuchName { .. }
            | Self::NoAddress { .. }
            | Self::ServerFailed { .. }
            | Self::Timeout { .. }
            | Self::Other { .. } => -1,
        }
    }

    /// Tells whether it says something about the name, and not only about servers.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::BadName { .. } | Self::NoSuchName { .. } | Self::NoAddress { .. }
        )
    }
}

/// Asks the DNS.
pub struct Resolver {
    inner: TokioResolver,
    hosts: HashMap<String, Vec<IpAddr>>,
    settings: ResolverSettings,
    memory: Mutex<Memory>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Resolver")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Why no resolver could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the resolver: {detail}")]
pub struct ResolverError {
    /// What the library said.
    pub detail: String,
}

impl Resolver {
    /// Makes a resolver.
    pub fn new(settings: ResolverSettings) -> Result<Self, ResolverError> {
        let failed = |error: NetError| ResolverError {
            detail: error.to_string(),
        };
        let mut builder = match &settings.servers {
            Servers::System => TokioResolver::builder_tokio().map_err(failed)?,
            Servers::Given(servers) => {
                let servers = servers.iter().map(name_server).collect();
                let config = ResolverConfig::from_name_servers(servers);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.timeout = settings.timeout;
        options.attempts = settings.attempts;
        options.preserve_intermediates = true;
        // It does not look there for single records; we do.
        options.use_hosts_file = ResolveHosts::Never;
        // What is remembered is remembered here, by the caller's clock.
        options.cache_size = 0;
        Ok(Self {
            inner: builder.build().map_err(failed)?,
            // A machine without such a file has no such names.
            hosts: match &settings.hosts {
                Some(path) => read_hosts(&std::fs::read(path).unwrap_or_default()),
                None => HashMap::new(),
            },
            memory: Mutex::new(Memory::new(settings.names)),
            settings,
        })
    }

    /// Returns the addresses of a host, and where the answer comes from.
    pub async fn resolve(&self, host: &str, now: SystemTime) -> KnownAddresses {
        if let Some(known) = self.known(host, now) {
            return known;
        }
        let name = bare_name(host);
        let absolute = Name::from_ascii(format!("{name}."))
            .ok()
            .filter(|_| !name.is_empty())
            .ok_or_else(|| DnsError::BadName {
                name: name.clone(),
                detail: "not a domain name".to_owned(),
            })?;
        let v4 = self.inner.lookup(absolute.clone(), RecordType::A);
        let v6 = async {
            match self.settings.families {
                Families::V4 => None,
                Families::Both => Some(self.inner.lookup(absolute, RecordType::AAAA).await),
            }
        };
        let (v4, v6) = both(v4, v6).await;
        let answer = self.combine(&name, v4, v6, now);
        self.memory().keep(name, &answer);
        answer.found.map(|resolved| (resolved, AnswerSource::Asked))
    }

    /// Returns what is known of a host without asking anybody; nothing if somebody must be asked.
    pub fn known(&self, host: &str, now: SystemTime) -> Option<KnownAddresses> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            let resolved = Arc::new(literal(host, address, now));
            return Some(Ok((resolved, AnswerSource::Literal)));
        }
        let name = bare_name(host);
        if let Some(addresses) = self.hosts.get(&name) {
            let resolved = Resolved {
                addresses: addresses.clone(),
                ..literal(&name, IpAddr::V4(Ipv4Addr::UNSPECIFIED), now)
            };
            return Some(Ok((Arc::new(resolved), AnswerSource::HostsFile)));
        }
        let known = self.memory().find(&name, now)?;
        Some(known.map(|resolved| (resolved, AnswerSource::Remembered)))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn combine(
        &self,
        name: &str,
        v4: Result<Lookup, NetError>,
        v6: Option<Result<Lookup, NetError>>,
        now: SystemTime,
    ) -> Answer {
        let mut answers: Vec<&Record> = Vec::new();
        for lookup in [Some(&v4), v6.as_ref()].into_iter().flatten().flatten() {
            for record in lookup.answers() {
                if is_of_an_address(record) && !answers.contains(&record) {
                    answers.push(record);
                }
            }
        }
        let addresses: Vec<IpAddr> = answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::A(address) => Some(IpAddr::V4(address.0)),
                RData::AAAA(address) => Some(IpAddr::V6(address.0)),
                _ => None,
            })
            .collect();
        if addresses.is_empty() {
            let errors: Vec<NetError> = [v4.err(), v6.and_then(Result::err)]
                .into_iter()
                .flatten()
                .collect();
            let until = now + self.bounded(negative_ttl(&errors));
            let found = Err(worst(name, &errors));
            return Answer { found, until };
        }
        let ttl = answers.iter().map(|record| record.ttl).min().unwrap_or(0);
        let until = now + self.bounded(Duration::from_secs(u64::from(ttl)));
        let found = Ok(Arc::new(Resolved {
            name: name.to_owned(),
            addresses,
            records: answers.iter().map(|record| line(record)).collect(),
            at: now,
            until,
        }));
        Answer { found, until }
    }

    fn bounded(&self, ttl: Duration) -> Duration {
        ttl.max(self.settings.shortest).min(self.settings.longest)
    }
}

/// Tells whether a record says what was asked for. A server may send others along, with text of its own in them.
fn is_of_an_address(record: &Record) -> bool {
    let kind = record.record_type();
    matches!(kind, RecordType::A | RecordType::AAAA | RecordType::CNAME)
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let on_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    server.connections = vec![
        on_port(ConnectionConfig::udp()),
        on_port(ConnectionConfig::tcp()),
    ];
    server
}

/// Reads a hosts file: an address and its names on each line, IPv4 first of what a name has.
fn read_hosts(text: &[u8]) -> HashMap<String, Vec<IpAddr>> {
    let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in String::from_utf8_lossy(text).lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
            continue;
        };
        for name in words {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let addresses = hosts.entry(name).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    hosts
        .values_mut()
        .for_each(|addresses| addresses.sort_by_key(IpAddr::is_ipv6));
    hosts
}

/// A name as it is looked for.
fn bare_name(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn literal(host: &str, address: IpAddr, now: SystemTime) -> Resolved {
    Resolved {
        name: host.to_owned(),
        addresses: vec![address],
        records: String::new(),
        at: now,
        until: now,
    }
}

/// Writes a record as dnsjava does, and so Heritrix: tabs between the parts, more of them behind a short name.
fn line(record: &Record) -> String {
    let mut line = record.name.to_string();
    if line.len() < 8 {
        line.push('\t');
    }
    if line.len() < 16 {
        line.push('\t');
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "\t{}\t{}\t{}\t{}",
        record.ttl,
        record.dns_class,
        record.record_type(),
        record.data
    );
    line
}

fn negative_ttl(errors: &[NetError]) -> Duration {
    let ttls = errors.iter().filter_map(|error| match error {
        NetError::Dns(HickoryDnsError::NoRecordsFound(none)) => none.negative_ttl,
        _ => None,
    });
    Duration::from_secs(u64::from(ttls.min().unwrap_or(0)))
}

/// Returns what the errors say together: a name that does not exist has neither kind of address; one that has no
/// address of one kind may have the other, if only its server answered.
fn worst(name: &str, errors: &[NetError]) -> DnsError {
    let mut errors = errors.iter().map(|error| classify(name, error));
    let Some(first) = errors.next() else {
        return DnsError::NoAddress {
            name: name.to_owned(),
        };
    };
    errors.fold(first, |worst, error| match (&worst, &error) {
        (DnsError::NoSuchName { .. } | DnsError::Exhausted { .. }, _) => worst,
        (_, DnsError::Exhausted { .. }) => error,
        (_, DnsError::NoSuchName { .. }) | (DnsError::NoAddress { .. }, _) => error,
        _ => worst,
    })
}

fn classify(name: &str, error: &NetError) -> DnsError {
    let name = name.to_owned();
    match error {
        NetError::Dns(HickoryDnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => DnsError::NoSuchName { name },
            ResponseCode::NoError => DnsError::NoAddress { name },
            code => DnsError::ServerFailed {
                name,
                code: code.to_str().to_owned(),
            },
        },
        NetError::Dns(HickoryDnsError::ResponseCode(code)) => DnsError::ServerFailed {
            name,
            code: code.to_str().to_owned(),
        },
        NetError::Timeout => DnsError::Timeout { name },
        NetError::Io(source) if crate::client::is_ours(source) => DnsError::Exhausted {
            name,
            detail: source.to_string(),
        },
        NetError::Io(source) if source.kind() == std::io::ErrorKind::TimedOut => {
            DnsError::Timeout { name }
        }
        other => DnsError::Other {
            name,
            detail: other.to_string(),
        },
    }
}

/// Waits for two things at once.
async fn both<First: Future, Second: Future>(
    first: First,
    second: Second,
) -> (First::Output, Second::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut two) = (None, None);
    std::future::poll_fn(|context| {
        if one.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(context)
        {
            one = Some(output);
        }
        if two.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            two = Some(output);
        }
        match (one.take(), two.take()) {
            (Some(one), Some(two)) => Poll::Ready((one, two)),
            (left, right) => {
                (one, two) = (left, right);
                Poll::Pending
            }
        }
    })
    .await
}

/// What is known of a name, and until when.
#[derive(Debug, Clone)]
struct Answer {
    found: Result<Arc<Resolved>, DnsError>,
    until: SystemTime,
}

/// What is remembered, in two generations: when the young one is full it becomes the old one, which is forgotten.
#[derive(Debug)]
struct Memory {
    young: HashMap<String, Answer>,
    old: HashMap<String, Answer>,
    names_each: usize,
}

impl Memory {
    fn new(names: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            names_each: (names / 2).max(1),
        }
    }

    fn find(&mut self, name: &str, now: SystemTime) -> Option<Result<Arc<Resolved>, DnsError>> {
        if !self.young.contains_key(name) {
            let (name, answer) = self.old.remove_entry(name)?;
            self.insert(name, answer);
        }
        let answer = self.young.get(name)?;
        if answer.until > now {
            return Some(answer.found.clone());
        }
        self.young.remove(name);
        None
    }

    /// Remembers what says something about the name.
    fn keep(&mut self, name: String, answer: &Answer) {
        if answer.found.as_ref().err().is_none_or(DnsError::is_final) {
            self.insert(name, answer.clone());
        }
    }

    fn insert(&mut self, name: String, answer: Answer) {
        if self.young.len() >= self.names_each {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, answer);
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::rdata::{A, CNAME, TXT};

    use super::*;

    fn record(name: &str, ttl: u32, data: RData) -> Record {
        Record::from_rdata(Name::from_ascii(name).unwrap(), ttl, data)
    }

    #[test]
    fn lines_are_those_of_heritrix() {
        let address = || RData::A(A::new(192, 0, 2, 7));
        assert_eq!(
            line(&record("www.example.org.", 589, address())),
            "www.example.org.\t589\tIN\tA\t192.0.2.7\n"
        );
        // dnsjava fills short names up to the third tab stop.
        assert_eq!(
            line(&record("a.test.", 5, address())),
            "a.test.\t\t\t5\tIN\tA\t192.0.2.7\n"
        );
        assert_eq!(
            line(&record("abcd.test.", 5, address())),
            "abcd.test.\t\t5\tIN\tA\t192.0.2.7\n"
        );
        let alias = RData::CNAME(CNAME(Name::from_ascii("b.example.org.").unwrap()));
        assert_eq!(
            line(&record("www.example.org.", 60, alias)),
            "www.example.org.\t60\tIN\tCNAME\tb.example.org.\n"
        );
    }

    #[test]
    fn what_was_not_asked_for_is_not_recorded() {
        let text = TXT::new(vec![
            "one\nwww.example.org.\t5\tIN\tA\t192.0.2.9".to_owned(),
        ]);
        let answers = [RData::TXT(text), RData::A(A::new(192, 0, 2, 7))];
        let kept: Vec<Record> = answers
            .map(|data| record("www.example.org.", 5, data))
            .into_iter()
            .filter(is_of_an_address)
            .collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].record_type(), RecordType::A);
    }

    #[tokio::test]
    async fn names_of_the_hosts_file_need_no_server() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "# local\n::1 lock.example\n127.0.0.9\tlock.example Canal.example. # both\nno address\n";
        std::fs::write(file.path(), text).unwrap();
        let settings = ResolverSettings {
            // Nobody answers there.
            servers: Servers::Given(vec!["127.0.0.1:9".parse().unwrap()]),
            hosts: Some(file.path().to_owned()),
            timeout: Duration::from_millis(50),
            attempts: 1,
            ..ResolverSettings::default()
        };
        let resolver = Resolver::new(settings).unwrap();
        for (name, addresses) in [
            ("lock.example", "[127.0.0.9, ::1]"),
            ("LOCK.example.", "[127.0.0.9, ::1]"),
            ("canal.example", "[127.0.0.9]"),
        ] {
            let (found, source) = resolver.resolve(name, SystemTime::now()).await.unwrap();
            assert_eq!(format!("{:?}", found.addresses), addresses, "{name}");
            // No answer of the DNS, and so no record of one.
            assert_eq!(source, AnswerSource::HostsFile);
        }
        let other = resolver.resolve("address", SystemTime::now()).await;
        assert!(other.is_err(), "{other:?}");
    }

    #[test]
    fn memory_is_bounded_and_forgets() {
        let start = SystemTime::UNIX_EPOCH;
        let answer = |seconds| Answer {
            found: Err(DnsError::NoSuchName {
                name: String::new(),
            }),
            until: start + Duration::from_secs(seconds),
        };
        let mut memory = Memory::new(10);
        for index in 0..100 {
            memory.keep(format!("n{index}"), &answer(50));
            assert!(memory.young.len() + memory.old.len() <= 10);
            // What is asked for again and again stays.
            assert!(memory.find("n0", start).is_some());
        }
        assert!(memory.find("n1", start).is_none());
        assert!(memory.find("n0", start + Duration::from_secs(50)).is_none());

        let failed = Answer {
            found: Err(DnsError::Timeout {
                name: String::new(),
            }),
            ..answer(50)
        };
        memory.keep("failed".to_owned(), &failed);
        assert!(memory.find("failed", start).is_none());
    }

    #[test]
    fn what_two_errors_say_together() {
        let none = |code| {
            NetError::Dns(HickoryDnsError::NoRecordsFound(
                hickory_resolver::net::NoRecords::new(
                    hickory_resolver::proto::op::Query::default(),
                    code,
                ),
            ))
        };
        let no_name = || none(ResponseCode::NXDomain);
        let no_data = || none(ResponseCode::NoError);
        let failed = || NetError::Dns(HickoryDnsError::ResponseCode(ResponseCode::ServFail));
        let is = |errors: &[NetError]| worst("n", errors).to_string();
        assert_eq!(is(&[no_name(), no_name()]), "n does not exist");
        assert_eq!(is(&[failed(), no_name()]), "n does not exist");
        assert_eq!(is(&[no_data(), no_data()]), "n has no address");
        assert_eq!(is(&[no_data(), failed()]), "Server Failure for n");
        assert_eq!(is(&[failed(), no_data()]), "Server Failure for n");
        assert_eq!(
            is(&[NetError::Timeout, no_data()]),
            "no answer for n in time"
        );
        assert_eq!(is(&[]), "n has no address");
        let errno = rustix::io::Errno::MFILE.raw_os_error();
        let ours = || NetError::from(std::io::Error::from_raw_os_error(errno));
        let worst = worst("n", &[no_data(), ours()]);
        assert_eq!((worst.code(), worst.is_final()), (-5, false));
    }
}
