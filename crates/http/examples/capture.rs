//! Fetches URLs, one after the other, and writes request and response records: `capture FILE.warc.gz URL…`.
//!
//! For looking at single servers by hand. Private addresses are allowed, robots.txt is not asked, nothing is followed.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::time::SystemTime;

use ecluse_http::{
    AddressPolicy, Authority, Client, Exchange, Request, Resolver, ResolverSettings, Scheme,
    Settings,
};
use ecluse_warc::{NewRecord, Payload, RecordKind, WarcWriter};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: capture FILE.warc.gz URL…")?;
    let mut writer = WarcWriter::new(BufWriter::new(File::create(file)?), 6);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = Client::new(Settings::new(&std::env::temp_dir()))?;
        let resolver = Resolver::new(ResolverSettings::default())?;
        for (number, url) in arguments.enumerate() {
            let (authority, target) = parse(&url).ok_or("not an http(s) URL")?;
            let at = SystemTime::now();
            let (resolved, _) = resolver.resolve(&authority.host, at).await?;
            let request = Request {
                address_policy: AddressPolicy::Any,
                ..Request::get(authority, target, &resolved.addresses, at)
            }
            .with("User-Agent", "ecluse-http capture")
            .with("Accept-Encoding", "gzip");
            match client.fetch(&request, &mut ()).await {
                Ok(exchange) => {
                    println!(
                        "{} {} {} {} {:?} {}",
                        exchange.code(),
                        exchange.block.bytes(),
                        exchange.payload_digest,
                        url,
                        exchange.timings.total,
                        exchange.annotations().join(","),
                    );
                    write(&mut writer, &exchange, &url, number, at)?;
                }
                Err(error) => println!("{} 0 - {url} {error}", error.code()),
            }
        }
        Ok(())
    })
}

fn parse(url: &str) -> Option<(Authority, &str)> {
    let (scheme, rest) = match url.split_once("://")? {
        ("http", rest) => (Scheme::Http, rest),
        ("https", rest) => (Scheme::Https, rest),
        _ => return None,
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (place, target) = rest.split_at(end);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, scheme.default_port()),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let target = if target.is_empty() { "/" } else { target };
    Some((Authority { scheme, host, port }, target))
}

fn write(
    writer: &mut WarcWriter<BufWriter<File>>,
    exchange: &Exchange,
    url: &str,
    number: usize,
    at: SystemTime,
) -> Result<(), Box<dyn Error>> {
    let time = jiff::Timestamp::try_from(at)?;
    let date = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let digest = exchange.payload_digest.to_string();
    let address = exchange.peer.ip().to_string();
    let mut fields = vec![
        ("WARC-IP-Address", address.as_str()),
        ("WARC-Payload-Digest", digest.as_str()),
    ];
    if let Some(truncation) = exchange.truncation {
        fields.push(("WARC-Truncated", truncation.name()));
    }
    let id = |kind: u8| format!("urn:uuid:00000000-0000-4000-8{kind:03x}-{number:012x}");
    let (response_id, request_id) = (id(1), id(2));
    let response = NewRecord {
        kind: RecordKind::Response,
        id: &response_id,
        date: &date,
        target_uri: Some(url),
        content_type: Some("application/http; msgtype=response"),
        fields: &fields,
        payload: Payload::None,
    };
    writer.write_from(&response, &mut exchange.block.reader())?;
    let request = NewRecord {
        kind: RecordKind::Request,
        id: &request_id,
        content_type: Some("application/http; msgtype=request"),
        fields: &[],
        ..response
    };
    writer.write(&request, &exchange.request)?;
    Ok(())
}
