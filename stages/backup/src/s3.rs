//! An object store that speaks S3.
//!
//! Every body is signed with its digest and sent with its checksum, so the service refuses what was
//! altered on the way. A file that is larger than a part is sent part by part. Nothing is written over:
//! what lies under the key already is read, and counts or is refused.

use std::io::Read;

use ecluse_holding::Fixity;
use ecluse_stage::{Failure, Home};
use sha2::{Digest, Sha256};

use crate::settings::{S3, Verify};
use crate::sign::{base64, encode, hex};
use crate::{Errand, Made};

mod client;

use client::{Answer, Call, Client, element};

/// So many parts an upload may have.
const MOST_PARTS: u64 = 10_000;

/// An object store.
pub(crate) struct Store {
    settings: S3,
    client: Client,
}

/// What was sent.
struct Sent {
    /// The checksum the service should state: of the whole, or of the parts' digests.
    checksum: String,
}

impl Store {
    pub(crate) fn open(settings: S3, home: &Home) -> Result<Self, Failure> {
        let client = Client::open(&settings, home)?;
        Ok(Self { settings, client })
    }

    /// Puts the file under its key and proves it, unless it is there already; then that is proved.
    pub(crate) fn keep(&self, errand: &Errand<'_>) -> Result<Made, Failure> {
        let key = format!("{}{}", self.settings.prefix, errand.name);
        let place = self.client.url(&key);
        if let Some(size) = self.size_of(&key, errand)? {
            self.must_be_the_same(&key, size, errand)?;
            return Ok(made(place, "read back"));
        }
        let Some(sent) = self.send(&key, errand)? else {
            // Somebody was faster: the same file, or another one of that name.
            let size = self.size_of(&key, errand)?.unwrap_or_default();
            self.must_be_the_same(&key, size, errand)?;
            return Ok(made(place, "read back"));
        };
        if self.settings.verify == Verify::Checksum
            && let Some(stated) = self.stated_checksum(&key)?
        {
            if stated == sent.checksum {
                return Ok(made(place, "checksum stated by the service"));
            }
            return Err(Failure::defer(format!(
                "{place} has checksum {stated}, sent was {}",
                sent.checksum
            )));
        }
        self.must_be_the_same(&key, errand.wanted.bytes, errand)?;
        Ok(made(place, "read back"))
    }

    /// Returns the size of what lies under the key.
    fn size_of(&self, key: &str, errand: &Errand<'_>) -> Result<Option<u64>, Failure> {
        must_go_on(errand)?;
        let answer = self.client.call(&Call::of("HEAD", key))?;
        match answer.status {
            404 => Ok(None),
            200 => {
                let size = answer.header("content-length");
                Ok(Some(size.and_then(|size| size.parse().ok()).unwrap_or(0)))
            }
            _ => Err(answer.refused("look for", key)),
        }
    }

    fn stated_checksum(&self, key: &str) -> Result<Option<String>, Failure> {
        let headers = [("x-amz-checksum-mode", "ENABLED".to_owned())];
        let answer = self.client.call(&Call {
            headers: &headers,
            ..Call::of("HEAD", key)
        })?;
        match answer.status {
            200 => Ok(answer.header("x-amz-checksum-sha256").map(str::to_owned)),
            _ => Err(answer.refused("ask for the checksum of", key)),
        }
    }

    /// Reads what lies under the key, and holds the parcel when it is another file.
    fn must_be_the_same(&self, key: &str, size: u64, errand: &Errand<'_>) -> Result<(), Failure> {
        let found = self.read(key, size, errand)?;
        if found == *errand.wanted {
            return Ok(());
        }
        // Either the source is not what ingest took, or the service does not keep what it is given, or
        // the key was taken before.
        errand.source.verify(errand.wanted, errand.going)?;
        Err(Failure::hold(format!(
            "{} has {found}, ingest took {}",
            self.client.url(key),
            errand.wanted
        )))
    }

    /// Reads an object part by part, so that every request is over within its time.
    fn read(&self, key: &str, size: u64, errand: &Errand<'_>) -> Result<Fixity, Failure> {
        let mut hash = Sha256::new();
        let mut bytes = 0;
        while bytes < size {
            must_go_on(errand)?;
            let last = (bytes + self.settings.part.0).min(size) - 1;
            let headers = [("range", format!("bytes={bytes}-{last}"))];
            let mut answer = self.client.call(&Call {
                headers: &headers,
                ..Call::of("GET", key)
            })?;
            if !is_range(&answer, bytes, last, size) {
                return Err(answer.refused("read", key));
            }
            let part = answer.body(last + 1 - bytes)?;
            if part.len() as u64 != last + 1 - bytes {
                return Err(Failure::defer(format!(
                    "{} ended at byte {}, not at {}",
                    self.client.url(key),
                    bytes + part.len() as u64,
                    last + 1
                )));
            }
            hash.update(&part);
            bytes += part.len() as u64;
        }
        let sha256 = hex(&hash.finalize());
        Ok(Fixity { bytes, sha256 })
    }

    /// Sends the file; `None` when the key was taken meanwhile.
    fn send(&self, key: &str, errand: &Errand<'_>) -> Result<Option<Sent>, Failure> {
        if errand.wanted.bytes <= self.settings.part.0 {
            return self.send_whole(key, errand);
        }
        self.abort_leftovers(key)?;
        let headers = [("x-amz-checksum-algorithm", "SHA256".to_owned())];
        let mut answer = self.client.call(&Call {
            query: &[("uploads", "")],
            headers: &headers,
            body: Some(b""),
            ..Call::of("POST", key)
        })?;
        let text = answer.text()?;
        let upload = match answer.status {
            200 => element(&text, "UploadId").unwrap_or_default(),
            _ => return Err(answer.refused("begin", key)),
        };
        if upload.is_empty() {
            return Err(Failure::defer(format!(
                "no upload id for {key}: {text:.200}"
            )));
        }
        let sent = self
            .send_parts(key, &upload, errand)
            .and_then(|parts| self.complete(key, &upload, &parts));
        if !matches!(sent, Ok(Some(_))) {
            self.abort(key, &upload);
        }
        sent
    }

    fn send_whole(&self, key: &str, errand: &Errand<'_>) -> Result<Option<Sent>, Failure> {
        must_go_on(errand)?;
        let mut body = Vec::new();
        let mut source = errand.source.open()?;
        fill(&mut *source, &mut body, errand.wanted.bytes + 1)?;
        let digest = Sha256::digest(&body);
        if hex(&digest) != errand.wanted.sha256 {
            return Err(differs(errand));
        }
        let checksum = base64(&digest);
        let headers = [
            ("x-amz-checksum-sha256", checksum.clone()),
            ("if-none-match", "*".to_owned()),
        ];
        let answer = self.client.call_new(&Call {
            headers: &headers,
            body: Some(&body),
            ..Call::of("PUT", key)
        })?;
        match answer.status {
            200 => Ok(Some(Sent { checksum })),
            412 => Ok(None),
            _ => Err(answer.refused("put", key)),
        }
    }

    /// Sends the parts, and returns the tag and checksum of each.
    fn send_parts(
        &self,
        key: &str,
        upload: &str,
        errand: &Errand<'_>,
    ) -> Result<Vec<(String, [u8; 32])>, Failure> {
        let part_bytes = self
            .settings
            .part
            .0
            .max(errand.wanted.bytes.div_ceil(MOST_PARTS));
        let mut source = errand.source.open()?;
        let mut whole = Sha256::new();
        let mut parts = Vec::new();
        let mut body = Vec::new();
        let mut bytes = 0;
        loop {
            must_go_on(errand)?;
            body.clear();
            fill(&mut *source, &mut body, part_bytes)?;
            bytes += body.len() as u64;
            if body.is_empty() || bytes > errand.wanted.bytes {
                break;
            }
            // Once more than the parts: what is not the file must never become an object.
            whole.update(&body);
            parts.push(self.send_part(key, upload, parts.len() + 1, &body)?);
        }
        if bytes != errand.wanted.bytes || hex(&whole.finalize()) != errand.wanted.sha256 {
            return Err(differs(errand));
        }
        Ok(parts)
    }

    fn send_part(
        &self,
        key: &str,
        upload: &str,
        number: usize,
        body: &[u8],
    ) -> Result<(String, [u8; 32]), Failure> {
        let digest: [u8; 32] = Sha256::digest(body).into();
        let headers = [("x-amz-checksum-sha256", base64(&digest))];
        let number = number.to_string();
        let answer = self.client.call(&Call {
            query: &[("partNumber", &number), ("uploadId", upload)],
            headers: &headers,
            body: Some(body),
            ..Call::of("PUT", key)
        })?;
        match (answer.status, answer.header("etag")) {
            (200, Some(tag)) => Ok((tag.to_owned(), digest)),
            _ => Err(answer.refused(&format!("put part {number} of"), key)),
        }
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[(String, [u8; 32])],
    ) -> Result<Option<Sent>, Failure> {
        let mut body = String::from("<CompleteMultipartUpload>");
        let mut digests = Sha256::new();
        for (number, (tag, digest)) in parts.iter().enumerate() {
            let tag = tag.replace('&', "&amp;").replace('<', "&lt;");
            body.push_str(&format!(
                "<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag>\
                 <ChecksumSHA256>{}</ChecksumSHA256></Part>",
                number + 1,
                base64(digest)
            ));
            digests.update(digest);
        }
        body.push_str("</CompleteMultipartUpload>");
        let headers = [("if-none-match", "*".to_owned())];
        let mut answer = self.client.call_new(&Call {
            query: &[("uploadId", upload)],
            headers: &headers,
            body: Some(body.as_bytes()),
            ..Call::of("POST", key)
        })?;
        let text = answer.text()?;
        match answer.status {
            // A failure may come after the headers, in the body.
            200 if !text.contains("<Error>") => Ok(Some(Sent {
                checksum: format!("{}-{}", base64(&digests.finalize()), parts.len()),
            })),
            412 => Ok(None),
            _ => Err(answer.refused("complete", key)),
        }
    }

    /// Ends what a killed attempt began: an upload without an end is kept, and paid for, for ever.
    fn abort_leftovers(&self, key: &str) -> Result<(), Failure> {
        let mut answer = self.client.call(&Call {
            query: &[("uploads", ""), ("prefix", key)],
            ..Call::of("GET", "")
        })?;
        let text = answer.text()?;
        // Not every store lists them; then an operator's life-cycle rule must.
        if answer.status != 200 {
            tracing::debug!(
                status = answer.status,
                "unfinished uploads cannot be listed"
            );
            return Ok(());
        }
        for upload in text.split("<Upload>").skip(1) {
            let found = (element(upload, "Key"), element(upload, "UploadId"));
            if let (Some(named), Some(id)) = found
                && named == key
            {
                self.abort(key, &id);
            }
        }
        Ok(())
    }

    fn abort(&self, key: &str, upload: &str) {
        let answer = self.client.call(&Call {
            query: &[("uploadId", upload)],
            ..Call::of("DELETE", key)
        });
        if let Err(failure) = answer {
            tracing::warn!(key, %failure, "an unfinished upload could not be ended");
        }
    }
}

/// Tells whether an answer holds the bytes that were asked for. rclone says 200 of a part, and names
/// the part all the same.
fn is_range(answer: &Answer, first: u64, last: u64, size: u64) -> bool {
    let named = format!("bytes {first}-{last}/");
    match (answer.status, answer.header("content-range")) {
        (200 | 206, Some(range)) => range.starts_with(&named),
        (200, None) => first == 0 && last + 1 == size,
        _ => false,
    }
}

fn made(place: String, how: &'static str) -> Made {
    Made { place, how }
}

fn must_go_on(errand: &Errand<'_>) -> Result<(), Failure> {
    if (errand.going)() {
        return Ok(());
    }
    Err(Failure::give_back())
}

/// The source is not what ingest took: it is read once more to say what it is.
fn differs(errand: &Errand<'_>) -> Failure {
    match errand.source.verify(errand.wanted, errand.going) {
        Ok(()) => Failure::halt(format!("{} was read in two ways", errand.name)),
        Err(failure) => failure,
    }
}

/// Reads up to `bytes`, or to the end.
fn fill(source: &mut dyn Read, body: &mut Vec<u8>, bytes: u64) -> Result<(), Failure> {
    source
        .take(bytes)
        .read_to_end(body)
        .map_err(|error| Failure::halt(format!("cannot read the source: {error}")))?;
    Ok(())
}

/// Returns the path of a key as it is sent.
fn path_of(bucket: Option<&str>, key: &str) -> String {
    match bucket {
        Some(bucket) => encode(&format!("/{bucket}/{key}"), true),
        None => encode(&format!("/{key}"), true),
    }
}

impl Answer {
    /// The service did not do what it was asked: the world's fault, with its own words.
    fn refused(mut self, what: &str, key: &str) -> Failure {
        let status = self.status;
        let text = self.text().unwrap_or_default();
        let words: Vec<String> = ["Code", "Message"]
            .iter()
            .filter_map(|name| element(&text, name))
            .collect();
        let words: String = words
            .join(": ")
            .chars()
            .filter(|c| !c.is_control())
            .take(300)
            .collect();
        Failure::defer(format!(
            "cannot {what} {key}: the service says {status} {words}"
        ))
    }
}
