//! Endpoints that buckets name, against the rule for destinations: over every kind of backend that has
//! endpoints, on a node that other machines reach.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::config::NodeConfig;
use forebay_core::egress::{Egress, EgressPolicy, EndpointTrust};
use forebay_core::error::{ErrorCode, Result};
use forebay_core::name::{Bucket, Provider};

use super::scripted;
use crate::{
    AzureCredentials, AzureSettings, BackendSettings, Backends, GcsSettings, PutBody, RetryPolicy,
    S3Credentials, S3Settings,
};

const KINDS: [BackendKind; 4] =
    [BackendKind::S3, BackendKind::Gcs, BackendKind::Azure, BackendKind::Ais];

/// Backends of a node that listens for other machines, with entries of `egress.allow`.
fn backends(allow: &[&str]) -> Backends {
    let mut config = NodeConfig::default();
    config.listen.http = "10.0.0.1:7400".into();
    config.egress.allow = allow.iter().map(|entry| (*entry).to_owned()).collect();
    let credentials = S3Credentials { access_key: "key".into(), secret_key: "secret".into() };
    let settings = BackendSettings {
        s3: S3Settings { credentials: Some(credentials), ..S3Settings::default() },
        gcs: GcsSettings { resumable_above: 10, ..GcsSettings::default() },
        azure: AzureSettings {
            account: Some("dev".into()),
            credentials: AzureCredentials::Key("c2VjcmV0".into()),
            ..AzureSettings::default()
        },
        retry: RetryPolicy { first_pause: Duration::from_millis(1), ..RetryPolicy::default() },
        ..BackendSettings::default()
    };
    let policy = EgressPolicy::of(&config).unwrap();
    Backends::new(settings.guarded_by(&policy, Egress::Public), Arc::new(|_, _, _, _| {}))
}

fn info(kind: BackendKind, endpoint: &str, endpoint_trust: EndpointTrust) -> BucketInfo {
    let bucket = Bucket::new(Provider::Ais, "near").unwrap();
    let endpoint = Some(endpoint.to_owned());
    let spec = BackendSpec { endpoint, ..BackendSpec::new(kind, "far-bucket") };
    BucketInfo { id: 7, endpoint_trust, ..BucketInfo::requested(bucket, Some(spec)) }
}

async fn stat(known: &Backends, info: &BucketInfo) -> Result<()> {
    known.for_bucket(info).await?.stat("x").await.map(drop)
}

#[tokio::test]
async fn a_closed_address_is_refused_before_a_request_and_an_accepted_one_is_called() {
    for kind in KINDS {
        let (endpoint, seen) = scripted::serve(|_| ("404 X".into(), String::new()));
        let judged = info(kind, &endpoint, EndpointTrust::Judged);
        for known in [backends(&[]), backends(&["10.0.0.0/8"])] {
            let e = stat(&known, &judged).await.unwrap_err();
            assert_eq!(e.code, ErrorCode::AccessDenied, "{kind:?}: {e}");
            assert!(e.message.contains("ais://near"), "{kind:?}: {e}");
            assert!(known.check_endpoint(&judged).await.is_err(), "{kind:?}");
        }
        assert!(seen.lock().unwrap().is_empty(), "{kind:?}");
        let open = backends(&["127.0.0.1"]);
        assert_ne!(stat(&open, &judged).await.unwrap_err().code, ErrorCode::AccessDenied);
        open.check_endpoint(&judged).await.unwrap();
        let opened = seen.lock().unwrap().len();
        assert!(opened > 0, "{kind:?}: egress.allow opens it");
        // A bucket that an earlier version made has no other record.
        let accepted = info(kind, &endpoint, EndpointTrust::Accepted);
        let e = stat(&backends(&[]), &accepted).await.unwrap_err();
        assert_ne!(e.code, ErrorCode::AccessDenied, "{kind:?}: {e}");
        assert!(seen.lock().unwrap().len() > opened, "{kind:?}: it keeps working");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_a_closed_address_is_not_called() {
    for kind in KINDS {
        let (endpoint, seen) = scripted::serve(|_| ("404 X".into(), String::new()));
        let named = endpoint.replace("127.0.0.1", "localhost");
        let judged = info(kind, &named, EndpointTrust::Judged);
        let known = backends(&[]);
        let e = stat(&known, &judged).await.unwrap_err();
        assert_eq!(e.code, ErrorCode::AccessDenied, "{kind:?}: {e}");
        assert!(e.message.contains("localhost"), "{kind:?}: {e}");
        assert!(e.hint.unwrap().contains("egress.allow"), "{kind:?}");
        assert!(known.check_endpoint(&judged).await.is_err(), "{kind:?}");
        assert!(seen.lock().unwrap().is_empty(), "{kind:?}");
        let _ = stat(&backends(&["localhost"]), &judged).await;
        assert!(!seen.lock().unwrap().is_empty(), "{kind:?}: egress.allow opens it");
    }
}

#[tokio::test]
async fn credentials_go_to_a_host_that_an_entry_names_and_to_no_other() {
    for kind in [BackendKind::S3, BackendKind::Azure] {
        let signed = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&signed);
        let (endpoint, _) = scripted::serve(move |asked| {
            noted.lock().unwrap().push(asked.headers.contains("\r\nauthorization: "));
            ("404 X".into(), String::new())
        });
        let named = endpoint.replace("127.0.0.1", "localhost");
        for (allow, trust, expected) in [
            ("127.0.0.0/8", EndpointTrust::Judged, false),
            ("localhost", EndpointTrust::Judged, true),
            ("127.0.0.0/8", EndpointTrust::Accepted, true),
        ] {
            signed.lock().unwrap().clear();
            let _ = stat(&backends(&[allow]), &info(kind, &named, trust)).await;
            let signed = signed.lock().unwrap();
            assert!(!signed.is_empty(), "{kind:?} {allow}");
            assert!(signed.iter().all(|signed| *signed == expected), "{kind:?} {allow} {trust:?}");
        }
    }
}

#[tokio::test]
async fn a_server_cannot_send_a_target_to_a_closed_address() {
    let (closed, reached) = scripted::serve(|_| ("200 X".into(), String::new()));
    for kind in [BackendKind::Gcs, BackendKind::Ais] {
        let location = format!("{closed}/v1/objects/far-bucket/x");
        let (endpoint, seen) = scripted::serve(move |asked| match asked.line.split(' ').next() {
            Some("POST") => (format!("200 X\r\nlocation: {location}"), "{}".into()),
            _ => (format!("307 X\r\nlocation: {location}"), String::new()),
        });
        let entry = endpoint.strip_prefix("http://").unwrap();
        let judged = info(kind, &endpoint, EndpointTrust::Judged);
        let backend = backends(&[entry]).for_bucket(&judged).await.unwrap();
        let e = backend.put("x", PutBody::from_bytes(vec![1; 100])).await.unwrap_err();
        assert_eq!(e.code, ErrorCode::AccessDenied, "{kind:?}: {e}");
        if kind == BackendKind::Ais {
            let e = backend.stat("x").await.unwrap_err();
            assert_eq!(e.code, ErrorCode::AccessDenied, "{kind:?}: {e}");
        }
        assert!(!seen.lock().unwrap().is_empty(), "{kind:?}");
    }
    assert!(reached.lock().unwrap().is_empty());
}
