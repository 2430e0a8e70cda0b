//! An object store that speaks S3.
//!
//! The requests are those of the crate `object_store`, signed by the clock of the service. Every body is sent with its digest, so the service
//! refuses what was altered on the way. A file that is larger than a part is sent part by part, one part in memory at a
//! time. Nothing is written over: what lies under the key already is read, and counts or is refused. An upload that does
//! not end well is ended, by this attempt or by the next.

use std::io::{self, Read};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ecluse_holding::{Fixity, SET_ASIDE};
use ecluse_stage::{Failure, hex};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};

use crate::settings::S3;
use crate::{BackupTask, Made};

mod client;
mod words;

use client::Client;
use words::refused;

/// So many parts an upload may have.
const MOST_PARTS: u64 = 10_000;
/// How often a request under way asks whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// An upload that is given up is ended within this time, or by the next attempt.
const LAST_WORD: Duration = Duration::from_secs(5);

/// An object store.
pub(crate) struct Bucket {
    settings: S3,
    client: Client,
    runtime: Arc<Runtime>,
}

impl Bucket {
    pub(crate) fn open(settings: S3, root: &Path) -> Result<Self, Failure> {
        let client = Client::open(&settings, root)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            settings,
            client,
            runtime: Arc::new(runtime),
        })
    }

    /// Puts the file under its key and proves it, unless it is there already; then that is proved.
    pub(crate) fn keep(&self, task: &BackupTask<'_>) -> Result<Made, Failure> {
        let key = self.key("", task.name)?;
        let upload = Upload {
            store: &self.client.store,
            client: &self.client,
            part_bytes: self.settings.part.0,
            key,
            task,
        };
        self.runtime.clone().block_on(upload.keep())
    }

    fn key(&self, before: &str, name: &str) -> Result<Key, Failure> {
        let key = format!("{}{before}{name}", self.settings.prefix);
        Key::parse(&key)
            .map_err(|error| Failure::hold(format!("{key} is no key of an object: {error}")))
    }

    /// Opens an object; holds where there is none.
    pub(crate) fn open_object(&self, name: &str) -> Result<Box<dyn Read>, Failure> {
        let key = self.key("", name)?;
        let object = self.runtime.block_on(self.client.store.get(&key));
        let object = object.map_err(|error| match &error {
            Error::NotFound { .. } => Failure::hold(format!("there is no object {key}")),
            _ => refused("read", &key, &self.client.bucket, &error),
        })?;
        Ok(Box::new(ObjectReader {
            runtime: Arc::clone(&self.runtime),
            pieces: object
                .into_stream()
                .map(|piece| piece.map(Vec::from))
                .boxed(),
            piece: io::Cursor::default(),
        }))
    }

    /// Puts what lies under the key of a file under another, if there is anything: bad bytes may be all that is left of
    /// something.
    pub(crate) fn set_aside(&self, name: &str) -> Result<(), Failure> {
        let key = self.key("", name)?;
        let store = &self.client.store;
        let refused = |what: &str, error| refused(what, &key, &self.client.bucket, &error);
        let moved = async {
            let size = match store.head(&key).await {
                Err(Error::NotFound { .. }) => return Ok(()),
                there => there.map_err(|error| refused("look for", error))?.size,
            };
            for number in 1..u32::MAX {
                let aside = self.key(&format!("{SET_ASIDE}{number}-"), name)?;
                match store.head(&aside).await {
                    Err(Error::NotFound { .. }) => {}
                    Ok(_) => continue,
                    Err(error) => return Err(refused("look beside", error)),
                }
                let copied = store.copy(&key, &aside).await;
                copied.map_err(|error| refused("set aside", error))?;
                let copy = store.head(&aside).await;
                if copy.map_err(|error| refused("look beside", error))?.size != size {
                    return Err(Failure::defer(format!("{aside} is not a copy of {key}")));
                }
                let removed = store.delete(&key).await;
                return removed.map_err(|error| refused("set aside", error));
            }
            Ok(())
        };
        self.runtime.block_on(moved)
    }
}

/// An object that is read piece by piece.
struct ObjectReader {
    runtime: Arc<Runtime>,
    pieces: BoxStream<'static, object_store::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.runtime.block_on(self.pieces.next()) {
                Some(piece) => self.piece = io::Cursor::new(piece.map_err(io::Error::other)?),
                None => return Ok(0),
            }
        }
    }
}

/// One file on its way to its key.
struct Upload<'a> {
    store: &'a AmazonS3,
    client: &'a Client,
    part_bytes: u64,
    key: Key,
    task: &'a BackupTask<'a>,
}

impl Upload<'_> {
    async fn keep(&self) -> Result<Made, Failure> {
        if !self.is_there().await? {
            // Who finds the key taken meanwhile was slower: it is the same file, or another one of that name.
            self.send().await?;
        }
        self.must_be_the_same().await?;
        Ok(Made {
            place: self.client.url(&self.key).await?,
            how: "read back",
        })
    }

    async fn is_there(&self) -> Result<bool, Failure> {
        match self.watch(self.store.head(&self.key)).await? {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.refused("look for", &error)),
        }
    }

    /// Reads what lies under the key, and holds the parcel when it is another file.
    async fn must_be_the_same(&self) -> Result<(), Failure> {
        let found = self.read().await?;
        let task = self.task;
        if found == *task.wanted {
            return Ok(());
        }
        // Either the source is not what ingest took, or the service does not keep what it is given, or
        // the key was taken before.
        task.source.verify(task.wanted, task.going)?;
        Err(Failure::hold(format!(
            "{} has {found}, ingest took {}",
            self.client.url(&self.key).await?,
            task.wanted
        )))
    }

    async fn read(&self) -> Result<Fixity, Failure> {
        let refused = |error| self.refused("read", &error);
        let object = self.watch(self.store.get(&self.key)).await?;
        let mut pieces = object.map_err(refused)?.into_stream();
        let mut hash = Sha256::new();
        let mut bytes = 0;
        while let Some(piece) = self.watch(pieces.next()).await? {
            let piece = piece.map_err(refused)?;
            hash.update(&piece);
            bytes += piece.len() as u64;
        }
        Ok(Fixity {
            bytes,
            sha256: hex(&hash.finalize()),
        })
    }

    /// Sends the file, unless its key is taken meanwhile.
    async fn send(&self) -> Result<(), Failure> {
        if self.task.wanted.bytes <= self.part_bytes {
            return self.send_whole().await;
        }
        let leftovers = self
            .watch(self.client.unfinished_uploads(&self.key))
            .await?;
        for upload in leftovers.map_err(|why| Failure::defer(format!("cannot list: {why}")))? {
            self.abort(&upload).await;
        }
        let upload = self.watch(self.store.create_multipart(&self.key)).await?;
        let upload = upload.map_err(|error| self.refused("begin", &error))?;
        let sent = async {
            let parts = self.send_parts(&upload).await?;
            self.complete(&upload, parts).await
        };
        let sent = sent.await;
        if !matches!(sent, Ok(true)) {
            self.abort(&upload).await;
        }
        sent.map(drop)
    }

    async fn send_whole(&self) -> Result<(), Failure> {
        let task = self.task;
        let mut source = task.source.open()?;
        let body = take(&mut *source, task.wanted.bytes + 1)?;
        if hex(&Sha256::digest(&body)) != task.wanted.sha256 {
            return Err(differs(task));
        }
        let body = PutPayload::from(body);
        let new = PutOptions::from(PutMode::Create);
        let put = self.store.put_opts(&self.key, body.clone(), new);
        let mut put = self.watch(put).await?;
        if put.as_ref().is_err_and(words::knows_no_condition) {
            // The key was free a moment ago.
            put = self.watch(self.store.put(&self.key, body)).await?;
        }
        match put {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(self.refused("put", &error)),
        }
    }

    async fn send_parts(&self, upload: &String) -> Result<Vec<PartId>, Failure> {
        let task = self.task;
        let part_bytes = self.part_bytes.max(task.wanted.bytes.div_ceil(MOST_PARTS));
        let mut source = task.source.open()?;
        let mut whole = Sha256::new();
        let mut parts = Vec::new();
        let mut bytes = 0;
        loop {
            let body = take(&mut *source, part_bytes)?;
            bytes += body.len() as u64;
            if body.is_empty() || bytes > task.wanted.bytes {
                break;
            }
            // Once more than the parts: what is not the file must never become an object.
            whole.update(&body);
            let number = parts.len();
            let put = self.store.put_part(&self.key, upload, number, body.into());
            let put = self.watch(put).await?;
            let what = format!("put part {} of", number + 1);
            parts.push(put.map_err(|error| self.refused(&what, &error))?);
        }
        if bytes != task.wanted.bytes || hex(&whole.finalize()) != task.wanted.sha256 {
            return Err(differs(task));
        }
        Ok(parts)
    }

    /// Makes an object of the parts; `false` when the key was taken meanwhile.
    async fn complete(&self, upload: &String, parts: Vec<PartId>) -> Result<bool, Failure> {
        let done = self.store.complete_multipart(&self.key, upload, parts);
        match self.watch(done).await? {
            Ok(_) => Ok(true),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.refused("complete", &error)),
        }
    }

    /// Ends an upload: one without an end is kept, and paid for, for ever.
    async fn abort(&self, upload: &String) {
        let abort = self.store.abort_multipart(&self.key, upload);
        let why = match tokio::time::timeout(LAST_WORD, abort).await {
            Ok(Ok(()) | Err(Error::NotFound { .. })) => return,
            Ok(Err(error)) => self.refused("end", &error).reason,
            Err(_) => "no answer".to_owned(),
        };
        tracing::warn!(key = %self.key, why, "an unfinished upload could not be ended; the next attempt will try");
    }

    /// Waits for a request, and drops it when the stage is to stop.
    async fn watch<T>(&self, request: impl Future<Output = T>) -> Result<T, Failure> {
        let mut request = pin!(request);
        loop {
            if !(self.task.going)() {
                return Err(Failure::give_back());
            }
            if let Ok(done) = tokio::time::timeout(LOOK, &mut request).await {
                return Ok(done);
            }
        }
    }

    fn refused(&self, what: &str, error: &Error) -> Failure {
        refused(what, &self.key, &self.client.bucket, error)
    }
}

/// The source is not what ingest took: it is read once more to say what it is.
fn differs(task: &BackupTask<'_>) -> Failure {
    match task.source.verify(task.wanted, task.going) {
        Ok(()) => Failure::halt(format!("{} was read in two ways", task.name)),
        Err(failure) => failure,
    }
}

/// Reads up to `bytes`, or to the end.
fn take(source: &mut dyn Read, bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    source
        .take(bytes)
        .read_to_end(&mut body)
        .map_err(|error| Failure::halt(format!("cannot read the source: {error}")))?;
    Ok(body)
}
