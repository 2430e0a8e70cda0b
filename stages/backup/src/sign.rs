//! AWS Signature Version 4, in the `Authorization` header, over the digest of the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Who signs, and for what.
pub(crate) struct Signer {
    pub(crate) key: String,
    pub(crate) secret: String,
    pub(crate) region: String,
}

/// What is signed.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path, encoded.
    pub(crate) path: &'a str,
    /// The query: names and values as they are.
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// Every header that is sent on purpose, with `host`, in lower case.
    pub(crate) headers: &'a [(String, String)],
    /// SHA-256 of the body, in hex.
    pub(crate) body_sha256: &'a str,
    /// This moment, as `20150830T123600Z`.
    pub(crate) time: &'a str,
}

impl Signer {
    /// Returns the `Authorization` header.
    pub(crate) fn authorization(&self, request: &Request<'_>) -> String {
        let day = request.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let mut headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.trim()))
            .collect();
        headers.sort_unstable();
        let mut canonical = format!(
            "{}\n{}\n{}\n",
            request.method,
            request.path,
            query_text(request.query)
        );
        for (name, value) in &headers {
            canonical.push_str(&format!("{name}:{value}\n"));
        }
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        canonical.push_str(&format!("\n{names}\n{}", request.body_sha256));
        let text = format!(
            "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
            request.time,
            hex(&Sha256::digest(canonical.as_bytes()))
        );
        let mut key = mac(format!("AWS4{}", self.secret).as_bytes(), day);
        for word in [self.region.as_str(), "s3", "aws4_request"] {
            key = mac(&key, word);
        }
        let signature = hex(&mac(&key, &text));
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.key
        )
    }
}

/// Returns a query in the order and encoding that is signed; it is also sent so.
pub(crate) fn query_text(query: &[(&str, &str)]) -> String {
    let mut pairs: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name, false), encode(value, false)))
        .collect();
    pairs.sort_unstable();
    pairs.join("&")
}

/// Encodes all but the unreserved characters, and slashes where they part a path.
pub(crate) fn encode(text: &str, keep_slashes: bool) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            b'/' if keep_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .expect("a key of any length will do for HMAC");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the service's own manual ("Signature Calculations for the Authorization
    /// Header"), with the key that it gives.
    #[test]
    fn the_manuals_examples_come_out() {
        let signer = Signer {
            key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let empty = hex(&Sha256::digest(b""));
        let time = "20130524T000000Z";
        let common = |more: &[(&str, &str)]| -> Vec<(String, String)> {
            let own = [
                ("host", "examplebucket.s3.amazonaws.com"),
                ("x-amz-content-sha256", &empty),
                ("x-amz-date", time),
            ];
            let all = own.iter().chain(more);
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        for (path, query, headers, signature) in [
            (
                "/test.txt",
                &[][..],
                common(&[("range", "bytes=0-9")]),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "/",
                &[("lifecycle", "")],
                common(&[]),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "/",
                &[("prefix", "J"), ("max-keys", "2")],
                common(&[]),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let authorization = signer.authorization(&Request {
                method: "GET",
                path,
                query,
                headers: &headers,
                body_sha256: &empty,
                time,
            });
            assert!(authorization.ends_with(signature), "{authorization}");
        }
    }

    #[test]
    fn names_are_encoded_once() {
        assert_eq!(encode("warc/a+b c.gz", true), "warc/a%2Bb%20c.gz");
        assert_eq!(query_text(&[("uploads", ""), ("a", "/")]), "a=%2F&uploads=");
    }
}
