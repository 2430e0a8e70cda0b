//! Responses over TLS: versions, faults of certificates, failed handshakes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ecluse_http::{
    Anomaly, CertificateFault, CertificatePolicy, Client, ConnectionUse, FetchError, FetchLimits,
    HttpLimit, Request, Roots, Scheme, Settings, TlsFault, Truncation,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::script::{Act, LOOPBACK, Server, block, block_on, client, limits, payload, request};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Within the life of the certificates made here.
fn at(year: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952)
}

/// A server's certificate for `host.test`, from 2020 until 2030, and the root that signed it.
struct Identity {
    chain: Vec<Vec<u8>>,
    key: Vec<u8>,
    root: Vec<u8>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2030, 1, 1);
    params
}

fn signed() -> Identity {
    let mut root = params("root.test");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.distinguished_name
        .push(rcgen::DnType::CommonName, "Test Root");
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params("host.test").signed_by(&key, &root).unwrap();
    Identity {
        chain: vec![leaf.der().to_vec()],
        key: key.serialize_der(),
        root: root.der().to_vec(),
    }
}

fn self_signed() -> Identity {
    let key = KeyPair::generate().unwrap();
    let leaf = params("host.test").self_signed(&key).unwrap();
    Identity {
        chain: vec![leaf.der().to_vec()],
        key: key.serialize_der(),
        root: Vec::new(),
    }
}

fn server_config(
    identity: &Identity,
    versions: &[&'static SupportedProtocolVersion],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            identity.chain.iter().cloned().map(Into::into).collect(),
            PrivateKeyDer::try_from(identity.key.clone()).unwrap(),
        )
        .unwrap()
}

fn serve(identity: &Identity, scripts: Vec<Vec<Act>>) -> Server {
    Server::with_tls(server_config(identity, &[&TLS13, &TLS12]), scripts)
}

fn one_answer() -> Vec<Vec<Act>> {
    vec![vec![Act::Send(ANSWER.to_vec()), Act::Close]]
}

fn secure(server: &Server) -> Request {
    let mut request = request(server, limits());
    request.authority.scheme = Scheme::Https;
    request.at = at(2025);
    request
}

fn client_trusting(identity: &Identity) -> Client {
    Client::new(Settings {
        roots: Roots::Given(vec![identity.root.clone()]),
        ..Settings::new(&std::env::temp_dir())
    })
    .unwrap()
}

#[test]
fn both_versions_with_a_good_certificate() {
    let identity = signed();
    for (version, name) in [(&TLS13, "tls/1.3"), (&TLS12, "tls/1.2")] {
        let server = Server::with_tls(server_config(&identity, &[version]), one_answer());
        let client = client_trusting(&identity);
        let mut request = secure(&server);
        request.certificate_policy = CertificatePolicy::Refuse;
        let exchange = block_on(client.fetch(&request, &mut ())).unwrap();
        assert_eq!(block(&exchange), ANSWER);
        let tls = exchange.tls.as_ref().unwrap();
        assert_eq!(tls.version, name);
        assert!(tls.cipher_suite.starts_with("TLS_"), "{}", tls.cipher_suite);
        assert!(!tls.cipher_suite.contains("TLS13"));
        assert_eq!(tls.server_name.as_deref(), Some("host.test"));
        assert_eq!(tls.certificates, identity.chain);
        assert_eq!(tls.faults, []);
        assert!(exchange.timings.tls > Duration::ZERO);
        assert!(exchange.annotations().is_empty());
    }
}

#[test]
fn faults_are_recorded_and_the_page_is_kept() {
    use CertificateFault as Fault;
    let (good, own) = (signed(), self_signed());
    let cases: [(&Identity, &str, u64, &[Fault]); 6] = [
        (&good, "host.test", 2031, &[Fault::Expired]),
        (&good, "host.test", 2019, &[Fault::NotYetValid]),
        (&good, "other.test", 2025, &[Fault::NameMismatch]),
        (&good, "127.0.0.1", 2025, &[Fault::NameMismatch]),
        (
            &own,
            "host.test",
            2025,
            &[Fault::SelfSigned, Fault::UnknownIssuer],
        ),
        (
            &own,
            "other.test",
            2031,
            &[Fault::SelfSigned, Fault::NameMismatch, Fault::Expired],
        ),
    ];
    for (identity, host, year, faults) in cases {
        let mut server = serve(identity, one_answer());
        let client = client_trusting(&good);
        let ask = |server: &Server| {
            let mut request = secure(server);
            request.authority.host = host.to_owned();
            request.at = at(year);
            request
        };
        let exchange = block_on(client.fetch(&ask(&server), &mut ())).unwrap();
        assert_eq!(payload(&exchange), b"hi");
        let tls = exchange.tls.as_ref().unwrap();
        assert_eq!(tls.faults, faults, "{host} in {year}");
        assert_eq!(tls.server_name.is_none(), host == "127.0.0.1");
        assert_eq!(exchange.annotations().len(), faults.len());

        server = serve(identity, one_answer());
        let mut request = ask(&server);
        request.certificate_policy = CertificatePolicy::Refuse;
        let error = block_on(client.fetch(&request, &mut ())).unwrap_err();
        assert!(
            matches!(
                error,
                FetchError::Tls {
                    fault: TlsFault::Certificate,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(error.code(), -2);
    }
}

#[test]
fn an_unknown_issuer_is_recorded() {
    let server = serve(&signed(), one_answer());
    let exchange = block_on(client().fetch(&secure(&server), &mut ())).unwrap();
    assert_eq!(
        exchange.tls.unwrap().faults,
        [CertificateFault::UnknownIssuer]
    );
}

#[test]
fn handshakes_fail_in_their_ways() {
    let cases: &[(&[u8], TlsFault)] = &[
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TlsFault::NotTls),
        (b"\xff\xfe\xfd\xfc\xfb\xfa garbage", TlsFault::NotTls),
        (b"\x15\x03\x01\x00\x02\x02\x46", TlsFault::Legacy),
        (b"\x15\x03\x03\x00\x02\x02\x28", TlsFault::Legacy),
        (b"\x15\x03\x03\x00\x02\x02\x70", TlsFault::Alert),
        (b"", TlsFault::Closed),
        (b"\x16\x03\x03\x00", TlsFault::Closed),
    ];
    for (bytes, expected) in cases {
        let server = Server::raw(vec![Act::Send(bytes.to_vec()), Act::Close]);
        let error = block_on(client().fetch(&secure(&server), &mut ())).unwrap_err();
        let FetchError::Tls { fault, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(fault, expected, "{}: {error}", bytes.escape_ascii());
        assert_eq!(error.code(), -2);
    }
    let mut request = secure(&Server::raw(vec![Act::Hang]));
    request.authority.host = "not a name".to_owned();
    let error = block_on(client().fetch(&request, &mut ())).unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Tls {
                fault: TlsFault::Name,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_handshake_that_never_ends_ends_at_its_limit() {
    let server = Server::raw(vec![Act::Hang]);
    let mut request = secure(&server);
    request.limits = FetchLimits {
        tls: Duration::from_millis(100),
        ..limits()
    };
    let error = block_on(client().fetch(&request, &mut ())).unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Timeout {
                limit: HttpLimit::Tls,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.code(), -2);
}

#[test]
fn an_end_without_notice_is_named() {
    let identity = self_signed();
    let open = b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec();
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".to_vec();
    for (bytes, act, anomaly, truncation) in [
        (&open, Act::Cut, true, None),
        (&open, Act::Close, false, None),
        (&short, Act::Cut, false, Some(Truncation::Disconnect)),
    ] {
        let server = serve(&identity, vec![vec![Act::Send(bytes.clone()), act]]);
        let exchange = block_on(client().fetch(&secure(&server), &mut ())).unwrap();
        assert_eq!(block(&exchange), *bytes);
        assert_eq!(exchange.truncation, truncation);
        assert_eq!(
            exchange.anomalies.contains(&Anomaly::NoCloseNotify),
            anomaly
        );
    }
}

#[test]
fn a_connection_is_used_again() {
    let script = vec![
        Act::Send(ANSWER.to_vec()),
        Act::AwaitRequest,
        Act::Send(ANSWER.to_vec()),
        Act::AwaitRequest,
        Act::Close,
    ];
    let server = serve(
        &self_signed(),
        vec![script, vec![Act::Send(ANSWER.to_vec()), Act::Close]],
    );
    let client = client();
    block_on(async {
        let request = secure(&server);
        for expected in [
            ConnectionUse::New,
            ConnectionUse::Kept,
            ConnectionUse::NewAfterStale,
        ] {
            let exchange = client.fetch(&request, &mut ()).await.unwrap();
            assert_eq!(exchange.connection, expected);
            assert_eq!(payload(&exchange), b"hi");
            assert_eq!(exchange.peer.ip(), LOOPBACK);
            assert!(exchange.tls.is_some());
        }
        // What was accepted with its faults is not used where they would be refused.
        let mut strict = request.clone();
        strict.certificate_policy = CertificatePolicy::Refuse;
        assert!(client.fetch(&strict, &mut ()).await.is_err());
    });
}
