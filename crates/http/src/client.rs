//! The client: connects, asks, and receives, within limits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{self, Instant};

use crate::address::is_public;
use crate::connection::{Connection, Pool, PoolKey, PoolLimits, Stream};
use crate::error::{FetchError, HttpLimit};
use crate::exchange::{ConnectionUse, Exchange, Timings};
use crate::message::{Asked, End, Received, Receiver, Step};
use crate::rate::TokenBucket;
use crate::request::{AddressPolicy, Request, Scheme};
use crate::settings::{FetchLimits, Settings};
use crate::tap::Tap;
use crate::tls::Tls;

const READ_BYTES: usize = 32 * 1024;
/// A name may have thousands of addresses, all of somebody else.
const ADDRESSES_TRIED: usize = 4;
/// What browsers refuse to connect to ("bad ports" of the Fetch standard): a link must not make us speak to a mail server.
const REFUSED_PORTS: [u16; 81] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
    103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
    512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
    995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
    6669, 6679, 6697,
];

/// Fetches, one exchange at a time on each connection. Redirects are not followed: each is a capture of its own.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    tls: Tls,
    pool: Pool,
    free_connections: Semaphore,
    bandwidth: Option<Mutex<TokenBucket>>,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {detail}")]
pub struct ClientError {
    /// What the library said.
    pub detail: String,
}

impl Client {
    /// Makes a client.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let tls = Tls::new(&settings.roots).map_err(|detail| ClientError { detail })?;
        let pool = Pool::new(PoolLimits {
            connections: settings.kept_connections,
            per_authority: settings.kept_per_authority,
            keep_for: settings.keep_for,
        });
        let connections = settings.connections.clamp(1, Semaphore::MAX_PERMITS);
        let bandwidth = settings
            .bytes_per_second
            .map(|rate| Mutex::new(TokenBucket::new(rate, Instant::now())));
        Ok(Self {
            settings,
            tls,
            pool,
            free_connections: Semaphore::new(connections),
            bandwidth,
        })
    }

    /// Fetches once. Whatever came over the wire is in the exchange; only if nothing came is there an error.
    ///
    /// A kept connection that turns out closed before a byte of the answer is replaced by a new one, once.
    pub async fn fetch(
        &self,
        request: &Request,
        tap: &mut dyn Tap,
    ) -> Result<Exchange, FetchError> {
        let bytes = request.bytes()?;
        let peers = reachable(request)?;
        let _permit = self
            .free_connections
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let clock = Clock::start(&request.limits);
        let key = PoolKey::of(request);
        let mut used = ConnectionUse::New;
        if request.is_repeatable()
            && let Some(connection) = self.pool.take(&key, request, clock.start)
        {
            let timings = Timings::default();
            match self
                .converse(connection, request, &bytes, tap, &clock, timings)
                .await
            {
                Err(FetchError::Lost { .. }) => used = ConnectionUse::NewAfterStale,
                other => return self.conclude(other?, request, bytes, ConnectionUse::Kept, key),
            }
        }
        let (connection, timings) = self.connect(request, &peers, &clock).await?;
        let talk = self
            .converse(connection, request, &bytes, tap, &clock, timings)
            .await?;
        self.conclude(talk, request, bytes, used, key)
    }

    /// Closes the connections kept.
    pub fn close_kept(&self) {
        self.pool.drop_all();
    }

    /// Returns how many connections are kept.
    #[must_use]
    pub fn kept_connections(&self) -> usize {
        self.pool.len()
    }

    /// Connects to the first peer that can be.
    async fn connect(
        &self,
        request: &Request,
        peers: &[SocketAddr],
        clock: &Clock,
    ) -> Result<(Connection, Timings), FetchError> {
        let mut failure = FetchError::NoAddress {
            host: request.authority.host.clone(),
        };
        for &peer in peers {
            match self.connect_to(request, peer, clock).await {
                Ok(connected) => return Ok(connected),
                Err(error @ FetchError::Exhausted { .. }) => return Err(error),
                Err(error) => failure = error,
            }
            if clock.is_over() {
                break;
            }
        }
        Err(failure)
    }

    async fn connect_to(
        &self,
        request: &Request,
        peer: SocketAddr,
        clock: &Clock,
    ) -> Result<(Connection, Timings), FetchError> {
        let limits = &request.limits;
        let begun = Instant::now();
        let socket = match clock.within(limits.connect, TcpStream::connect(peer)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(source)) if is_ours(&source) => return Err(FetchError::Exhausted { source }),
            Ok(Err(source)) => return Err(FetchError::Connect { peer, source }),
            Err(_) => return Err(clock.timeout(peer, HttpLimit::Connect, limits.connect)),
        };
        // Requests are small and wait for their answer: nothing is gained by gathering bytes.
        let _ = socket.set_nodelay(true);
        let mut timings = Timings {
            connect: begun.elapsed(),
            ..Timings::default()
        };
        if request.authority.scheme == Scheme::Http {
            let stream = Stream::Plain(socket);
            let tls = None;
            return Ok((Connection { stream, peer, tls }, timings));
        }
        let begun = Instant::now();
        let host = &request.authority.host;
        let handshake = self
            .tls
            .connect(host, request.certificate_policy, request.at, socket);
        match clock.within(limits.tls, handshake).await {
            Ok(Ok((stream, facts))) => {
                timings.tls = begun.elapsed();
                let stream = Stream::Tls(Box::new(stream));
                let tls = Some(Arc::new(facts));
                Ok((Connection { stream, peer, tls }, timings))
            }
            Ok(Err(error)) => Err(FetchError::Tls {
                peer,
                fault: error.fault,
                detail: error.detail,
            }),
            Err(_) => Err(clock.timeout(peer, HttpLimit::Tls, limits.tls)),
        }
    }

    /// Sends the request and receives the answer.
    async fn converse(
        &self,
        mut connection: Connection,
        request: &Request,
        bytes: &[u8],
        tap: &mut dyn Tap,
        clock: &Clock,
        mut timings: Timings,
    ) -> Result<Talk, FetchError> {
        let peer = connection.peer;
        let limits = &request.limits;
        let sending = async {
            connection.stream.write_all(bytes).await?;
            connection.stream.flush().await
        };
        let sent = match clock.within(limits.first_byte, sending).await {
            Ok(sent) => sent,
            Err(_) => return Err(clock.timeout(peer, HttpLimit::FirstByte, limits.first_byte)),
        };
        let asked = if request.method == "HEAD" {
            Asked::HeadOnly
        } else {
            Asked::Body
        };
        let mut reception = Reception {
            client: self,
            limits,
            clock,
            receiver: Receiver::new(asked, limits.of_message(), &self.settings.spooling),
            bucket: limits
                .bytes_per_second
                .map(|rate| TokenBucket::new(rate, Instant::now())),
            waited: Duration::ZERO,
            first_byte: None,
            bytes: 0,
        };
        // A server may answer and close before it has read the request: what it said is worth having.
        let (end, limit) = match reception.run(&mut connection.stream, tap).await {
            Ok(ended) => ended,
            Err(source) => return Err(FetchError::Spool { peer, source }),
        };
        let Some(first_byte) = reception.first_byte else {
            return Err(match end {
                Ended::HttpLimit(limit) => clock.timeout(peer, limit, limit_value(limit, limits)),
                Ended::Failed(source) => FetchError::Lost {
                    peer,
                    source: Some(source),
                },
                Ended::Closed | Ended::ClosedWithoutNotify | Ended::Done => FetchError::Lost {
                    peer,
                    source: sent.err(),
                },
            });
        };
        timings.first_byte = first_byte.saturating_duration_since(clock.start);
        let received = reception
            .receiver
            .finish(end.of_message(), tap)
            .await
            .map_err(|source| FetchError::Spool { peer, source })?;
        timings.total = clock.start.elapsed();
        Ok(Talk {
            connection,
            received,
            limit,
            timings,
        })
    }

    /// Keeps the connection if it can be, and makes the exchange.
    fn conclude(
        &self,
        talk: Talk,
        request: &Request,
        bytes: Vec<u8>,
        used: ConnectionUse,
        key: PoolKey,
    ) -> Result<Exchange, FetchError> {
        let Talk {
            connection,
            received,
            limit,
            timings,
        } = talk;
        let peer = connection.peer;
        let tls = connection.tls.clone();
        let kept_alive = received.can_keep_alive && !request.asks_to_close();
        if kept_alive {
            self.pool.put(key, connection, Instant::now());
        }
        Ok(Exchange {
            request: bytes,
            shape: received.shape,
            head: received.head,
            interim: received.interim,
            framing: received.framing,
            block: received.block,
            payload_bytes: received.payload_bytes,
            payload_digest: received.payload_digest,
            payload_sha256: received.payload_sha256,
            truncation: received.truncation,
            limit,
            anomalies: received.anomalies,
            peer,
            tls,
            timings,
            connection: used,
            kept_alive,
            payload_place: received.payload_place,
        })
    }
}

/// Returns where the request may go.
fn reachable(request: &Request) -> Result<Vec<SocketAddr>, FetchError> {
    let host = || request.authority.host.clone();
    let port = request.authority.port;
    if REFUSED_PORTS.contains(&port) {
        return Err(FetchError::PortRefused { host: host(), port });
    }
    let Some(&first) = request.addresses.first() else {
        return Err(FetchError::NoAddress { host: host() });
    };
    let is_allowed = |address: &IpAddr| match request.address_policy {
        AddressPolicy::Any => true,
        AddressPolicy::PublicOnly => is_public(*address),
    };
    let peers: Vec<SocketAddr> = request
        .addresses
        .iter()
        .copied()
        .filter(is_allowed)
        .take(ADDRESSES_TRIED)
        .map(|address| SocketAddr::new(address, port))
        .collect();
    if peers.is_empty() {
        return Err(FetchError::AddressRefused {
            host: host(),
            address: first,
        });
    }
    Ok(peers)
}

/// Tells whether a connection failed for want of something of this machine's, whatever the server may be.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let wants = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| wants.iter().any(|errno| errno.raw_os_error() == code))
}

/// An exchange before its connection is let go.
struct Talk {
    connection: Connection,
    received: Received,
    limit: Option<HttpLimit>,
    timings: Timings,
}

/// When a fetch began and when it must end.
struct Clock {
    start: Instant,
    deadline: Instant,
    total: Duration,
}

impl Clock {
    fn start(limits: &FetchLimits) -> Self {
        let start = Instant::now();
        Self {
            start,
            deadline: later(start, limits.total),
            total: limits.total,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Runs until a limit or the deadline, whichever is first.
    async fn within<Work: Future>(
        &self,
        limit: Duration,
        work: Work,
    ) -> Result<Work::Output, time::error::Elapsed> {
        let until = later(Instant::now(), limit).min(self.deadline);
        time::timeout_at(until, work).await
    }

    fn timeout(&self, peer: SocketAddr, limit: HttpLimit, after: Duration) -> FetchError {
        if self.is_over() && !matches!(limit, HttpLimit::Connect | HttpLimit::Tls) {
            return FetchError::Timeout {
                peer,
                limit: HttpLimit::Total,
                after: self.total,
            };
        }
        FetchError::Timeout { peer, limit, after }
    }
}

/// Adds without overflow: a limit may be as good as none.
fn later(from: Instant, by: Duration) -> Instant {
    const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
    from + by.min(LONG)
}

fn limit_value(limit: HttpLimit, limits: &FetchLimits) -> Duration {
    match limit {
        HttpLimit::Connect => limits.connect,
        HttpLimit::Tls => limits.tls,
        HttpLimit::FirstByte => limits.first_byte,
        HttpLimit::Idle => limits.idle,
        HttpLimit::Slow => limits.slow_grace,
        HttpLimit::Total => limits.total,
    }
}

/// How the bytes of a response ended.
enum Ended {
    Done,
    Closed,
    ClosedWithoutNotify,
    Failed(io::Error),
    HttpLimit(HttpLimit),
}

impl Ended {
    fn of_message(&self) -> End {
        match self {
            Self::Done => End::Done,
            Self::Closed => End::Closed,
            Self::ClosedWithoutNotify => End::ClosedWithoutNotify,
            Self::Failed(_) => End::Broken,
            Self::HttpLimit(_) => End::Time,
        }
    }
}

/// Reads one response from a stream.
struct Reception<'f> {
    client: &'f Client,
    limits: &'f FetchLimits,
    clock: &'f Clock,
    receiver: Receiver,
    bucket: Option<TokenBucket>,
    /// How long our own limits of rate have held it up.
    waited: Duration,
    first_byte: Option<Instant>,
    bytes: u64,
}

impl Reception<'_> {
    /// Reads to the end. The only error is that the block cannot be written.
    async fn run(
        &mut self,
        stream: &mut Stream,
        tap: &mut dyn Tap,
    ) -> io::Result<(Ended, Option<HttpLimit>)> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let (patience, limit) = match self.first_byte {
                None => (self.limits.first_byte, HttpLimit::FirstByte),
                Some(_) => (self.limits.idle, HttpLimit::Idle),
            };
            let read = self.clock.within(patience, stream.read(&mut buffer)).await;
            let count = match read {
                Ok(Ok(0)) => return Ok((Ended::Closed, None)),
                Ok(Ok(count)) => count,
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok((Ended::ClosedWithoutNotify, None));
                }
                Ok(Err(error)) => return Ok((Ended::Failed(error), None)),
                Err(_) => {
                    let limit = if self.clock.is_over() {
                        HttpLimit::Total
                    } else {
                        limit
                    };
                    return Ok((Ended::HttpLimit(limit), Some(limit)));
                }
            };
            let now = Instant::now();
            self.first_byte.get_or_insert(now);
            self.bytes += count as u64;
            if self.receiver.push(&buffer[..count], tap) == Step::Done {
                self.charge(count, now);
                return Ok((Ended::Done, None));
            }
            self.receiver.relieve().await?;
            // The server is not slow when our disk is.
            self.waited += now.elapsed();
            if let Some(limit) = self.pace(count, now).await {
                return Ok((Ended::HttpLimit(limit), Some(limit)));
            }
        }
    }

    /// Waits as the limits of rate ask for, and tells whether the response has been too slow or too long.
    async fn pace(&mut self, count: usize, now: Instant) -> Option<HttpLimit> {
        let wait = self.charge(count, now);
        if !wait.is_zero() {
            time::sleep_until(later(now, wait).min(self.clock.deadline)).await;
            self.waited += wait;
        }
        if self.clock.is_over() {
            return Some(HttpLimit::Total);
        }
        let taken = now
            .saturating_duration_since(self.first_byte.unwrap_or(now))
            .saturating_sub(self.waited);
        let is_slow = taken >= self.limits.slow_grace
            && (self.bytes as f64)
                < self.limits.slowest_bytes_per_second as f64 * taken.as_secs_f64();
        is_slow.then_some(HttpLimit::Slow)
    }

    fn charge(&mut self, count: usize, now: Instant) -> Duration {
        let own = self
            .bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.take(count, now));
        let shared = self
            .client
            .bandwidth
            .as_ref()
            .map_or(Duration::ZERO, |bucket| {
                bucket
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(count, now)
            });
        own.max(shared)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::request::Authority;

    fn request(port: u16, addresses: &[IpAddr]) -> Request {
        let authority = Authority {
            scheme: Scheme::Http,
            host: "a.example".to_owned(),
            port,
        };
        Request::get(authority, "/", addresses, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn few_of_many_addresses_are_tried_and_no_mail_server() {
        let many: Vec<IpAddr> = (0..3900_u32)
            .map(|number| IpAddr::from(0x0808_0000_u32.wrapping_add(number).to_be_bytes()))
            .collect();
        assert_eq!(
            reachable(&request(80, &many)).unwrap().len(),
            ADDRESSES_TRIED
        );
        for port in [25, 6667] {
            let refused = reachable(&request(port, &many)).unwrap_err();
            assert!(
                matches!(refused, FetchError::PortRefused { .. }),
                "{refused}"
            );
        }
    }

    #[test]
    fn want_of_descriptors_is_not_the_servers_fault() {
        let error = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_ours(&error(rustix::io::Errno::MFILE)));
        assert!(is_ours(&error(rustix::io::Errno::NOBUFS)));
        assert!(!is_ours(&error(rustix::io::Errno::CONNREFUSED)));
        let source = error(rustix::io::Errno::NFILE);
        assert!(FetchError::Exhausted { source }.is_local());
    }
}
