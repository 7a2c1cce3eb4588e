//! Directory markers of the folder backend: keys that end in a slash.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::error::{Error, ErrorCode};
use forebay_core::size::ByteRange;
use futures::stream::{self, StreamExt};

use super::folder::{fixture, root_of};
use super::{Fixture, failure, list_all, read};
use crate::PutBody;

const MD5_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

async fn put(f: &Fixture, name: &str, text: &'static str) {
    f.backend.put(name, PutBody::from_bytes(text)).await.unwrap();
}

async fn is_there(f: &Fixture, name: &str) -> bool {
    match f.backend.stat(name).await {
        Ok(meta) => {
            assert_eq!((meta.size, meta.shown_etag().as_str()), (0, MD5_OF_NOTHING), "{name}");
            assert_eq!(read(&*f.backend, name).await.unwrap(), "");
            true
        }
        Err(e) => {
            assert_eq!(e.code, ErrorCode::ObjectNotFound, "{name}");
            assert_eq!(failure(read(&*f.backend, name).await), e);
            false
        }
    }
}

/// The names of the whole listing, by pages of one row and of many.
async fn names(f: &Fixture, prefix: &str) -> Vec<String> {
    let of = |rows: Vec<super::RemoteEntry>| rows.into_iter().map(|e| e.name).collect::<Vec<_>>();
    let all = of(list_all(&*f.backend, prefix, 100).await);
    assert_eq!(of(list_all(&*f.backend, prefix, 1).await), all, "by pages of one");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no name twice");
    all
}

#[tokio::test]
async fn a_marker_is_a_folder_that_is_listed_once_before_its_content() {
    let f = fixture().await.unwrap();
    let made = f.backend.put("a/b/", PutBody::from_bytes("")).await.unwrap();
    assert!(root_of(&f).join("a/b").is_dir());
    assert!(is_there(&f, "a/b/").await);
    assert!(!is_there(&f, "a/").await, "nobody put it, and it is not empty");
    assert_eq!(names(&f, "").await, ["a/b/"]);
    for name in ["a/b/x", "a/b/c/d", "a/b-"] {
        put(&f, name, "1").await;
    }
    assert_eq!(names(&f, "").await, ["a/b-", "a/b/", "a/b/c/d", "a/b/x"]);
    assert_eq!(names(&f, "a/b/").await, ["a/b/", "a/b/c/d", "a/b/x"]);
    assert_eq!(names(&f, "a/b/x").await, ["a/b/x"]);
    put(&f, "a/b/", "").await;
    let stat = f.backend.stat("a/b/").await.unwrap();
    assert_eq!(stat, made, "neither content nor another put of it changes a marker");
    let listed = list_all(&*f.backend, "a/b/", 1).await.swap_remove(0);
    assert_eq!((listed.size, listed.version, listed.etag), (0, stat.version, stat.etag));
    assert_eq!(listed.mtime_ns, stat.mtime_ns);
}

#[tokio::test]
async fn removing_objects_leaves_markers_that_were_put_and_no_other_folder() {
    let f = fixture().await.unwrap();
    put(&f, "put/here/", "").await;
    put(&f, "put/here/made/x", "1").await;
    put(&f, "made/by/itself/x", "1").await;
    f.backend.delete("put/here/made/x").await.unwrap();
    f.backend.delete("made/by/itself/x").await.unwrap();
    assert_eq!(names(&f, "").await, ["put/here/"]);
    assert!(!root_of(&f).join("made").exists() && !root_of(&f).join("put/here/made").exists());
    f.backend.delete("put/here/").await.unwrap();
    assert!(names(&f, "").await.is_empty() && !is_there(&f, "put/here/").await);
    assert_eq!(fs::read_dir(root_of(&f)).unwrap().count(), 0);
}

#[tokio::test]
async fn deleting_a_marker_leaves_the_content_of_its_folder() {
    let f = fixture().await.unwrap();
    put(&f, "a/b/", "").await;
    put(&f, "a/b/x", "1").await;
    f.backend.delete("a/b/").await.unwrap();
    assert!(!is_there(&f, "a/b/").await);
    assert_eq!(failure(f.backend.delete("a/b/").await).code, ErrorCode::ObjectNotFound);
    assert_eq!(failure(f.backend.delete("a/").await).code, ErrorCode::ObjectNotFound);
    assert_eq!(names(&f, "").await, ["a/b/x"]);
    assert_eq!(read(&*f.backend, "a/b/x").await.unwrap(), "1");
}

#[tokio::test]
async fn an_empty_folder_that_others_made_is_a_marker_until_something_is_in_it() {
    let f = fixture().await.unwrap();
    let root = root_of(&f);
    fs::create_dir_all(root.join("theirs/empty")).unwrap();
    assert_eq!(names(&f, "").await, ["theirs/empty/"]);
    assert!(is_there(&f, "theirs/empty/").await && !is_there(&f, "theirs/").await);
    fs::write(root.join("theirs/empty/x"), "1").unwrap();
    assert_eq!(names(&f, "").await, ["theirs/empty/x"]);
    assert!(!is_there(&f, "theirs/empty/").await);
    fs::remove_file(root.join("theirs/empty/x")).unwrap();
    f.backend.delete("theirs/empty/").await.unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

#[tokio::test]
async fn a_marker_has_no_content_and_no_file_of_its_name() {
    let f = fixture().await.unwrap();
    let error = failure(f.backend.put("a/", PutBody::from_bytes("abc")).await);
    assert_eq!((error.code, error.code.status()), (ErrorCode::InvalidArgument, 400));
    assert!(error.message.contains("has 3 bytes") && error.hint.is_some(), "{error}");
    assert_eq!(fs::read_dir(root_of(&f)).unwrap().count(), 0);
    put(&f, "file", "1").await;
    put(&f, "marker/", "").await;
    for (name, text) in [("file/", ""), ("file/x/", ""), ("marker", "1")] {
        let error = failure(f.backend.put(name, PutBody::from_bytes(text)).await);
        assert_eq!(error.code, ErrorCode::Conflict, "{name}: {error}");
    }
    assert_eq!(names(&f, "").await, ["file", "marker/"]);
    let range = Some(ByteRange { start: 0, end: 1 });
    let error = failure(f.backend.get("marker/", range, None).await);
    assert_eq!(error.code, ErrorCode::RangeNotSatisfiable);
    let error = failure(f.backend.get("marker/", None, Some("another")).await);
    assert_eq!(error.code, ErrorCode::ObjectChanged);
}

#[tokio::test]
async fn a_put_that_fails_leaves_no_folder_behind() {
    let f = fixture().await.unwrap();
    fs::create_dir(root_of(&f).join("theirs")).unwrap();
    let broken = || {
        PutBody::new(
            10,
            Arc::new(|_| stream::iter([Err(Error::internal("the source broke"))]).boxed()),
        )
    };
    for name in ["a/b/c/x", "theirs/d/x", "theirs/x"] {
        assert_eq!(failure(f.backend.put(name, broken()).await).message, "the source broke");
    }
    assert_eq!(names(&f, "").await, ["theirs/"]);
    assert_eq!(fs::read_dir(root_of(&f)).unwrap().count(), 1);
}

/// Deletes remove the folders that become empty at the moment in which puts use them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_into_a_folder_that_deletes_remove_succeed_and_no_marker_is_lost() {
    const ROUNDS: usize = 300;
    let f = Arc::new(fixture().await.unwrap());
    let ended = Arc::new(AtomicBool::new(false));
    let churn = |name: &'static str| {
        let (f, ended) = (f.clone(), ended.clone());
        tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                f.backend.put(name, PutBody::from_bytes("1")).await.unwrap();
                f.backend.delete(name).await.unwrap();
            }
        })
    };
    let others = [churn("a/b/c/x"), churn("a/b/c/y"), churn("a/z")];
    for round in 0..ROUNDS {
        f.backend.put("a/b/c/", PutBody::from_bytes("")).await.unwrap();
        assert!(is_there(&f, "a/b/c/").await, "round {round}");
        f.backend.delete("a/b/c/").await.unwrap();
    }
    put(&f, "a/b/", "").await;
    ended.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(names(&f, "").await, ["a/b/"]);
}
