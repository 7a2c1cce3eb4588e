//! Bucket policies: strict parsing of the supported subset, and decisions.
//!
//! Statements allow or deny actions on a bucket and its objects to everybody or to named users,
//! under conditions. Unsupported elements (`NotPrincipal`, unknown operators and condition keys)
//! are refused when the policy is put: a stored policy is enforced in full.

mod condition;

use serde_json::{Map, Value};

use self::condition::Condition;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::operation::{GetObject, ObjectVersion, Operation};

/// Maximum bytes of a policy.
pub const MAX_POLICY: usize = 20 * 1024;

/// The decision of a policy on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// Overrides every allowance.
    Deny,
    /// No statement applies.
    Silent,
}

/// The properties of a request that a policy uses.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// `None`: anonymous.
    pub user: Option<&'a str>,
    /// `s3:GetObject`; see [`action`].
    pub action: &'a str,
    pub bucket: &'a str,
    /// Empty for the bucket itself.
    pub key: &'a str,
    /// Values of condition keys (`aws:SourceIp`, `s3:prefix`), by lower-case name; `None` if the
    /// request has no such value.
    pub value: &'a dyn Fn(&str) -> Option<String>,
}

/// A parsed policy without unsupported elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPolicy {
    statements: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    allow: bool,
    /// `*`, users, or ARNs that end with one.
    principals: Vec<String>,
    /// Patterns in lower case.
    actions: Vec<String>,
    /// Whether the statement applies to all actions except these.
    not_actions: bool,
    /// Patterns of `bucket` and `bucket/key`.
    resources: Vec<String>,
    not_resources: bool,
    conditions: Vec<Condition>,
}

fn malformed(message: impl Into<String>) -> S3Error {
    S3Error::new(S3Code::MalformedPolicy, message.into())
}

impl BucketPolicy {
    /// Parses a policy's JSON; the error names an invalid or unsupported element.
    pub fn parse(text: &str) -> S3Result<Self> {
        if text.len() > MAX_POLICY {
            return Err(malformed("Policies may have at most 20480 bytes"));
        }
        let document: Value = serde_json::from_str(text)
            .map_err(|_| malformed("Policies must be valid JSON and the first byte must be '{'"))?;
        let Value::Object(document) = &document else {
            return Err(malformed("Policies must be valid JSON and the first byte must be '{'"));
        };
        only(document, &["Version", "Id", "Statement"])?;
        let statements = match document.get("Statement") {
            Some(Value::Array(list)) => {
                list.iter().map(Statement::parse).collect::<S3Result<_>>()?
            }
            Some(one @ Value::Object(_)) => vec![Statement::parse(one)?],
            _ => return Err(malformed("Missing required field Statement")),
        };
        Ok(Self { statements })
    }

    /// Decides on a request.
    pub fn decide(&self, asked: &Asked<'_>) -> Decision {
        let mut decision = Decision::Silent;
        for statement in self.statements.iter().filter(|s| s.is_about(asked)) {
            if !statement.allow {
                return Decision::Deny;
            }
            decision = Decision::Allow;
        }
        decision
    }

    /// Whether it allows something to everybody from every address.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|s| {
            s.allow
                && s.principals.iter().any(|p| p == "*")
                && !s.conditions.iter().any(Condition::narrows)
        })
    }
}

impl Statement {
    fn parse(value: &Value) -> S3Result<Self> {
        let Value::Object(fields) = value else {
            return Err(malformed("a statement must be an object"));
        };
        only(
            fields,
            &[
                "Sid",
                "Effect",
                "Principal",
                "Action",
                "NotAction",
                "Resource",
                "NotResource",
                "Condition",
            ],
        )?;
        let allow = match fields.get("Effect").and_then(Value::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return Err(malformed("Invalid effect: it must be Allow or Deny")),
        };
        let (actions, not_actions) = either(fields, "Action", "NotAction")?;
        for action in &actions {
            if action != "*" && !action.to_ascii_lowercase().starts_with("s3:") {
                return Err(malformed(format!("Policy has invalid action {action}")));
            }
        }
        let (resources, not_resources) = either(fields, "Resource", "NotResource")?;
        let resources = resources.iter().map(|r| resource(r)).collect::<S3Result<_>>()?;
        let conditions = match fields.get("Condition") {
            None => Vec::new(),
            Some(value) => Condition::parse_all(value)?,
        };
        Ok(Self {
            allow,
            principals: principals(fields.get("Principal"))?,
            actions: actions.iter().map(|a| a.to_ascii_lowercase()).collect(),
            not_actions,
            resources,
            not_resources,
            conditions,
        })
    }

    fn is_about(&self, asked: &Asked<'_>) -> bool {
        let action = asked.action.to_ascii_lowercase();
        let resource = match asked.key {
            "" => asked.bucket.to_owned(),
            key => format!("{}/{key}", asked.bucket),
        };
        let any = |patterns: &[String], text: &str| patterns.iter().any(|p| matches(p, text));
        self.principals.iter().any(|p| is_principal(p, asked.user))
            && any(&self.actions, &action) != self.not_actions
            && any(&self.resources, &resource) != self.not_resources
            && self.conditions.iter().all(|c| c.holds(asked.value))
    }
}

/// Refuses unknown fields of a document: such a field may be a restriction that is not enforced
/// here.
fn only(fields: &Map<String, Value>, known: &[&str]) -> S3Result<()> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(malformed(format!("the element {name} is not served"))),
    }
}

fn either(
    fields: &Map<String, Value>,
    name: &'static str,
    opposite: &'static str,
) -> S3Result<(Vec<String>, bool)> {
    match (fields.get(name), fields.get(opposite)) {
        (Some(value), None) => Ok((strings(value, name)?, false)),
        (None, Some(value)) => Ok((strings(value, opposite)?, true)),
        _ => Err(malformed(format!("a statement must have one of {name} and {opposite}"))),
    }
}

/// A string or a list of strings, at least one.
fn strings(value: &Value, name: &str) -> S3Result<Vec<String>> {
    let one = |v: &Value| v.as_str().map(str::to_owned);
    let found: Option<Vec<String>> = match value {
        Value::Array(list) => list.iter().map(one).collect(),
        value => one(value).map(|text| vec![text]),
    };
    found
        .filter(|f| !f.is_empty())
        .ok_or_else(|| malformed(format!("{name} must be a text or a list of texts")))
}

fn principals(value: Option<&Value>) -> S3Result<Vec<String>> {
    match value {
        Some(Value::String(all)) if all == "*" => Ok(vec!["*".to_owned()]),
        Some(Value::Object(kinds)) => {
            let mut found = Vec::new();
            for (kind, value) in kinds {
                if kind != "AWS" && kind != "CanonicalUser" {
                    return Err(malformed(format!("Invalid principal: {kind} is not served")));
                }
                found.extend(strings(value, "Principal")?);
            }
            Ok(found)
        }
        _ => Err(malformed("Invalid principal in policy")),
    }
}

/// `*`, a user, or an ARN such as `arn:aws:iam::account:user/NAME`.
fn is_principal(principal: &str, user: Option<&str>) -> bool {
    principal == "*"
        || user.is_some_and(|user| {
            principal == user
                || (principal.starts_with("arn:")
                    && principal.rsplit_once(":user/").is_some_and(|(_, name)| name == user))
        })
}

/// The pattern after `arn:aws:s3:::`.
fn resource(text: &str) -> S3Result<String> {
    let mut parts = text.splitn(6, ':');
    let ok = parts.next() == Some("arn") && parts.next().is_some() && parts.next() == Some("s3");
    match (ok, parts.nth(2)) {
        (true, Some(pattern)) if !pattern.is_empty() => Ok(pattern.to_owned()),
        _ if text == "*" => Ok("*".to_owned()),
        _ => Err(malformed(format!("Policy has invalid resource {text}"))),
    }
}

/// Whether a pattern with `*` (any text) and `?` (any character) matches this text. The worst case
/// takes time in proportion to the product of both lengths, whatever the pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                // Let the last star match one more character.
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The action that a policy must allow for an operation. The source of a copy also needs
/// `s3:GetObject`.
pub fn action(operation: &Operation) -> &'static str {
    use Operation as O;
    let versioned = |id: &Option<String>, with: &'static str, without: &'static str| match id {
        Some(_) => with,
        None => without,
    };
    match operation {
        O::ListBuckets(_) => "s3:ListAllMyBuckets",
        O::CreateBucket => "s3:CreateBucket",
        O::DeleteBucket => "s3:DeleteBucket",
        O::HeadBucket | O::ListObjects(_) | O::ListObjectsV2(_) => "s3:ListBucket",
        O::ListObjectVersions(_) => "s3:ListBucketVersions",
        O::ListMultipartUploads(_) => "s3:ListBucketMultipartUploads",
        O::GetBucketLocation => "s3:GetBucketLocation",
        O::GetBucketVersioning => "s3:GetBucketVersioning",
        O::PutBucketVersioning => "s3:PutBucketVersioning",
        O::GetBucketCors => "s3:GetBucketCORS",
        O::PutBucketCors | O::DeleteBucketCors => "s3:PutBucketCORS",
        O::GetBucketTagging => "s3:GetBucketTagging",
        O::PutBucketTagging | O::DeleteBucketTagging => "s3:PutBucketTagging",
        O::GetBucketPolicy => "s3:GetBucketPolicy",
        O::PutBucketPolicy => "s3:PutBucketPolicy",
        O::DeleteBucketPolicy => "s3:DeleteBucketPolicy",
        O::GetBucketPolicyStatus => "s3:GetBucketPolicyStatus",
        O::GetBucketAcl => "s3:GetBucketAcl",
        O::PutBucketAcl => "s3:PutBucketAcl",
        O::GetObject(GetObject { version_id, .. })
        | O::HeadObject(GetObject { version_id, .. }) => {
            versioned(version_id, "s3:GetObjectVersion", "s3:GetObject")
        }
        O::GetObjectAttributes(ObjectVersion { version_id }) => {
            versioned(version_id, "s3:GetObjectVersion", "s3:GetObject")
        }
        O::PutObject
        | O::PostObject
        | O::CopyObject(_)
        | O::CreateMultipartUpload
        | O::UploadPart(_)
        | O::UploadPartCopy(..)
        | O::CompleteMultipartUpload(_) => "s3:PutObject",
        O::AbortMultipartUpload(_) => "s3:AbortMultipartUpload",
        O::ListParts(_) => "s3:ListMultipartUploadParts",
        O::DeleteObjects => "s3:DeleteObject",
        O::DeleteObject(ObjectVersion { version_id }) => {
            versioned(version_id, "s3:DeleteObjectVersion", "s3:DeleteObject")
        }
        O::GetObjectTagging(ObjectVersion { version_id }) => {
            versioned(version_id, "s3:GetObjectVersionTagging", "s3:GetObjectTagging")
        }
        O::PutObjectTagging(ObjectVersion { version_id }) => {
            versioned(version_id, "s3:PutObjectVersionTagging", "s3:PutObjectTagging")
        }
        O::DeleteObjectTagging(ObjectVersion { version_id }) => {
            versioned(version_id, "s3:DeleteObjectVersionTagging", "s3:DeleteObjectTagging")
        }
        O::GetObjectAcl(_) => "s3:GetObjectAcl",
        O::PutObjectAcl(_) => "s3:PutObjectAcl",
        O::Preflight | O::Unsupported(_) => "s3:None",
    }
}

#[cfg(test)]
#[path = "bucket_policy/tests.rs"]
mod tests;
