//! A preservation repository on loopback that takes files by PUT, in all its moods.
//!
//! It takes a file once, gives it an identifier once, refuses a data file of a job whose metadata it has not, and remembers every
//! request. Moods come from a list, or by dice when that is empty and dice were given.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;

use crate::web::line::{Line, server_config};

/// How it answers the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// At once, and well.
    Good,
    /// After so many milliseconds.
    Late(u64),
    /// With the answer twice, then the connection is closed.
    Twice,
    /// Not at all: it takes the bytes and closes the connection.
    Silent,
    /// It closes the connection in the middle of the bytes.
    Cut,
    /// With this status and these words; nothing is taken.
    Status(u16, &'static str),
    /// With 503, and a second to wait; nothing is taken.
    Busy,
    /// It takes the file, and gives the receipt when it is asked for it the second time.
    Slow,
    /// With a receipt for other bytes, which it then has not.
    Confused,
}

/// A file it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenFile {
    /// What it is, as the sender says.
    pub role: String,
    /// Its job, as the sender says.
    pub job: String,
    /// The digest of its bytes.
    pub sha256: String,
    /// What it is called here.
    pub identifier: String,
    /// How often all of its bytes came.
    pub taken: u32,
    /// How often it is asked for before there is a receipt.
    pub asks_left: u32,
    /// What it came with: the identifier of the job's metadata.
    pub metadata_identifier: Option<String>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// What is on its way in, and not on the shelf yet.
    coming: Vec<String>,
    files: BTreeMap<String, TakenFile>,
    /// Method and target of every request, in order.
    log: Vec<(String, String)>,
    moods: VecDeque<Mood>,
    dice: Option<u64>,
    violations: Vec<String>,
    /// The word that lets a client in; none for everybody.
    token: Option<String>,
}

/// Who signs certificates, for one test.
pub struct TestAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for TestAuthority {
    fn default() -> Self {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("it can be signed");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }
}

impl TestAuthority {
    /// Returns its certificate, for whoever is to trust it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns what a server of this name shows; `until` is the last year it is good for.
    ///
    /// # Panics
    /// When that is no name.
    #[must_use]
    pub fn server(&self, name: &str, until: i32) -> Arc<ServerConfig> {
        let (certificate, key) = self.vouch_for(name, until);
        server_config(&certificate, &key)
    }

    /// Returns the same for a program of its own: certificate and key, in PEM.
    ///
    /// # Panics
    /// When that is no name.
    #[must_use]
    pub fn server_pem(&self, name: &str, until: i32) -> (String, String) {
        let (certificate, key) = self.vouch_for(name, until);
        (certificate.pem(), key.serialize_pem())
    }

    fn vouch_for(&self, name: &str, until: i32) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().expect("keys can be made");
        let params = CertificateParams::new(vec![name.to_owned()]);
        let mut params = params.expect("it is a name");
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer);
        (certificate.expect("it can be signed"), key)
    }
}

/// The repository; it lives until the test ends.
#[derive(Clone)]
pub struct Repository {
    address: String,
    shelf: Arc<Mutex<Shelf>>,
}

impl Repository {
    /// Opens it on a free port.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn open() -> Self {
        Self::open_at("http://127.0.0.1", None)
    }

    /// The same, with TLS, under the name `localhost`.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn open_tls(tls: Arc<ServerConfig>) -> Self {
        Self::open_at("https://localhost", Some(tls))
    }

    fn open_at(host: &str, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let repository = Self {
            address: format!("{host}:{port}"),
            shelf: Arc::default(),
        };
        let door = repository.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = door.clone();
                let tls = tls.clone();
                std::thread::spawn(move || {
                    let Ok(line) = Line::new(stream, tls.as_ref()) else {
                        return;
                    };
                    let mut line = BufReader::new(line);
                    while desk.serve(&mut line).unwrap_or(false) {}
                    line.get_mut().say_goodbye();
                });
            }
        });
        repository
    }

    /// Lets in only who has this word.
    pub fn wants(&self, token: &str) {
        self.shelf().token = Some(token.to_owned());
    }

    /// Returns the setting `to` of a stage that hands over to it.
    #[must_use]
    pub fn setting(&self) -> String {
        self.setting_with("")
    }

    /// The same with more in it, such as `, token-file = "token"`.
    #[must_use]
    pub fn setting_with(&self, more: &str) -> String {
        let address = &self.address;
        format!(
            "{{ kind = \"http\", url = \"{address}/{{harvest}}/{{job}}/{{file}}?sha256={{sha256}}\", timeout = \"20s\"{more} }}"
        )
    }

    /// Lets it answer the next requests so.
    pub fn will(&self, moods: &[Mood]) {
        self.shelf().moods.extend(moods);
    }

    /// Lets dice decide, or nothing any more.
    pub fn dice(&self, seed: Option<u64>) {
        self.shelf().dice = seed;
    }

    /// Returns the files it has, by the target of their requests.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, TakenFile> {
        self.shelf().files.clone()
    }

    /// Returns method and target of every request, in order.
    #[must_use]
    pub fn log(&self) -> Vec<(String, String)> {
        self.shelf().log.clone()
    }

    /// Returns what was done against the contract.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shelf().violations.clone()
    }

    /// Lets it have nothing.
    pub fn forget(&self) {
        self.shelf().files.clear();
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mood(&self) -> Mood {
        let mut shelf = self.shelf();
        if let Some(mood) = shelf.moods.pop_front() {
            return mood;
        }
        let Some(dice) = &mut shelf.dice else {
            return Mood::Good;
        };
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        match *dice % 16 {
            0 => Mood::Late(*dice % 150),
            1 => Mood::Twice,
            2 | 3 => Mood::Silent,
            4 => Mood::Cut,
            5 => Mood::Status(500, "broken"),
            6 => Mood::Busy,
            7 => Mood::Slow,
            _ => Mood::Good,
        }
    }

    /// Serves one request; tells whether the connection goes on.
    fn serve(&self, reader: &mut BufReader<Line>) -> io::Result<bool> {
        let Some(request) = WebRequest::read(reader)? else {
            return Ok(false);
        };
        let target = request.target.clone();
        if request.method == "PUT" {
            self.shelf().coming.push(target.clone());
        }
        let served = self.serve_request(reader, &request);
        let mut shelf = self.shelf();
        if request.method == "PUT"
            && let Some(at) = shelf.coming.iter().position(|coming| *coming == target)
        {
            shelf.coming.remove(at);
        }
        served
    }

    fn serve_request(
        &self,
        reader: &mut BufReader<Line>,
        request: &WebRequest,
    ) -> io::Result<bool> {
        let mood = self.mood();
        let mut body = Vec::new();
        if mood == Mood::Cut && request.method == "PUT" {
            reader
                .by_ref()
                .take(request.bytes / 2)
                .read_to_end(&mut body)?;
            return Ok(false);
        }
        reader.by_ref().take(request.bytes).read_to_end(&mut body)?;
        if body.len() as u64 != request.bytes {
            return Ok(false);
        }
        let method = request.method.clone();
        self.shelf().log.push((method, request.target.clone()));
        if let Mood::Late(wait) = mood {
            std::thread::sleep(Duration::from_millis(wait));
        }
        let token = self.shelf().token.clone();
        let is_let_in =
            token.is_none_or(|token| request.header("authorization") == format!("Bearer {token}"));
        let answer = match mood {
            _ if !is_let_in => answer(401, "", "the token has expired"),
            Mood::Status(code, words) => answer(code, "", words),
            Mood::Busy => answer(503, "Retry-After: 1\r\n", "busy"),
            _ => self.answer(request, &body, mood),
        };
        if matches!(mood, Mood::Silent | Mood::Cut) {
            return Ok(false);
        }
        let line = reader.get_mut();
        line.write_all(answer.as_bytes())?;
        if mood == Mood::Twice {
            line.write_all(answer.as_bytes())?;
        }
        line.flush()?;
        Ok(mood != Mood::Twice)
    }

    fn answer(&self, request: &WebRequest, body: &[u8], mood: Mood) -> String {
        let mut shelf = self.shelf();
        if request.method == "GET" {
            // Whoever has sent it and died is asked for patience, and does not send it again.
            if shelf.coming.contains(&request.target) {
                return answer(202, "", "");
            }
            let Some(file) = shelf.files.get_mut(&request.target) else {
                return answer(404, "", "not here");
            };
            if file.asks_left > 0 {
                file.asks_left -= 1;
                return answer(202, "", "");
            }
            return answer(200, "", &file.receipt());
        }
        let found = ecluse_spool::digest(body);
        let (sha256, role) = (
            request.header("ecluse-sha256"),
            request.header("ecluse-role"),
        );
        if found != sha256 {
            let what = format!("{} came with {found}, said to be {sha256}", request.target);
            shelf.violations.push(what);
            return answer(422, "", "wrong digest");
        }
        let job = request.header("ecluse-job");
        let mut metadata = shelf.files.values().filter(|file| file.job == job);
        let has_metadata = metadata.any(|file| file.role == "metadata" && file.asks_left == 0);
        if role == "data" && !has_metadata {
            let what = format!("{} came before the metadata of its job", request.target);
            shelf.violations.push(what);
            return answer(409, "", "order");
        }
        if mood == Mood::Confused {
            let receipt = format!("{{\"sha256\": \"{}\"}}", "0".repeat(64));
            return answer(201, "", &receipt);
        }
        let number = shelf.files.len();
        let identifier = request.header("ecluse-metadata-identifier");
        let file = shelf
            .files
            .entry(request.target.clone())
            .or_insert_with(|| TakenFile {
                role,
                job,
                sha256,
                identifier: format!("ark:/12148/bpt{number}"),
                taken: 0,
                asks_left: if mood == Mood::Slow { 1 } else { 0 },
                metadata_identifier: (!identifier.is_empty()).then_some(identifier),
            });
        file.taken += 1;
        match file.asks_left {
            0 => answer(201, "", &file.receipt()),
            _ => answer(202, "", ""),
        }
    }
}

impl TakenFile {
    fn receipt(&self) -> String {
        format!(
            "{{\"identifier\": \"{}\", \"sha256\": \"{}\"}}",
            self.identifier, self.sha256
        )
    }
}

fn answer(code: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

struct WebRequest {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    bytes: u64,
}

impl WebRequest {
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next(), words.next());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map(|length| length.parse());
        Ok(Some(Self {
            method: method.unwrap_or_default(),
            target: target.unwrap_or_default(),
            bytes: length.and_then(Result::ok).unwrap_or(0),
            headers,
        }))
    }

    fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }
}
