//! Error bodies of v1 (§2).

use forebay_core::error::{Error, ErrorCode};
use forebay_core::request::RequestId;
use serde::{Deserialize, Serialize};

/// The JSON body of every failed v1 request, and of the `Hdr-Error` header for HEAD.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcode: Option<String>,
    pub message: String,
    #[serde(default)]
    pub method: String,
    #[serde(default)]
    pub url_path: String,
    #[serde(default)]
    pub remote_addr: String,
    #[serde(default)]
    pub caller: String,
    #[serde(default)]
    pub node: String,
    pub status: u16,
    /// Forebay's own: the exact code, so that its client need not guess from the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Forebay's own: the id of the request, also in the log of each node that it passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl ErrorBody {
    /// `node` in the reference's short form: `p[id]` or `t[id]`.
    pub fn new(error: &Error, method: &str, path: &str, node: &str) -> Self {
        Self {
            tcode: error.code.v1_tcode().map(str::to_owned),
            message: error.message.clone(),
            method: method.to_owned(),
            url_path: path.to_owned(),
            remote_addr: String::new(),
            caller: String::new(),
            node: node.to_owned(),
            status: error.code.status(),
            code: Some(error.code),
            hint: error.hint.clone(),
            request_id: None,
        }
    }

    /// Adds the id of the request.
    #[must_use]
    pub fn of_request(self, id: RequestId) -> Self {
        Self { request_id: Some(id), ..self }
    }

    /// Compact JSON with a newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("strings and numbers serialize");
        text.push('\n');
        text
    }

    /// The error in a failed answer; falls back to status and raw text.
    pub fn read(status: u16, body: &[u8]) -> Error {
        match serde_json::from_slice::<Self>(body) {
            Ok(body) => {
                let code = body.code.unwrap_or_else(|| ErrorCode::from_status(status));
                let mut e = Error::new(code, body.message);
                e.hint = body.hint;
                e.request_id = body.request_id;
                e
            }
            Err(_) => {
                let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
                let text = if text.is_empty() { format!("HTTP status {status}") } else { text };
                Error::new(ErrorCode::from_status(status), text)
            }
        }
    }
}
