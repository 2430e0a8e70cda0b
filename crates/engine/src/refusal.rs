//! What a server that answers refuses: which key of `[engine]` to look at, and what to do.
//!
//! A server that is away may come back, and what waits for it goes on by itself. One that refuses who we are, or whom we do
//! not trust, refuses again: a person has to mend the settings. The libraries below tell these apart by their words only.

use std::error::Error;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::OpenError;

/// Says what went wrong and why, in one line.
pub(crate) fn in_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What keeps two sides from speaking TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsFault {
    /// Nobody whom we trust vouches for the certificate.
    Stranger,
    /// The certificate is for another name.
    OtherName,
    /// The certificate is not of today: that is the server's, or a clock's.
    OutOfDate,
    /// The other side speaks no TLS, or only one that we do not.
    OtherTongue,
}

impl TlsFault {
    /// Finds it in what a library says.
    pub(crate) fn in_words(text: &str) -> Option<Self> {
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if says(&["certificate expired", "certificate not valid yet"]) {
            return Some(Self::OutOfDate);
        }
        if says(&["certificate not valid for name", "NotValidForName"]) {
            return Some(Self::OtherName);
        }
        if says(&["invalid peer certificate"]) {
            return Some(Self::Stranger);
        }
        let tongues = [
            "received corrupt message",
            "received fatal alert",
            "peer is incompatible",
            "peer misbehaved",
        ];
        says(&tongues).then_some(Self::OtherTongue)
    }

    /// Returns the fault as one of the settings: of the key with the authorities, or of the one with the address.
    pub(crate) fn of_settings(
        self,
        authorities: &'static str,
        address: &'static str,
        what: &str,
    ) -> OpenError {
        match self {
            Self::Stranger => OpenError::new(
                authorities,
                format!("{what}; name the file with the authority that signed its certificate"),
            ),
            Self::OtherName => OpenError::new(
                address,
                format!("{what}; write the name that stands in its certificate"),
            ),
            Self::OutOfDate => OpenError::away(
                address,
                format!("{what}; renew its certificate, or set the clock of this host"),
            ),
            Self::OtherTongue => OpenError::new(
                address,
                format!(
                    "{what}; it speaks no TLS, or wants a certificate of ours, which there is not"
                ),
            ),
        }
    }
}

/// Fails when a file does not hold certificates of authorities.
pub(crate) fn must_hold_authorities(key: &'static str, path: &Path) -> Result<(), OpenError> {
    let fault = |why: String| OpenError::new(key, format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| fault(format!("it is no PEM: {error}")))?;
        let added = authorities.add(certificate);
        added.map_err(|error| fault(format!("a certificate makes no sense: {error}")))?;
    }
    match authorities.is_empty() {
        true => Err(fault("it holds no certificate".into())),
        false => Ok(()),
    }
}

/// Returns what a store that refuses settings refuses, by what it said; `None` where it may let us in later, or where only the
/// right to do a thing is missing.
pub(crate) fn of_store(said: &str) -> Option<OpenError> {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let fault = |key, remedy: &str| Some(OpenError::new(key, format!("{said}; {remedy}")));
    if let Some(tls) = TlsFault::in_words(said) {
        return Some(tls.of_settings("store-ca", "endpoint", said));
    }
    if says(&["NoSuchBucket"]) {
        return fault("bucket", "make the bucket, or name another");
    }
    // A store that is elsewhere says so with the one, or sends us there without saying where that is.
    if says(&[
        "AuthorizationHeaderMalformed",
        "incorrectly configured region",
    ]) {
        return fault("region", "write the region that the store names");
    }
    if says(&["InvalidAccessKeyId", "SignatureDoesNotMatch"]) {
        return fault(
            "key-file",
            "the store refuses these keys: look into key-file and secret-file",
        );
    }
    if says(&["HTTP request to an HTTPS server"]) {
        return fault("endpoint", "write https:// before it");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_points_at_what_to_mend() {
        let of = |said: &str| of_store(said).map(|error| (error.key, error.is_away));
        let peer = "error sending request: invalid peer certificate";
        assert_eq!(
            of(&format!("{peer}: UnknownIssuer")),
            Some(("store-ca", false))
        );
        assert_eq!(
            of(&format!("{peer}: certificate not valid for name \"a\"")),
            Some(("endpoint", false))
        );
        assert_eq!(
            of(&format!("{peer}: certificate expired: verification time 1")),
            Some(("endpoint", true))
        );
        assert_eq!(
            of("received corrupt message of type InvalidContentType"),
            Some(("endpoint", false))
        );
        assert_eq!(
            of("400: <Code>AuthorizationHeaderMalformed</Code>"),
            Some(("region", false))
        );
        assert_eq!(of("Connection refused (os error 111)"), None);
        assert_eq!(of("503 SlowDown"), None);
        // With least rights a store denies what is not there.
        assert_eq!(of("403: AccessDenied"), None);
    }
}
