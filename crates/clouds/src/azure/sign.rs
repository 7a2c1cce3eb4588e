//! Requests signed with an account's key ("Shared Key"), which Microsoft's crate does not do.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::credentials::key_bytes;
use super::pass_on;
use crate::account::CredentialFile;

/// Headers whose values are signed without their names, in that order.
const BY_PLACE: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// Signs every attempt, with the time of that attempt.
pub(super) struct SharedKey {
    account: String,
    key: Key,
}

/// An account's key.
enum Key {
    Fixed(Vec<u8>),
    InFile(Arc<CredentialFile>),
}

impl Key {
    /// The bytes at the moment; those of a file that has no key give a signature that is refused.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Fixed(key) => key.clone(),
            Self::InFile(file) => key_bytes(&file.text()).unwrap_or_default(),
        }
    }
}

/// Adds the shared access signature of a file to every attempt.
#[derive(Debug)]
pub(super) struct Signature(pub(super) Arc<CredentialFile>);

#[async_trait]
impl Policy for Signature {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let signature = self.0.text();
        let signature = signature.trim_start_matches('?');
        let query = match request.url().query() {
            None | Some("") => signature.to_owned(),
            Some(query) => format!("{query}&{signature}"),
        };
        let unsigned = request.url().clone();
        request.url_mut().set_query(Some(&query));
        let answer = pass_on(ctx, request, next).await;
        // A further attempt is signed anew.
        *request.url_mut() = unsigned;
        answer
    }
}

impl std::fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedKey").field("account", &self.account).finish_non_exhaustive()
    }
}

impl SharedKey {
    pub(super) fn new(account: String, key: Vec<u8>) -> Self {
        Self { account, key: Key::Fixed(key) }
    }

    /// With the key in a file, which may get a new one.
    pub(super) fn of_file(account: String, file: Arc<CredentialFile>) -> Self {
        Self { account, key: Key::InFile(file) }
    }

    fn authorization(&self, request: &Request) -> String {
        let text = string_to_sign(request, &self.account);
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key.bytes())
            .expect("keys of an HMAC may have any length");
        mac.update(text.as_bytes());
        let signature = BASE64.encode(mac.finalize().into_bytes());
        format!("SharedKey {}:{signature}", self.account)
    }
}

#[async_trait]
impl Policy for SharedKey {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        request.insert_header("x-ms-date", to_rfc7231(&OffsetDateTime::now_utc()));
        let authorization = self.authorization(request);
        request.insert_header("authorization", authorization);
        pass_on(ctx, request, next).await
    }
}

fn string_to_sign(request: &Request, account: &str) -> String {
    let headers: Vec<(String, &str)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.as_str()))
        .collect();
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map_or("", |(_, v)| *v);
    let length = request.body().len().unwrap_or(0).to_string();
    let mut text = format!("{}\n", request.method().as_ref());
    for name in BY_PLACE {
        let value = match name {
            // An empty body has an empty length here.
            "content-length" => {
                let given = header(name);
                let given = if given.is_empty() { length.as_str() } else { given };
                if given == "0" { "" } else { given }
            }
            _ => header(name),
        };
        text.push_str(value);
        text.push('\n');
    }
    let mut own: Vec<_> = headers.iter().filter(|(name, _)| name.starts_with("x-ms-")).collect();
    own.sort();
    for (name, value) in own {
        text.push_str(&format!("{name}:{}\n", value.trim()));
    }
    let url = request.url();
    text.push_str(&format!("/{account}{}", url.path()));
    let mut query: Vec<(String, String)> =
        url.query_pairs().map(|(k, v)| (k.to_lowercase(), v.into_owned())).collect();
    query.sort();
    for (name, value) in query {
        text.push_str(&format!("\n{name}:{value}"));
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use azure_core::http::Method;

    use super::*;

    #[test]
    fn what_is_signed_is_in_azures_order() {
        let url =
            "http://127.0.0.1/dev/box/a%2Fb?restype=x&comp=block&Blockid=a%3D".parse().unwrap();
        let mut request = Request::new(url, Method::Put);
        request.insert_header("x-ms-version", "2026-01-01");
        request.insert_header("x-ms-date", "now");
        request.insert_header("content-length", "0");
        request.insert_header("range", "bytes=0-1");
        let signed = "PUT\n\n\n\n\n\n\n\n\n\n\nbytes=0-1\nx-ms-date:now\nx-ms-version:2026-01-01\n\
                      /dev/dev/box/a%2Fb\nblockid:a=\ncomp:block\nrestype:x";
        assert_eq!(string_to_sign(&request, "dev"), signed);
    }
}
