//! Who asks: a reader's user by his token, by the word of a proxy, and by where he sits.
//!
//! Nobody is believed about himself. A proxy that is named in the settings is believed about users and addresses; a token is
//! held against digests, all of them, so that the time it takes tells nothing; a wrong one is refused, not passed over.

use std::fs;
use std::hint::black_box;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use ecluse_config::{AccessDownload, AccessSettings};
use hyper::header::{self, HeaderMap};
use sha2::{Digest, Sha256};

/// Why the tokens cannot be had: file, line, and what is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line names no user and no digest.
    #[error("{}:{line}: write a user and the SHA-256 of a token in 64 hexadecimal digits", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// One reader, as the rules know him.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reader {
    /// His users: his own first, then those of the place.
    pub(crate) users: Vec<String>,
    pub(crate) is_staff: bool,
    /// He may have captures as they were archived, and know where they lie.
    pub(crate) may_download: bool,
    /// Where he is, as far as is known.
    pub(crate) address: Option<IpAddr>,
}

/// What is known of readers.
pub(crate) struct Readers {
    settings: AccessSettings,
    tokens: Option<PathBuf>,
    read: RwLock<Arc<TokenList>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct TokenList {
    users: Vec<(String, [u8; 32])>,
    /// Length and time of the file when it was read.
    seen: Option<(u64, SystemTime)>,
}

/// A token that nobody has.
#[derive(Debug)]
pub(crate) struct WrongToken;

impl Readers {
    /// Reads the tokens; `tokens` is the file, where there is one.
    pub(crate) fn open(
        settings: &AccessSettings,
        tokens: Option<PathBuf>,
    ) -> Result<Self, TokensError> {
        let read = match &tokens {
            Some(path) => TokenList::read(path)?,
            None => TokenList::default(),
        };
        Ok(Self {
            settings: settings.clone(),
            tokens,
            read: RwLock::new(Arc::new(read)),
        })
    }

    /// Returns who asks. `credentials` is the field that a token comes in.
    pub(crate) fn reader(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        credentials: header::HeaderName,
    ) -> Result<Reader, WrongToken> {
        let settings = &self.settings;
        let is_proxy = |address: IpAddr| settings.proxies.iter().any(|one| one.contains(address));
        let mut users = Vec::new();
        if self.tokens.is_some()
            && let Some(token) = headers
                .get(credentials)
                .and_then(|field| token_of(field.as_bytes()))
        {
            users.push(self.user_of(&token).ok_or(WrongToken)?);
        }
        let mut address = peer;
        if is_proxy(peer) {
            let named = match settings.user_header.as_str() {
                "" => None,
                name => headers.get(name).and_then(|user| user.to_str().ok()),
            };
            users.extend(named.filter(|user| !user.is_empty()).map(str::to_owned));
            // The last address that is no proxy of ours is what our outermost proxy saw; those before it anybody can write.
            let chain: Vec<&str> = headers
                .get_all("x-forwarded-for")
                .iter()
                .filter_map(|field| field.to_str().ok())
                .flat_map(|field| field.split(','))
                .collect();
            for hop in chain.iter().rev() {
                let Ok(hop) = hop.trim().parse() else {
                    break;
                };
                address = hop;
                if !is_proxy(hop) {
                    break;
                }
            }
        }
        let places = settings.places.iter();
        users.extend(
            places
                .filter(|place| place.range.contains(address))
                .map(|place| place.user.clone()),
        );
        let is_staff = users.iter().any(|user| settings.staff.contains(user));
        Ok(Reader {
            users,
            is_staff,
            may_download: match settings.download {
                AccessDownload::All => true,
                AccessDownload::Staff => is_staff,
            },
            address: Some(address.to_canonical()),
        })
    }

    fn user_of(&self, token: &[u8]) -> Option<String> {
        let wanted: [u8; 32] = Sha256::digest(token).into();
        let tokens = self.current();
        let mut found = None;
        for (user, digest) in &tokens.users {
            let differs = digest
                .iter()
                .zip(&wanted)
                .fold(0, |differs, (one, two)| black_box(differs | (one ^ two)));
            if differs == 0 {
                found = Some(user.clone());
            }
        }
        found
    }

    fn current(&self) -> Arc<TokenList> {
        let known = Arc::clone(&self.read.read().unwrap_or_else(PoisonError::into_inner));
        let Some(path) = self.tokens.as_ref().filter(|path| known.seen != seen(path)) else {
            return known;
        };
        match TokenList::read(path) {
            Ok(newer) => {
                let newer = Arc::new(newer);
                tracing::info!("tokens read again");
                *self.read.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&newer);
                newer
            }
            Err(error) => {
                tracing::error!(%error, "tokens cannot be read, the old ones hold");
                known
            }
        }
    }
}

impl TokenList {
    fn read(path: &PathBuf) -> Result<Self, TokensError> {
        let seen = seen(path);
        let text = fs::read_to_string(path).map_err(|source| TokensError::Read {
            path: path.clone(),
            source,
        })?;
        let mut users = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let pair = line
                .split_once(char::is_whitespace)
                .and_then(|(user, digits)| Some((user.to_owned(), digest_of(digits.trim())?)));
            users.push(pair.ok_or_else(|| TokensError::Line {
                path: path.clone(),
                line: at + 1,
            })?);
        }
        Ok(Self { users, seen })
    }
}

fn seen(path: &PathBuf) -> Option<(u64, SystemTime)> {
    let found = fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()?))
}

fn digest_of(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(digest)
}

/// Returns the token of a field: `Bearer TOKEN`, or the password of `Basic`, which is what browsers ask their reader for.
fn token_of(field: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(field).ok()?.trim();
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = from_base64(rest.trim().as_bytes())?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    Some(plain[colon + 1..].to_vec())
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.iter().filter(|byte| **byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AccessSettings {
        let mut settings = ecluse_config::Pipeline::default().access;
        settings.user_header = "X-User".into();
        settings.proxies = vec!["127.0.0.0/8".parse().unwrap()];
        settings.places = vec![
            "room 10.1.0.0/16".parse().unwrap(),
            "desk 10.1.7.0/24".parse().unwrap(),
        ];
        settings.staff = vec!["keeper".into(), "desk".into()];
        settings.download = AccessDownload::Staff;
        settings
    }

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn users(peer: &str, pairs: &[(&'static str, &str)]) -> Vec<String> {
        let readers = Readers::open(&settings(), None).unwrap();
        let reader = readers
            .reader(peer.parse().unwrap(), &fields(pairs), header::AUTHORIZATION)
            .unwrap();
        assert_eq!(reader.is_staff, reader.may_download);
        assert_eq!(
            reader.is_staff,
            reader
                .users
                .iter()
                .any(|user| user == "keeper" || user == "desk")
        );
        reader.users
    }

    #[test]
    fn only_a_named_proxy_is_believed() {
        let keeper = [("x-user", "keeper")];
        assert_eq!(users("127.0.0.1", &keeper), ["keeper"]);
        assert_eq!(users("192.0.2.1", &keeper), [""; 0]);
        assert_eq!(users("127.0.0.1", &[("x-user", "")]), [""; 0]);
        let forwarded = [("x-forwarded-for", "10.1.2.3")];
        assert_eq!(users("127.0.0.1", &forwarded), ["room"]);
        assert_eq!(users("192.0.2.1", &forwarded), [""; 0]);
        // What a reader wrote himself stands before what our proxy saw.
        let forged = [("x-forwarded-for", "10.1.7.1, 192.0.2.9")];
        assert_eq!(users("127.0.0.1", &forged), [""; 0]);
        let two = [
            ("x-forwarded-for", "10.1.7.1"),
            ("x-forwarded-for", "192.0.2.9, 127.0.0.2"),
        ];
        assert_eq!(users("127.0.0.1", &two), [""; 0]);
        let hidden = [("x-forwarded-for", "10.1.7.1, unknown")];
        assert_eq!(users("127.0.0.1", &hidden), [""; 0]);
    }

    #[test]
    fn a_place_is_a_user_beside_the_readers_own() {
        assert_eq!(users("10.1.7.9", &[]), ["room", "desk"]);
        assert_eq!(users("::ffff:10.1.0.9", &[]), ["room"]);
        let both = [("x-user", "keeper"), ("x-forwarded-for", "10.1.0.1")];
        assert_eq!(users("127.0.0.1", &both), ["keeper", "room"]);
    }

    #[test]
    fn a_token_is_its_users_and_a_wrong_one_nobodys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        // printf %s open-sesame | sha256sum
        let digest = "d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7";
        fs::write(&path, format!("# staff\n\nkeeper {digest}\n")).unwrap();
        let readers = Readers::open(&settings(), Some(path.clone())).unwrap();
        let ask = |value: &str| {
            let headers = fields(&[("authorization", value)]);
            let peer = "192.0.2.1".parse().unwrap();
            readers
                .reader(peer, &headers, header::AUTHORIZATION)
                .map(|reader| reader.users)
                .ok()
        };
        assert_eq!(ask("Bearer open-sesame"), Some(vec!["keeper".to_owned()]));
        assert_eq!(
            ask("basic YW55Ym9keTpvcGVuLXNlc2FtZQ=="),
            Some(vec!["keeper".to_owned()])
        );
        assert_eq!(ask("Bearer open-sesam"), None);
        assert_eq!(ask("Bearer "), None);
        assert_eq!(ask("Digest x"), Some(Vec::new()));
        // A changed file is read again, a broken one leaves what was.
        fs::write(&path, format!("other {digest}\n")).unwrap();
        assert_eq!(ask("Bearer open-sesame"), Some(vec!["other".to_owned()]));
        fs::write(&path, "nonsense\n").unwrap();
        assert_eq!(ask("Bearer open-sesame"), Some(vec!["other".to_owned()]));
        let wrong = Readers::open(&settings(), Some(path.clone()));
        assert!(wrong.is_err_and(|error| error.to_string().contains("tokens:1: write a user")));
    }
}
