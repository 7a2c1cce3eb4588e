//! Listing of buckets.

use axum::response::Response;
use forebay_core::access::Access;
use forebay_core::name::Namespace;
use forebay_core::state::ClusterState;
use forebay_core::{Bucket, Provider, Result};
use forebay_node::reply::json;
use forebay_v1::query::Query;

/// Whether a bucket is an internal bucket of the cluster, which listings hide.
pub(crate) fn is_system(bucket: &Bucket) -> bool {
    bucket.namespace.name == "sys"
}

/// The namespaces that a bucket listing covers. Without one it covers all of them.
enum InNamespace {
    Any,
    /// The namespaces of attached clusters.
    AnyRemote,
    /// One cluster's namespace, of this name if it has one.
    One(Namespace),
}

impl InNamespace {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "" | "@#" => Self::Any,
            "@" | "@@#" => Self::AnyRemote,
            text => Self::One(Namespace::parse(text)?),
        })
    }

    fn has(&self, bucket: &Bucket) -> bool {
        let ns = &bucket.namespace;
        match self {
            Self::Any => true,
            Self::AnyRemote => !ns.uuid.is_empty(),
            Self::One(one) => one.uuid == ns.uuid && (one.name.is_empty() || one.name == ns.name),
        }
    }
}

/// The buckets that the cluster knows: of one provider, or of all, and of one namespace if one is
/// given, as far as the sender sees them; `name` limits the result to one bucket.
pub(in crate::http) fn buckets(
    state: &ClusterState,
    query: &Query,
    name: &str,
    access: &Access,
) -> Result<Response> {
    access.require_bucket_list()?;
    let provider: Option<Provider> = query.get("provider").map(str::parse).transpose()?;
    let namespace = InNamespace::parse(query.get("namespace").unwrap_or(""))?;
    let mut list: Vec<&Bucket> = state
        .buckets
        .values()
        .map(|info| &info.bucket)
        .filter(|b| provider.is_none_or(|p| p == b.provider))
        .filter(|b| name.is_empty() || *b.name == *name)
        .filter(|b| namespace.has(b))
        .filter(|b| !is_system(b) || query.flag("sys"))
        .filter(|b| access.sees(b))
        .collect();
    list.sort();
    Ok(json(&list))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_question_about_buckets_may_be_about_a_namespace() {
        let local = Bucket::from_parts("b", "ais", "").unwrap();
        let named = Bucket::from_parts("b", "ais", "#mine").unwrap();
        let remote = Bucket::from_parts("b", "ais", "@other#").unwrap();
        for (asked, has) in [
            ("", [true, true, true]),
            ("@#", [true, true, true]),
            ("@@#", [false, false, true]),
            ("@other#", [false, false, true]),
            ("@another#", [false, false, false]),
            ("#mine", [false, true, false]),
        ] {
            let namespace = InNamespace::parse(asked).unwrap();
            assert_eq!([&local, &named, &remote].map(|b| namespace.has(b)), has, "{asked}");
        }
    }
}
