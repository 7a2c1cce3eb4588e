//! Uploads by forms: the signed policy holds for one bucket and for the fields that it names.

use std::sync::Arc;

use forebay_core::date::format_utc;
use forebay_tests::http::{self, Answer};
use forebay_tests::s3::{self, OTHER, OWNER, User, request, texts};
use forebay_tests::{Cluster, Options, Shared};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(|| {
        let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
        for (bucket, user) in [("form-a", OWNER), ("form-b", OWNER), ("form-other", OTHER)] {
            let made = request("PUT", &cluster.endpoint, bucket).send_as(user);
            assert_eq!(made.status, 200, "{}", made.text());
        }
        cluster
    })
}

/// The fields of a form for the bucket that its policy names, and for keys that begin with a prefix.
fn signed(user: User, bucket: &str, prefix: &str) -> Vec<(&'static str, String)> {
    let until = format_utc((s3::now() + 600) * 1_000_000_000);
    let policy = format!(
        r#"{{"expiration": "{until}", "conditions": [{{"bucket": "{bucket}"}},
            ["starts-with", "$key", "{prefix}"], ["starts-with", "$x-amz-algorithm", ""],
            ["starts-with", "$x-amz-credential", ""], ["starts-with", "$x-amz-date", ""]]}}"#
    );
    s3::form_fields(user, &policy)
}

/// Posts a form with these fields, in this order, and a file of this name.
fn post(cluster: &Cluster, bucket: &str, fields: &[(&str, String)], file: &str) -> Answer {
    let mut body = String::new();
    for (name, value) in fields {
        body += &format!(
            "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
    }
    body += &format!(
        "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{file}\"\r\n\r\nx\r\n\
         --edge--\r\n"
    );
    http::request("POST", &format!("{}/s3/{bucket}", cluster.endpoint))
        .header("content-type", "multipart/form-data; boundary=edge")
        .body(body)
        .send()
}

fn keys(cluster: &Cluster, bucket: &str, user: User) -> Vec<String> {
    let page = request("GET", &cluster.endpoint, bucket).query("list-type", "2").send_as(user);
    texts(&page, "ListBucketResult", "Key")
}

fn with(key: &str, mut fields: Vec<(&'static str, String)>) -> Vec<(&'static str, String)> {
    fields.insert(0, ("key", key.to_owned()));
    fields
}

#[test]
fn a_form_for_one_bucket_writes_to_no_other() {
    let cluster = cluster();
    for bucket in ["form-b", "form-other", "form-a%2F..%2Fform-b", "form-missing"] {
        let answer = post(&cluster, bucket, &with("k", signed(OWNER, "form-a", "")), "f");
        assert!((400..405).contains(&answer.status), "{bucket}: {}", answer.text());
    }
    // A field cannot say that the form is for another bucket than its address.
    for named in ["form-a", "form-b"] {
        let mut fields = with("k", signed(OWNER, "form-a", ""));
        fields.insert(0, ("bucket", named.to_owned()));
        let answer = post(&cluster, "form-b", &fields, "f");
        assert!((400..404).contains(&answer.status), "{named}: {}", answer.text());
    }
    // The policy names the bucket, but the signer has no right there.
    let answer = post(&cluster, "form-other", &with("k", signed(OWNER, "form-other", "")), "f");
    assert_eq!(s3::code(&answer), "AccessDenied");
    assert!(keys(&cluster, "form-b", OWNER).is_empty());
    assert!(keys(&cluster, "form-other", OTHER).is_empty());
}

#[test]
fn a_form_to_a_reserved_name_is_refused() {
    let cluster = cluster();
    for name in [
        "v1", "api", "internal", "s3", "metrics", "healthz", "readyz", "clusterz", "ui", ".sys",
        "..",
    ] {
        let answer = post(&cluster, name, &with("k", signed(OWNER, name, "")), "f");
        assert!((400..500).contains(&answer.status), "{name}: {} {}", answer.status, answer.text());
        assert!(!cluster.map().state.buckets.values().any(|info| *info.bucket.name == *name));
    }
}

#[test]
fn a_key_of_a_form_is_no_path_and_stays_in_the_prefix_of_its_policy() {
    let cluster = cluster();
    for key in ["../form-b/k", "/form-b/k", "upload/${filename}"] {
        let fields = with(key, signed(OWNER, "form-a", ""));
        let answer = post(&cluster, "form-a", &fields, "../../form-b/k");
        assert!([204, 400].contains(&answer.status), "{key}: {}", answer.text());
    }
    let before = keys(&cluster, "form-a", OWNER);
    // The policy is compared with the final key, behind the substitution.
    for (key, file) in [("other/k", "f"), ("${filename}", "other/k"), ("Upload/k", "f")] {
        let fields = with(key, signed(OWNER, "form-a", "upload/"));
        let answer = post(&cluster, "form-a", &fields, file);
        assert_eq!(answer.status, 403, "{key} {file}: {}", answer.text());
    }
    // Of two fields of one name, both or none are compared with the policy.
    for (first, second) in [("upload/k", "other/k"), ("other/k", "upload/k")] {
        let mut fields = with(second, signed(OWNER, "form-a", "upload/"));
        fields.insert(0, ("key", first.to_owned()));
        post(&cluster, "form-a", &fields, "f");
    }
    let after = keys(&cluster, "form-a", OWNER);
    let new: Vec<_> = after.iter().filter(|key| !before.contains(key)).collect();
    assert!(new.iter().all(|key| key.starts_with("upload/")), "{new:?}");
    assert!(keys(&cluster, "form-b", OWNER).is_empty());
}
