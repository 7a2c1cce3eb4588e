//! Form uploads of browsers: their signature, and the policy that limits them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_core::date::parse_iso;
use serde_json::Value;

use super::canonical::{ALGORITHM, Credential};
use super::{Identity, Keys, SigningKey, presigned_v2};
use crate::error::{S3Error, S3Result};
use crate::error_code::S3Code;

/// Fields of a form before its file, names in lower case.
pub type FormFields = BTreeMap<String, String>;

/// The limits of a signed policy for the file; its other conditions are checked with the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostPolicy {
    /// Minimum and maximum bytes of the file.
    pub length: Option<(u64, u64)>,
}

impl PostPolicy {
    /// Maximum bytes of the file.
    pub fn most(&self) -> u64 {
        self.length.map_or(u64::MAX, |(_, most)| most)
    }

    /// Checks that a file of this size is allowed.
    pub fn check_length(&self, size: u64) -> S3Result<()> {
        match self.length {
            Some((least, _)) if size < least => Err(S3Error::from(S3Code::EntityTooSmall)
                .detail("ProposedSize", size.to_string())
                .detail("MinSizeAllowed", least.to_string())),
            Some((_, most)) if size > most => Err(S3Error::from(S3Code::EntityTooLarge)
                .detail("ProposedSize", size.to_string())
                .detail("MaxSizeAllowed", most.to_string())),
            _ => Ok(()),
        }
    }
}

/// Checks the signature of a form and its policy against its fields, `key` being the final one. A
/// form without a policy is anonymous. `now` is in unix seconds.
pub fn authenticate_form(
    bucket: &str,
    fields: &FormFields,
    keys: &impl Keys,
    now: u64,
) -> S3Result<(Identity, PostPolicy)> {
    let Some(encoded) = fields.get("policy").filter(|p| !p.is_empty()) else {
        return Ok((Identity::Anonymous, PostPolicy::default()));
    };
    let access_key = match fields.contains_key("x-amz-algorithm") {
        true => verify_v4(fields, encoded, keys)?,
        false => verify_v2(fields, encoded, keys)?,
    };
    let policy = Policy::parse(encoded)?;
    if now > policy.expires_s {
        return Err(S3Error::new(
            S3Code::AccessDenied,
            "Invalid according to Policy: Policy expired.",
        ));
    }
    let length = policy.check(bucket, fields)?;
    Ok((Identity::Key(access_key), PostPolicy { length }))
}

fn field<'a>(fields: &'a FormFields, name: &'static str) -> S3Result<&'a str> {
    fields.get(name).map(String::as_str).ok_or_else(|| {
        S3Error::new(
            S3Code::InvalidArgument,
            format!("Bucket POST must contain a field named '{name}'."),
        )
        .detail("ArgumentName", name)
    })
}

fn unknown(access_key: &str) -> S3Error {
    S3Error::from(S3Code::InvalidAccessKeyId).detail("AWSAccessKeyId", access_key)
}

fn verify_v4(fields: &FormFields, policy: &str, keys: &impl Keys) -> S3Result<String> {
    if field(fields, "x-amz-algorithm")? != ALGORITHM {
        return Err(S3Error::new(
            S3Code::InvalidArgument,
            "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"",
        ));
    }
    let text = field(fields, "x-amz-credential")?;
    let credential = Credential::parse(text).ok_or_else(|| {
        S3Error::argument("X-Amz-Credential", text, "the Credential is mal-formed")
    })?;
    let signature = field(fields, "x-amz-signature")?;
    let secret =
        keys.secret(credential.access_key).ok_or_else(|| unknown(credential.access_key))?;
    let key = SigningKey::derive(&secret, credential.day, credential.region, credential.service);
    if !key.verify(policy, signature) {
        return Err(S3Code::SignatureDoesNotMatch.into());
    }
    Ok(credential.access_key.to_owned())
}

fn verify_v2(fields: &FormFields, policy: &str, keys: &impl Keys) -> S3Result<String> {
    let access_key = field(fields, "awsaccesskeyid")?;
    let signature = field(fields, "signature")?;
    let secret = keys.secret(access_key).ok_or_else(|| unknown(access_key))?;
    if !presigned_v2::verify_text(&secret, policy, signature) {
        return Err(S3Code::SignatureDoesNotMatch.into());
    }
    Ok(access_key.to_owned())
}

/// A policy document.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    expires_s: u64,
    conditions: Vec<Condition>,
}

#[derive(Debug, PartialEq, Eq)]
enum Condition {
    /// Field (lower case, no `$`) and value.
    Equal(String, String),
    StartsWith(String, String),
    Length(u64, u64),
}

impl Policy {
    fn parse(encoded: &str) -> S3Result<Self> {
        let bad = |what: &str| {
            S3Error::new(S3Code::InvalidPolicyDocument, format!("Invalid Policy: {what}."))
        };
        let json = BASE64.decode(encoded.trim()).map_err(|_| bad("not base64"))?;
        let document: Value = serde_json::from_slice(&json).map_err(|_| bad("Invalid JSON"))?;
        let expires_s = document
            .get("expiration")
            .and_then(Value::as_str)
            .and_then(parse_iso)
            .ok_or_else(|| bad("Invalid 'expiration' value"))?;
        let conditions = document
            .get("conditions")
            .and_then(Value::as_array)
            .ok_or_else(|| bad("missing 'conditions'"))?
            .iter()
            .map(|c| Condition::parse(c).ok_or_else(|| bad("Invalid Condition")))
            .collect::<S3Result<_>>()?;
        Ok(Self { expires_s, conditions })
    }

    /// Checks that the fields satisfy all conditions and that every field has a condition.
    fn check(&self, bucket: &str, fields: &FormFields) -> S3Result<Option<(u64, u64)>> {
        let value = |name: &str| match name {
            "bucket" => bucket,
            _ => fields.get(name).map_or("", String::as_str),
        };
        let mut length = None;
        let mut covered: Vec<&str> = Vec::new();
        for condition in &self.conditions {
            let (name, holds) = match condition {
                Condition::Length(least, most) => {
                    length = Some((*least, *most));
                    continue;
                }
                Condition::Equal(name, wanted) => (name, value(name) == wanted),
                Condition::StartsWith(name, wanted) => {
                    (name, value(name).starts_with(wanted.as_str()))
                }
            };
            if !holds {
                return Err(S3Error::new(
                    S3Code::AccessDenied,
                    format!("Invalid according to Policy: Policy Condition failed: {condition}"),
                ));
            }
            covered.push(name);
        }
        let names = fields.keys().map(String::as_str).chain(["bucket"]);
        for name in names {
            if !covered.contains(&name) && !is_free(name) {
                return Err(S3Error::new(
                    S3Code::AccessDenied,
                    format!("Invalid according to Policy: Extra input fields: {name}"),
                ));
            }
        }
        Ok(length)
    }
}

/// Fields that a policy need not mention.
fn is_free(name: &str) -> bool {
    matches!(name, "awsaccesskeyid" | "signature" | "x-amz-signature" | "policy" | "file")
        || name.starts_with("x-ignore-")
        || name.starts_with("x-amz-checksum-")
}

impl Condition {
    fn parse(value: &Value) -> Option<Self> {
        if let Value::Object(map) = value {
            let (name, wanted) = map.iter().next().filter(|_| map.len() == 1)?;
            return Some(Self::Equal(name.to_ascii_lowercase(), text(wanted)?));
        }
        let [operator, first, second] = value.as_array()?.as_slice() else { return None };
        let operator = operator.as_str()?.to_ascii_lowercase();
        if operator == "content-length-range" {
            return Some(Self::Length(size(first)?, size(second)?));
        }
        let name = first.as_str()?.strip_prefix('$')?.to_ascii_lowercase();
        match operator.as_str() {
            "eq" => Some(Self::Equal(name, text(second)?)),
            "starts-with" => Some(Self::StartsWith(name, text(second)?)),
            _ => None,
        }
    }
}

/// As AWS writes it: `["eq", "$key", "a"]`.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &str| Value::from(text);
        match self {
            Self::Equal(name, wanted) => {
                write!(f, "[\"eq\", {}, {}]", text(&format!("${name}")), text(wanted))
            }
            Self::StartsWith(name, wanted) => {
                write!(f, "[\"starts-with\", {}, {}]", text(&format!("${name}")), text(wanted))
            }
            Self::Length(least, most) => {
                write!(f, "[\"content-length-range\", {least}, {most}]")
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn size(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
