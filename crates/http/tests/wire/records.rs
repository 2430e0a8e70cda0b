//! An exchange written as WARC records and read back.

use std::io::Read;

use ecluse_http::Exchange;
use ecluse_warc::{NewRecord, Payload, ReaderLimits, RecordKind, WarcReader, WarcWriter};

use crate::script::{Act, Server, block_on, client, limits, request};

const DATE: &str = "2026-01-02T03:04:05Z";
const URI: &str = "http://host.test/page";

fn write(exchange: &Exchange) -> Vec<u8> {
    let mut writer = WarcWriter::new(Vec::new(), 6);
    let digest = exchange.payload_digest.to_string();
    let response = NewRecord {
        kind: RecordKind::Response,
        id: "urn:uuid:00000000-0000-4000-8000-000000000001",
        date: DATE,
        target_uri: Some(URI),
        content_type: Some("application/http;msgtype=response"),
        fields: &[("WARC-Payload-Digest", &digest)],
        payload: Payload::None,
    };
    writer
        .write_from(&response, &mut exchange.block.reader())
        .unwrap();
    let request = NewRecord {
        kind: RecordKind::Request,
        id: "urn:uuid:00000000-0000-4000-8000-000000000002",
        content_type: Some("application/http;msgtype=request"),
        fields: &[],
        ..response
    };
    writer.write(&request, &exchange.request).unwrap();
    writer.into_inner()
}

#[test]
fn blocks_and_digests_survive_the_file() {
    let bytes = b"HTTP/1.1 200 OK\nX: \xe9\r\nTransfer-Encoding: Chunked\r\n\r\n0005;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n";
    let server = Server::once(vec![Act::Send(bytes.to_vec()), Act::Close]);
    let exchange = block_on(client().fetch(&request(&server, limits()), &mut ())).unwrap();
    let file = write(&exchange);

    let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
    let mut record = reader.next().unwrap().unwrap();
    assert_eq!(
        record.text("WARC-Block-Digest").unwrap(),
        exchange.block.digest().to_string()
    );
    assert_eq!(
        record.text("WARC-Payload-Digest").unwrap(),
        ecluse_http::Sha1Digest::of(b"hello").to_string()
    );
    let mut block = Vec::new();
    record.read_to_end(&mut block).unwrap();
    assert_eq!(block, bytes);
    let record = reader.next().unwrap().unwrap();
    assert_eq!(record.block().unwrap(), server.requests()[0]);
}
