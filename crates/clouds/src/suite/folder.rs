//! Tests the folder backend: the common guarantees, and cases that only a file system has.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::error::ErrorCode;
use forebay_core::name::{Bucket, Provider};
use futures::StreamExt;

use super::{Fixture, conformance, content, failure, list_all, read};
use crate::PutBody;
use crate::folder::FolderBackend;

pub(super) async fn open(name: &str, root: &Path, allowed: &Path) -> (Bucket, FolderBackend) {
    let bucket = Bucket::new(Provider::Ais, name).unwrap();
    let backend = FolderBackend::open(bucket.clone(), root.into(), &[allowed.into()]).await;
    (bucket, backend.unwrap())
}

pub(super) async fn fixture() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    let (root, gone) = (folder.path().join("root"), folder.path().join("gone"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&gone).unwrap();
    let (bucket, backend) = open("here", &root, folder.path()).await;
    let (missing_bucket, missing) = open("gone", &gone, folder.path()).await;
    fs::remove_dir(&gone).unwrap();
    Some(Fixture {
        bucket,
        backend: Arc::new(backend),
        missing: Arc::new(missing),
        missing_bucket,
        large: 5 << 20,
        tells_missing_deletes: true,
        keeps_custom: false,
        keeps_content_type: false,
        keeps_folders: false,
        tells_times: true,
        _folder: Some(folder),
    })
}

conformance!(fixture);
conformance!(fixture: a_content_type_comes_back);

pub(super) fn root_of(f: &Fixture) -> PathBuf {
    f._folder.as_ref().unwrap().path().join("root")
}

#[tokio::test]
async fn roots_outside_the_allowed_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = folder.path().join("allowed");
    let outside = folder.path().join("outside");
    fs::create_dir_all(allowed.join("in")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(allowed.join("file"), "").unwrap();
    symlink(&outside, allowed.join("link")).unwrap();
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let roots = std::slice::from_ref(&allowed);
    for (root, why) in [
        (outside.clone(), "not under an allowed root"),
        (allowed.join("link"), "not under an allowed root"),
        (allowed.join("in/../../outside"), "not under an allowed root"),
        (allowed.join("none"), "cannot be used"),
        (allowed.join("file"), "not a folder"),
        ("relative".into(), "not an absolute path"),
    ] {
        let error = failure(FolderBackend::open(bucket.clone(), root, roots).await);
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.message.contains(why), "{error}");
    }
    for root in [allowed.join("in"), allowed.clone()] {
        FolderBackend::open(bucket.clone(), root, roots).await.map(drop).unwrap();
    }
    let error = failure(FolderBackend::open(bucket, allowed, &[]).await);
    assert!(error.message.contains("allowed: none") && error.hint.is_some());
}

#[tokio::test]
async fn names_that_are_no_clean_path_do_not_exist_and_cannot_be_written() {
    let f = fixture().await.unwrap();
    let secret = root_of(&f).parent().unwrap().join("secret");
    fs::write(&secret, "secret").unwrap();
    let absolute = secret.to_str().unwrap();
    for name in [
        "../secret",
        "a/../../secret",
        absolute,
        "..",
        ".",
        "a//b",
        "/",
        "a//",
        "../",
        "a/../",
        "a/./b",
        "nul\0",
        ".forebay-tmp-1",
        "a/.forebay-tmp-1",
        "a/.forebay-tmp-1/",
        "a/.forebay-marker",
        ".forebay-marker/",
    ] {
        assert_eq!(failure(f.backend.stat(name).await).code, ErrorCode::ObjectNotFound, "{name}");
        let error = failure(f.backend.get(name, None, None).await);
        assert_eq!(error.code, ErrorCode::ObjectNotFound, "{name}");
        assert_eq!(failure(f.backend.delete(name).await).code, ErrorCode::ObjectNotFound, "{name}");
        let error = failure(f.backend.put(name, PutBody::from_bytes("x")).await);
        assert_eq!(error.code, ErrorCode::InvalidName, "{name}");
    }
    for long in ["x".repeat(300), format!("a/b/{}", "x".repeat(300))] {
        for (name, body) in [(long.clone(), "x"), (format!("{long}/"), "")] {
            assert_eq!(failure(f.backend.stat(&name).await).code, ErrorCode::ObjectNotFound);
            let error = failure(f.backend.put(&name, PutBody::from_bytes(body)).await);
            assert_eq!(error.code, ErrorCode::InvalidName, "{name}: {error}");
        }
    }
    for prefix in ["../", "//", "./", "a/../", "/", ".."] {
        assert!(list_all(&*f.backend, prefix, 10).await.is_empty(), "{prefix}");
    }
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_eq!(fs::read_dir(root_of(&f)).unwrap().count(), 0, "nothing was made on the way");
}

#[tokio::test]
async fn links_do_not_lead_out_of_the_root() {
    let f = fixture().await.unwrap();
    let root = root_of(&f);
    let outside = root.parent().unwrap().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::write(root.join("real"), "inside").unwrap();
    symlink(outside.join("file"), root.join("leak")).unwrap();
    symlink(&outside, root.join("dir")).unwrap();
    symlink(&root, root.join("loop")).unwrap();
    symlink("real", root.join("alias")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    for name in ["leak", "dir/file", "loop/real", "dangling", "dir", "loop", "dir/", "dir/deep/"] {
        assert_eq!(failure(f.backend.stat(name).await).code, ErrorCode::ObjectNotFound, "{name}");
        let error = failure(f.backend.get(name, None, None).await);
        assert_eq!(error.code, ErrorCode::ObjectNotFound, "{name}");
    }
    for name in ["dir/new", "dir/deep/new", "dir/made/new", "loop/new"] {
        let error = failure(f.backend.put(name, PutBody::from_bytes("x")).await);
        assert_eq!(error.code, ErrorCode::Conflict, "{name}");
    }
    for name in ["dir/", "dir/deep/", "dir/made/", "loop/new/", "alias/"] {
        let error = failure(f.backend.put(name, PutBody::from_bytes("")).await);
        assert_eq!(error.code, ErrorCode::Conflict, "{name}");
        assert_eq!(failure(f.backend.delete(name).await).code, ErrorCode::ObjectNotFound, "{name}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "nothing was written outside");
    assert_eq!(read(&*f.backend, "alias").await.unwrap(), "inside");
    let names: Vec<_> = list_all(&*f.backend, "", 2).await.into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["alias", "real"]);
    assert!(list_all(&*f.backend, "dir/", 2).await.is_empty());
    // A put replaces the link, not what it points to.
    f.backend.put("leak", PutBody::from_bytes("mine")).await.unwrap();
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"secret");
    assert_eq!(read(&*f.backend, "leak").await.unwrap(), "mine");
}

#[tokio::test]
async fn a_name_cannot_be_both_file_and_folder() {
    let f = fixture().await.unwrap();
    f.backend.put("a/b", PutBody::from_bytes("1")).await.unwrap();
    for name in ["a", "a/b/c", "a/b/c/d"] {
        let error = failure(f.backend.put(name, PutBody::from_bytes("2")).await);
        assert_eq!(error.code, ErrorCode::Conflict, "{name}: {error}");
    }
    for name in ["a", "a/b/c"] {
        assert_eq!(failure(f.backend.stat(name).await).code, ErrorCode::ObjectNotFound);
        assert_eq!(failure(f.backend.delete(name).await).code, ErrorCode::ObjectNotFound);
    }
    assert_eq!(read(&*f.backend, "a/b").await.unwrap(), "1");
}

#[tokio::test]
async fn a_file_changed_while_it_is_read_is_an_error_not_a_mix() {
    let f = fixture().await.unwrap();
    let path = root_of(&f).join("big");
    fs::write(&path, content(3 << 20, 1)).unwrap();
    for change in [content(3 << 20, 2), content(1 << 20, 3)] {
        let mut stream = f.backend.get("big", None, None).await.unwrap().stream;
        stream.next().await.unwrap().unwrap();
        fs::write(&path, change).unwrap();
        let rest: Vec<_> = stream.collect().await;
        let error = rest.into_iter().find_map(Result::err).expect("the change is noticed");
        assert_eq!(error.code, ErrorCode::ObjectChanged);
        fs::write(&path, content(3 << 20, 1)).unwrap();
    }
}

#[tokio::test]
async fn files_being_written_are_not_listed_and_go_when_the_put_is_dropped() {
    let f = fixture().await.unwrap();
    let never_ends = PutBody::new(10, Arc::new(|_| futures::stream::pending().boxed()));
    let mut put = f.backend.put("x", never_ends);
    let root = root_of(&f);
    let count = || fs::read_dir(&root).unwrap().count();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while count() == 0 {
        assert!(std::time::Instant::now() < deadline);
        let _ = futures::poll!(&mut put);
        tokio::task::yield_now().await;
    }
    assert!(list_all(&*f.backend, "", 10).await.is_empty());
    drop(put);
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn a_kept_listing_of_a_big_folder_follows_its_changes() {
    let f = fixture().await.unwrap();
    let root = root_of(&f);
    fs::create_dir(root.join("d")).unwrap();
    for n in 0..2_500 {
        fs::write(root.join(format!("d/{n:05}")), "").unwrap();
    }
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::open(root.join("d")).unwrap().set_modified(past).unwrap();
    assert_eq!(list_all(&*f.backend, "", 700).await.len(), 2_500);
    fs::write(root.join("d/new"), "").unwrap();
    fs::remove_file(root.join("d/00000")).unwrap();
    fs::remove_file(root.join("d/00001")).unwrap();
    let listed = list_all(&*f.backend, "d/", 700).await;
    assert_eq!(listed.len(), 2_499);
    assert_eq!(listed.last().unwrap().name, "d/new");
}
