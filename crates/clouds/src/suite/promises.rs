//! The guarantees themselves, written once.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::error::{Error, ErrorCode};
use forebay_core::size::ByteRange;
use futures::stream::{self, StreamExt};

use super::{Fixture, collect, content, failure, list_all, read};
use crate::PutBody;

pub(super) async fn put_then_get_gives_the_bytes_and_the_same_meta_as_stat(f: &Fixture) {
    f.backend.head_bucket().await.unwrap();
    let bytes = content(300_000, 1);
    let put = f.backend.put("data/one.bin", PutBody::from_bytes(bytes.clone())).await.unwrap();
    assert_eq!(put.size, 300_000);
    let got = f.backend.get("data/one.bin", None, Some(&put.version)).await.unwrap();
    assert_eq!(got.range, ByteRange::whole(300_000));
    assert_eq!((&got.meta.version, &got.meta.etag), (&put.version, &put.etag));
    let stat = f.backend.stat("data/one.bin").await.unwrap();
    assert_eq!(stat, got.meta);
    assert!(!stat.version.is_empty());
    assert!(!f.tells_times || stat.mtime_ns > 1_500_000_000_000_000_000);
    assert_eq!(collect(got.stream).await.unwrap(), bytes);
}

pub(super) async fn an_empty_object_is_an_object(f: &Fixture) {
    f.backend.put("empty", PutBody::from_bytes("")).await.unwrap();
    assert_eq!(f.backend.stat("empty").await.unwrap().size, 0);
    let got = f.backend.get("empty", None, None).await.unwrap();
    assert!(got.range.is_empty());
    assert_eq!(collect(got.stream).await.unwrap(), Bytes::new());
    let listed = list_all(&*f.backend, "", 10).await;
    assert_eq!((listed[0].name.as_str(), listed[0].size), ("empty", 0));
}

pub(super) async fn ranges_give_exactly_those_bytes(f: &Fixture) {
    let bytes = content(10_000, 2);
    f.backend.put("r", PutBody::from_bytes(bytes.clone())).await.unwrap();
    for (start, end) in [(0, 1), (0, 10_000), (1, 2), (4_999, 9_999), (9_999, 10_000)] {
        let range = ByteRange { start, end };
        let got = f.backend.get("r", Some(range), None).await.unwrap();
        assert_eq!((got.range, got.meta.size), (range, 10_000));
        let expected = bytes.slice(start as usize..end as usize);
        assert_eq!(collect(got.stream).await.unwrap(), expected);
    }
    let beyond = ByteRange { start: 9_000, end: 20_000 };
    let got = f.backend.get("r", Some(beyond), None).await.unwrap();
    assert_eq!(got.range, ByteRange { start: 9_000, end: 10_000 });
    assert_eq!(collect(got.stream).await.unwrap(), bytes.slice(9_000..));
}

pub(super) async fn a_range_past_the_end_is_refused(f: &Fixture) {
    f.backend.put("r", PutBody::from_bytes("0123456789")).await.unwrap();
    let range = ByteRange { start: 10, end: 11 };
    let error = failure(f.backend.get("r", Some(range), None).await);
    assert_eq!(error.code, ErrorCode::RangeNotSatisfiable);
}

pub(super) async fn large_objects_come_back_whole(f: &Fixture) {
    let bytes = content(f.large, 3);
    let put = f.backend.put("big", PutBody::from_bytes(bytes.clone())).await.unwrap();
    let stat = f.backend.stat("big").await.unwrap();
    assert_eq!((stat.size, &stat.version), (f.large as u64, &put.version));
    assert!(read(&*f.backend, "big").await.unwrap() == bytes);
    let middle = f.large / 2 - 100_000..f.large / 2 + 100_000;
    let range = ByteRange { start: middle.start as u64, end: middle.end as u64 };
    let part = f.backend.get("big", Some(range), Some(&put.version)).await.unwrap();
    assert!(collect(part.stream).await.unwrap() == bytes.slice(middle));
    assert_eq!(list_all(&*f.backend, "big", 10).await[0].size, f.large as u64);
}

pub(super) async fn every_overwrite_has_another_version(f: &Fixture) {
    let first = f.backend.put("o", PutBody::from_bytes("first")).await.unwrap();
    let second = f.backend.put("o", PutBody::from_bytes("other")).await.unwrap();
    assert_ne!(first.version, second.version);
    assert_eq!(f.backend.stat("o").await.unwrap().version, second.version);
    assert_eq!(read(&*f.backend, "o").await.unwrap(), "other");
}

pub(super) async fn reads_of_a_version_that_is_gone_are_refused(f: &Fixture) {
    let first = f.backend.put("o", PutBody::from_bytes("first")).await.unwrap();
    let range = Some(ByteRange { start: 1, end: 3 });
    f.backend.get("o", range, Some(&first.version)).await.map(drop).unwrap();
    f.backend.put("o", PutBody::from_bytes("other")).await.unwrap();
    for range in [None, range] {
        let error = failure(f.backend.get("o", range, Some(&first.version)).await);
        assert_eq!(error.code, ErrorCode::ObjectChanged);
        assert!(error.message.contains(&f.bucket.object_uri("o")), "{error}");
    }
}

pub(super) async fn deleted_objects_are_gone(f: &Fixture) {
    f.backend.put("x/y/z", PutBody::from_bytes("1")).await.unwrap();
    f.backend.delete("x/y/z").await.unwrap();
    assert_eq!(failure(f.backend.stat("x/y/z").await).code, ErrorCode::ObjectNotFound);
    assert!(list_all(&*f.backend, "", 10).await.is_empty());
    match f.backend.delete("x/y/z").await {
        Ok(()) => assert!(!f.tells_missing_deletes),
        Err(e) => assert_eq!(e, f.bucket.object_not_found("x/y/z")),
    }
    if f.keeps_folders {
        return;
    }
    // The name above is free again: keys have no folders.
    f.backend.put("x", PutBody::from_bytes("2")).await.unwrap();
    assert_eq!(read(&*f.backend, "x").await.unwrap(), "2");
}

pub(super) async fn a_missing_object_is_named(f: &Fixture) {
    let expected = f.bucket.object_not_found("no/such");
    assert_eq!(failure(f.backend.stat("no/such").await), expected);
    assert_eq!(failure(f.backend.get("no/such", None, None).await), expected);
}

pub(super) async fn a_missing_bucket_is_named_by_every_call(f: &Fixture) {
    let b = &f.missing;
    let errors = [
        failure(b.head_bucket().await),
        failure(b.stat("x").await),
        failure(b.get("x", None, None).await),
        failure(b.list("", "".into(), 10).await),
        failure(b.delete("x").await),
        failure(b.put("x", PutBody::from_bytes("x")).await),
    ];
    for (call, error) in errors.into_iter().enumerate() {
        assert_eq!(error.code, ErrorCode::RemoteBucketNotFound, "call {call}: {error}");
        assert_eq!(error.message, f.missing_bucket.not_found().message);
        assert!(error.hint.is_some());
    }
}

const UNUSUAL: [&str; 12] = [
    "zażółć/gęślą jaźń.jpg",
    "日本語/ファイル",
    "emoji-\u{1f600}",
    "private-\u{ffee}",
    "two words",
    "plus+sign",
    "per%20cent%",
    "quo\"te'd",
    "a&b<c>d",
    "question?mark=1#hash",
    "semi;colon:at@comma,dollar$",
    "...three/.hidden/~tilde",
];

pub(super) async fn unusual_names_are_kept(f: &Fixture) {
    for name in UNUSUAL {
        f.backend.put(name, PutBody::from_bytes(name)).await.unwrap();
    }
    for name in UNUSUAL {
        assert_eq!(read(&*f.backend, name).await.unwrap(), name);
    }
    let mut expected = UNUSUAL.map(str::to_owned).to_vec();
    expected.sort();
    let listed: Vec<_> = list_all(&*f.backend, "", 5).await.into_iter().map(|e| e.name).collect();
    assert_eq!(listed, expected);
}

/// Names whose order by folders differs from their order by bytes.
const TRICKY: [&str; 14] = [
    "a-b", "a/b", "a.b", "a0", "a/b-c", "a/b.d/e", "a/b0/c", "A", "ab", "a!", "b/a/a/a", "b/a/a-a",
    "b/a-", "ż/a",
];

async fn put_tricky(f: &Fixture) -> Vec<String> {
    let mut names = TRICKY.map(str::to_owned).to_vec();
    for name in &names {
        f.backend.put(name, PutBody::from_bytes(name.clone())).await.unwrap();
    }
    names.sort();
    names
}

pub(super) async fn names_are_listed_in_byte_order(f: &Fixture) {
    let expected = put_tricky(f).await;
    let page = f.backend.list("", "".into(), 1000).await.unwrap();
    assert!(!page.more);
    let listed: Vec<_> = page.entries.iter().map(|e| e.name.clone()).collect();
    assert_eq!(listed, expected);
    for entry in page.entries {
        let stat = f.backend.stat(&entry.name).await.unwrap();
        assert_eq!((entry.size, entry.etag), (stat.size, stat.etag));
        assert_eq!(entry.version, stat.version);
    }
}

pub(super) async fn pages_together_are_the_whole_listing(f: &Fixture) {
    let expected = put_tricky(f).await;
    for limit in [1, 2, 3, expected.len() - 1, expected.len(), expected.len() + 1] {
        let pages = list_all(&*f.backend, "", limit).await;
        let listed: Vec<_> = pages.into_iter().map(|e| e.name).collect();
        assert_eq!(listed, expected, "pages of {limit}");
    }
    let exact = f.backend.list("", "".into(), expected.len()).await.unwrap();
    assert!(!exact.more, "nothing follows a page that holds the last name");
}

pub(super) async fn prefix_and_after_select_by_bytes(f: &Fixture) {
    let names = put_tricky(f).await;
    let prefixes =
        ["", "a", "a/", "a/b", "a/b.d/", "a-", "b/a/a", "b/a", "b/a/", "ż", "zz", "a/b/"];
    let afters =
        ["", "a", "a/", "a/b", "a/b-", "a/b.d/e", "a0", "b/a/a/a", "b/a/", "ab", "~", "ż/a"];
    for prefix in prefixes {
        for after in afters {
            let expected: Vec<_> =
                names.iter().filter(|n| n.starts_with(prefix) && n.as_str() > after).collect();
            let page = f.backend.list(prefix, after.into(), 1000).await.unwrap();
            let listed: Vec<_> = page.entries.iter().map(|e| &e.name).collect();
            assert_eq!(listed, expected, "prefix {prefix:?}, after {after:?}");
        }
    }
}

/// A body of `size` bytes that fails, or ends, after half of them.
fn broken_body(size: u64, error: Option<Error>) -> PutBody {
    PutBody::new(
        size,
        Arc::new(move |range: ByteRange| {
            let half = content((range.len() / 2) as usize, 9);
            stream::iter([Ok(half)]).chain(stream::iter(error.clone().map(Err))).boxed()
        }),
    )
}

pub(super) async fn a_put_whose_source_fails_changes_nothing(f: &Fixture) {
    let old = f.backend.put("kept", PutBody::from_bytes("old")).await.unwrap();
    let torn = Error::new(ErrorCode::ChecksumMismatch, "the source is torn");
    for size in [100_000, f.large as u64] {
        for name in ["kept", "new"] {
            let error = failure(f.backend.put(name, broken_body(size, Some(torn.clone()))).await);
            assert_eq!(error, torn);
            let error = failure(f.backend.put(name, broken_body(size, None)).await);
            assert!(error.message.contains("fewer"), "{error}");
        }
    }
    assert_eq!(f.backend.stat("kept").await.unwrap().version, old.version);
    assert_eq!(read(&*f.backend, "kept").await.unwrap(), "old");
    assert_eq!(failure(f.backend.stat("new").await).code, ErrorCode::ObjectNotFound);
    let names: Vec<_> = list_all(&*f.backend, "", 10).await.into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["kept"]);
}

pub(super) async fn custom_metadata_comes_back(f: &Fixture) {
    for (name, size) in [("small", 10), ("large", f.large)] {
        let mut body = PutBody::from_bytes(content(size, 4));
        body.custom.insert("label".into(), "cat no. 7".into());
        let expected = if f.keeps_custom { body.custom.clone() } else { Default::default() };
        let put = f.backend.put(name, body).await.unwrap();
        assert_eq!(f.backend.stat(name).await.unwrap().custom, expected);
        assert_eq!(put.custom, expected);
    }
}

pub(super) async fn a_content_type_comes_back(f: &Fixture) {
    for (name, size) in [("small", 10), ("large", f.large)] {
        let mut body = PutBody::from_bytes(content(size, 5));
        body.content_type = Some("image/png".into());
        let expected = f.keeps_content_type.then(|| "image/png".to_owned());
        assert_eq!(f.backend.put(name, body).await.unwrap().content_type, expected);
        assert_eq!(f.backend.stat(name).await.unwrap().content_type, expected);
        let got = f.backend.get(name, None, None).await.unwrap();
        assert_eq!(got.meta.content_type, expected);
    }
    f.backend.put("none", PutBody::from_bytes("x")).await.unwrap();
    assert_eq!(f.backend.stat("none").await.unwrap().content_type, None, "nothing was said");
}
