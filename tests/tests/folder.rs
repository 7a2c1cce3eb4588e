//! Buckets over a folder: read once, kept, written through, and only where it is allowed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::job::{JobKind, Selection};
use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{folder_backend, native, run_job};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Cluster, Options, Shared};
use tempfile::TempDir;

struct OnFolder {
    cluster: Cluster,
    root: TempDir,
    outside: TempDir,
}

static ON_FOLDER: Shared<OnFolder> = Shared::new();

fn on_folder() -> Arc<OnFolder> {
    ON_FOLDER.get(OnFolder::start)
}

impl OnFolder {
    fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let folder_roots = vec![root.path().to_owned()];
        let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
        Self { cluster, root, outside }
    }

    /// A bucket over a new folder under the allowed root.
    async fn bucket(&self, name: &str) -> (Bucket, PathBuf) {
        let root = self.root.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let bucket = native(name);
        let backend = Some(folder_backend(&root));
        self.cluster.client().create_bucket(&bucket, backend).await.unwrap();
        (bucket, root)
    }
}

#[tokio::test]
async fn a_folder_bucket_is_read_once_and_written_through() {
    // A cluster of its own, as its counters are one for all buckets.
    let on = OnFolder::start();
    let (bucket, root) = on.bucket("folder").await;
    let client = on.cluster.client();
    let names = names(30);
    fill_folder(&root, &names, 20_000);
    let backend_reads = || {
        on.cluster.metric("forebay_backend_requests_total", &["provider=\"folder\"", "op=\"get\""])
    };

    let listed = client.list_all(&bucket, "").await.unwrap();
    let mut want: Vec<_> = names.iter().map(|n| (n.clone(), 20_000)).collect();
    want.sort();
    assert_eq!(listed, want);
    let head = client.head(&bucket, &names[0]).await.unwrap();
    assert_eq!((head.size, head.present), (20_000, false));
    for _ in 0..2 {
        for name in &names {
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, 20_000));
        }
    }
    assert_eq!(backend_reads(), 30.0, "each file was read once");

    client.put(&bucket, "new/größe.bin", "hello", None).await.unwrap();
    assert_eq!(std::fs::read(root.join("new/größe.bin")).unwrap(), b"hello");
    client.put(&bucket, "new/größe.bin", "hello again", None).await.unwrap();
    assert_eq!(std::fs::read(root.join("new/größe.bin")).unwrap(), b"hello again");
    client.delete(&bucket, "new/größe.bin").await.unwrap();
    assert!(!root.join("new/größe.bin").exists());
    assert_eq!(client.list_all(&bucket, "new/").await.unwrap(), []);

    // Destroying the bucket drops cached copies and leaves the files.
    client.destroy_bucket(&bucket).await.unwrap();
    assert_eq!(std::fs::read(root.join(&names[0])).unwrap(), content(&names[0], 20_000));
}

#[tokio::test]
async fn a_file_that_changed_is_seen_after_an_eviction() {
    let on = on_folder();
    let (bucket, root) = on.bucket("changing").await;
    let client = on.cluster.client();
    std::fs::write(root.join("x"), b"first").unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "first");
    std::fs::write(root.join("x"), b"second").unwrap();
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "first", "fresh for minutes");
    let selection = Selection::Names(vec!["x".into()]);
    assert_eq!(run_job(&on.cluster, JobKind::Evict, &bucket, selection).await, 1);
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "second");
}

#[tokio::test]
async fn the_command_line_warns_that_copies_of_a_bucket_with_a_backend_have_no_effect() {
    let on = on_folder();
    let (bucket, _) = on.bucket("one-copy").await;
    let set = |bucket: &str| on.cluster.cli(&["bucket", "set", bucket, "copies=2"]);
    let (text, code) = set(&bucket.to_string());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("copies has no effect: ais://one-copy has a backend"), "{text}");
    on.cluster.client().create_bucket(&native("some-copies"), None).await.unwrap();
    let (text, _) = set("ais://some-copies");
    assert!(!text.contains("no effect"), "{text}");
}

#[tokio::test]
async fn a_folder_outside_the_allowed_roots_is_refused() {
    let on = on_folder();
    let client = on.cluster.client();
    std::fs::write(on.outside.path().join("private"), b"private").unwrap();
    let inside = on.root.path();
    let by_dots = inside.join("..").join(on.outside.path().file_name().unwrap());
    let link = inside.join("link-out");
    std::os::unix::fs::symlink(on.outside.path(), &link).unwrap();
    for root in [on.outside.path(), Path::new("/"), by_dots.as_path(), link.as_path()] {
        let bucket = native("outside");
        let refused = client.create_bucket(&bucket, Some(folder_backend(root))).await.unwrap_err();
        let code = refused.code();
        assert!(
            matches!(code, ErrorCode::AccessDenied | ErrorCode::InvalidArgument),
            "{}: {code:?} {refused}",
            root.display()
        );
        let said = format!("{} {}", refused.message(), refused.hint().unwrap_or_default());
        assert!(said.contains("folder-root") || said.contains("folder.roots"), "{said}");
        let none = client.head_bucket(&bucket).await.unwrap_err();
        assert_eq!(none.code(), ErrorCode::BucketNotFound, "{none}");
    }
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_refused() {
    let on = on_folder();
    let missing = on.root.path().join("missing");
    let refused =
        on.cluster.client().create_bucket(&native("missing"), Some(folder_backend(&missing))).await;
    let refused = refused.unwrap_err();
    assert!(refused.code().status() < 500, "{refused}");
    assert!(refused.message().contains("missing"), "{refused}");
}
