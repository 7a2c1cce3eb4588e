//! Records of the audit log: who changed what, from where, and what was refused.

use serde::Serialize;

use crate::error::{Error, ErrorCode};
use crate::name::NodeId;

/// Version of the schema; a field that changes its meaning gets a new one.
pub const SCHEMA: u32 = 1;

/// One line of the audit log. `docs/audit.md` describes the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    pub schema: u32,
    /// RFC 3339, UTC.
    pub time: String,
    /// The node that answered the request.
    pub node: NodeId,
    /// The change, for example `bucket made`, or `request refused`.
    pub event: String,
    /// The name of the changed item, or method and path of a refused request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The new values, `key=value`, separated by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub result: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Reason>,
    pub sender: SentBy,
    /// Version of the cluster's state that contains the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_version: Option<u64>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Done,
    Refused,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// HTTP status of the answer.
    pub status: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Self {
        Self { code: Some(error.code), status: error.code.status(), message: error.message.clone() }
    }
}

/// The sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentBy {
    /// Address of the client, or id of the node that forwarded the request.
    pub from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of the API: `v1`, `native`, `s3`, `internal` or `operations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<&'static str>,
    /// Id of the request; S3 answers carry it as `x-amz-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_of_json_without_empty_fields() {
        let record = Record {
            schema: SCHEMA,
            time: "2026-11-27T05:00:00Z".into(),
            node: NodeId::new("gateway-1").unwrap(),
            event: "bucket made".into(),
            subject: "ais://b\nc".into(),
            detail: String::new(),
            result: Outcome::Done,
            error: None,
            sender: SentBy { from: "10.0.0.7".into(), api: Some("v1"), ..SentBy::default() },
            map_version: Some(7),
        };
        let line = serde_json::to_string(&record).unwrap();
        let expected = "{\"schema\":1,\"time\":\"2026-11-27T05:00:00Z\",\"node\":\"gateway-1\",\
            \"event\":\"bucket made\",\"subject\":\"ais://b\\nc\",\"result\":\"done\",\
            \"sender\":{\"from\":\"10.0.0.7\",\"api\":\"v1\"},\"map_version\":7}";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_refusal_names_its_error() {
        let reason = Reason::from(&Error::new(ErrorCode::AccessDenied, "not yours"));
        let json = serde_json::to_value(reason).unwrap();
        let expected = serde_json::json!(
            {"code": "access_denied", "status": 403, "message": "not yours"}
        );
        assert_eq!(json, expected);
    }
}
