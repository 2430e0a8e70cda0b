//! wabac.js, where an operator has installed it: its files from his directory, and raw captures (`ir_`) for its worker.
//!
//! Nothing of it is in our tree. Its worker may speak to the archive alone: the policy of its script sees to that. What it shows runs in the archive's own
//! origin, which `docs/access.md` tells whoever turns it on.

use std::fs::File;
use std::io::Read;

use hyper::{StatusCode, header};

use crate::reply::{Asked, Reply, put, redirect, whole};
use crate::site::{AccessSite, Refusal};

/// A larger file is none of it.
const LARGEST: u64 = 32 << 20;

impl AccessSite {
    /// Says whether pages are shown by wabac.js.
    pub(crate) fn has_wabac(&self) -> bool {
        self.settings.wabac.is_some()
    }

    /// Answers for `/wabac/`: a file of the directory, or an address of the worker where there is no worker yet.
    pub(crate) fn wabac(&self, asked: &Asked, name: &str) -> Result<Reply, Refusal> {
        let refusal = || Refusal::not_found(&asked.path);
        let directory = self.settings.wabac.as_ref().ok_or_else(refusal)?;
        if let Some(rest) = name.strip_prefix("w/") {
            // The page with the banner starts it.
            let to = match &asked.query {
                Some(query) => format!("/{}?{query}", rest.replacen("mp_/", "/", 1)),
                None => format!("/{}", rest.replacen("mp_/", "/", 1)),
            };
            return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, &to));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
            return Err(refusal());
        }
        let media_type = match name.rsplit('.').next() {
            Some("js" | "mjs") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("wasm") => "application/wasm",
            Some("gz") => "application/gzip",
            _ => return Err(refusal()),
        };
        let path = self.root.join(directory).join(name);
        if !path.is_file() {
            return Err(refusal());
        }
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(LARGEST).read_to_end(&mut bytes))
            .map_err(Refusal::unreadable)?;
        let mut reply = whole(StatusCode::OK, media_type, bytes);
        let base = &asked.base;
        let policy = format!(
            "default-src 'none'; script-src {base} 'unsafe-eval'; connect-src {base}; worker-src {base}"
        );
        put(&mut reply, header::CONTENT_SECURITY_POLICY, &policy);
        put(&mut reply, header::CACHE_CONTROL, "private, no-cache");
        Ok(reply)
    }
}
