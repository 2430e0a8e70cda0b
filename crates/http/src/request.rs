//! A request: what to ask whom, and the exact bytes of it.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use crate::error::FetchError;
use crate::settings::FetchLimits;
use crate::tls::CertificatePolicy;

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `http:`
    Http,
    /// `https:`
    Https,
}

impl Scheme {
    /// Returns the port that need not be written.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Whom to ask. Connections are kept by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// Encrypted or not.
    pub scheme: Scheme,
    /// The name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Shown as in a `Host` field: with brackets for IPv6, without the default port.
impl fmt::Display for Authority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]", self.host)?;
        } else {
            out.write_str(&self.host)?;
        }
        if self.port != self.scheme.default_port() {
            write!(out, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// Which addresses may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressPolicy {
    /// Those of the public Internet: [`is_public`](crate::is_public).
    PublicOnly,
    /// All.
    Any,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whom to ask.
    pub authority: Authority,
    /// Where it is, in the order to try; what the resolver said.
    pub addresses: Vec<IpAddr>,
    /// `GET`, `HEAD`, …
    pub method: String,
    /// The path and query, as they are to be sent.
    pub target: String,
    /// The fields, as they are to be sent, in order: name and value.
    pub fields: Vec<(String, Vec<u8>)>,
    /// What follows the head; it needs a `Content-Length` among the fields.
    pub body: Vec<u8>,
    /// What bounds the fetch.
    pub limits: FetchLimits,
    /// Which of the addresses may be connected to.
    pub address_policy: AddressPolicy,
    /// What to do about bad certificates.
    pub certificate_policy: CertificatePolicy,
    /// The time by which certificates are judged.
    pub at: SystemTime,
}

impl Request {
    /// Makes a `GET` with a `Host` field, default limits, public addresses only, and bad certificates recorded.
    #[must_use]
    pub fn get(authority: Authority, target: &str, addresses: &[IpAddr], at: SystemTime) -> Self {
        Self {
            fields: vec![("Host".to_owned(), authority.to_string().into_bytes())],
            authority,
            addresses: addresses.to_vec(),
            method: "GET".to_owned(),
            target: target.to_owned(),
            body: Vec::new(),
            limits: FetchLimits::default(),
            address_policy: AddressPolicy::PublicOnly,
            certificate_policy: CertificatePolicy::Record,
            at,
        }
    }

    /// Adds a field behind the others.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Makes the request conditional on the last capture's `ETag` and `Last-Modified`, copied as they were received.
    ///
    /// A value that cannot be sent back is left out. The entity tag goes first, as caches prefer it.
    #[must_use]
    pub fn unless_unchanged(mut self, etag: Option<&[u8]>, last_modified: Option<&[u8]>) -> Self {
        let known = [
            ("If-None-Match", etag),
            ("If-Modified-Since", last_modified),
        ];
        for (name, value) in known {
            if let Some(value) = value.filter(|value| !value.is_empty() && is_value(value)) {
                self = self.with(name, value);
            }
        }
        self
    }

    /// Returns the bytes that are sent.
    pub fn bytes(&self) -> Result<Vec<u8>, FetchError> {
        let refuse = |what, value: &[u8]| FetchError::Request {
            what,
            value: value.escape_ascii().to_string(),
        };
        if !is_token(self.method.as_bytes()) {
            return Err(refuse("method", self.method.as_bytes()));
        }
        let is_target = |byte: u8| byte > b' ' && byte != 0x7f;
        if self.target.is_empty() || !self.target.bytes().all(is_target) {
            return Err(refuse("target", self.target.as_bytes()));
        }
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.fields {
            if !is_token(name.as_bytes()) {
                return Err(refuse("field name", name.as_bytes()));
            }
            if !is_value(value) {
                return Err(refuse("field value", value));
            }
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }

    /// Tells whether sending it twice does no harm.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.method == "GET" || self.method == "HEAD"
    }

    pub(crate) fn asks_to_close(&self) -> bool {
        self.fields.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case(b"close")
        })
    }
}

fn is_token(bytes: &[u8]) -> bool {
    let is_token_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_token_byte)
}

fn is_value(bytes: &[u8]) -> bool {
    !bytes
        .iter()
        .any(|byte| matches!(byte, b'\r' | b'\n' | b'\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(scheme: Scheme, host: &str, port: u16) -> Authority {
        Authority {
            scheme,
            host: host.to_owned(),
            port,
        }
    }

    fn get(target: &str) -> Request {
        Request::get(
            authority(Scheme::Http, "a.example", 80),
            target,
            &[],
            SystemTime::UNIX_EPOCH,
        )
    }

    #[test]
    fn hosts_as_they_are_written() {
        assert_eq!(
            authority(Scheme::Http, "a.example", 80).to_string(),
            "a.example"
        );
        assert_eq!(
            authority(Scheme::Https, "a.example", 80).to_string(),
            "a.example:80"
        );
        assert_eq!(authority(Scheme::Https, "::1", 443).to_string(), "[::1]");
        assert_eq!(
            authority(Scheme::Http, "::1", 8080).to_string(),
            "[::1]:8080"
        );
    }

    #[test]
    fn bytes_are_what_was_given() {
        let request = get("/a?b")
            .with("uSER-aGENT", "x")
            .with("X-Latin", b"caf\xe9")
            .unless_unchanged(Some(b"W/\"1\""), Some(b"Mon, 01 Jan 2024 00:00:00 GMT"));
        assert_eq!(
            request.bytes().unwrap(),
            b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nuSER-aGENT: x\r\nX-Latin: caf\xe9\r\n\
              If-None-Match: W/\"1\"\r\nIf-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n"
        );
    }

    #[test]
    fn nothing_can_be_smuggled_in() {
        for request in [
            get(""),
            get("/a b"),
            get("/a\r\nX: y"),
            get("/").with("X Y", "z"),
            get("/").with("", "z"),
            get("/").with("X", "y\r\nZ: 1"),
            get("/").with("X", "y\nZ: 1"),
            get("/").with("X", "y\0"),
        ] {
            assert_eq!(request.bytes().unwrap_err().code(), -7);
        }
        let request = get("/").unless_unchanged(Some(b"a\r\nb"), Some(b""));
        assert_eq!(request.fields.len(), 1);
    }
}
