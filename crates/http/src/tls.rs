//! TLS with everything accepted and everything recorded, unless the policy says to refuse.
//!
//! An archive wants the page behind an expired certificate, and wants to know that it was expired. So certificates and
//! signatures are verified as a browser would, and the result is a list of faults beside the exchange. Every
//! connection has a verifier of its own; sessions are not resumed, as a resumed one shows no certificate.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, ProtocolVersion,
    RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::settings::Roots;

/// What to do about certificates that do not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CertificatePolicy {
    /// Go on, and record what is wrong with them.
    Record,
    /// End the handshake.
    Refuse,
}

/// What is known of a connection's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFacts {
    /// The version, as `WARC-Protocol` has it: `tls/1.3`.
    pub version: &'static str,
    /// The cipher suite, by its IANA name.
    pub cipher_suite: String,
    /// The name asked for in the handshake; none for an address.
    pub server_name: Option<String>,
    /// The certificates as the server sent them, its own first, in DER.
    pub certificates: Vec<Vec<u8>>,
    /// What is wrong with them; nothing if they verify.
    pub faults: Vec<CertificateFault>,
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateFault {
    /// Its time is over.
    #[error("expired")]
    Expired,
    /// Its time has not come.
    #[error("not-yet-valid")]
    NotYetValid,
    /// It is for other names.
    #[error("name-mismatch")]
    NameMismatch,
    /// It is signed with its own key.
    #[error("self-signed")]
    SelfSigned,
    /// Nobody known has signed it.
    #[error("unknown-issuer")]
    UnknownIssuer,
    /// A signature in the chain or in the handshake is wrong, or of a kind that cannot be checked (RSA under 2,048
    /// bits, MD5, SHA-1).
    #[error("bad-signature")]
    BadSignature,
    /// It cannot be read.
    #[error("unreadable")]
    Unreadable,
    /// Anything else, in the library's words.
    #[error("other: {0}")]
    Other(String),
}

/// How a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TlsFault {
    /// The server does not speak TLS.
    #[error("not-tls")]
    NotTls,
    /// The server has only versions or ciphers that are refused here: TLS 1.0 and 1.1, RC4, 3DES.
    #[error("legacy")]
    Legacy,
    /// The server refused, with an alert.
    #[error("alert")]
    Alert,
    /// The certificate was refused, as the policy says.
    #[error("certificate")]
    Certificate,
    /// The connection ended during the handshake.
    #[error("closed")]
    Closed,
    /// The host is no name that TLS can ask for.
    #[error("name")]
    Name,
    /// Anything else.
    #[error("other")]
    Other,
}

/// A handshake that failed: its kind, and the library's words.
#[derive(Debug)]
pub(crate) struct HandshakeError {
    pub(crate) fault: TlsFault,
    pub(crate) detail: String,
}

/// Makes TLS connections.
#[derive(Debug)]
pub(crate) struct Tls {
    config: ClientConfig,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Tls {
    pub(crate) fn new(roots: &Roots) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = webpki_verifier(roots, &provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_webpki_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self { config, verifier })
    }

    /// Shakes hands; `at` is the time by which certificates are judged.
    pub(crate) async fn connect(
        &self,
        host: &str,
        policy: CertificatePolicy,
        at: SystemTime,
        socket: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, TlsFacts), HandshakeError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| HandshakeError {
            fault: TlsFault::Name,
            detail: error.to_string(),
        })?;
        let recorder = Arc::new(Recorder {
            inner: Arc::clone(&self.verifier),
            policy,
            faults: Mutex::new(Vec::new()),
        });
        let mut config = self.config.clone();
        config.time_provider = Arc::new(FixedTime(at));
        config
            .dangerous()
            .set_certificate_verifier(Arc::clone(&recorder) as Arc<dyn ServerCertVerifier>);
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name.clone(), socket)
            .await
            .map_err(|error| handshake_error(&error))?;
        let facts = facts(&stream, &name, &recorder);
        Ok((stream, facts))
    }
}

fn webpki_verifier(
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::Mozilla => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Roots::Given(certificates) => {
            for certificate in certificates {
                store
                    .add(CertificateDer::from(certificate.clone()))
                    .map_err(|error| error.to_string())?;
            }
        }
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())
}

fn facts(stream: &TlsStream<TcpStream>, name: &ServerName<'_>, recorder: &Recorder) -> TlsFacts {
    let (_, connection) = stream.get_ref();
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "tls/1.3",
        Some(ProtocolVersion::TLSv1_2) => "tls/1.2",
        _ => "tls",
    };
    let cipher_suite = connection
        .negotiated_cipher_suite()
        .and_then(|suite| suite.suite().as_str())
        .unwrap_or_default()
        // The library tells the suites of TLS 1.3 apart by a name that IANA does not know.
        .replace("TLS13_", "TLS_");
    TlsFacts {
        version,
        cipher_suite,
        server_name: match name {
            ServerName::DnsName(name) => Some(name.as_ref().to_owned()),
            _ => None,
        },
        certificates: connection
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|certificate| certificate.to_vec())
            .collect(),
        faults: recorder
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    }
}

fn handshake_error(error: &io::Error) -> HandshakeError {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let fault = match tls {
        Some(rustls::Error::InvalidMessage(_)) => TlsFault::NotTls,
        Some(rustls::Error::PeerIncompatible(_)) => TlsFault::Legacy,
        Some(rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        )) => TlsFault::Legacy,
        Some(rustls::Error::AlertReceived(_)) => TlsFault::Alert,
        Some(rustls::Error::InvalidCertificate(_)) => TlsFault::Certificate,
        Some(_) => TlsFault::Other,
        None => TlsFault::Closed,
    };
    HandshakeError {
        fault,
        detail: error.to_string(),
    }
}

/// The time of the request.
#[derive(Debug)]
struct FixedTime(SystemTime);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO)))
    }
}

/// Verifies one connection and writes down what is wrong with it.
#[derive(Debug)]
struct Recorder {
    inner: Arc<WebPkiServerVerifier>,
    policy: CertificatePolicy,
    faults: Mutex<Vec<CertificateFault>>,
}

impl Recorder {
    fn note(&self, fault: CertificateFault) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    fn judge<Proof>(
        &self,
        result: Result<Proof, rustls::Error>,
        assertion: Proof,
    ) -> Result<Proof, rustls::Error> {
        match (result, self.policy) {
            (Ok(proof), _) => Ok(proof),
            (Err(error), CertificatePolicy::Refuse) => Err(error),
            (Err(error), CertificatePolicy::Record) => {
                self.note(fault_of(&error));
                Ok(assertion)
            }
        }
    }
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let result = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if result.is_err() {
            // The library stops at the first fault; these two are worth knowing beside it.
            if let Ok(certificate) = webpki::EndEntityCert::try_from(end_entity) {
                if certificate.issuer() == certificate.subject() {
                    self.note(CertificateFault::SelfSigned);
                }
                if certificate
                    .verify_is_valid_for_subject_name(server_name)
                    .is_err()
                {
                    self.note(CertificateFault::NameMismatch);
                }
            }
        }
        self.judge(result, ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let result = self
            .inner
            .verify_tls12_signature(message, certificate, signature);
        self.judge(result, HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let result = self
            .inner
            .verify_tls13_signature(message, certificate, signature);
        self.judge(result, HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn fault_of(error: &rustls::Error) -> CertificateFault {
    let rustls::Error::InvalidCertificate(error) = error else {
        return CertificateFault::Other(error.to_string());
    };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotYetValid
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::NameMismatch
        }
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            CertificateFault::BadSignature
        }
        CertificateError::BadEncoding => CertificateFault::Unreadable,
        other => CertificateFault::Other(other.to_string()),
    }
}
