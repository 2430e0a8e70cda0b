//! Signed requests.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ecluse_stage::{Failure, Home};
use sha2::{Digest, Sha256};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use super::path_of;
use crate::settings::S3;
use crate::sign::{Request, Signer, hex, query_text};

/// A request that failed on its way is sent so often.
const TRIES: u32 = 3;
/// The pause after the first try.
const PAUSE: Duration = Duration::from_millis(200);
/// More than any list or message of the service.
const TEXT_BYTES: u64 = 8 << 20;

/// A connection to one bucket.
pub(super) struct Client {
    agent: Agent,
    signer: Signer,
    /// With scheme, and with the bucket unless that is in the path.
    origin: String,
    host: String,
    bucket_in_path: Option<String>,
}

/// One request.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) method: &'static str,
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(&'a str, String)],
    pub(super) body: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    pub(super) fn of(method: &'static str, key: &'a str) -> Self {
        Self {
            method,
            key,
            query: &[],
            headers: &[],
            body: None,
        }
    }
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: u16,
    response: http::Response<Body>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the body, up to `bytes`.
    pub(super) fn body(&mut self, bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        let reader = self.response.body_mut().with_config().limit(bytes + 1);
        let read = reader.reader().take(bytes).read_to_end(&mut body);
        read.map_err(|error| Failure::defer(format!("cannot read the answer: {error}")))?;
        Ok(body)
    }

    pub(super) fn text(&mut self) -> Result<String, Failure> {
        let body = self.body(TEXT_BYTES)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

impl Client {
    pub(super) fn open(settings: &S3, home: &Home) -> Result<Self, Failure> {
        let tls = match &settings.ca_file {
            Some(path) => TlsConfig::builder()
                .root_certs(RootCerts::from(authorities(&home.path(path))?))
                .build(),
            None => TlsConfig::default(),
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_per_call(Some(settings.timeout))
            .timeout_connect(Some(settings.timeout.min(Duration::from_secs(30))))
            .user_agent(concat!("ecluse/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build()
            .new_agent();
        let signer = Signer {
            key: secret(&home.path(&settings.key_file))?,
            secret: secret(&home.path(&settings.secret_file))?,
            region: settings.region.clone(),
        };
        let (scheme, host) = settings
            .endpoint
            .split_once("://")
            .ok_or_else(|| Failure::config(format!("{} is no endpoint", settings.endpoint)))?;
        let (host, bucket_in_path) = if settings.path_style {
            (host.to_owned(), Some(settings.bucket.clone()))
        } else {
            (format!("{}.{host}", settings.bucket), None)
        };
        Ok(Self {
            agent,
            signer,
            origin: format!("{scheme}://{host}"),
            host: host.to_ascii_lowercase(),
            bucket_in_path,
        })
    }

    /// Returns the address of a key.
    pub(super) fn url(&self, key: &str) -> String {
        let path = path_of(self.bucket_in_path.as_deref(), key);
        format!("{}{path}", self.origin)
    }

    /// Sends a request that must not write over anything. A store that knows no such condition gets it
    /// without: the key was free a moment ago.
    pub(super) fn call_new(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let answer = self.call(call)?;
        if answer.status != 501 {
            return Ok(answer);
        }
        let headers: Vec<(&str, String)> = call
            .headers
            .iter()
            .filter(|(name, _)| *name != "if-none-match")
            .cloned()
            .collect();
        self.call(&Call {
            headers: &headers,
            ..*call
        })
    }

    /// Sends a request, again when the way or the service failed for a moment.
    pub(super) fn call(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let mut tried = 1;
        loop {
            match self.send(call) {
                Ok(answer) if answer.status < 500 || answer.status == 501 || tried == TRIES => {
                    return Ok(answer);
                }
                Err(error) if tried == TRIES => {
                    return Err(Failure::defer(format!(
                        "cannot reach {}: {error}",
                        self.origin
                    )));
                }
                Ok(_) | Err(_) => {}
            }
            std::thread::sleep(PAUSE * tried);
            tried += 1;
        }
    }

    fn send(&self, call: &Call<'_>) -> Result<Answer, ureq::Error> {
        let body_sha256 = hex(&Sha256::digest(call.body.unwrap_or_default()));
        let time = jiff::Timestamp::now()
            .strftime("%Y%m%dT%H%M%SZ")
            .to_string();
        let mut headers = vec![
            ("host".to_owned(), self.host.clone()),
            ("x-amz-content-sha256".to_owned(), body_sha256.clone()),
            ("x-amz-date".to_owned(), time.clone()),
        ];
        for (name, value) in call.headers {
            headers.push(((*name).to_owned(), value.clone()));
        }
        let path = path_of(self.bucket_in_path.as_deref(), call.key);
        let authorization = self.signer.authorization(&Request {
            method: call.method,
            path: &path,
            query: call.query,
            headers: &headers,
            body_sha256: &body_sha256,
            time: &time,
        });
        let mut uri = format!("{}{path}", self.origin);
        if !call.query.is_empty() {
            uri.push('?');
            uri.push_str(&query_text(call.query));
        }
        let mut request = http::Request::builder().method(call.method).uri(uri);
        for (name, value) in headers.iter().filter(|(name, _)| name != "host") {
            request = request.header(name, value);
        }
        let request = request.header("authorization", authorization);
        let response = match call.body {
            Some(body) => self.agent.run(request.body(body)?)?,
            None => self.agent.run(request.body(())?)?,
        };
        Ok(Answer {
            status: response.status().as_u16(),
            response,
        })
    }
}

/// Returns the text of the first element of that name.
pub(super) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = value
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#34;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&");
    Some(plain)
}

fn secret(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))?;
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(Failure::config(format!(
            "{} does not hold one word",
            path.display()
        )));
    }
    Ok(text.to_owned())
}

fn authorities(path: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let fault = |error: &dyn std::fmt::Display| {
        Failure::config(format!("cannot read {}: {error}", path.display()))
    };
    let pem = std::fs::read(path).map_err(|error| fault(&error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| fault(&error))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(fault(&"it holds no certificate"));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found() {
        let text = "<Error><Code>NoSuchKey</Code><Message>a &lt;b&gt; &amp;lt;</Message></Error>";
        assert_eq!(element(text, "Code").unwrap(), "NoSuchKey");
        assert_eq!(element(text, "Message").unwrap(), "a <b> &lt;");
        assert_eq!(element(text, "Key"), None);
        assert_eq!(element("<Code>", "Code"), None);
    }
}
