//! Makes the key of any URL whatever, step by step as the peer does.
//!
//! This is the meaning of a key; the fast path is only a quicker way to the same bytes.

use crate::escape::{escape_lower, unescape};
use crate::split::{Parts, repair};
use crate::{SurtError, host, path, query};

/// Appends the key of `url`; on an error nothing is appended.
pub(crate) fn append(url: &[u8], key: &mut Vec<u8>) -> Result<(), SurtError> {
    if url.is_empty() {
        key.push(b'-');
        return Ok(());
    }
    if url.starts_with(b"filedesc") {
        key.extend_from_slice(url);
        return Ok(());
    }
    let repaired = repair(url)?;
    let parts = Parts::of(&repaired)?;
    let host = host::canonical(parts.host)?;
    if host.is_empty() {
        key.extend_from_slice(parts.scheme);
        key.push(b':');
    } else {
        push_authority(&parts, &host, key);
    }
    let before_path = key.len();
    push_path(&parts, !host.is_empty(), key);
    push_query(parts.query, before_path, key);
    Ok(())
}

fn push_authority(parts: &Parts<'_>, host: &[u8], key: &mut Vec<u8>) {
    let host = if parts.scheme == b"dns" {
        host
    } else {
        host::without_www(host)
    };
    host::push_reversed(host, key);
    let default_port = match &parts.scheme.to_ascii_lowercase()[..] {
        b"http" => Some(80),
        b"https" => Some(443),
        _ => None,
    };
    if let Some(port) = parts.port
        && parts.port != default_port
    {
        key.push(b':');
        key.extend_from_slice(port.to_string().as_bytes());
    }
    key.push(b')');
}

fn push_path(parts: &Parts<'_>, has_host: bool, key: &mut Vec<u8>) {
    let start = key.len();
    let mut unescaped = Vec::with_capacity(parts.path.len() + 1);
    if parts.slash_before_path {
        unescaped.push(b'/');
    }
    unescape(parts.path, &mut unescaped);
    if has_host {
        let mut normalized = Vec::with_capacity(unescaped.len() + 1);
        path::push_normalized(&unescaped, &mut normalized);
        unescaped = normalized;
    }
    escape_lower(&unescaped, key);
    path::strip_sessions(key, start);
    if key.len() > start + 1 && key.ends_with(b"/") {
        key.pop();
    }
}

fn push_query(query: &[u8], before_path: usize, key: &mut Vec<u8>) {
    let before_query = key.len();
    if before_query == before_path {
        key.push(b'/');
    }
    key.push(b'?');
    let start = key.len();
    let mut unescaped = Vec::with_capacity(query.len());
    unescape(query, &mut unescaped);
    escape_lower(&unescaped, key);
    query::strip_sessions(key, start);
    if key.len() == start {
        key.truncate(before_query);
    } else {
        query::sort(key, start);
    }
}
