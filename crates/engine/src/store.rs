//! The S3 store: objects put only where none is, or only over the one that was read.
//!
//! A request whose answer was lost may have been carried out, and is sent again by the client underneath. So whoever is told
//! that a place is taken looks whether it is by his own bytes: every object that is put on a condition says who put it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ecluse_config::EngineSettings;
use ecluse_spool::{FileEntry, Fs, RealFs, Result, Signs, SpoolError, hex};
use ecluse_store_clock::{SigningKey, StoreClockConnector, UnfinishedUpload, UploadLister};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use sha2::{Digest, Sha256};
use url::Url;

use crate::OpenError;
use crate::refusal::{self, in_one_line};

/// What is sent, and held in memory, at a time: more for a file that would have too many parts.
const PART_BYTES: u64 = 8 << 20;
/// The most parts that a store puts together.
const MOST_PARTS: u64 = 10_000;
/// Parts are of whole units of this.
const PART_UNIT: u64 = 1 << 20;
/// A request that failed on its way is sent again so often, within so long.
const RETRIES: usize = 4;
const RETRY_FOR: Duration = Duration::from_secs(45);
/// How long a connection may take, and a piece of an answer.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
/// The most keys that a store takes in one request to remove them.
const BULK: usize = 1000;
/// How many objects are removed side by side where a store takes one at a time.
const SINGLE: usize = 16;

/// The bucket.
pub(crate) struct Store {
    bucket: AmazonS3,
    /// The same, by a client that removes one object at a time: the other asks for many even where there is one.
    one_by_one: AmazonS3,
    /// The same, by a client that asks once.
    impatient: AmazonS3,
    uploads: UploadLister,
    prefix: String,
    /// Its address, for messages.
    pub(crate) address: String,
    /// Whether it said that it takes one removal at a time.
    removes_singly: AtomicBool,
}

/// An object that was read.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) bytes: Bytes,
    pub(crate) etag: String,
    /// When it was written, by the store's clock.
    pub(crate) written_ms: i64,
}

/// An object in a list.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    /// What follows the prefix that was asked for.
    pub(crate) name: String,
    /// Empty where the store does not say.
    pub(crate) etag: String,
    pub(crate) written_ms: i64,
    pub(crate) bytes: u64,
}

/// What came of putting an object on a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Put {
    /// It lies there, with this tag.
    There(String),
    /// Something else lies there, or what was read has changed.
    Taken,
}

impl Store {
    pub(crate) fn open(
        settings: &EngineSettings,
        root: &Path,
    ) -> std::result::Result<Self, OpenError> {
        // The HTTP client asks for the process's own choice; whoever made one before is right too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let is_plain = settings.endpoint.starts_with("http://");
        let mut options = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_timeout_disabled()
            .with_read_timeout(ANSWER)
            .with_connect_timeout(CONNECT);
        let has_ca = !settings.store_ca.as_os_str().is_empty();
        if has_ca {
            let path = root.join(&settings.store_ca);
            let fault =
                |why: String| OpenError::new("store-ca", format!("{}: {why}", path.display()));
            let pem = std::fs::read(&path).map_err(|error| fault(error.to_string()))?;
            let authorities =
                Certificate::from_pem_bundle(&pem).map_err(|error| fault(error.to_string()))?;
            if authorities.is_empty() {
                return Err(fault("it holds no certificate".into()));
            }
            for authority in authorities {
                options = options.with_root_certificate(authority);
            }
        }
        if is_plain || has_ca {
            options = options.with_no_system_certificates(true);
        }
        let key = SigningKey {
            id: secret("key-file", &root.join(&settings.key_file))?,
            secret: secret("secret-file", &root.join(&settings.secret_file))?,
            region: settings.region.clone(),
        };
        let fault = |error: Error| OpenError::new("endpoint", error.to_string());
        let connector = StoreClockConnector::new(key.clone());
        let uploads = UploadLister::new(key.clone(), &connector, &options).map_err(fault)?;
        let builder = AmazonS3Builder::new()
            .with_endpoint(&settings.endpoint)
            .with_virtual_hosted_style_request(false)
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(&key.id)
            .with_secret_access_key(&key.secret)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_http_connector(connector)
            .with_client_options(options)
            .with_retry(RetryConfig {
                max_retries: RETRIES,
                retry_timeout: RETRY_FOR,
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(5),
                    base: 2.0,
                },
            });
        let one_by_one = builder.clone().with_disable_bulk_delete(true);
        let one_by_one = one_by_one.build().map_err(fault)?;
        let impatient = builder.clone().with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
        let impatient = impatient.build().map_err(fault)?;
        let bucket = builder.build().map_err(fault)?;
        let endpoint = settings.endpoint.trim_end_matches('/');
        let prefix = match settings.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(Self {
            bucket,
            one_by_one,
            impatient,
            uploads,
            address: format!("{endpoint}/{}", settings.bucket),
            prefix,
            removes_singly: AtomicBool::new(false),
        })
    }

    fn key(&self, key: &str) -> Result<Key> {
        let whole = format!("{}{key}", self.prefix);
        Key::parse(&whole)
            .map_err(|error| SpoolError::Refused(format!("{whole} is no key: {error}")))
    }

    fn fault(&self, step: &'static str, key: &str, error: &Error) -> SpoolError {
        let path = PathBuf::from(format!("{}/{}{key}", self.address, self.prefix));
        SpoolError::Io {
            step,
            path,
            source: io::Error::other(in_one_line(error)),
        }
    }

    /// Asks once for an object that is not there, and tells what the store refuses that a person has to mend. `None`: it lets us
    /// in, or does not say.
    pub(crate) async fn refusal(&self) -> Option<OpenError> {
        let key = self.key("probes/none").ok()?;
        let asked = self.impatient.get(&key);
        let said = tokio::time::timeout(CONNECT, asked).await.ok()?;
        let error = said.err()?;
        let text = in_one_line(&error);
        refusal::of_store(&format!("{}: {text}", self.address))
    }

    /// Reads a small object.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Fetched>> {
        let fault = |error: &Error| self.fault("read", key, error);
        let got = match self.bucket.get(&self.key(key)?).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(fault(&error)),
        };
        let etag = got.meta.e_tag.clone().unwrap_or_default();
        let written_ms = got.meta.last_modified.timestamp_millis();
        let bytes = got.bytes().await.map_err(|error| fault(&error))?;
        Ok(Some(Fetched {
            bytes,
            etag,
            written_ms,
        }))
    }

    /// Puts an object where there is none.
    pub(crate) async fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        self.put_on(key, bytes, PutMode::Create).await
    }

    /// Puts an object over the one that was read with this tag.
    pub(crate) async fn put_over(&self, key: &str, bytes: &[u8], etag: &str) -> Result<Put> {
        let version = UpdateVersion {
            e_tag: Some(etag.to_owned()),
            version: None,
        };
        self.put_on(key, bytes, PutMode::Update(version)).await
    }

    /// Puts an object, whatever lies there.
    pub(crate) async fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.put_on(key, bytes, PutMode::Overwrite).await.map(drop)
    }

    async fn put_on(&self, key: &str, bytes: &[u8], mode: PutMode) -> Result<Put> {
        let payload = PutPayload::from(Bytes::copy_from_slice(bytes));
        let is_over = matches!(mode, PutMode::Update(_));
        let options = PutOptions::from(crate::failpoint::put_mode(mode));
        let put = self
            .bucket
            .put_opts(&self.key(key)?, payload, options)
            .await;
        match put {
            Ok(put) => return Ok(Put::There(put.e_tag.unwrap_or_default())),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            // What was read is no longer there.
            Err(Error::NotFound { .. }) if is_over => {}
            Err(error) => return Err(self.fault("write", key, &error)),
        }
        // Perhaps by us: the answer to the first try was lost.
        let there = self.get(key).await?;
        Ok(match there {
            Some(there) if there.bytes == bytes => Put::There(there.etag),
            _ => Put::Taken,
        })
    }

    /// Removes an object, if it is there.
    pub(crate) async fn remove(&self, key: &str) -> Result<()> {
        self.remove_all(&[key.to_owned()]).await
    }

    async fn remove_one(&self, key: &str) -> Result<()> {
        match self.one_by_one.delete(&self.key(key)?).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.fault("remove", key, &error)),
        }
    }

    /// Removes objects, as far as they are there: up to a thousand in one request. What the store does not say to be removed is
    /// removed by itself, and so is everything where a store does not know such requests.
    ///
    /// # Errors
    /// The first key that is still there, and how many more are. All are tried.
    pub(crate) async fn remove_all(&self, keys: &[String]) -> Result<()> {
        let mut left = Vec::new();
        for some in keys.chunks(BULK) {
            match some.len() == 1 || self.removes_singly.load(Ordering::Relaxed) {
                true => left.extend(some.iter().cloned()),
                false => left.extend(self.remove_in_bulk(some).await?),
            }
        }
        let removed = stream::iter(left)
            .map(|key| async move { self.remove_one(&key).await })
            .buffer_unordered(SINGLE)
            .collect::<Vec<Result<()>>>()
            .await;
        let mut failed = removed.into_iter().filter_map(Result::err);
        let Some(first) = failed.next() else {
            return Ok(());
        };
        let more = failed.count();
        if more > 0 {
            tracing::warn!(more, "more objects could not be removed");
        }
        Err(first)
    }

    /// Removes objects by one request; returns those that the store does not say to be removed.
    async fn remove_in_bulk(&self, keys: &[String]) -> Result<Vec<String>> {
        let mut asked = Vec::with_capacity(keys.len());
        for key in keys {
            asked.push(self.key(key)?);
        }
        let locations = stream::iter(asked.clone().into_iter().map(Ok)).boxed();
        let answers: Vec<_> = self.bucket.delete_stream(locations).collect().await;
        let mut removed = HashSet::new();
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(key) => drop(removed.insert(key)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            let error = in_one_line(&error);
            tracing::warn!(error, keys = keys.len(), "objects are removed one by one");
            if removed.is_empty() && is_unknown_request(&error) {
                self.removes_singly.store(true, Ordering::Relaxed);
            }
        }
        let left = keys.iter().zip(&asked);
        let left = left.filter(|(_, asked)| !removed.contains(*asked));
        Ok(left.map(|(key, _)| key.clone()).collect())
    }

    /// Lists what begins with a directory and then a name, in order of keys, page by page.
    pub(crate) fn list<'a>(
        &'a self,
        directory: &'a str,
        name: &'a str,
    ) -> BoxStream<'a, Result<Listed>> {
        let whole = format!("{}{directory}", self.prefix);
        let prefix = Key::from(whole.trim_end_matches('/'));
        let after = format!("{whole}{name}");
        // A list begins behind a key: that of all but the last letter comes before every name that begins so.
        let listed = match name.is_empty() {
            true => self.bucket.list(Some(&prefix)),
            false => {
                let before = Key::from(&after[..after.len() - 1]);
                self.bucket.list_with_offset(Some(&prefix), &before)
            }
        };
        let ends = after.clone();
        listed
            .map_err(move |error| self.fault("list", directory, &error))
            .try_take_while(move |meta| {
                let key = meta.location.as_ref();
                let goes_on = key < ends.as_str() || key.starts_with(&ends);
                std::future::ready(Ok(goes_on))
            })
            .try_filter_map(move |meta: ObjectMeta| {
                let key = meta.location.as_ref();
                let listed = key.strip_prefix(&whole).map(|name| Listed {
                    name: name.to_owned(),
                    etag: meta.e_tag.clone().unwrap_or_default(),
                    written_ms: meta.last_modified.timestamp_millis(),
                    bytes: meta.size,
                });
                let listed = listed.filter(|listed| listed.name.starts_with(name));
                std::future::ready(Ok(listed))
            })
            .boxed()
    }

    /// Names what lies directly below a directory and has more below it.
    pub(crate) async fn directories(&self, directory: &str) -> Result<Vec<String>> {
        let whole = format!("{}{directory}", self.prefix);
        let prefix = Key::from(whole.trim_end_matches('/'));
        let listed = self.bucket.list_with_delimiter(Some(&prefix)).await;
        let listed = listed.map_err(|error| self.fault("list", directory, &error))?;
        let names = listed.common_prefixes.iter();
        let names = names.filter_map(|key| key.as_ref().strip_prefix(&whole).map(str::to_owned));
        Ok(names.collect())
    }

    /// Puts a file of a parcel. The same bytes under the same key: to do it twice does no harm.
    pub(crate) async fn upload(
        &self,
        key: &str,
        path: &Path,
        bytes: u64,
        signs: &Signs,
    ) -> Result<()> {
        let at_file = |source| SpoolError::Io {
            step: "read",
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(at_file)?;
        if bytes <= PART_BYTES {
            let mut whole = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut whole).map_err(at_file)?;
            return self.put(key, &whole).await;
        }
        let part_bytes = part_bytes(bytes);
        let fault = |error: &Error| self.fault("write", key, error);
        let mut upload = self
            .bucket
            .put_multipart(&self.key(key)?)
            .await
            .map_err(|error| fault(&error))?;
        let mut sent = Ok(());
        loop {
            let mut part = Vec::with_capacity(part_bytes as usize);
            match (&mut file).take(part_bytes).read_to_end(&mut part) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    let _ = upload.abort().await;
                    return Err(at_file(error));
                }
            }
            signs.tick();
            sent = upload.put_part(PutPayload::from(part)).await;
            if sent.is_err() {
                break;
            }
        }
        let completed = match sent {
            Ok(()) => upload.complete().await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = completed {
            let _ = upload.abort().await;
            return Err(fault(&error));
        }
        Ok(())
    }

    /// Lists the uploads of files that were begun before a time by the store's clock and have no end. `None`: the store does not
    /// list them.
    pub(crate) async fn unfinished_uploads(
        &self,
        before_ms: i64,
    ) -> Result<Option<Vec<UnfinishedUpload>>> {
        let prefix = format!("{}payloads/", self.prefix);
        let fault = |why: String| SpoolError::Io {
            step: "read",
            path: PathBuf::from(format!("{}/{prefix}", self.address)),
            source: io::Error::other(why),
        };
        let bucket = Url::parse(&self.address).map_err(|error| fault(error.to_string()))?;
        let listed = self.uploads.list(&bucket, &prefix).await;
        let listed = listed.map_err(|error| fault(in_one_line(&error)))?;
        let is_old = |upload: &UnfinishedUpload| {
            let begun = upload.begun.map(|begun| begun.as_millisecond());
            upload.key.starts_with(&prefix) && begun.is_some_and(|begun| begun < before_ms)
        };
        Ok(listed.map(|listed| listed.into_iter().filter(is_old).collect()))
    }

    /// Ends an upload: its parts are removed.
    pub(crate) async fn abort(&self, upload: &UnfinishedUpload) -> Result<()> {
        let inside = upload.key.strip_prefix(&self.prefix);
        let inside = inside.unwrap_or(&upload.key);
        let key = self.key(inside)?;
        match self.bucket.abort_multipart(&key, &upload.id).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.fault("end the upload of", inside, &error)),
        }
    }

    /// Brings a file of a parcel to `path`, whole and with the right digest, or not at all. `make` makes the file that it is
    /// written to first.
    pub(crate) async fn download(
        &self,
        key: &str,
        file: &FileEntry,
        path: &Path,
        make: impl FnOnce(&Path) -> Result<File>,
        signs: &Signs,
    ) -> Result<Downloaded> {
        let at_file = |source| SpoolError::Io {
            step: "write",
            path: path.to_owned(),
            source,
        };
        let part = path.with_file_name(format!(".{}.part", file.name));
        let mut out = make(&part)?;
        let found = self.read_into(key, &mut out, &part, signs).await;
        if let Ok(Some((bytes, sha256))) = &found
            && *bytes == file.bytes
            && *sha256 == file.sha256
        {
            RealFs.rename(&part, path).map_err(at_file)?;
            return Ok(Downloaded::There);
        }
        RealFs.unlink(&part).map_err(at_file)?;
        Ok(match found? {
            Some((_, sha256)) => Downloaded::Other { sha256 },
            None => Downloaded::Missing,
        })
    }

    /// Writes what lies under a key; returns how many bytes that were, and their digest. `None`: nothing lies there.
    async fn read_into(
        &self,
        key: &str,
        out: &mut File,
        path: &Path,
        signs: &Signs,
    ) -> Result<Option<(u64, String)>> {
        let got = match self.bucket.get(&self.key(key)?).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.fault("read", key, &error)),
        };
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let mut pieces = got.into_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| self.fault("read", key, &error))?;
            signs.tick();
            hash.update(&piece);
            bytes += piece.len() as u64;
            out.write_all(&piece).map_err(|source| SpoolError::Io {
                step: "write",
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(Some((bytes, hex(&hash.finalize()))))
    }
}

/// Makes the file that a download is written to, however much room there is.
pub(crate) fn make_file(path: &Path) -> Result<File> {
    File::create(path).map_err(|source| SpoolError::Io {
        step: "write",
        path: path.to_owned(),
        source,
    })
}

/// Returns how large the parts of a file are.
fn part_bytes(bytes: u64) -> u64 {
    let least = bytes.div_ceil(MOST_PARTS);
    PART_BYTES.max(least.next_multiple_of(PART_UNIT))
}

/// What came of bringing a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Downloaded {
    There,
    Missing,
    /// Another content than the one it should have.
    Other {
        sha256: String,
    },
}

fn secret(key: &'static str, path: &Path) -> std::result::Result<String, OpenError> {
    let fault = |why: &str| OpenError::new(key, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fault(&error.to_string()))?;
    let word = text.trim();
    if word.is_empty() || word.contains(char::is_whitespace) {
        return Err(fault("it does not hold one word"));
    }
    Ok(word.to_owned())
}

/// Tells whether a store says that it does not know such a request at all.
fn is_unknown_request(error: &str) -> bool {
    let words = ["NotImplemented", "MethodNotAllowed", "501", "405"];
    words.iter().any(|word| error.contains(word))
}

#[cfg(test)]
mod tests;
