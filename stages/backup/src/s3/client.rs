//! The way to one bucket, and what `object_store` leaves to its users: an upload of parts that becomes an object only where none
//! is, and the list of uploads without an end.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use ecluse_stage::Failure;
use ecluse_store_clock::{SigningKey, StoreClockConnector, UnfinishedUpload, UploadLister};
use http::header::{HeaderValue, IF_NONE_MATCH};
use http::{Method, StatusCode};
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path as Key;
use object_store::signer::Signer;
use object_store::{BackoffConfig, Certificate, ClientOptions, RetryConfig};
use url::Url;

use super::words::unreachable;
use crate::settings::S3;

/// A request that failed on its way is sent again so often.
const RETRIES: usize = 2;
/// The pause after the first try.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONG_PAUSE: Duration = Duration::from_secs(2);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);
/// How long a signed address is good for.
const SIGNED_FOR: Duration = Duration::from_secs(300);

/// A connection to one bucket.
pub(super) struct Client {
    pub(super) store: AmazonS3,
    uploads: UploadLister,
    /// Its address, for messages.
    pub(super) bucket: String,
}

impl Client {
    pub(super) fn open(settings: &S3, root: &Path) -> Result<Self, Failure> {
        // The HTTP client asks for the process's own choice; whoever made one before is right too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = options(settings, root)?;
        let (endpoint, bucket) = addresses(settings)?;
        let key = SigningKey {
            id: secret(&root.join(&settings.key_file))?,
            secret: secret(&root.join(&settings.secret_file))?,
            region: settings.region.clone(),
        };
        let by_its_clock = StoreClockConnector::new(key.clone());
        let uploads = UploadLister::new(key.clone(), &by_its_clock, &options);
        let uploads = uploads.map_err(Failure::config)?;
        let store = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_virtual_hosted_style_request(!settings.path_style)
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_access_key_id(&key.id)
            .with_secret_access_key(&key.secret)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_client_options(options)
            .with_retry(RetryConfig {
                max_retries: RETRIES,
                backoff: BackoffConfig {
                    init_backoff: PAUSE,
                    max_backoff: LONG_PAUSE,
                    base: 2.0,
                },
                ..RetryConfig::default()
            })
            .with_http_connector(NewObjectsOnly(by_its_clock))
            .build()
            .map_err(Failure::config)?;
        Ok(Self {
            store,
            uploads,
            bucket,
        })
    }

    /// Returns the address of a key.
    pub(super) async fn url(&self, key: &Key) -> Result<String, Failure> {
        let mut url = self.signed_url(key).await?;
        url.set_query(None);
        Ok(url.into())
    }

    /// Returns the address of a key as the store's client makes it: it tells no other. What is signed of it is not used.
    async fn signed_url(&self, key: &Key) -> Result<Url, Failure> {
        let signed = self.store.signed_url(Method::GET, key, SIGNED_FOR).await;
        signed.map_err(Failure::config)
    }

    /// Returns the uploads of a key that have no end: what a killed attempt began. Not every store lists them; then a life-cycle
    /// rule of the operator must end them.
    pub(super) async fn unfinished_uploads(&self, key: &Key) -> Result<Vec<String>, Failure> {
        let mut bucket = self.signed_url(&Key::default()).await?;
        bucket.set_query(None);
        let listed = self.uploads.list(&bucket, key.as_ref()).await;
        let listed = listed.map_err(|error| unreachable(&self.bucket, &error))?;
        let of_key = |upload: &UnfinishedUpload| upload.key == key.as_ref();
        let uploads = listed.into_iter().flatten().filter(of_key);
        Ok(uploads.map(|upload| upload.id).collect())
    }
}

/// Connections over which an upload of parts never becomes an object where there is one already.
///
/// `object_store` has the condition for a whole object and for copies, not for parts.
#[derive(Debug)]
struct NewObjectsOnly(StoreClockConnector);

impl HttpConnector for NewObjectsOnly {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(ConditionalCompletion(client)))
    }
}

#[derive(Debug)]
struct ConditionalCompletion(HttpClient);

#[async_trait]
impl HttpService for ConditionalCompletion {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        if request.method() != Method::POST || !query.starts_with("uploadId=") {
            return self.0.execute(request).await;
        }
        let plain = request.clone();
        let headers = request.headers_mut();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        let answer = self.0.execute(request).await?;
        // A store that knows no such condition gets it without: the key was free a moment ago.
        if answer.status() == StatusCode::NOT_IMPLEMENTED {
            return self.0.execute(plain).await;
        }
        Ok(answer)
    }
}

/// Returns the address that requests go to, and the bucket's.
fn addresses(settings: &S3) -> Result<(String, String), Failure> {
    let endpoint = &settings.endpoint;
    if settings.path_style {
        return Ok((endpoint.clone(), format!("{endpoint}/{}", settings.bucket)));
    }
    let (scheme, host) = endpoint
        .split_once("://")
        .ok_or_else(|| Failure::config(format!("{endpoint} is no endpoint")))?;
    let address = format!("{scheme}://{}.{host}", settings.bucket);
    Ok((address.clone(), address))
}

fn options(settings: &S3, root: &Path) -> Result<ClientOptions, Failure> {
    let agent = concat!("ecluse/", env!("CARGO_PKG_VERSION"));
    let is_plain = settings.endpoint.starts_with("http://");
    let mut options = ClientOptions::new()
        .with_user_agent(HeaderValue::from_static(agent))
        .with_allow_http(is_plain)
        // Of a part that is sent, and of each piece that is read: an object of any size can be read.
        .with_timeout_disabled()
        .with_read_timeout(settings.timeout)
        .with_connect_timeout(settings.timeout.min(CONNECT));
    if let Some(path) = &settings.ca_file {
        for certificate in authorities(&root.join(path))? {
            options = options.with_root_certificate(certificate);
        }
    }
    // Without certificates to look at, a machine that has none will do.
    if is_plain || settings.ca_file.is_some() {
        options = options.with_no_system_certificates(true);
    }
    Ok(options)
}

fn secret(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))?;
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(Failure::config(format!(
            "{} does not hold one word",
            path.display()
        )));
    }
    Ok(text.to_owned())
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, Failure> {
    let fault = |error: &dyn std::fmt::Display| {
        Failure::config(format!("cannot read {}: {error}", path.display()))
    };
    let pem = std::fs::read(path).map_err(|error| fault(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| fault(&error))?;
    if certificates.is_empty() {
        return Err(fault(&"it holds no certificate"));
    }
    Ok(certificates)
}
