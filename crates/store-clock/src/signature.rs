//! Signs a request as AWS Signature Version 4 has it for S3.
//!
//! Whoever made the request has said in `x-amz-content-sha256` what is signed of its body; that is kept as it is.

use std::collections::BTreeMap;
use std::fmt::Write;

use ecluse_spool::hex;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderValue, USER_AGENT};
use jiff::Timestamp;
use object_store::client::HttpRequest;
use ring::{digest, hmac};
use url::{Position, Url};

use crate::SigningKey;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SIGNED_AT: &str = "x-amz-date";
const BODY_DIGEST: &str = "x-amz-content-sha256";
/// How a signature writes its time.
const TIME: &str = "%Y%m%dT%H%M%SZ";
const DAY: &str = "%Y%m%d";

/// Returns the time that a signed request was signed at.
pub(crate) fn signed_at(request: &HttpRequest) -> Option<Timestamp> {
    let headers = request.headers();
    let signature = headers.get(AUTHORIZATION)?.to_str().ok()?;
    if !signature.starts_with(ALGORITHM) {
        return None;
    }
    utc(TIME, headers.get(SIGNED_AT)?.to_str().ok()?)
}

/// Reads a time of UTC.
pub(crate) fn utc(format: &str, text: &str) -> Option<Timestamp> {
    let time = jiff::civil::DateTime::strptime(format, text).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(time.timestamp())
}

/// Signs a request for this time, in place of any signature it has; `None` leaves it as it is: it cannot be signed.
pub(crate) fn sign(request: &mut HttpRequest, key: &SigningKey, at: Timestamp) -> Option<()> {
    let url = Url::parse(&request.uri().to_string()).ok()?;
    let time = at.strftime(TIME).to_string();
    let body_digest = request.headers().get(BODY_DIGEST)?.to_str().ok()?;
    let (names, headers) = canonical_headers(request, &url, &time)?;
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{names}\n{body_digest}",
        request.method(),
        url.path(),
        canonical_query(&url),
    );
    let day = at.strftime(DAY).to_string();
    let scope = format!("{day}/{}/s3/aws4_request", key.region);
    let digest = digest::digest(&digest::SHA256, canonical.as_bytes());
    let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(digest.as_ref()));
    let secret = format!("AWS4{}", key.secret);
    let steps = [day.as_str(), key.region.as_str(), "s3", "aws4_request"];
    let signing = steps.iter().fold(secret.into_bytes(), |key, step| {
        hmac_sha256(&key, step).as_ref().to_vec()
    });
    let signature = hex(hmac_sha256(&signing, &to_sign).as_ref());
    let id = &key.id;
    let text = format!(
        "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
    );
    let authorization = HeaderValue::from_str(&text).ok()?;
    let signed_at = HeaderValue::from_str(&time).ok()?;
    let headers = request.headers_mut();
    headers.insert(SIGNED_AT, signed_at);
    headers.insert(AUTHORIZATION, authorization);
    Some(())
}

fn hmac_sha256(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// Returns the names of the headers that are signed, and the headers. Those that the HTTP client writes itself are left out.
fn canonical_headers(request: &HttpRequest, url: &Url, time: &str) -> Option<(String, String)> {
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in request.headers() {
        if [AUTHORIZATION, CONTENT_LENGTH, USER_AGENT].contains(name) {
            continue;
        }
        let words: Vec<&str> = value.to_str().ok()?.split_whitespace().collect();
        let of_name = headers.entry(name.as_str()).or_default();
        if !of_name.is_empty() {
            of_name.push(',');
        }
        of_name.push_str(&words.join(" "));
    }
    let host = &url[Position::BeforeHost..Position::AfterPort];
    headers.insert(HOST.as_str(), host.to_owned());
    headers.insert(SIGNED_AT, time.to_owned());
    let names: Vec<&str> = headers.keys().copied().collect();
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"));
    Some((names.join(";"), lines.collect()))
}

/// Returns the query with every name and value escaped in one way, and in order.
fn canonical_query(url: &Url) -> String {
    let mut pairs: Vec<(String, String)> = url
        .query_pairs()
        .map(|(name, value)| (escaped(&name), escaped(&value)))
        .collect();
    pairs.sort_unstable();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("a String takes all"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    struct Example<'a> {
        method: &'a str,
        target: &'a str,
        digest: &'a str,
        headers: &'a [(&'a str, &'a str)],
        names: &'a str,
        signature: &'a str,
    }

    /// The examples of "Signature Calculations for the Authorization Header" in AWS's reference of the S3 API.
    #[test]
    fn the_examples_of_aws_come_out() {
        let key = SigningKey {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            region: "us-east-1".into(),
        };
        let at = "2013-05-24T00:00:00Z".parse().unwrap();
        let put = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let stored = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let examples = [
            Example {
                method: "GET",
                target: "/test.txt",
                digest: EMPTY,
                headers: &[("range", "bytes=0-9")],
                names: "host;range;x-amz-content-sha256;x-amz-date",
                signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            },
            Example {
                method: "PUT",
                target: "/test%24file.text",
                digest: put,
                headers: &stored,
                names: "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            },
            Example {
                method: "GET",
                target: "/?lifecycle",
                digest: EMPTY,
                headers: &[],
                names: "host;x-amz-content-sha256;x-amz-date",
                signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            },
            Example {
                method: "GET",
                target: "/?max-keys=2&prefix=J",
                digest: EMPTY,
                headers: &[],
                names: "host;x-amz-content-sha256;x-amz-date",
                signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            },
        ];
        for example in examples {
            let Example {
                method,
                target,
                digest,
                headers,
                names,
                signature,
            } = example;
            let mut builder = http::Request::builder()
                .method(method)
                .uri(format!("https://examplebucket.s3.amazonaws.com{target}"))
                .header(BODY_DIGEST, digest)
                // The client underneath writes these, after it is signed.
                .header(USER_AGENT, "any")
                .header(CONTENT_LENGTH, "0")
                .header(AUTHORIZATION, "an older one");
            for (name, value) in headers {
                builder = builder.header(*name, *value);
            }
            let mut request = builder.body(HttpRequestBody::empty()).unwrap();
            sign(&mut request, &key, at).unwrap();
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(request.headers()[AUTHORIZATION], expected, "{target}");
            assert_eq!(signed_at(&request), Some(at));
        }
    }

    #[test]
    fn queries_and_headers_have_one_form() {
        let url = Url::parse("http://x/?b=2&a=%2f+~&b=1&%C3%A9").unwrap();
        assert_eq!(canonical_query(&url), "%C3%A9=&a=%2F%20~&b=1&b=2");
        let request = http::Request::get("http://x:8333/k")
            .header("x-amz-meta-a", "  one   two ")
            .header("x-amz-meta-a", "three")
            .body(HttpRequestBody::empty())
            .unwrap();
        let url = Url::parse("http://x:8333/k").unwrap();
        let (names, lines) = canonical_headers(&request, &url, "now").unwrap();
        assert_eq!(names, "host;x-amz-date;x-amz-meta-a");
        assert_eq!(
            lines,
            "host:x:8333\nx-amz-date:now\nx-amz-meta-a:one two,three\n"
        );
    }

    #[test]
    fn what_is_not_signed_has_no_time() {
        let headers = [
            ("AWS4-HMAC-SHA256 Credential=x", "2013-05-24"),
            ("Basic eDp5", "20130524T000000Z"),
        ];
        for (authorization, time) in headers {
            let request = http::Request::get("http://x/")
                .header(AUTHORIZATION, authorization)
                .header(SIGNED_AT, time)
                .body(HttpRequestBody::empty())
                .unwrap();
            assert_eq!(signed_at(&request), None, "{authorization} {time}");
        }
    }
}
