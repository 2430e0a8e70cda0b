//! Messages fed in pieces of every size: the bytes kept, the payload beside them, where they end.

use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::exchange::PayloadReader;

const LIMITS: MessageLimits = MessageLimits {
    head_bytes: 1000,
    body_bytes: 100_000,
    interim: 3,
    digested: DigestedBody::Payload,
};

/// What came of a response, for comparison.
#[derive(Debug, PartialEq)]
struct Outcome {
    shape: Shape,
    status: Option<u16>,
    block: Vec<u8>,
    payload: Vec<u8>,
    truncation: Option<Truncation>,
    anomalies: Vec<Anomaly>,
    interim: Vec<Vec<u8>>,
    kept: bool,
}

fn spooling() -> Spooling {
    Spooling {
        memory_bytes: 512,
        directory: std::env::temp_dir(),
    }
}

fn wait<Output>(future: impl Future<Output = Output>) -> Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// Receives `bytes` in pieces of `step`, then `end`.
fn receive(bytes: &[u8], step: usize, end: End, asked: Asked, limits: MessageLimits) -> Outcome {
    let mut tapped = Vec::new();
    let mut receiver = Receiver::new(asked, limits, &spooling());
    let mut ended = end;
    for piece in bytes.chunks(step) {
        if receiver.push(piece, &mut tapped) == Step::Done {
            ended = End::Done;
            break;
        }
    }
    let received = wait(receiver.finish(ended, &mut tapped)).unwrap();
    let mut block = Vec::new();
    received.block.reader().read_to_end(&mut block).unwrap();
    let mut payload = Vec::new();
    PayloadReader::new(&received.block, received.payload_place)
        .read_to_end(&mut payload)
        .unwrap();
    assert_eq!(payload, tapped, "read again, the payload is the same");
    assert_eq!(received.payload_bytes, payload.len() as u64);
    assert_eq!(received.payload_digest, Sha1Digest::of(&payload));
    let sha256: [u8; 32] = Sha256::digest(&payload).into();
    assert_eq!(received.payload_sha256, sha256);
    assert_eq!(received.block.digest(), Sha1Digest::of(&block));
    Outcome {
        shape: received.shape,
        status: received.head.status(),
        block,
        payload,
        truncation: received.truncation,
        anomalies: received.anomalies,
        interim: received.interim,
        kept: received.can_keep_alive,
    }
}

/// Receives whole and in pieces of every size, which must not matter; the server closes at the end.
fn closed(bytes: &[u8]) -> Outcome {
    let whole = receive(bytes, bytes.len().max(1), End::Closed, Asked::Body, LIMITS);
    for step in 1..bytes.len() {
        let mut pieces = receive(bytes, step, End::Closed, Asked::Body, LIMITS);
        // How much of the excess is read depends on the pieces, and only that.
        let is_excess = |anomaly: &Anomaly| matches!(anomaly, Anomaly::Excess { .. });
        if whole.anomalies.iter().any(is_excess) {
            pieces.anomalies.retain(|anomaly| !is_excess(anomaly));
            let mut rest = whole.anomalies.clone();
            rest.retain(|anomaly| !is_excess(anomaly));
            assert_eq!(pieces.anomalies, rest);
            assert_eq!(pieces.block, whole.block);
        } else {
            assert_eq!(pieces, whole, "pieces of {step}");
        }
    }
    whole
}

#[test]
fn bodies_end_as_they_are_framed() {
    let cases: &[(&[u8], &[u8], bool)] = &[
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"hello",
            true,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", true),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length:5\r\n\r\nhello",
            b"hello",
            true,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: Close\r\n\r\nhello",
            b"hello",
            false,
        ),
        (
            b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"hello",
            false,
        ),
        (
            b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
            b"hello",
            true,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", false),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            b"hello",
            true,
        ),
        (
            b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            b"",
            true,
        ),
        (
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            b"",
            true,
        ),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"", false),
    ];
    for (bytes, payload, kept) in cases {
        let outcome = closed(bytes);
        let shown = bytes.escape_ascii();
        assert_eq!(outcome.block, *bytes, "{shown}");
        assert_eq!(outcome.payload, *payload, "{shown}");
        assert_eq!(outcome.truncation, None, "{shown}");
        assert_eq!(outcome.kept, *kept, "{shown}");
        assert!(outcome.anomalies.is_empty(), "{shown}");
    }
}

#[test]
fn an_answer_to_head_has_no_body() {
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let outcome = receive(bytes, 7, End::Closed, Asked::HeadOnly, LIMITS);
    assert_eq!((outcome.block.as_slice(), outcome.kept), (&bytes[..], true));
    assert_eq!(outcome.truncation, None);
}

#[test]
fn oddities_are_kept_and_named() {
    let damage = |offset, fault| Anomaly::ChunkDamage(ChunkDamage { offset, fault });
    let cases: &[(&[u8], &[u8], &[Anomaly])] = &[
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi", &[Anomaly::BareLf]),
        (
            b"\r\n\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            b"hi",
            &[Anomaly::LeadingBlankLines, Anomaly::BareLf],
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nhi",
            b"hi",
            &[Anomaly::Folded],
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            b"hi",
            &[Anomaly::LengthAndChunked],
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhiho",
            b"hiho",
            &[Anomaly::ConflictingLengths],
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", b"hi", &[Anomaly::BadLength]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", b"hi", &[Anomaly::BadLength]),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi",
            b"hi",
            &[Anomaly::BadLength],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            b"hi",
            &[Anomaly::OtherTransferEncoding],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: binary\r\nContent-Length: 2\r\n\r\nhi",
            b"hi",
            &[Anomaly::OtherTransferEncoding],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<p>not chunked at all</p>",
            b"<p>not chunked at all</p>",
            &[damage(0, ChunkFault::NotChunked)],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfee fi fo fum",
            b"fee fi fo fum",
            &[damage(4, ChunkFault::NotChunked)],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiX\r\n0\r\n\r\n",
            b"hi",
            &[damage(5, ChunkFault::NoLineEnd)],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n",
            b"hi",
            &[Anomaly::UnfinishedTrailers],
        ),
    ];
    for (bytes, payload, anomalies) in cases {
        let outcome = closed(bytes);
        let shown = bytes.escape_ascii();
        assert_eq!(outcome.shape, Shape::Http, "{shown}");
        assert_eq!(outcome.block, *bytes, "{shown}");
        assert_eq!(outcome.payload, *payload, "{shown}");
        assert_eq!(outcome.anomalies, *anomalies, "{shown}");
        assert_eq!(outcome.truncation, None, "{shown}");
    }
}

#[test]
fn what_follows_the_message_is_not_of_it() {
    let cases: &[(&[u8], usize)] = &[
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiMORE", 4),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nMORE",
            4,
        ),
        (b"HTTP/1.1 304 Not Modified\r\n\r\nMORE", 4),
    ];
    for (bytes, excess) in cases {
        let outcome = closed(bytes);
        assert_eq!(outcome.block, bytes[..bytes.len() - excess]);
        assert_eq!(outcome.anomalies, [Anomaly::Excess { bytes: *excess }]);
        assert!(!outcome.kept);
    }
}

#[test]
fn interim_responses_are_kept_apart() {
    let interim: [&[u8]; 2] = [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n",
    ];
    let last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let outcome = closed(&[interim[0], interim[1], last].concat());
    assert_eq!(outcome.interim, interim);
    assert_eq!(outcome.block, last);
    assert_eq!(outcome.anomalies, [Anomaly::Interim { count: 2 }]);
    assert!(outcome.kept);

    let endless = receive(&interim[0].repeat(20), 10, End::Closed, Asked::Body, LIMITS);
    assert_eq!(endless.shape, Shape::HeadTooLong);
    assert_eq!(endless.truncation, Some(Truncation::Length));
    assert_eq!(endless.interim.len(), 3);
}

#[test]
fn what_is_no_response_is_kept_all_the_same() {
    let cases: &[(&[u8], Shape, &[u8])] = &[
        (b"<html>old</html>", Shape::NotHttp, b"<html>old</html>"),
        (
            b"SSH-2.0-OpenSSH_9.9\r\n",
            Shape::NotHttp,
            b"SSH-2.0-OpenSSH_9.9\r\n",
        ),
        (b"\x00\x01\x02", Shape::NotHttp, b"\x00\x01\x02"),
        (b"\r\n\r\n", Shape::NotHttp, b"\r\n\r\n"),
        (b"word", Shape::NotHttp, b"word"),
        (b"Unended: field\r\n", Shape::NotHttp, b"Unended: field\r\n"),
        (
            b"Content-Type: text/html\r\n\r\nhi",
            Shape::NoStatusLine,
            b"hi",
        ),
        (
            b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\nhi",
            Shape::BadStatusLine,
            b"hi",
        ),
        (b"HT", Shape::HeadCut, b""),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", Shape::HeadCut, b""),
    ];
    for (bytes, shape, payload) in cases {
        let outcome = closed(bytes);
        let shown = bytes.escape_ascii();
        assert_eq!(outcome.shape, *shape, "{shown}");
        assert_eq!(outcome.block, *bytes, "{shown}");
        assert_eq!(outcome.payload, *payload, "{shown}");
        let cut = (*shape == Shape::HeadCut).then_some(Truncation::Disconnect);
        assert_eq!(outcome.truncation, cut, "{shown}");
        assert!(!outcome.kept, "{shown}");
    }
}

#[test]
fn limits_cut_exactly() {
    let limits = MessageLimits {
        body_bytes: 5,
        ..LIMITS
    };
    let head = b"HTTP/1.1 200 OK\r\n\r\n".as_slice();
    for (body, truncation) in [
        (b"hello".as_slice(), None),
        (b"hello!", Some(Truncation::Length)),
    ] {
        for step in 1..30 {
            let bytes = [head, body].concat();
            let outcome = receive(&bytes, step, End::Closed, Asked::Body, limits);
            assert_eq!(outcome.block, [head, b"hello"].concat());
            assert_eq!(outcome.truncation, truncation);
        }
    }

    let head = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"X: y\r\n".repeat(500)].concat();
    let outcome = receive(&head, 100, End::Closed, Asked::Body, LIMITS);
    assert_eq!(outcome.shape, Shape::HeadTooLong);
    assert_eq!(outcome.block, head[..1000]);
    assert_eq!(outcome.truncation, Some(Truncation::Length));
}

#[test]
fn the_end_of_the_pieces_decides_the_truncation() {
    let length = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".as_slice();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello".as_slice();
    let open = b"HTTP/1.1 200 OK\r\n\r\nhello".as_slice();
    let cases = [
        (length, End::Closed, Some(Truncation::Disconnect)),
        (
            length,
            End::ClosedWithoutNotify,
            Some(Truncation::Disconnect),
        ),
        (length, End::Broken, Some(Truncation::Disconnect)),
        (length, End::Time, Some(Truncation::Time)),
        (chunked, End::Closed, Some(Truncation::Disconnect)),
        (chunked, End::Time, Some(Truncation::Time)),
        (open, End::Closed, None),
        (open, End::ClosedWithoutNotify, None),
        (open, End::Broken, Some(Truncation::Disconnect)),
        (open, End::Time, Some(Truncation::Time)),
    ];
    for (bytes, end, truncation) in cases {
        let outcome = receive(bytes, 11, end, Asked::Body, LIMITS);
        assert_eq!(outcome.truncation, truncation, "{end:?}");
        assert_eq!(outcome.payload, b"hello");
        assert_eq!(outcome.block, bytes);
    }
}

#[test]
fn a_tap_can_end_it() {
    struct Picky {
        heard: usize,
    }
    impl Tap for Picky {
        fn head(&mut self, head: &Head) -> ControlFlow<()> {
            match head.text("Content-Type").as_deref() {
                Some("video/mp4") => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
        fn payload(&mut self, piece: &[u8]) -> ControlFlow<()> {
            self.heard += piece.len();
            ControlFlow::Break(())
        }
    }
    for (kind, heard) in [("video/mp4", 0), ("text/html", 3)] {
        let mut tap = Picky { heard: 0 };
        let mut receiver = Receiver::new(Asked::Body, LIMITS, &spooling());
        let bytes =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 9\r\n\r\nabc");
        assert_eq!(receiver.push(bytes.as_bytes(), &mut tap), Step::Done);
        let received = wait(receiver.finish(End::Done, &mut tap)).unwrap();
        assert_eq!(received.truncation, Some(Truncation::Unspecified));
        assert!(!received.can_keep_alive);
        assert_eq!(tap.heard, heard);
    }
}

/// A chunked body and the payload in it.
fn chunked_body() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunk = (
        proptest::collection::vec(any::<u8>(), 1..200),
        "0{0,3}",
        any::<bool>(),
        "( |;[a-z]{1,4}(=[a-z\"]{1,4})?)?",
    );
    let chunks = proptest::collection::vec(chunk, 0..8);
    let trailers = proptest::collection::vec("[A-Za-z-]{1,8}: [ -~]{0,10}", 0..3);
    (chunks, trailers, "0{1,4}").prop_map(|(chunks, trailers, zeros)| {
        let (mut body, mut payload) = (Vec::new(), Vec::new());
        for (data, padding, is_upper, extension) in chunks {
            let size = if is_upper {
                format!("{padding}{:X}{extension}\r\n", data.len())
            } else {
                format!("{padding}{:x}{extension}\r\n", data.len())
            };
            body.extend_from_slice(size.as_bytes());
            body.extend_from_slice(&data);
            body.extend_from_slice(b"\r\n");
            payload.extend_from_slice(&data);
        }
        body.extend_from_slice(zeros.as_bytes());
        body.extend_from_slice(b"\r\n");
        for trailer in trailers {
            body.extend_from_slice(trailer.as_bytes());
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"\r\n");
        (body, payload)
    })
}

proptest! {
    #[test]
    fn blocks_are_what_was_sent_and_payloads_what_was_meant((body, payload) in chunked_body(), step in 1usize..400) {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
        let bytes = [head, &body].concat();
        let outcome = receive(&bytes, step, End::Closed, Asked::Body, LIMITS);
        prop_assert_eq!(outcome.block, bytes);
        prop_assert_eq!(outcome.payload, payload);
        prop_assert_eq!(outcome.truncation, None);
        prop_assert!(outcome.kept);
    }

    #[test]
    fn cut_anywhere_the_block_is_what_came((body, payload) in chunked_body(), cut: prop::sample::Index, step in 1usize..90) {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
        let mut bytes = [head, &body].concat();
        bytes.truncate(1 + cut.index(bytes.len() - 1));
        let outcome = receive(&bytes, step, End::Broken, Asked::Body, LIMITS);
        prop_assert_eq!(&outcome.block, &bytes);
        prop_assert!(payload.starts_with(&outcome.payload));
        prop_assert!(!outcome.kept);
    }

    /// Garbage in, garbage kept: a prefix of it, at least, and all of it if the receiver wanted more.
    #[test]
    fn any_bytes_are_received(
        start in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "A: b\r\n"]),
        rest in proptest::collection::vec(any::<u8>(), 1..600),
        step in 1usize..90,
    ) {
        let bytes = [start.as_bytes(), &rest].concat();
        let outcome = receive(&bytes, step, End::Closed, Asked::Body, LIMITS);
        let kept = [outcome.interim.concat(), outcome.block].concat();
        prop_assert!(bytes.starts_with(&kept));
    }
}
