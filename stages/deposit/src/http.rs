//! A service that takes files by PUT and answers with a receipt; `docs/formats/deposit.md` is the contract.
//!
//! A file is sent as it is read, and its last piece only when the digest of all of it is the right one: what was altered here
//! never becomes a file there.

use std::error::Error;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ecluse_holding::{Fixity, Going, open_plain};
use ecluse_stage::{Failure, hex};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};

use crate::receiver::{Answer, DepositFault, DepositTask, Receipt, fill};
use crate::settings::HttpSettings;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);
/// How often a request under way is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How much of a file is read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// So much of an answer is kept.
const ANSWER_BYTES: usize = 64 << 10;
/// So much of it stands in a reason.
const TOLD_LETTERS: usize = 300;

pub(crate) struct HttpReceiver {
    settings: HttpSettings,
    /// Read for each request: a token that expires is replaced while the stage runs.
    token: Option<PathBuf>,
    client: Client,
    runtime: Runtime,
}

impl HttpReceiver {
    pub(crate) fn open(settings: HttpSettings, root: &Path) -> Result<Self, Failure> {
        // The HTTP client asks for the process's own choice; whoever made one before is right too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .connect_timeout(CONNECT)
            // A file that goes elsewhere than the settings say is not handed over.
            .redirect(reqwest::redirect::Policy::none())
            // A service that answers twice would answer the next request with the words for this one.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("ecluse/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &settings.ca_file {
            let path = root.join(file);
            let unread = |error: &dyn std::fmt::Display| {
                Failure::config(format!("cannot read {}: {error}", path.display()))
            };
            let pem = std::fs::read(&path).map_err(|error| unread(&error))?;
            let own =
                reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unread(&error))?;
            client = client.tls_certs_only(own);
        }
        let token = settings.token_file.as_ref().map(|file| root.join(file));
        if let Some(path) = &token {
            read_token(path).map_err(Failure::config)?;
        }
        Ok(Self {
            token,
            client: client.build().map_err(Failure::config)?,
            runtime: Builder::new_current_thread().enable_all().build()?,
            settings,
        })
    }

    /// Asks for the receipt of a file.
    pub(crate) fn ask(&self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let request = self.request(Method::GET, task)?;
        let progress = Arc::new(AtomicU64::new(0));
        let (status, text) = self.exchange(request, &progress, task.going)?;
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Answer::Absent),
            StatusCode::OK => match Receipt::parse(&text) {
                Some(receipt) => Ok(Answer::Receipt(receipt)),
                None => Err(DepositFault::Refused(told(
                    "asked for a receipt, it answers something else",
                    status,
                    &text,
                ))),
            },
            StatusCode::ACCEPTED => Ok(Answer::Pending),
            status => Err(fault(status, &text)),
        }
    }

    /// Sends a file.
    pub(crate) fn send(&self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let progress = Arc::new(AtomicU64::new(0));
        let is_bad = Arc::new(AtomicBool::new(false));
        let file = open_plain(task.path).map_err(|error| {
            Failure::defer(format!("cannot read {}: {error}", task.path.display()))
        })?;
        let pieces = CheckedPieces {
            file,
            hash: Sha256::new(),
            left: task.wanted.bytes,
            wanted: task.wanted.clone(),
            progress: Arc::clone(&progress),
            is_bad: Arc::clone(&is_bad),
            is_over: false,
        };
        let body = Body::wrap_stream(futures_util::stream::iter(pieces));
        let request = self
            .request(Method::PUT, task)?
            .header(CONTENT_LENGTH, task.wanted.bytes)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(body);
        let exchanged = self.exchange(request, &progress, task.going);
        if is_bad.load(Ordering::Relaxed) {
            let (path, wanted) = (task.path.display(), &task.wanted);
            return Err(Failure::hold(format!(
                "{path} is not what was packed, {wanted}: it was not sent"
            ))
            .into());
        }
        let (status, text) = exchanged?;
        match status {
            StatusCode::OK | StatusCode::CREATED => match Receipt::parse(&text) {
                Some(receipt) => Ok(Answer::Receipt(receipt)),
                None => Ok(Answer::Pending),
            },
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(Answer::Pending),
            // It has something under this key: what that is, it says when it is asked.
            StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => match self.ask(task)? {
                Answer::Absent => Err(DepositFault::Refused(told("it refuses", status, &text))),
                answer => Ok(answer),
            },
            status => Err(fault(status, &text)),
        }
    }

    fn request(&self, method: Method, task: &DepositTask<'_>) -> Result<RequestBuilder, Failure> {
        let key = &task.file.key;
        let text = fill(&self.settings.url, task, &encoded);
        let url = url::Url::parse(&text)
            .map_err(|error| Failure::hold(format!("{text} is no address: {error}")))?;
        let mut request = self
            .client
            .request(method, url)
            .header(ACCEPT, "application/json")
            .header("Ecluse-Job", encoded(&key.job))
            .header("Ecluse-Harvest", encoded(&key.harvest))
            .header("Ecluse-File", encoded(&key.file))
            .header("Ecluse-Sha256", &key.sha256)
            .header("Ecluse-Package", encoded(&task.file.package))
            .header("Ecluse-Channel", encoded(&task.file.channel))
            .header("Ecluse-Role", &task.file.role);
        if let Some(identifier) = task.metadata_identifier {
            request = request.header("Ecluse-Metadata-Identifier", encoded(identifier));
        }
        if let Some(path) = &self.token {
            request = request.bearer_auth(read_token(path).map_err(Failure::halt)?);
        }
        Ok(request)
    }

    /// Sends a request and reads the answer; gives up when nothing has moved for too long.
    fn exchange(
        &self,
        request: RequestBuilder,
        progress: &AtomicU64,
        going: Going<'_>,
    ) -> Result<(StatusCode, String), DepositFault> {
        let exchange = async {
            let mut response = request.send().await?;
            let status = response.status();
            if let Some(busy) = busy(&response) {
                return Ok(Err(busy));
            }
            let mut text = Vec::new();
            while let Some(piece) = response.chunk().await? {
                progress.fetch_add(1, Ordering::Relaxed);
                if text.len() < ANSWER_BYTES {
                    text.extend_from_slice(&piece);
                }
            }
            text.truncate(ANSWER_BYTES);
            Ok(Ok((status, String::from_utf8_lossy(&text).into_owned())))
        };
        let watched = watch(exchange, progress, self.settings.timeout, going);
        let answer: Result<Result<_, DepositFault>, reqwest::Error> =
            self.runtime.block_on(watched)?;
        match answer {
            Ok(answer) => answer,
            Err(error) => Err(DepositFault::Away(with_causes(&error))),
        }
    }
}

/// Returns the word that lets us in.
fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Waits for an answer, as long as something moves and nobody asks to stop.
async fn watch<Output>(
    future: impl Future<Output = Output>,
    progress: &AtomicU64,
    timeout: Duration,
    going: Going<'_>,
) -> Result<Output, DepositFault> {
    let mut future = pin!(future);
    let mut seen = 0;
    let mut moved = Instant::now();
    loop {
        if let Ok(output) = tokio::time::timeout(LOOK, &mut future).await {
            return Ok(output);
        }
        if !going() {
            return Err(Failure::give_back().into());
        }
        let now = progress.load(Ordering::Relaxed);
        if now != seen {
            (seen, moved) = (now, Instant::now());
        } else if moved.elapsed() >= timeout {
            return Err(DepositFault::Away(format!(
                "nothing moved for {}s",
                timeout.as_secs()
            )));
        }
    }
}

/// Returns how long the service asks to be left alone, if it does.
fn busy(response: &Response) -> Option<DepositFault> {
    let status = response.status();
    let is_busy = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::LOCKED,
    ];
    if !is_busy.contains(&status) {
        return None;
    }
    let after = response.headers().get(RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok());
    let wait = after.and_then(|after| match after.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
            let left = at.duration_since(jiff::Timestamp::now());
            Some(Duration::try_from(left).unwrap_or_default())
        }
    });
    let words = format!("the repository answers {status}");
    Some(DepositFault::Busy(words, wait))
}

/// Tells what an answer means that is no receipt.
fn fault(status: StatusCode, text: &str) -> DepositFault {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            DepositFault::Closed(told("the repository does not let us in", status, text))
        }
        StatusCode::INSUFFICIENT_STORAGE => {
            DepositFault::Closed(told("the repository has no room", status, text))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => {
            DepositFault::Away(told("the repository", status, text))
        }
        status if status.is_server_error() => {
            DepositFault::Away(told("the repository", status, text))
        }
        status => DepositFault::Refused(told("the repository refuses", status, text)),
    }
}

/// Says what the service said, in one line that can be shown anywhere.
fn told(what: &str, status: StatusCode, text: &str) -> String {
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let plain = plain.chars().take(TOLD_LETTERS);
    let plain = plain.map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let plain: String = plain.collect();
    match plain.is_empty() {
        true => format!("{what}: {status}"),
        false => format!("{what}: {status}: {plain}"),
    }
}

fn with_causes(error: &reqwest::Error) -> String {
    let mut text = "cannot reach the repository".to_owned();
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Percent-encodes all but letters, digits, `-`, `_`, `~` and single dots: a name of dots alone would lead upwards.
fn encoded(text: &str) -> String {
    let is_dots = text.bytes().all(|byte| byte == b'.');
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'.' if is_dots => encoded.push('_'),
            b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The pieces of a file. The last one comes only when all of them together have the right digest.
struct CheckedPieces {
    file: std::fs::File,
    hash: Sha256,
    left: u64,
    wanted: Fixity,
    progress: Arc<AtomicU64>,
    is_bad: Arc<AtomicBool>,
    is_over: bool,
}

impl Iterator for CheckedPieces {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let piece = self.piece();
        self.is_over = self.left == 0 || piece.is_err();
        self.progress.fetch_add(1, Ordering::Relaxed);
        match piece {
            Ok(piece) if piece.is_empty() => None,
            piece => Some(piece),
        }
    }
}

impl CheckedPieces {
    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut piece = vec![0; most.min(PIECE_BYTES)];
        if let Err(error) = self.file.read_exact(&mut piece) {
            // It is shorter than it was.
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            self.is_bad.store(is_short, Ordering::Relaxed);
            return Err(error);
        }
        self.left -= piece.len() as u64;
        self.hash.update(&piece);
        let is_last = self.left == 0;
        if is_last && hex(&self.hash.clone().finalize()) != self.wanted.sha256 {
            self.is_bad.store(true, Ordering::Relaxed);
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_place_of_an_address() {
        for (name, shown) in [
            ("a-b_c.warc.gz", "a-b_c.warc.gz"),
            ("..", "__"),
            ("../x", "..%2Fx"),
            ("a/b?c#d e%41", "a%2Fb%3Fc%23d%20e%2541"),
            ("é\n", "%C3%A9%0A"),
        ] {
            assert_eq!(encoded(name), shown, "{name:?}");
        }
    }

    #[test]
    fn what_is_not_the_file_never_becomes_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let bytes = vec![7; PIECE_BYTES + 9];
        let wanted = Fixity {
            bytes: bytes.len() as u64,
            sha256: ecluse_spool::digest(&bytes),
        };
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let is_bad = Arc::new(AtomicBool::new(false));
            let pieces = CheckedPieces {
                file: open_plain(&path).unwrap(),
                hash: Sha256::new(),
                left: wanted.bytes,
                wanted: wanted.clone(),
                progress: Arc::default(),
                is_bad: Arc::clone(&is_bad),
                is_over: false,
            };
            let pieces: Vec<_> = pieces.collect();
            let good: Vec<u8> = pieces.iter().flatten().flatten().copied().collect();
            (good, is_bad.load(Ordering::Relaxed))
        };
        assert_eq!(read(&bytes), (bytes.clone(), false));
        let mut flipped = bytes.clone();
        flipped[3] ^= 1;
        let (sent, is_bad) = read(&flipped);
        assert!(is_bad && sent.len() < bytes.len());
        let (sent, is_bad) = read(&bytes[..10]);
        assert!(is_bad && sent.is_empty());
    }

    #[test]
    fn answers_are_told_apart_by_who_can_help() {
        let of = |status: u16| fault(StatusCode::from_u16(status).unwrap(), "so\nit is\u{1b}");
        assert!(matches!(of(500), DepositFault::Away(_)));
        assert!(matches!(of(403), DepositFault::Closed(_)));
        assert!(matches!(of(507), DepositFault::Closed(_)));
        assert!(matches!(of(302), DepositFault::Refused(_)));
        let DepositFault::Refused(words) = of(422) else {
            panic!("422 is refused");
        };
        assert!(words.ends_with("so it is\u{fffd}"), "{words:?}");
    }
}
