//! The certificates of proxy mode: a CA of our own, made when it is first wanted, and one certificate for each host.
//!
//! The key of the CA lies in a file that only its owner may read, the certificate beside it for those who install it. Whoever has the key
//! can pretend to be any server to the terminals that trust it: so it never leaves its file, and hosts get another key, which lives in
//! memory alone. How many certificates are remembered is bounded.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use crate::moment::civil;

/// The files of the CA in its directory.
const KEY: &str = "ca.key";
const CERTIFICATE: &str = "ca.pem";
/// Hosts whose certificates are remembered.
const HOSTS: usize = 1_000;
/// Days that a CA and a certificate of a host are good for.
const CA_DAYS: i64 = 3_650;
const HOST_DAYS: i64 = 90;
/// After this time the certificate of a host is made anew.
const FRESH: Duration = Duration::from_secs(30 * 86_400);

/// Why there is no CA.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    /// A file or the directory cannot be read or written.
    #[error("the CA of proxy mode: {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others may read the key.
    #[error("the CA of proxy mode: {}: others may read it; make a new CA, and then chmod 600", .0.display())]
    Open(PathBuf),
    /// The key is none.
    #[error("the CA of proxy mode: {}: {reason}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No directory was named.
    #[error("proxy mode needs a directory for its CA: access.proxy-ca")]
    NoDirectory,
}

/// A CA, and the certificates that it gave.
pub(crate) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    host_key: KeyPair,
    /// The certificate, for those who install it.
    pub(crate) certificate: String,
    own: CertificateDer<'static>,
    made: Mutex<HashMap<String, (Arc<ServerConfig>, Instant)>>,
}

impl CertificateAuthority {
    /// Opens the CA of a directory; makes directory, key and certificate where there are none.
    pub(crate) fn open(directory: &Path) -> Result<Self, CaError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| CaError::File { path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(at(directory))?;
        let path = directory.join(KEY);
        let wrong = |reason: rcgen::Error| CaError::Key {
            path: path.clone(),
            reason: reason.to_string(),
        };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate().map_err(wrong)?;
                let text = key.serialize_pem();
                write_new(&path, 0o600, &text).map_err(at(&path))?;
                tracing::info!(path = %path.display(), "CA of proxy mode made");
                text
            }
            text => text.map_err(at(&path))?,
        };
        let mode = fs::metadata(&path).map_err(at(&path))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(CaError::Open(path));
        }
        let key = KeyPair::from_pem(&text).map_err(wrong)?;
        let parameters = ca_parameters(&key, today());
        let shown = directory.join(CERTIFICATE);
        // Name and key say all that a certificate of a host refers to: one that is lost can be made again.
        let certificate = match fs::read_to_string(&shown) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = parameters.self_signed(&key).map_err(wrong)?.pem();
                write_new(&shown, 0o644, &made).map_err(at(&shown))?;
                made
            }
            text => text.map_err(at(&shown))?,
        };
        let own = CertificateDer::from_pem_slice(certificate.as_bytes());
        let own = own.map_err(|reason| CaError::Key {
            path: shown,
            reason: reason.to_string(),
        })?;
        Ok(Self {
            own,
            issuer: Issuer::new(parameters, key),
            host_key: KeyPair::generate().map_err(wrong)?,
            certificate,
            made: Mutex::default(),
        })
    }

    /// Returns what to speak TLS with in the name of a host.
    pub(crate) fn config_of(&self, host: &str) -> io::Result<Arc<ServerConfig>> {
        let host = host.to_ascii_lowercase();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((config, since)) = made.get(&host)
            && since.elapsed() < FRESH
        {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.make(&host)?);
        if made.len() >= HOSTS {
            let oldest = made.iter().min_by_key(|(_, (_, since))| *since);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                made.remove(&oldest);
            }
        }
        made.insert(host, (Arc::clone(&config), Instant::now()));
        Ok(config)
    }

    fn make(&self, host: &str) -> io::Result<ServerConfig> {
        let mut parameters =
            CertificateParams::new(vec![host.to_owned()]).map_err(io::Error::other)?;
        let today = today();
        limit(&mut parameters, today - 1, today + HOST_DAYS);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        // A common name has 64 characters at most; the host stands among the other names anyway.
        let name: String = host.chars().take(64).collect();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let certificate = parameters
            .signed_by(&self.host_key, &self.issuer)
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(self.host_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone(), self.own.clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn ca_parameters(key: &KeyPair, today: i64) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    // Two archives' CAs on one terminal must not have one name.
    let digest = Sha256::digest(key.public_key_raw());
    let mark: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let name = format!("Ecluse web archive, proxy mode, {mark}");
    parameters.distinguished_name.push(DnType::CommonName, name);
    limit(&mut parameters, today - 1, today + CA_DAYS);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn write_new(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Returns the day, counted from 1970.
fn today() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs() / 86_400).unwrap_or(0))
}

/// Puts down from which day to which a certificate is good.
fn limit(parameters: &mut CertificateParams, first: i64, last: i64) {
    let [first, last] = [first, last].map(|days| {
        let (year, month, day) = civil(days);
        let small = |number: i64| u8::try_from(number).unwrap_or(1);
        date_time_ymd(
            i32::try_from(year).unwrap_or(2026),
            small(month),
            small(day),
        )
    });
    parameters.not_before = first;
    parameters.not_after = last;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_made_once_and_its_key_is_its_owners() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("state/ca");
        let first = CertificateAuthority::open(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(KEY)), 0o600);
        let again = CertificateAuthority::open(&directory).unwrap();
        assert_eq!(first.certificate, again.certificate);
        let other = CertificateAuthority::open(&home.path().join("other")).unwrap();
        assert_ne!(first.certificate, other.certificate);
        fs::set_permissions(directory.join(KEY), fs::Permissions::from_mode(0o640)).unwrap();
        let open = CertificateAuthority::open(&directory).err().unwrap();
        assert!(open.to_string().contains("others may read it"), "{open}");
        fs::set_permissions(directory.join(KEY), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(directory.join(KEY), "nonsense").unwrap();
        let broken = CertificateAuthority::open(&directory).err().unwrap();
        assert!(matches!(broken, CaError::Key { .. }), "{broken}");
    }

    #[test]
    fn certificates_are_remembered_and_no_more_than_so_many() {
        let home = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open(home.path()).unwrap();
        let first = ca.config_of("A.example").unwrap();
        assert!(Arc::ptr_eq(&first, &ca.config_of("a.EXAMPLE").unwrap()));
        for number in 0..HOSTS + 5 {
            ca.config_of(&format!("h{number}.example")).unwrap();
        }
        assert_eq!(ca.made.lock().unwrap().len(), HOSTS);
        for host in ["127.0.0.1", "::1", "under_score.example"] {
            assert!(ca.config_of(host).is_ok(), "{host}");
        }
        assert!(ca.config_of("caf\u{e9}.example").is_err());
    }
}
