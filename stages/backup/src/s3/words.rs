//! What a store's failure means to an operator: the world's fault, in few words and without control characters.

use std::error::Error as _;

use ecluse_stage::Failure;
use object_store::Error;
use object_store::client::HttpError;
use object_store::path::Path as Key;
use serde::Deserialize;

/// So much of what a service says is shown.
const SHOWN_CHARS: usize = 300;

/// The body of a refusal.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Refusal {
    code: String,
    message: String,
}

/// The store did not do what it was asked.
pub(super) fn refused(what: &str, key: &Key, bucket: &str, error: &Error) -> Failure {
    let text = error.to_string();
    if let Some((status, refusal)) = answer_in(&text) {
        let Refusal { code, message } = refusal;
        let advice = match (status, code.as_str()) {
            (_, "NoSuchBucket") => format!("; there is no bucket {bucket}"),
            (401 | 403, _) => {
                "; look at key-file, secret-file and what this key may do with the bucket"
                    .to_owned()
            }
            _ => String::new(),
        };
        let words = match message.as_str() {
            "" => code,
            _ => format!("{code}: {message}"),
        };
        return Failure::defer(shown(&format!(
            "cannot {what} {key}: the service says {status} {words}{advice}"
        )));
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(failed) = inner.downcast_ref::<HttpError>() {
            return unreachable(bucket, failed);
        }
        cause = inner.source();
    }
    Failure::defer(shown(&format!("cannot {what} {key}: {text}")))
}

/// The store did not answer.
pub(super) fn unreachable(bucket: &str, error: &HttpError) -> Failure {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(inner) = deepest.source() {
        deepest = inner;
    }
    Failure::defer(shown(&format!("cannot reach {bucket}: {deepest}")))
}

/// Tells whether the store knows no condition for a new object.
pub(super) fn knows_no_condition(error: &Error) -> bool {
    answer_in(&error.to_string()).is_some_and(|(status, _)| status == 501)
}

/// Finds the status and the words in what `object_store` makes of an answer: it has no name for them.
fn answer_in(text: &str) -> Option<(u16, Refusal)> {
    let (_, answer) = text.split_once("status code: ")?;
    let status = answer.get(..3)?.parse().ok()?;
    let (reason, body) = answer[3..].split_once(": ").unwrap_or((&answer[3..], ""));
    let mut refusal: Refusal = quick_xml::de::from_str(body).unwrap_or_default();
    if refusal.code.is_empty() {
        reason.trim().clone_into(&mut refusal.code);
    }
    Some((status, refusal))
}

fn shown(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal as the crate words it.
    fn said(answer: &str) -> Error {
        Error::Generic {
            store: "S3",
            source: format!(
                "Error performing PUT http://x/b/k in 3ms - Server returned non-2xx status code: {answer}"
            )
            .into(),
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_services_words() {
        let key = Key::parse("warc/k").unwrap();
        for (answer, wanted) in [
            (
                "503 Service Unavailable: <?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>less &amp; \x1b[2Jless</Message><RequestId>9</RequestId></Error>",
                "cannot put warc/k: the service says 503 SlowDown: less & [2Jless",
            ),
            (
                "404 Not Found: <Error><Code>NoSuchBucket</Code><Message>none</Message></Error>",
                "cannot put warc/k: the service says 404 NoSuchBucket: none; there is no bucket http://x/b",
            ),
            (
                "403 Forbidden: ",
                "cannot put warc/k: the service says 403 Forbidden; look at key-file, secret-file and what this key may do with the bucket",
            ),
            (
                "500 Internal Server Error: <html>no xml",
                "cannot put warc/k: the service says 500 Internal Server Error",
            ),
        ] {
            let failure = refused("put", &key, "http://x/b", &said(answer));
            assert_eq!(failure.reason, wanted);
        }
        assert!(knows_no_condition(&said("501 Not Implemented: ")));
        assert!(!knows_no_condition(&said("500 Internal Server Error: ")));
    }
}
