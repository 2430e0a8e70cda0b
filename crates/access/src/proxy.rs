//! Proxy mode: a browser whose proxy we are sees the web as it was, without a byte of it rewritten.
//!
//! Every site keeps its own address and so its own origin; nothing is asked of the live web, because nothing here can ask. What
//! would outlive the date that was chosen (cookies, caches, service workers, promises of HTTPS) is kept from the browser.
//! At `http://ecluse.proxy/` a reader chooses the date, for his address alone.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use crate::figures::RequestKind;
use crate::loader::LoadedCapture;
use crate::moment::Moment;
use crate::proxy_ca::{CaError, CertificateAuthority};
use crate::query_string::Parameters;
use crate::reader::{Reader, WrongToken};
use crate::reply::{Asked, Reply, put, redirect, whole};
use crate::site::{AccessSite, Question, Refusal, Resolved, checked_url};
use crate::url_text::safe_url;
use crate::wanted::{Wanted, WantedList};

/// The host that is no site of the archive but ours.
pub(crate) const MAGIC_HOST: &str = "ecluse.proxy";
/// Readers whose choices are remembered.
const CLIENTS: usize = 10_000;

/// Fields of archived answers that would act beyond the page, or beyond the date: kept for the record only.
const WITHHELD: [&str; 22] = [
    "access-control-allow-credentials",
    "access-control-allow-origin",
    "age",
    "alt-svc",
    "cache-control",
    "clear-site-data",
    "content-security-policy-report-only",
    "etag",
    "expect-ct",
    "expires",
    "nel",
    "origin-agent-cluster",
    "p3p",
    "pragma",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
];
/// Fields of a connection that is long gone.
const GONE: [&str; 11] = [
    "connection",
    "content-length",
    "keep-alive",
    "memento-datetime",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What one reader chose.
#[derive(Debug, Clone, Default)]
struct ProxyClient {
    moment: Option<Moment>,
    collection: Option<String>,
    /// What is not in the archive is put on the list.
    collects: bool,
}

type ClientKey = (Option<IpAddr>, Vec<String>);

/// What proxy mode remembers.
pub(crate) struct ProxyMode {
    pub(crate) ca: CertificateAuthority,
    clients: Mutex<HashMap<ClientKey, (ProxyClient, Instant)>>,
    /// Shown on our page and asked for with each choice: no archived page can read it, and so none can choose.
    secret: String,
}

impl ProxyMode {
    pub(crate) fn open(directory: &Path) -> Result<Self, CaError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| CaError::File {
            path: directory.to_owned(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok(Self {
            ca: CertificateAuthority::open(directory)?,
            clients: Mutex::default(),
            secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    fn client(&self, reader: &Reader) -> ProxyClient {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.get_mut(&key_of_client(reader));
        known.map_or_else(ProxyClient::default, |(client, used)| {
            *used = Instant::now();
            client.clone()
        })
    }

    fn remember(&self, reader: &Reader, client: ProxyClient) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key_of_client(reader);
        if clients.len() >= CLIENTS && !clients.contains_key(&key) {
            let oldest = clients.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                clients.remove(&oldest);
            }
        }
        clients.insert(key, (client, Instant::now()));
    }
}

fn key_of_client(reader: &Reader) -> ClientKey {
    (reader.address, reader.users.clone())
}

impl AccessSite {
    /// Answers for the server of a URL.
    pub(crate) fn proxy_answer(&self, mode: &ProxyMode, mut asked: Asked, url: &str) -> Reply {
        let reader = self
            .readers
            .reader(asked.peer, &asked.headers, header::PROXY_AUTHORIZATION);
        let answered = match reader {
            Ok(reader) => {
                asked.reader = reader;
                self.proxy_route(mode, &mut asked, url)
            }
            Err(WrongToken) => Err(challenge()),
        };
        let reply = answered.unwrap_or_else(|refusal| self.proxy_refuse(&asked, &refusal));
        self.figures.count(RequestKind::Proxy, reply.status());
        reply
    }

    fn proxy_route(
        &self,
        mode: &ProxyMode,
        asked: &mut Asked,
        url: &str,
    ) -> Result<Reply, Refusal> {
        let url = checked_url(url)?;
        let host = url::Url::parse(&url).ok();
        let host = host.as_ref().and_then(url::Url::host_str);
        if host == Some(MAGIC_HOST) {
            return self.magic(mode, asked);
        }
        if asked.method == Method::OPTIONS
            && asked
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        {
            return Ok(preflight(asked));
        }
        if !matches!(asked.method, Method::GET | Method::HEAD) {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Err(Refusal::new(status, "method", &asked.method));
        }
        // It would answer in our place, with pages of another date.
        if asked.header("service-worker") == Some("script") {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "no_worker", &url));
        }
        let client = mode.client(&asked.reader);
        let wanted = match asked.header("accept-datetime") {
            Some(date) => Moment::from_http_date(date).ok_or_else(|| {
                Refusal::bad_request(format!("Accept-Datetime: {date} is no date of HTTP"))
            })?,
            None => client.moment.unwrap_or_else(|| self.proxy_date()),
        };
        asked.proxied_at = Some(wanted);
        let main = self.archive.main();
        let collection = client.collection.as_deref().unwrap_or(main);
        let question = Question {
            asked,
            collection,
            generation: self.archive.current(collection)?,
        };
        let resolved = self.resolve(&question, &url, wanted);
        if client.collects
            && let (Err(refusal), Some(list)) = (&resolved, &self.wanted)
            // What a rule hides is there.
            && refusal.reason == "absent" && refusal.rule.is_none()
        {
            put_down(list, &url);
        }
        let Resolved { loaded, .. } = resolved?;
        self.proxy_reply(question.asked, &url, loaded)
    }

    /// Returns the date that readers see until they choose one.
    fn proxy_date(&self) -> Moment {
        let digits = self.settings.proxy_date.as_str();
        let last = || Moment::last_of("9").expect("digits");
        match digits {
            "" => last(),
            digits => Moment::last_of(digits).unwrap_or_else(last),
        }
    }

    fn proxy_reply(
        &self,
        asked: &Asked,
        url: &str,
        loaded: LoadedCapture,
    ) -> Result<Reply, Refusal> {
        let is_redirect = loaded.head.status / 100 == 3;
        if is_redirect && loaded.head.text("Location").is_some_and(|to| to == url) {
            return Err(Refusal::new(StatusCode::LOOP_DETECTED, "loop", url));
        }
        let moment = loaded.capture.moment();
        let mut headers = HeaderMap::new();
        for (name, value) in &loaded.head.fields {
            let name = name.to_ascii_lowercase();
            if GONE.contains(&name.as_str()) {
                continue;
            }
            let is_copy = name == "content-disposition" && !asked.reader.may_download;
            let name = match WITHHELD.contains(&name.as_str()) || is_copy {
                true => format!("x-archive-orig-{name}"),
                false => name,
            };
            let value = match name.as_str() {
                "location" => safe_url(&ecluse_surt::header_text(value))
                    .into_owned()
                    .into_bytes(),
                _ => value.clone(),
            };
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&value)) {
                headers.append(name, value);
            }
        }
        let mut reply = self.plain_reply(asked, loaded, headers, false)?;
        let date = HeaderName::from_static("memento-datetime");
        put(&mut reply, date, &moment.http_date());
        let original = format!("<{}>; rel=\"original\"", safe_url(url));
        if let Ok(original) = HeaderValue::from_str(&original) {
            reply.headers_mut().append(header::LINK, original);
        }
        // The same address is another page at another date.
        put(&mut reply, header::CACHE_CONTROL, "no-store");
        put(&mut reply, header::VARY, "accept-datetime, origin");
        allow_origin(asked, &mut reply);
        Ok(reply)
    }

    /// Answers for our own host.
    fn magic(&self, mode: &ProxyMode, asked: &Asked) -> Result<Reply, Refusal> {
        if !matches!(asked.method, Method::GET | Method::HEAD) {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Err(Refusal::new(status, "method", &asked.method));
        }
        match asked.path.as_str() {
            "/" => Ok(self.proxy_page(mode, asked)),
            "/ca.pem" => {
                let certificate = mode.ca.certificate.clone();
                Ok(whole(
                    StatusCode::OK,
                    "application/x-x509-ca-cert",
                    certificate,
                ))
            }
            "/set" => self.choose_date(mode, asked),
            "/settings" => self.choose_language(asked),
            // A browser sends a token when it has been asked for one.
            "/login" if asked.reader.users.is_empty() => Err(challenge()),
            "/login" => Ok(redirect(StatusCode::SEE_OTHER, "/")),
            path => match path.strip_prefix("/static/") {
                Some(name) => self.asset(name),
                None => Err(Refusal::not_found(path)),
            },
        }
    }

    /// Says whether a reader may collect URLs: staff, or everybody where no staff is named.
    fn may_collect(&self, reader: &Reader) -> bool {
        self.wanted.is_some() && (reader.is_staff || self.settings.staff.is_empty())
    }

    fn proxy_page(&self, mode: &ProxyMode, asked: &Asked) -> Reply {
        let client = mode.client(&asked.reader);
        let moment = client.moment.unwrap_or_else(|| self.proxy_date());
        let digits = moment.as_str();
        let has_date = client.moment.is_some() || !self.settings.proxy_date.is_empty();
        let words = self.pages.words(self.language(asked));
        let main = self.archive.main();
        let more = minijinja::context! {
            secret => mode.secret,
            date => has_date.then(|| words.date(moment)),
            day => has_date.then(|| format!("{}-{}-{}", &digits[..4], &digits[4..6], &digits[6..8])),
            chosen => client.collection.as_deref().unwrap_or(main),
            may_collect => self.may_collect(&asked.reader),
            collects => client.collects,
            count => self.wanted.as_ref().map_or(0, WantedList::count),
            has_tokens => self.settings.tokens.is_some(),
            user => asked.reader.users.first(),
        };
        let mut reply = self.page(asked, StatusCode::OK, "proxy.html", more);
        put(&mut reply, header::CACHE_CONTROL, "no-store");
        reply
    }

    fn choose_date(&self, mode: &ProxyMode, asked: &Asked) -> Result<Reply, Refusal> {
        let parameters = Parameters::parse(asked.query.as_deref().unwrap_or_default());
        if parameters.get("key") != Some(mode.secret.as_str()) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "no_choice", ""));
        }
        let mut client = mode.client(&asked.reader);
        let date = parameters.get("date").unwrap_or_default();
        let digits: String = date.chars().filter(char::is_ascii_digit).collect();
        client.moment = match digits.as_str() {
            "" => None,
            digits => Some(
                Moment::last_of(digits)
                    .filter(|_| digits.len() >= 4)
                    .ok_or_else(|| Refusal::bad_request(format!("date={date}")))?,
            ),
        };
        if let Some(name) = parameters.get("collection") {
            let known = self.archive.collections();
            if !known.iter().any(|one| one == name) {
                return Err(Refusal::bad_request(format!("collection={name}")));
            }
            client.collection = Some(name.to_owned());
        }
        client.collects =
            parameters.get("collect") == Some("on") && self.may_collect(&asked.reader);
        mode.remember(&asked.reader, client);
        Ok(redirect(StatusCode::SEE_OTHER, "/"))
    }

    /// Says why something is not shown, in the place of a page of another server: with nothing to load.
    fn proxy_refuse(&self, asked: &Asked, refusal: &Refusal) -> Reply {
        let mut reply = self.proxy_refusal_page(asked, refusal);
        if refusal.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            put(
                &mut reply,
                header::PROXY_AUTHENTICATE,
                "Basic realm=\"archive\"",
            );
        }
        self.put_refusal_fields(asked, refusal, &mut reply);
        put(&mut reply, header::CACHE_CONTROL, "no-store");
        allow_origin(asked, &mut reply);
        reply
    }
}

fn challenge() -> Refusal {
    let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    Refusal::new(status, "wrong_token", "")
}

fn put_down(list: &WantedList, url: &str) {
    match list.add(url) {
        Ok(Wanted::Added | Wanted::Known) => {}
        Ok(Wanted::Full) => tracing::warn!("the list of wanted URLs is full"),
        Err(error) => tracing::error!(%error, "cannot write the list of wanted URLs"),
    }
}

/// Lets the page that asks see the answer: what its server allowed once, the archive cannot know.
fn allow_origin(asked: &Asked, reply: &mut Reply) {
    if let Some(origin) = asked.headers.get(header::ORIGIN).cloned() {
        let headers = reply.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let yes = HeaderValue::from_static("true");
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
    }
}

/// Answers a browser that asks whether it may ask.
fn preflight(asked: &Asked) -> Reply {
    let mut reply = whole(StatusCode::NO_CONTENT, "text/plain; charset=utf-8", "");
    allow_origin(asked, &mut reply);
    put(
        &mut reply,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        "GET, HEAD",
    );
    if let Some(names) = asked.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        let headers = reply.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    reply
}
