//! What a connection is made of: a plain socket, or TLS on one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A plain socket, or TLS on one.
pub(crate) enum Line {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Line {
    /// Begins TLS if there is a certificate to show.
    pub(crate) fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(tls) = tls else {
            return Ok(Self::Plain(socket));
        };
        let session = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Tells the other side that no more will come.
    pub(crate) fn say_goodbye(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A server with a certificate for every name below `test`, signed by itself.
pub(crate) fn self_signed() -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("keys can be made");
    let params = CertificateParams::new(vec!["*.test".to_owned()]).expect("it is a name");
    let certificate = params.self_signed(&key).expect("it can be signed");
    server_config(&certificate, &key)
}

/// A server that shows this certificate.
pub(crate) fn server_config(certificate: &Certificate, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let secret = PrivateKeyDer::try_from(key.serialize_der()).expect("the key was just made");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .expect("the certificate is good");
    Arc::new(config)
}
