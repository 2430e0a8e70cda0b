//! Responses without TLS: the bytes kept, the limits, the connections.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ecluse_http::{
    AddressPolicy, Anomaly, Client, ConnectionUse, DecodedEnd, Exchange, FetchError, FetchLimits,
    Framing, HttpLimit, Settings, Sha1Digest, Shape, Truncation,
};
use flate2::Compression;
use proptest::prelude::*;

use crate::script::{Act, LOOPBACK, Server, block, block_on, client, limits, payload, request};

/// Fetches once from a server that plays `acts`.
fn fetch(acts: Vec<Act>, limits: FetchLimits) -> Result<Exchange, FetchError> {
    let server = Server::once(acts);
    block_on(client().fetch(&request(&server, limits), &mut ()))
}

/// Fetches once from a server that sends `bytes` and closes.
fn answer(bytes: &[u8]) -> Exchange {
    fetch(vec![Act::Send(bytes.to_vec()), Act::Close], limits()).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(bytes, Compression::default())
        .read_to_end(&mut packed)
        .unwrap();
    packed
}

fn chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// A response, its entity, and what goes before it.
struct Awkward {
    name: &'static str,
    before: Vec<u8>,
    bytes: Vec<u8>,
    entity: Vec<u8>,
    truncation: Option<Truncation>,
}

/// The fifteen kinds of response that other archiving clients get wrong, or might.
fn awkward() -> Vec<Awkward> {
    let page: Vec<u8> = b"<!doctype html><title>lock</title>"
        .iter()
        .copied()
        .chain(b"<p>Water rises.</p>".repeat(60))
        .collect();
    let packed = gzip(&page);
    let join = |head: &[u8], body: &[u8]| [head, body].concat();
    let sized = |head: &str, body: &[u8]| {
        join(
            format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
            body,
        )
    };
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n";
    let mut extended = Vec::new();
    for chunk in page.chunks(50) {
        extended.extend_from_slice(format!("{:x};name=\"v\"\r\n", chunk.len()).as_bytes());
        extended.extend_from_slice(chunk);
        extended.extend_from_slice(b"\r\n");
    }
    extended.extend_from_slice(b"0\r\nX-Sum: 7\r\n\r\n");
    let mut padded = Vec::new();
    for chunk in page.chunks(171) {
        padded.extend_from_slice(format!("000{:X}\r\n", chunk.len()).as_bytes());
        padded.extend_from_slice(chunk);
        padded.extend_from_slice(b"\r\n");
    }
    padded.extend_from_slice(b"000\r\n\r\n");
    let case = |name, bytes: Vec<u8>, entity: &[u8]| Awkward {
        name,
        before: Vec::new(),
        bytes,
        entity: entity.to_vec(),
        truncation: None,
    };
    let with = |fields: &str| format!("{ok}{fields}\r\n").into_bytes();
    vec![
        case("plain", sized(ok, &page), &page),
        case(
            "chunked",
            join(&with("Transfer-Encoding: chunked\r\n"), &chunks(&page, 97)),
            &page,
        ),
        case(
            "extensions and trailer",
            join(
                &with("Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n"),
                &extended,
            ),
            &page,
        ),
        case(
            "upper case, padded",
            join(&with("tRANSFER-eNCODING: CHUNKED\r\n"), &padded),
            &page,
        ),
        case(
            "gzip",
            sized(&format!("{ok}Content-Encoding: gzip\r\n"), &packed),
            &packed,
        ),
        case(
            "gzip in chunks",
            join(
                &with("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
                &chunks(&packed, 33),
            ),
            &packed,
        ),
        case(
            "odd fields",
            sized(
                "HTTP/1.1 200 OK\r\ncONTENT-tYPE: text/html\r\nX-Pad:   a  b   \r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n",
                &page,
            ),
            &page,
        ),
        case(
            "until close",
            join(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n", &page),
            &page,
        ),
        case(
            "bare line feeds",
            join(
                format!(
                    "HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: {}\n\n",
                    page.len()
                )
                .as_bytes(),
                &page,
            ),
            &page,
        ),
        case(
            "Latin-1",
            join(
                b"HTTP/1.1 200 Tout va tr\xe8s bien\r\nX-Place: \xc9cluse\r\n",
                &sized("Content-Type: text/html\r\n", &page),
            ),
            &page,
        ),
        case(
            "no reason",
            sized("HTTP/1.1 200\r\nContent-Type: text/html\r\n", &page),
            &page,
        ),
        Awkward {
            before: b"HTTP/1.1 103 Early Hints\r\nLink: </lock.css>; rel=preload\r\n\r\n".to_vec(),
            ..case("early hints", sized(ok, &page), &page)
        },
        Awkward {
            truncation: Some(Truncation::Disconnect),
            ..case(
                "too short",
                join(&with("Content-Length: 9999\r\n"), &page),
                &page,
            )
        },
        case(
            "redirect",
            sized("HTTP/1.1 302 Found\r\nLocation: /plain\r\n", b"gone there"),
            b"gone there",
        ),
        case(
            "error in chunks",
            join(
                b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n",
                &chunks(&page, 400),
            ),
            &page,
        ),
    ]
}

#[test]
fn fifteen_awkward_responses_are_kept_exactly() {
    let cases = awkward();
    assert_eq!(cases.len(), 15);
    for case in cases {
        let name = case.name;
        let exchange = answer(&[case.before.as_slice(), &case.bytes].concat());
        assert_eq!(block(&exchange), case.bytes, "{name}");
        assert_eq!(payload(&exchange), case.entity, "{name}");
        assert_eq!(
            exchange.block.digest(),
            Sha1Digest::of(&case.bytes),
            "{name}"
        );
        assert_eq!(
            exchange.payload_digest,
            Sha1Digest::of(&case.entity),
            "{name}"
        );
        assert_eq!(exchange.payload_bytes, case.entity.len() as u64, "{name}");
        assert_eq!(exchange.interim.concat(), case.before, "{name}");
        assert_eq!(exchange.truncation, case.truncation, "{name}");
        assert_eq!(exchange.shape, Shape::Http, "{name}");
    }
}

#[test]
fn the_request_is_sent_as_it_was_given() {
    let server = Server::once(vec![
        Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Act::Close,
    ]);
    let request = request(&server, limits())
        .with("uSER-agent", "ecluse")
        .unless_unchanged(Some(b"\"tag\""), None);
    let exchange = block_on(client().fetch(&request, &mut ())).unwrap();
    let expected = format!(
        "GET /page HTTP/1.1\r\nHost: host.test:{}\r\nuSER-agent: ecluse\r\nIf-None-Match: \"tag\"\r\n\r\n",
        server.port()
    );
    assert_eq!(exchange.request, expected.as_bytes());
    assert_eq!(server.requests(), [expected.into_bytes()]);
    assert_eq!(exchange.peer.ip(), LOOPBACK);
    assert!(exchange.timings.first_byte <= exchange.timings.total);
}

#[test]
fn redirects_are_not_followed() {
    let bytes = b"HTTP/1.1 301 Moved\r\nLocation: /page\r\nContent-Length: 0\r\n\r\n";
    let server = Server::new(vec![vec![Act::Send(bytes.to_vec())]; 2]);
    let exchange = block_on(client().fetch(&request(&server, limits()), &mut ())).unwrap();
    assert_eq!(exchange.code(), 301);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_is_no_http_is_kept_with_a_verdict() {
    for (bytes, shape) in [
        (b"<h1>0.9</h1>".as_slice(), Shape::NotHttp),
        (b"220 ftp.test ready\r\n", Shape::NotHttp),
        (b"\x16\x03\x01\x00\x02\x02\x28", Shape::NotHttp),
        (b"Server: odd\r\n\r\nbody", Shape::NoStatusLine),
        (b"HTTP/1.1 \xff\r\n\r\nbody", Shape::BadStatusLine),
        (b"HTTP/1.1 200 OK\r\nX: ", Shape::HeadCut),
    ] {
        let exchange = answer(bytes);
        assert_eq!(exchange.shape, shape);
        assert_eq!(exchange.code(), -3);
        assert_eq!(block(&exchange), bytes);
        assert!(!exchange.kept_alive);
        assert!(!exchange.annotations().is_empty());
    }
}

#[test]
fn nothing_at_all_is_an_error() {
    let error = fetch(vec![Act::Close], limits()).unwrap_err();
    assert!(matches!(error, FetchError::Lost { .. }), "{error}");
    assert_eq!(error.code(), -3);
    let error = fetch(vec![Act::Reset], limits()).unwrap_err();
    assert_eq!(error.code(), -3);
}

#[test]
fn a_reset_at_any_byte_costs_no_byte_before_it() {
    let whole = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(),
        &chunks(b"hello archive", 5),
    ]
    .concat();
    for cut in 1..whole.len() {
        let acts = vec![Act::Send(whole[..cut].to_vec()), Act::Reset];
        let exchange = fetch(acts, limits()).unwrap();
        assert_eq!(block(&exchange), whole[..cut], "cut at {cut}");
        assert!(b"hello archive".starts_with(&payload(&exchange)));
        // The last chunk makes the payload whole.
        let is_whole = cut >= whole.len() - 2;
        assert_eq!(exchange.truncation.is_none(), is_whole, "cut at {cut}");
        assert!(!exchange.kept_alive);
    }
}

#[test]
fn a_closed_port_is_a_failed_connection() {
    let server = Server::new(Vec::new());
    let mut request = request(&server, limits());
    request.authority.port = {
        let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    let error = block_on(client().fetch(&request, &mut ())).unwrap_err();
    assert!(matches!(error, FetchError::Connect { .. }), "{error}");
    assert_eq!(error.code(), -2);
}

#[test]
fn the_next_address_is_tried() {
    let server = Server::once(vec![
        Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()),
        Act::Close,
    ]);
    let mut request = request(&server, limits());
    // Nobody listens there: the server is bound to 127.0.0.1 alone.
    request.addresses = vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), LOOPBACK];
    let exchange = block_on(client().fetch(&request, &mut ())).unwrap();
    assert_eq!(exchange.peer.ip(), LOOPBACK);
    assert_eq!(exchange.code(), 200);
}

#[test]
fn private_addresses_are_refused_before_connecting() {
    let server = Server::once(vec![Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())]);
    let mut request = request(&server, limits());
    request.address_policy = AddressPolicy::PublicOnly;
    let error = block_on(client().fetch(&request, &mut ())).unwrap_err();
    assert!(matches!(error, FetchError::AddressRefused { address, .. } if address == LOOPBACK));
    assert_eq!(error.code(), -5001);
    request.addresses.clear();
    let error = block_on(client().fetch(&request, &mut ())).unwrap_err();
    assert_eq!(error.code(), -1);
    assert!(server.requests().is_empty());
}

#[test]
fn silence_ends_at_the_first_byte_limit() {
    let limits = FetchLimits {
        first_byte: Duration::from_millis(100),
        ..limits()
    };
    let error = fetch(vec![Act::Hang], limits).unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Timeout {
                limit: HttpLimit::FirstByte,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.code(), -4);
}

#[test]
fn a_stall_ends_at_the_idle_limit() {
    let limits = FetchLimits {
        idle: Duration::from_millis(100),
        ..limits()
    };
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello";
    let exchange = fetch(vec![Act::Send(bytes.to_vec()), Act::Hang], limits).unwrap();
    assert_eq!(exchange.truncation, Some(Truncation::Time));
    assert_eq!(exchange.limit, Some(HttpLimit::Idle));
    assert_eq!(block(&exchange), bytes);

    let exchange = fetch(vec![Act::Send(b"HTTP/1.1 2".to_vec()), Act::Hang], limits).unwrap();
    assert_eq!((exchange.shape, exchange.code()), (Shape::HeadCut, -4));
}

#[test]
fn a_drip_ends_at_the_total_limit() {
    let limits = FetchLimits {
        total: Duration::from_millis(300),
        ..limits()
    };
    let drip = Act::Drip {
        piece: b"x".to_vec(),
        pause: Duration::from_millis(5),
    };
    let head = Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let exchange = fetch(vec![head, drip], limits).unwrap();
    assert_eq!(exchange.truncation, Some(Truncation::Time));
    assert_eq!(exchange.limit, Some(HttpLimit::Total));
    assert!(exchange.payload_bytes > 0);
    assert!(exchange.timings.total < Duration::from_secs(5));
}

#[test]
fn a_drip_ends_at_the_slowest_rate() {
    let limits = FetchLimits {
        slowest_bytes_per_second: 100_000,
        slow_grace: Duration::from_millis(100),
        ..limits()
    };
    let drip = Act::Drip {
        piece: b"x".to_vec(),
        pause: Duration::from_millis(5),
    };
    let head = Act::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    let exchange = fetch(vec![head, drip], limits).unwrap();
    assert_eq!(exchange.limit, Some(HttpLimit::Slow));
    assert_eq!(exchange.truncation, Some(Truncation::Time));
}

#[test]
fn endless_heads_end_at_the_limit() {
    let limits = FetchLimits {
        head_bytes: 10_000,
        ..limits()
    };
    for start in [b"HTTP/1.1 200 OK\r\n".as_slice(), b"HTTP/1.1 200 "] {
        let flood = Act::Drip {
            piece: b"X-More: of the same\r\n".repeat(50),
            pause: Duration::ZERO,
        };
        let exchange = fetch(vec![Act::Send(start.to_vec()), flood], limits).unwrap();
        assert_eq!(exchange.shape, Shape::HeadTooLong);
        assert_eq!(exchange.truncation, Some(Truncation::Length));
        assert_eq!(exchange.block.bytes(), 10_000);
    }
    let interim = Act::Drip {
        piece: b"HTTP/1.1 102 Processing\r\n\r\n".to_vec(),
        pause: Duration::ZERO,
    };
    let exchange = fetch(vec![interim], limits).unwrap();
    assert_eq!(exchange.shape, Shape::HeadTooLong);
}

#[test]
fn endless_bodies_end_at_the_limit() {
    let limits = FetchLimits {
        body_bytes: 1_000_000,
        ..limits()
    };
    for head in [
        b"HTTP/1.1 200 OK\r\n\r\n".as_slice(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 123456789012\r\n\r\n",
    ] {
        let flood = Act::Drip {
            piece: [b"fa0\r\n".as_slice(), &[b'z'; 4000], b"\r\n"].concat(),
            pause: Duration::ZERO,
        };
        let exchange = fetch(vec![Act::Send(head.to_vec()), flood], limits).unwrap();
        assert_eq!(exchange.truncation, Some(Truncation::Length));
        assert_eq!(exchange.block.bytes(), head.len() as u64 + 1_000_000);
        assert!(
            exchange.block.in_memory().is_none(),
            "a large block is in a file"
        );
    }
}

#[test]
fn a_rate_is_kept_to() {
    let limits = FetchLimits {
        bytes_per_second: Some(100_000),
        ..limits()
    };
    let body = vec![b'x'; 130_000];
    let bytes = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &body].concat();
    let exchange = fetch(vec![Act::Send(bytes), Act::Close], limits).unwrap();
    assert_eq!(exchange.payload_bytes, 130_000);
    // A second's worth is free, and the last piece need not be paid for.
    assert!(
        exchange.timings.total >= Duration::from_millis(10),
        "{:?}",
        exchange.timings
    );

    let slow = Settings {
        bytes_per_second: Some(100_000),
        ..Settings::new(&std::env::temp_dir())
    };
    let client = Client::new(slow).unwrap();
    let bytes = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".as_slice(),
        &body[..100_000],
    ]
    .concat();
    let server = Server::new(vec![vec![Act::Send(bytes.clone()), Act::Close]; 2]);
    let took = block_on(async {
        let first = client
            .fetch(&request(&server, limits), &mut ())
            .await
            .unwrap();
        let second = client
            .fetch(&request(&server, limits), &mut ())
            .await
            .unwrap();
        assert_eq!(
            (first.payload_bytes, second.payload_bytes),
            (100_000, 100_000)
        );
        first.timings.total + second.timings.total
    });
    assert!(took >= Duration::from_millis(500), "{took:?}");
}

#[test]
fn a_connection_is_used_again() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
    let one = vec![
        Act::Send(bytes.clone()),
        Act::AwaitRequest,
        Act::Send(bytes.clone()),
        Act::AwaitRequest,
        Act::Send(bytes),
        Act::Close,
    ];
    let server = Server::new(vec![one]);
    let client = client();
    block_on(async {
        let request = request(&server, limits());
        for expected in [ConnectionUse::New, ConnectionUse::Kept, ConnectionUse::Kept] {
            let exchange = client.fetch(&request, &mut ()).await.unwrap();
            assert_eq!(exchange.connection, expected);
            assert!(exchange.kept_alive);
            assert_eq!(payload(&exchange), b"hi");
        }
        assert_eq!(client.kept_connections(), 1);
        client.close_kept();
        assert_eq!(client.kept_connections(), 0);
    });
    assert_eq!(server.connections(), 1);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn nothing_is_kept_when_either_side_says_close() {
    let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".to_vec();
    let excess = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi there".to_vec();
    let client = client();
    for (bytes, field) in [
        (plain, "close"),
        (closing, "keep-alive"),
        (excess.clone(), "keep-alive"),
    ] {
        let server = Server::once(vec![Act::Send(bytes), Act::Hang]);
        let request = request(&server, limits()).with("Connection", field);
        let exchange = block_on(client.fetch(&request, &mut ())).unwrap();
        assert!(!exchange.kept_alive);
        assert_eq!(payload(&exchange), b"hi");
        assert_eq!(client.kept_connections(), 0);
    }
    let exchange = answer(&excess);
    assert!(exchange.anomalies.contains(&Anomaly::Excess { bytes: 6 }));
    assert_eq!(block(&exchange), excess[..excess.len() - 6]);
}

#[test]
fn a_stale_connection_is_replaced_once() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
    // The first connection is closed when the second request arrives on it: no peek could have told.
    let server = Server::new(vec![
        vec![Act::Send(bytes.clone()), Act::AwaitRequest, Act::Close],
        vec![Act::Send(bytes), Act::Close],
    ]);
    let client = client();
    block_on(async {
        let request = request(&server, limits());
        let first = client.fetch(&request, &mut ()).await.unwrap();
        assert_eq!(first.connection, ConnectionUse::New);
        let second = client.fetch(&request, &mut ()).await.unwrap();
        assert_eq!(second.connection, ConnectionUse::NewAfterStale);
        assert_eq!(payload(&second), b"hi");
        assert!(second.annotations().contains(&"staleConnection".to_owned()));
    });
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_request_that_must_not_be_repeated_never_uses_a_kept_connection() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
    let server = Server::new(vec![vec![Act::Send(bytes), Act::Hang]; 2]);
    let client = client();
    block_on(async {
        let mut request = request(&server, limits());
        client.fetch(&request, &mut ()).await.unwrap();
        request.method = "POST".to_owned();
        let exchange = client.fetch(&request, &mut ()).await.unwrap();
        assert_eq!(exchange.connection, ConnectionUse::New);
    });
}

#[test]
fn kept_connections_are_bounded() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec();
    let client = Client::new(Settings {
        kept_connections: 2,
        ..Settings::new(&std::env::temp_dir())
    })
    .unwrap();
    let servers: Vec<Server> = (0..4)
        .map(|_| Server::once(vec![Act::Send(bytes.clone()), Act::Hang]))
        .collect();
    block_on(async {
        for server in &servers {
            client
                .fetch(&request(server, limits()), &mut ())
                .await
                .unwrap();
        }
    });
    assert_eq!(client.kept_connections(), 2);
}

#[test]
fn head_requests_have_no_body() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n";
    let server = Server::once(vec![Act::Send(bytes.to_vec()), Act::Hang]);
    let mut request = request(&server, limits());
    request.method = "HEAD".to_owned();
    let exchange = block_on(client().fetch(&request, &mut ())).unwrap();
    assert_eq!(exchange.framing, Framing::None);
    assert_eq!(exchange.truncation, None);
    assert_eq!(block(&exchange), bytes);
}

#[test]
fn a_bomb_is_small_on_disk_and_bounded_when_decoded() {
    let bomb = gzip(&vec![0; 2 << 20]);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let exchange = answer(&[head.as_bytes(), &bomb].concat());
    assert_eq!(exchange.payload_bytes, bomb.len() as u64);
    let mut decoded = exchange.decoded(1 << 20);
    let mut out = Vec::new();
    decoded.read_to_end(&mut out).unwrap();
    assert_eq!(out.len(), 1 << 20);
    assert_eq!(decoded.end(), Some(&DecodedEnd::HttpLimit));
}

#[test]
fn a_full_disk_is_our_own_fault() {
    let mut settings = Settings::new("/nonexistent".as_ref());
    settings.spooling.memory_bytes = 10;
    let server = Server::once(vec![
        Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()),
        Act::Close,
    ]);
    let client = Client::new(settings).unwrap();
    let error = block_on(client.fetch(&request(&server, limits()), &mut ())).unwrap_err();
    assert!(error.is_local());
    assert_eq!(error.code(), -5);
}

#[test]
fn fetches_wait_for_a_free_connection() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".to_vec();
    let server = Server::new(vec![
        vec![
            Act::Wait(Duration::from_millis(20)),
            Act::Send(bytes),
            Act::Close
        ];
        5
    ]);
    let settings = Settings {
        connections: 1,
        ..Settings::new(&std::env::temp_dir())
    };
    let client = Arc::new(Client::new(settings).unwrap());
    let request = request(&server, limits());
    block_on(async {
        let fetches: Vec<_> = (0..5)
            .map(|_| {
                let (client, request) = (Arc::clone(&client), request.clone());
                tokio::spawn(async move { client.fetch(&request, &mut ()).await.unwrap().code() })
            })
            .collect();
        for fetch in fetches {
            assert_eq!(fetch.await.unwrap(), 200);
        }
    });
    assert_eq!(server.most_unanswered(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Over a real socket, however the bytes are cut: the block is what was sent, the payload what was meant.
    #[test]
    fn any_body_in_any_pieces_is_kept_exactly(
        body in proptest::collection::vec(any::<u8>(), 0..5000),
        chunk in 1usize..700,
        piece in 1usize..900,
    ) {
        let bytes = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &chunks(&body, chunk)].concat();
        let mut acts: Vec<Act> = bytes.chunks(piece).map(|piece| Act::Send(piece.to_vec())).collect();
        acts.push(Act::Close);
        let exchange = fetch(acts, limits()).unwrap();
        prop_assert_eq!(block(&exchange), bytes);
        prop_assert_eq!(payload(&exchange), body);
        prop_assert_eq!(exchange.truncation, None);
    }
}
