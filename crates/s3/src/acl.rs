//! Access control lists in headers and XML documents; the lists themselves are
//! [`Acl`](forebay_core::bucket::Acl).

use forebay_core::bucket::{Acl, Grant, Grantee, Permission};
use http::HeaderMap;

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::xml::Element;

/// Everybody, with a key or without.
pub const EVERYBODY: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
/// Everybody with a key.
pub const HOLDERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
/// Maximum grants of one list, as on AWS.
pub const MAX_GRANTS: usize = 100;

const PERMISSIONS: [Permission; 5] = [
    Permission::FullControl,
    Permission::Read,
    Permission::Write,
    Permission::ReadAcp,
    Permission::WriteAcp,
];

/// A permission as documents name it.
pub fn permission_name(permission: Permission) -> &'static str {
    match permission {
        Permission::FullControl => "FULL_CONTROL",
        Permission::Read => "READ",
        Permission::Write => "WRITE",
        Permission::ReadAcp => "READ_ACP",
        Permission::WriteAcp => "WRITE_ACP",
    }
}

/// The header that grants a permission.
fn grant_header(permission: Permission) -> &'static str {
    match permission {
        Permission::FullControl => "x-amz-grant-full-control",
        Permission::Read => "x-amz-grant-read",
        Permission::Write => "x-amz-grant-write",
        Permission::ReadAcp => "x-amz-grant-read-acp",
        Permission::WriteAcp => "x-amz-grant-write-acp",
    }
}

/// The list for a word of `x-amz-acl`; unknown words are refused. The bucket's owner has its
/// permissions anyway, and AWS-only groups do not exist here.
pub fn canned(word: &str) -> S3Result<Acl> {
    let of = |grants: &[(Grantee, Permission)]| {
        Acl::new(grants.iter().map(|(to, may)| Grant { to: to.clone(), may: *may }).collect())
    };
    Ok(match word {
        "public-read" => of(&[(Grantee::Everybody, Permission::Read)]),
        "public-read-write" => {
            of(&[(Grantee::Everybody, Permission::Read), (Grantee::Everybody, Permission::Write)])
        }
        "authenticated-read" => of(&[(Grantee::Holders, Permission::Read)]),
        "private"
        | "aws-exec-read"
        | "bucket-owner-read"
        | "bucket-owner-full-control"
        | "log-delivery-write" => Acl::private(),
        _ => return Err(S3Error::argument("x-amz-acl", word, "")),
    })
}

/// The list in the headers of a request: `x-amz-acl`, or `x-amz-grant-…`; `None` if there are
/// none. `known` returns whether a user exists.
pub fn of_headers(headers: &HeaderMap, known: &dyn Fn(&str) -> bool) -> S3Result<Option<Acl>> {
    let text = |name: &str| headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok());
    let mut grants = Vec::new();
    let mut named = false;
    for may in PERMISSIONS {
        let Some(list) = text(grant_header(may)) else { continue };
        named = true;
        for grantee in list.split(',').map(str::trim).filter(|g| !g.is_empty()) {
            let (kind, value) = grantee.split_once('=').unwrap_or((grantee, ""));
            let value = value.trim().trim_matches('"');
            let to = grantee_of(kind.trim(), value, known)?;
            grants.push(Grant { to, may });
        }
    }
    match (text("x-amz-acl"), named) {
        (Some(_), true) => Err(S3Error::new(
            S3Code::InvalidRequest,
            "Specifying both Canned ACLs and Header Grants is not allowed",
        )),
        (Some(word), false) => canned(word).map(Some),
        (None, true) => checked(grants).map(Some),
        (None, false) => Ok(None),
    }
}

/// Body of `PutBucketAcl` and `PutObjectAcl`.
pub fn of_xml(body: &[u8], known: &dyn Fn(&str) -> bool) -> S3Result<Acl> {
    let malformed = || S3Error::from(S3Code::MalformedACLError);
    let root = Element::parse(body, "AccessControlPolicy").map_err(|_| malformed())?;
    let list = root.child("AccessControlList").ok_or_else(malformed)?;
    let mut grants = Vec::new();
    for grant in list.all("Grant") {
        let grantee = grant.child("Grantee").ok_or_else(malformed)?;
        let word = grant.text_of("Permission").ok_or_else(malformed)?.trim();
        let may = PERMISSIONS.into_iter().find(|p| permission_name(*p) == word);
        let may = may.ok_or_else(malformed)?;
        let named = [("ID", "id"), ("URI", "uri"), ("EmailAddress", "emailAddress")]
            .into_iter()
            .find_map(|(element, kind)| Some((kind, grantee.text_of(element)?.trim())));
        let (kind, value) = named.ok_or_else(malformed)?;
        grants.push(Grant { to: grantee_of(kind, value, known)?, may });
    }
    checked(grants)
}

fn checked(grants: Vec<Grant>) -> S3Result<Acl> {
    if grants.len() > MAX_GRANTS {
        return Err(S3Code::MalformedACLError.into());
    }
    Ok(Acl::new(grants))
}

fn grantee_of(kind: &str, value: &str, known: &dyn Fn(&str) -> bool) -> S3Result<Grantee> {
    match kind {
        "id" if known(value) => Ok(Grantee::User(value.to_owned())),
        "id" => Err(S3Error::argument("CanonicalUser/ID", value, "Invalid id")),
        "uri" if value == EVERYBODY => Ok(Grantee::Everybody),
        "uri" if value == HOLDERS => Ok(Grantee::Holders),
        "uri" => Err(S3Error::argument("Group/URI", value, "Invalid group uri")),
        // Users have no e-mail addresses here.
        "emailAddress" => Err(S3Code::UnresolvableGrantByEmailAddress.into()),
        kind => Err(S3Error::argument("Grantee", kind, "Argument format not recognized")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn known(user: &str) -> bool {
        matches!(user, "ann" | "bob")
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_word_gives_what_its_name_says() {
        let gives = |word: &str, user, may| canned(word).unwrap().gives(user, may);
        assert!(gives("public-read", None, Permission::Read));
        assert!(!gives("public-read", None, Permission::Write));
        assert!(gives("public-read-write", None, Permission::Write));
        assert!(!gives("authenticated-read", None, Permission::Read));
        assert!(gives("authenticated-read", Some("bob"), Permission::Read));
        assert!(!gives("private", Some("bob"), Permission::Read));
        assert!(canned("public-ready").is_err());
    }

    #[test]
    fn headers_give_by_word_or_by_grantee_but_not_both() {
        let of = |pairs: &[(&'static str, &'static str)]| of_headers(&headers(pairs), &known);
        assert_eq!(of(&[]).unwrap(), None);
        let acl = of(&[("x-amz-grant-read", "id=\"bob\", id=ann")]).unwrap().unwrap();
        assert!(
            acl.gives(Some("ann"), Permission::Read) && acl.gives(Some("bob"), Permission::Read)
        );
        assert!(!acl.gives(None, Permission::Read));
        let everybody = "uri=http://acs.amazonaws.com/groups/global/AllUsers";
        let acl = of(&[("x-amz-grant-full-control", everybody)]).unwrap().unwrap();
        assert!(acl.gives(None, Permission::WriteAcp));
        let both = of(&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=bob")]);
        assert_eq!(both.unwrap_err().code, S3Code::InvalidRequest);
        let stranger = of(&[("x-amz-grant-read", "id=eve")]);
        assert_eq!(stranger.unwrap_err().code, S3Code::InvalidArgument);
        let mail = of(&[("x-amz-grant-read", "emailAddress=a@b")]);
        assert_eq!(mail.unwrap_err().code, S3Code::UnresolvableGrantByEmailAddress);
    }

    #[test]
    fn a_document_is_read_in_full_or_refused() {
        let of = |grants: &str| {
            let body = format!(
                "<AccessControlPolicy><Owner><ID>ann</ID></Owner><AccessControlList>{grants}\
                 </AccessControlList></AccessControlPolicy>"
            );
            of_xml(body.as_bytes(), &known)
        };
        let grant = |to: &str, may: &str| {
            format!("<Grant><Grantee>{to}</Grantee><Permission>{may}</Permission></Grant>")
        };
        let acl = of(&(grant("<ID>ann</ID>", "FULL_CONTROL") + &grant("<ID>bob</ID>", "READ")));
        let acl = acl.unwrap().without("ann");
        let bob = Grant { to: Grantee::User("bob".into()), may: Permission::Read };
        assert_eq!(acl.grants(), [bob], "what the owner has is not kept");
        let code = |grants: &str| of(grants).unwrap_err().code;
        assert_eq!(code(&grant("<ID>bob</ID>", "ALL")), S3Code::MalformedACLError);
        assert_eq!(code(&grant("", "READ")), S3Code::MalformedACLError);
        assert_eq!(code(&grant("<ID>bob</ID>", "READ").repeat(101)), S3Code::MalformedACLError);
    }
}
