//! Signs requests to an S3 store by the store's own clock.
//!
//! A store refuses what was signed more than a quarter of an hour off, and `object_store` signs by the clock of the host.
//! Every answer of a store says what time it is there. A request that is refused, and turns out to bear another time, is
//! signed by the store's and sent again, once; those that follow are signed so before they are sent. As long as the host's
//! own time is taken, nothing is changed.
//!
//! No wall clock is read: what the host takes for the time stands in the request, and between two answers the monotonic
//! clock counts. TLS is not concerned: whether a certificate is in its days is asked of the host's clock.

mod signature;
mod uploads;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use http::header::{AGE, DATE};
use http::{HeaderMap, Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
    ReqwestConnector,
};

pub use uploads::{UnfinishedUpload, UploadLister};

use signature::{sign, signed_at, utc};

/// How far the time of a signature may be off; stores take 15 minutes.
const APART: SignedDuration = SignedDuration::from_secs(60);
/// The first request that is larger asks for the time before it is sent: a store may hang up on a body that it refuses.
const SMALL_BYTES: usize = 64 << 10;
/// How HTTP writes a time.
const HTTP_TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";
/// No store's clock is earlier or later than these, in Unix seconds: 2020 and 2100.
const SENSIBLE: std::ops::Range<i64> = 1_577_836_800..4_102_444_800;

/// Who signs, and for where.
#[derive(Clone)]
pub struct SigningKey {
    /// The access key.
    pub id: String,
    /// The secret key.
    pub secret: String,
    /// The store's region.
    pub region: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the key {} of {}", self.id, self.region)
    }
}

/// Makes connections to one store over which what is signed is signed by the store's clock.
#[derive(Debug)]
pub struct StoreClockConnector {
    key: SigningKey,
    clock: Arc<StoreClock>,
    inner: Box<dyn HttpConnector>,
}

impl StoreClockConnector {
    /// Signs with this key.
    pub fn new(key: SigningKey) -> Self {
        Self::over(key, ReqwestConnector::default())
    }

    /// Signs with this key what goes over the connections of another.
    pub fn over(key: SigningKey, inner: impl HttpConnector) -> Self {
        Self {
            key,
            clock: Arc::default(),
            inner: Box::new(inner),
        }
    }
}

impl HttpConnector for StoreClockConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(StoreClockClient {
            key: self.key.clone(),
            clock: Arc::clone(&self.clock),
            inner: self.inner.connect(options)?,
        }))
    }
}

#[derive(Debug)]
struct StoreClockClient {
    key: SigningKey,
    clock: Arc<StoreClock>,
    inner: HttpClient,
}

impl StoreClockClient {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.inner.execute(request).await?;
        self.clock.hear(answer.headers());
        Ok(answer)
    }

    /// Signs a request anew when its time is not the store's; tells whether it did.
    fn sign_if_apart(&self, request: &mut HttpRequest) -> bool {
        let (Some(now), Some(at)) = (self.clock.now(), signed_at(request)) else {
            return false;
        };
        now.duration_since(at).abs() > APART && sign(request, &self.key, now).is_some()
    }

    /// Asks for nothing but the time: every answer has it, a refusal too.
    async fn ask(&self, request: &HttpRequest) {
        let mut question = HttpRequest::new(HttpRequestBody::empty());
        *question.method_mut() = Method::HEAD;
        *question.uri_mut() = request.uri().clone();
        if let Err(error) = self.send(question).await {
            tracing::debug!(%error, "the store does not tell its time");
        }
    }
}

#[async_trait]
impl HttpService for StoreClockClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let takes_ours = &self.clock.takes_ours;
        if request.body().content_length() > SMALL_BYTES && self.clock.now().is_none() {
            self.ask(&request).await;
        }
        if !takes_ours.load(Ordering::Relaxed) && self.sign_if_apart(&mut request) {
            let answer = self.send(request).await?;
            // If the time is the reason, it is the store that tells a wrong one: ours is tried next.
            let is_refused = answer.status() == StatusCode::FORBIDDEN;
            takes_ours.store(is_refused, Ordering::Relaxed);
            return Ok(answer);
        }
        let mut again = request.clone();
        let answer = self.send(request).await?;
        let is_refused = answer.status() == StatusCode::FORBIDDEN;
        takes_ours.store(!is_refused, Ordering::Relaxed);
        if is_refused && self.sign_if_apart(&mut again) {
            tracing::debug!("refused, and the store's clock is another: signed by that");
            return self.send(again).await;
        }
        Ok(answer)
    }
}

/// The store's clock, as it was last told.
#[derive(Debug, Default)]
struct StoreClock {
    told: Mutex<Option<(Timestamp, Instant)>>,
    /// What bears the host's own time was not refused of late; nothing else is signed anew.
    takes_ours: AtomicBool,
}

impl StoreClock {
    fn now(&self) -> Option<Timestamp> {
        let (told, at) = (*self.told.lock().unwrap_or_else(PoisonError::into_inner))?;
        told.checked_add(at.elapsed()).ok()
    }

    /// Takes the time from an answer that has one of its own and a sensible one.
    fn hear(&self, answer: &HeaderMap) {
        // Out of a cache: its time is that of another answer.
        if answer.contains_key(AGE) {
            return;
        }
        let text = answer.get(DATE).and_then(|date| date.to_str().ok());
        let told = text.and_then(|text| utc(HTTP_TIME, text));
        if let Some(told) = told.filter(|told| SENSIBLE.contains(&told.as_second())) {
            let mut last = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((told, Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use object_store::aws::AmazonS3Builder;
    use object_store::client::HttpResponseBody;
    use object_store::path::Path as Key;
    use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};

    use super::*;

    /// A store whose clock is off from ours, and that refuses as S3 does.
    #[derive(Debug, Clone)]
    struct OtherTime {
        ahead: SignedDuration,
        /// What its answers say of the time; `None` for its clock.
        says: Option<&'static [(&'static str, &'static str)]>,
        taken: Arc<AtomicUsize>,
        refused: Arc<AtomicUsize>,
    }

    impl OtherTime {
        fn ahead(seconds: i64) -> Self {
            Self {
                ahead: SignedDuration::from_secs(seconds),
                says: None,
                taken: Arc::default(),
                refused: Arc::default(),
            }
        }

        fn open(&self) -> impl ObjectStore {
            let key = key();
            AmazonS3Builder::new()
                .with_endpoint("http://store.example")
                .with_allow_http(true)
                .with_bucket_name("b")
                .with_region(&key.region)
                .with_access_key_id(&key.id)
                .with_secret_access_key(&key.secret)
                .with_http_connector(StoreClockConnector::over(key, self.clone()))
                .build()
                .unwrap()
        }

        fn counts(&self) -> (usize, usize) {
            let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
            (count(&self.taken), count(&self.refused))
        }
    }

    impl HttpConnector for OtherTime {
        fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
            Ok(HttpClient::new(self.clone()))
        }
    }

    #[async_trait]
    impl HttpService for OtherTime {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let now = Timestamp::now() + self.ahead;
            let quarter = SignedDuration::from_mins(15);
            let in_time =
                signed_at(&request).is_some_and(|at| now.duration_since(at).abs() < quarter);
            let (status, count) = match in_time {
                true => (StatusCode::OK, &self.taken),
                false => (StatusCode::FORBIDDEN, &self.refused),
            };
            count.fetch_add(1, Ordering::SeqCst);
            let mut answer = http::Response::builder().status(status).header("etag", "e");
            match self.says {
                Some(headers) => {
                    for (name, value) in headers {
                        answer = answer.header(*name, *value);
                    }
                }
                None => answer = answer.header(DATE, now.strftime(HTTP_TIME).to_string()),
            }
            let body = HttpResponseBody::from(String::new());
            Ok(answer.body(body).unwrap())
        }
    }

    fn key() -> SigningKey {
        SigningKey {
            id: "id".into(),
            secret: "hidden".into(),
            region: "r".into(),
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    /// Puts so many bytes.
    fn put(store: &impl ObjectStore, bytes: usize) -> object_store::Result<()> {
        let key = Key::from("k");
        let put = store.put(&key, PutPayload::from(vec![0; bytes]));
        runtime().block_on(put).map(drop)
    }

    #[test]
    fn a_clock_that_is_off_costs_one_refusal() {
        for ahead in [3600, -3600, 86_400, -400 * 86_400] {
            let other = OtherTime::ahead(ahead);
            let store = other.open();
            for _ in 0..3 {
                put(&store, 5).unwrap();
            }
            assert_eq!(other.counts(), (3, 1), "{ahead} s ahead");
        }
    }

    #[test]
    fn clocks_that_agree_cost_none() {
        for ahead in [0, 30, -30, 800] {
            let other = OtherTime::ahead(ahead);
            let store = other.open();
            put(&store, 5).unwrap();
            put(&store, 5).unwrap();
            assert_eq!(other.counts(), (2, 0), "{ahead} s ahead");
        }
    }

    #[test]
    fn a_large_body_is_sent_once() {
        let other = OtherTime::ahead(3600);
        let store = other.open();
        put(&store, SMALL_BYTES + 1).unwrap();
        assert_eq!(other.counts(), (1, 1), "what was refused is the question");
    }

    #[test]
    fn a_store_that_does_not_tell_its_time_is_not_asked_twice() {
        let cases: [&'static [(&str, &str)]; 6] = [
            &[],
            &[("date", "yesterday")],
            &[("date", "Thu, 01 Jan 1970 00:00:00 GMT")],
            &[("date", "Fri, 01 Jan 2100 00:00:00 GMT")],
            &[("date", "Sun, 06 Nov 1994 08:49:37 GMT")],
            &[("date", "Sat, 07 Nov 2026 08:49:37 GMT"), ("age", "9")],
        ];
        for says in cases {
            let mut other = OtherTime::ahead(3600);
            other.says = Some(says);
            let refused = put(&other.open(), 5);
            assert!(matches!(refused, Err(Error::PermissionDenied { .. })));
            assert_eq!(other.counts(), (0, 1), "{says:?}");
        }
    }

    #[test]
    fn a_store_that_tells_a_wrong_time_gets_ours() {
        let mut other = OtherTime::ahead(0);
        other.says = Some(&[("date", "Sat, 07 Nov 2048 08:49:37 GMT")]);
        let store = other.open();
        put(&store, 5).unwrap();
        put(&store, 5).unwrap();
        assert_eq!(other.counts(), (2, 0));
        let fresh = other.open();
        assert!(put(&fresh, SMALL_BYTES + 1).is_err(), "it is believed once");
        put(&fresh, SMALL_BYTES + 1).unwrap();
        put(&fresh, 5).unwrap();
        assert_eq!(other.counts(), (4, 2));
    }

    #[test]
    fn a_refusal_for_another_reason_stays_one() {
        let other = OtherTime::ahead(0);
        let answer = send(&other, http::Request::get("http://store.example/b/k"));
        assert_eq!((answer, other.counts()), (StatusCode::FORBIDDEN, (0, 1)));
    }

    /// Sends what nobody has signed.
    fn send(other: &OtherTime, request: http::request::Builder) -> StatusCode {
        let client = StoreClockConnector::over(key(), other.clone())
            .connect(&ClientOptions::new())
            .unwrap();
        let request = request.body(HttpRequestBody::empty()).unwrap();
        runtime()
            .block_on(client.execute(request))
            .unwrap()
            .status()
    }

    #[test]
    fn a_secret_is_not_shown() {
        let shown = format!("{:?}", StoreClockConnector::new(key()));
        assert!(shown.contains("id") && !shown.contains("hidden"), "{shown}");
    }
}
