//! Answers about the settings of a bucket.

use forebay_core::bucket::{CorsRule, Versioning};

use crate::xml::XmlWriter;

/// Answer to `GetBucketLocation`. The region `us-east-1` is an empty element.
pub fn location(region: &str) -> String {
    let mut w = XmlWriter::document();
    w.open_root("LocationConstraint");
    let mut text = w.finish();
    if region != "us-east-1" {
        let mut inner = XmlWriter::default();
        inner.text("x", region);
        let inner = inner.finish();
        text.push_str(&inner[3..inner.len() - 4]);
    }
    text.push_str("</LocationConstraint>");
    text
}

/// Answer to `GetBucketVersioning`; empty for a bucket that never had versions.
pub fn versioning(state: Versioning) -> String {
    let mut w = XmlWriter::document();
    w.open_root("VersioningConfiguration");
    let status = match state {
        Versioning::Unset => None,
        Versioning::Enabled => Some("Enabled"),
        Versioning::Suspended => Some("Suspended"),
    };
    w.optional("Status", status);
    w.close("VersioningConfiguration");
    w.finish()
}

/// Answer to `GetBucketCors`.
pub fn cors(rules: &[CorsRule]) -> String {
    let mut w = XmlWriter::document();
    w.open_root("CORSConfiguration");
    for rule in rules {
        w.open("CORSRule");
        w.optional("ID", rule.id.as_deref());
        for (element, values) in [
            ("AllowedMethod", &rule.allowed_methods),
            ("AllowedOrigin", &rule.allowed_origins),
            ("AllowedHeader", &rule.allowed_headers),
            ("ExposeHeader", &rule.expose_headers),
        ] {
            for value in values {
                w.text(element, value);
            }
        }
        if let Some(seconds) = rule.max_age_s {
            w.number("MaxAgeSeconds", seconds.into());
        }
        w.close("CORSRule");
    }
    w.close("CORSConfiguration");
    w.finish()
}

/// Answer to `GetBucketPolicyStatus`.
pub fn policy_status(public: bool) -> String {
    let mut w = XmlWriter::document();
    w.open_root("PolicyStatus");
    w.flag("IsPublic", public);
    w.close("PolicyStatus");
    w.finish()
}

/// Answer to `GetBucketRequestPayment`: always the bucket owner.
pub fn request_payment() -> String {
    let mut w = XmlWriter::document();
    w.open_root("RequestPaymentConfiguration");
    w.text("Payer", "BucketOwner");
    w.close("RequestPaymentConfiguration");
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_region_has_no_name() {
        let empty = location("us-east-1");
        assert!(empty.ends_with("2006-03-01/\"></LocationConstraint>"), "{empty}");
        assert!(location("eu<1").ends_with("/\">eu&lt;1</LocationConstraint>"));
    }
}
