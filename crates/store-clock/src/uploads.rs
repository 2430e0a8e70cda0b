//! Uploads of parts that were never ended: a store keeps them, and has them paid for, until somebody ends them. `object_store`
//! does not list them.

use futures_util::StreamExt;
use http::StatusCode;
use jiff::Timestamp;
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequestBody};
use serde::Deserialize;
use url::Url;

use crate::{SigningKey, StoreClockConnector};

/// More than a list of a thousand uploads has.
const LIST_BYTES: usize = 8 << 20;
/// The most lists that are read of one question.
const LISTS: usize = 1000;

/// Asks a store for uploads without an end.
#[derive(Debug)]
pub struct UploadLister {
    http: HttpClient,
    credential: AwsCredential,
    region: String,
}

/// An upload without an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The key that the object would have.
    pub key: String,
    /// What the store calls the upload.
    pub id: String,
    /// When it was begun, by the store's clock; `None` where the store does not say.
    pub begun: Option<Timestamp>,
}

impl UploadLister {
    /// Asks with this key over connections of this connector.
    ///
    /// # Errors
    /// When no client can be made of the options.
    pub fn new(
        key: SigningKey,
        connector: &StoreClockConnector,
        options: &ClientOptions,
    ) -> object_store::Result<Self> {
        Ok(Self {
            http: connector.connect(options)?,
            credential: AwsCredential {
                key_id: key.id,
                secret_key: key.secret,
                token: None,
            },
            region: key.region,
        })
    }

    /// Lists the uploads without an end whose keys begin with `prefix`. `None`: the store does not list them, or not in a way that
    /// makes sense.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(
        &self,
        bucket: &Url,
        prefix: &str,
    ) -> Result<Option<Vec<UnfinishedUpload>>, HttpError> {
        let mut uploads = Vec::new();
        let (mut key_marker, mut id_marker) = (String::new(), String::new());
        for _ in 0..LISTS {
            let mut url = bucket.clone();
            url.query_pairs_mut()
                .clear()
                .append_pair("uploads", "")
                .append_pair("prefix", prefix);
            if !key_marker.is_empty() {
                url.query_pairs_mut()
                    .append_pair("key-marker", &key_marker)
                    .append_pair("upload-id-marker", &id_marker);
            }
            let Some(list) = self.page(&url).await? else {
                return Ok(None);
            };
            uploads.extend(list.uploads.into_iter().map(|upload| UnfinishedUpload {
                key: upload.key,
                id: upload.id,
                begun: upload.begun.parse().ok(),
            }));
            let is_further = list.next_key > key_marker || list.next_id > id_marker;
            if !list.is_truncated || !is_further {
                break;
            }
            (key_marker, id_marker) = (list.next_key, list.next_id);
        }
        Ok(Some(uploads))
    }

    async fn page(&self, url: &Url) -> Result<Option<UploadList>, HttpError> {
        let request = http::Request::get(url.as_str()).body(HttpRequestBody::empty());
        let Ok(mut request) = request else {
            return Ok(None);
        };
        let signed = AwsAuthorizer::new(&self.credential, "s3", &self.region)
            .try_authorize(&mut request, None);
        if let Err(error) = signed {
            tracing::debug!(%error, "a question for unfinished uploads cannot be signed");
            return Ok(None);
        }
        let answer = self.http.execute(request).await?;
        if answer.status() != StatusCode::OK {
            let status = answer.status().as_u16();
            tracing::debug!(status, "unfinished uploads cannot be listed");
            return Ok(None);
        }
        let mut text = Vec::new();
        let mut pieces = answer.into_body().bytes_stream();
        while let Some(piece) = pieces.next().await {
            text.extend_from_slice(&piece?);
            if text.len() > LIST_BYTES {
                return Ok(None);
            }
        }
        let list = quick_xml::de::from_reader(text.as_slice());
        Ok(list
            .inspect_err(|error| tracing::debug!(%error, "the list of uploads makes no sense"))
            .ok())
    }
}

#[derive(Default, Deserialize)]
struct UploadList {
    #[serde(rename = "Upload", default)]
    uploads: Vec<ListedUpload>,
    #[serde(rename = "IsTruncated", default)]
    is_truncated: bool,
    #[serde(rename = "NextKeyMarker", default)]
    next_key: String,
    #[serde(rename = "NextUploadIdMarker", default)]
    next_id: String,
}

#[derive(Deserialize)]
struct ListedUpload {
    #[serde(rename = "Key")]
    key: String,
    #[serde(rename = "UploadId")]
    id: String,
    #[serde(rename = "Initiated", default)]
    begun: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_listed() {
        let text = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"x\"><Bucket>b</Bucket>\
                    <Upload><Key>warc/a&amp;b</Key><UploadId>one</UploadId><Initiated>2026-03-12T10:15:00.000Z</Initiated></Upload>\
                    <IsTruncated>true</IsTruncated><NextKeyMarker>c</NextKeyMarker><NextUploadIdMarker>two</NextUploadIdMarker>\
                    <Upload><UploadId>two</UploadId><Key>c</Key></Upload></ListMultipartUploadsResult>";
        let list: UploadList = quick_xml::de::from_str(text).unwrap();
        let found: Vec<(&str, &str)> = list
            .uploads
            .iter()
            .map(|upload| (upload.key.as_str(), upload.id.as_str()))
            .collect();
        assert_eq!(found, [("warc/a&b", "one"), ("c", "two")]);
        let begun: Option<Timestamp> = list.uploads[0].begun.parse().ok();
        assert_eq!(begun.unwrap().as_second(), 1_773_310_500);
        assert!(list.is_truncated);
        assert_eq!(
            (list.next_key.as_str(), list.next_id.as_str()),
            ("c", "two")
        );
        let none = "<ListMultipartUploadsResult><Bucket>b</Bucket><NextKeyMarker/></ListMultipartUploadsResult>";
        let list: UploadList = quick_xml::de::from_str(none).unwrap();
        assert!(list.uploads.is_empty() && !list.is_truncated);
    }
}
