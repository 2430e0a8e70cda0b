//! The door of proxy mode: requests for whole URLs, and tunnels, which we end ourselves.
//!
//! A tunnel is never opened to anybody: whoever asks for one gets a certificate of our CA for the host, and speaks to the archive.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::proxy::{MAGIC_HOST, ProxyMode};
use crate::reader::Reader;
use crate::reply::{Asked, Reply, whole};
use crate::server::Patient;
use crate::site::AccessSite;

/// What every request of one client shares.
#[derive(Clone)]
struct ProxyDoor {
    site: Arc<AccessSite>,
    mode: Arc<ProxyMode>,
    http: http1::Builder,
    peer: IpAddr,
    /// Held as long as the client is here, in a tunnel too.
    place: Arc<OwnedSemaphorePermit>,
}

/// The host that a tunnel was asked for, and who asked.
#[derive(Clone)]
struct Tunnel {
    authority: String,
    credentials: Option<HeaderValue>,
}

pub(crate) async fn accept(
    listener: TcpListener,
    site: Arc<AccessSite>,
    mode: Arc<ProxyMode>,
    http: http1::Builder,
    places: Arc<Semaphore>,
) {
    let patience = site.settings.patience.get();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, most likely: trying again at once would only burn time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let door = ProxyDoor {
            site: Arc::clone(&site),
            mode: Arc::clone(&mode),
            http: http.clone(),
            peer: peer.ip(),
            place: Arc::new(place),
        };
        tokio::spawn(async move {
            let own = door.clone();
            let service = service_fn(move |request| own.clone().answer(request));
            let stream = Patient::new(stream, patience);
            let served = door.http.serve_connection(stream, service).with_upgrades();
            // A client that goes away, or takes too long, is no concern of ours.
            let _ = served.await;
        });
    }
}

impl ProxyDoor {
    async fn answer(self, request: Request<Incoming>) -> Result<Reply, io::Error> {
        if *request.method() == Method::CONNECT {
            return Ok(self.open_tunnel(request));
        }
        let is_whole = request.uri().scheme_str() == Some("http");
        match request.uri().authority().filter(|_| is_whole) {
            Some(authority) => {
                let base = format!("http://{}", authority.as_str());
                self.ask(request, base, None).await
            }
            None => Ok(told(StatusCode::BAD_REQUEST)),
        }
    }

    fn open_tunnel(self, mut request: Request<Incoming>) -> Reply {
        let authority = match request.uri().authority() {
            Some(authority) if !authority.as_str().contains('@') => authority.clone(),
            _ => return told(StatusCode::BAD_REQUEST),
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let credentials = request.headers().get(header::PROXY_AUTHORIZATION).cloned();
        let tunnel = Tunnel {
            authority: match authority.port_u16() {
                Some(443) | None => authority.host().to_owned(),
                Some(port) => format!("{}:{port}", authority.host()),
            },
            credentials,
        };
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(upgraded) = upgraded.await else {
                return;
            };
            let mode = Arc::clone(&self.mode);
            let made = tokio::task::spawn_blocking(move || mode.ca.config_of(&host)).await;
            let Ok(Ok(config)) = made else {
                return;
            };
            let patience = self.site.settings.patience.get();
            let accepted = TlsAcceptor::from(config).accept(TokioIo::new(upgraded));
            // A browser that does not trust us says so here.
            let Ok(Ok(stream)) = tokio::time::timeout(patience, accepted).await else {
                return;
            };
            let own = self.clone();
            let service =
                service_fn(move |request| own.clone().answer_within(request, tunnel.clone()));
            let _ = self
                .http
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        whole(StatusCode::OK, "text/plain; charset=utf-8", "")
    }

    async fn answer_within(
        self,
        request: Request<Incoming>,
        tunnel: Tunnel,
    ) -> Result<Reply, io::Error> {
        let base = format!("https://{}", tunnel.authority);
        self.ask(request, base, tunnel.credentials).await
    }

    async fn ask(
        self,
        request: Request<Incoming>,
        base: String,
        credentials: Option<HeaderValue>,
    ) -> Result<Reply, io::Error> {
        let Self {
            site,
            mode,
            peer,
            place,
            ..
        } = self;
        let (mut parts, _) = request.into_parts();
        if let Some(credentials) = credentials {
            parts
                .headers
                .insert(header::PROXY_AUTHORIZATION, credentials);
        }
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().map(str::to_owned);
        let url = match &query {
            Some(query) => format!("{base}{path}?{query}"),
            None => format!("{base}{path}"),
        };
        let asked = Asked {
            method: parts.method,
            path,
            query,
            headers: parts.headers,
            base,
            peer,
            reader: Reader::default(),
            proxied_at: None,
        };
        let answered =
            tokio::task::spawn_blocking(move || site.proxy_answer(&mode, asked, &url)).await;
        drop(place);
        Ok(answered.unwrap_or_else(|_| told(StatusCode::INTERNAL_SERVER_ERROR)))
    }
}

fn told(status: StatusCode) -> Reply {
    let text = match status {
        StatusCode::BAD_REQUEST => {
            format!(
                "This is the proxy of a web archive: name it as such in your browser, then open http://{MAGIC_HOST}/\n"
            )
        }
        _ => "Something went wrong here; it is in the log.\n".to_owned(),
    };
    whole(status, "text/plain; charset=utf-8", text)
}
