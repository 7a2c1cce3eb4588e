//! Compositions in Google Cloud Storage: on a real fake-gcs-server, and rejections of Google only.

use forebay_core::error::ErrorCode;
use futures::TryStreamExt;

use super::gcs::{open, scripted};
use super::{failure, read};
use crate::composed::TEMPORARY;
use crate::{Backend, PutBody};

#[tokio::test]
async fn a_composition_has_the_bytes_of_its_parts_in_their_order() {
    let Some(gcs) = open().await else { return };
    for (name, bytes) in [("b/2", "second"), ("b/1", "first"), ("b/3", "third"), ("a", "x")] {
        let mut body = PutBody::from_bytes(bytes);
        body.custom.insert("colour".into(), bytes.into());
        gcs.backend.put(name, body).await.unwrap();
    }
    let parts = gcs.backend.describe("b/", 10).await.unwrap();
    let described: Vec<_> = parts.iter().map(|p| (p.name.as_str(), p.meta.size)).collect();
    assert_eq!(described, [("b/1", 5), ("b/2", 6), ("b/3", 5)]);
    for part in &parts {
        let mut object = gcs.backend.get(&part.name, None, None).await.unwrap();
        // The emulator guesses a type, but only in reads.
        object.meta.content_type = None;
        assert_eq!(object.meta, part.meta, "a listing tells what a read does");
        let bytes: Vec<_> = object.stream.try_collect().await.unwrap();
        assert_eq!(forebay_core::checksum::crc32c(&bytes.concat()), part.crc32c);
    }
    let name = format!("{TEMPORARY}1-test");
    let made = gcs.backend.compose(&name, &parts.iter().collect::<Vec<_>>()).await.unwrap();
    assert_eq!(made.size, 16);
    assert_eq!(read(&gcs.backend, &name).await.unwrap(), "firstsecondthird");
    let page = gcs.backend.list("", "".into(), 10).await.unwrap();
    let names: Vec<_> = page.entries.iter().map(|e| e.name.as_str()).collect();
    assert_eq!((names, page.more), (vec!["a", "b/1", "b/2", "b/3"], false), "it is not shown");
    gcs.backend.delete(&name).await.unwrap();
}

#[tokio::test]
async fn every_part_of_a_composition_is_asked_for_at_its_generation() {
    let listing = r#"{"items":[
        {"name":"a","size":"1","generation":"41","crc32c":"AAAAAA=="},
        {"name":"b","size":"1","generation":"42","crc32c":"AAAAAA=="}]}"#;
    let (backend, seen) = scripted(move |asked| {
        if asked.line.starts_with("GET") {
            return ("200 OK".into(), listing.into());
        }
        let sent: serde_json::Value = serde_json::from_slice(&asked.content).unwrap();
        let source = |n: usize| {
            let source = &sent["sourceObjects"][n];
            assert!(source.get("generation").is_none(), "that would find an older one, too");
            let generation = source["objectPreconditions"]["ifGenerationMatch"].clone();
            (source["name"].clone(), generation)
        };
        assert_eq!(source(0), ("a".into(), "41".into()));
        assert_eq!(source(1), ("b".into(), "42".into()));
        let text = r#"{"error":{"code":412,"message":"conditionNotMet"}}"#;
        ("412 Precondition Failed".into(), text.into())
    })
    .await;
    let parts = backend.describe("", 10).await.unwrap();
    let error = failure(backend.compose("t", &parts.iter().collect::<Vec<_>>()).await);
    assert_eq!(error.code, ErrorCode::ObjectChanged, "{error}");
    let line = seen.lock().unwrap()[1].clone();
    assert!(line.contains("/o/t/compose?ifGenerationMatch=0"), "{line}");
}

#[tokio::test]
async fn a_bucket_that_keeps_what_is_deleted_is_refused_and_the_hint_says_what_to_do() {
    let soft =
        r#"{"storageClass":"STANDARD","softDeletePolicy":{"retentionDurationSeconds":"60"}}"#;
    let denied = r#"{"error":{"code":403,"message":"no storage.buckets.get access"}}"#;
    for (head, body, word) in [
        ("200 OK", soft, "disable soft delete"),
        ("200 OK", r#"{"storageClass":"NEARLINE"}"#, "STANDARD"),
        ("403 X", denied, "storage.buckets.get"),
    ] {
        let (backend, _) = scripted(move |_| (head.into(), body.into())).await;
        let error = failure(backend.check_composing().await);
        let hint = error.hint.clone().unwrap_or_default();
        assert!(error.message.contains("gs://far"), "{error}");
        assert!(hint.contains(word) && hint.contains("cloud.compose=force"), "{hint}");
    }
    let fine = r#"{"storageClass":"STANDARD","softDeletePolicy":{"retentionDurationSeconds":"0"}}"#;
    let (backend, _) = scripted(move |_| ("200 OK".into(), fine.into())).await;
    backend.check_composing().await.unwrap();
}
