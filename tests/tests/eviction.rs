//! Disks of a fixed budget: cached copies are evicted, objects that exist only here never are.

use std::path::Path;

use forebay_core::ErrorCode;
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Cluster, Options};
use futures::StreamExt;

const BUDGET: u64 = 8 << 20;

fn small(root: Option<&Path>) -> Cluster {
    Cluster::start(Options {
        size: Some("8MiB"),
        folder_roots: root.map(Path::to_owned).into_iter().collect(),
        ..Options::default()
    })
}

async fn check_usage(cluster: &Cluster, when: &str) -> u64 {
    let info = cluster.client().cluster_info().await.unwrap();
    let mut all = 0;
    for node in info.nodes.iter().filter(|n| n.usage.budget > 0) {
        let usage = &node.usage;
        assert_eq!(usage.budget, BUDGET, "{}", node.id);
        assert!(usage.bytes <= BUDGET, "{when}: {} uses {} bytes", node.id, usage.bytes);
        all += usage.bytes;
    }
    all
}

/// Bytes that object data takes on the disks, as the file system reports.
fn bytes_on_disk(cluster: &Cluster) -> u64 {
    fn walk(dir: &Path) -> u64 {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.metadata() {
                Ok(m) if m.is_dir() => walk(&entry.path()),
                // The index is not object data; its journal is preallocated.
                Ok(m) if m.len() < 16 << 20 => m.len(),
                _ => 0,
            })
            .sum()
    }
    cluster.targets.iter().map(|t| walk(&cluster.dir().join(&t.id).join("disk1"))).sum()
}

#[tokio::test]
async fn a_bucket_larger_than_all_disks_is_read_twice_and_every_byte_is_right() {
    let root = tempfile::tempdir().unwrap();
    let cluster = small(Some(root.path()));
    let client = cluster.client();
    let bucket = native("large");
    let backend = folder_backend(root.path());
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    // 40 MiB through 24 MiB of disks.
    let (names, size) = (names(160), 256 << 10);
    fill_folder(root.path(), &names, size);
    for epoch in 1..=2 {
        for (n, name) in names.iter().enumerate() {
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, size));
            if n % 20 == 19 {
                check_usage(&cluster, &format!("epoch {epoch}, object {n}")).await;
                let disk = bytes_on_disk(&cluster);
                assert!(disk <= 3 * BUDGET + (4 << 20), "{disk} bytes lie on the disks");
            }
        }
    }
    // Many readers at once, each at another position.
    let read = |n: usize| {
        let (client, bucket, names) = (client.clone(), bucket.clone(), &names);
        async move {
            let name = &names[n * 61 % names.len()];
            let got = client.get_bytes(&bucket, name, None).await.unwrap();
            assert_same(name, &got, &content(name, size));
        }
    };
    futures::stream::iter(0..names.len()).map(read).buffer_unordered(12).collect::<Vec<_>>().await;
    check_usage(&cluster, "after many readers at once").await;
    // Heartbeats report the usage: repeats the request until they have.
    let used = cluster.client().cluster_info().await.unwrap();
    let used: u64 = used.nodes.iter().map(|n| n.usage.bytes).sum();
    assert!(used > BUDGET, "the disks are in use: {used} bytes");
}

#[tokio::test]
async fn an_object_larger_than_the_budget_is_still_read_right() {
    let root = tempfile::tempdir().unwrap();
    let cluster = small(Some(root.path()));
    let client = cluster.client();
    let bucket = native("huge");
    let backend = folder_backend(root.path());
    client.create_bucket(&bucket, Some(backend)).await.unwrap();
    std::fs::write(root.path().join("huge"), content("huge", 20 << 20)).unwrap();
    match client.get_bytes(&bucket, "huge", None).await {
        Ok(got) => assert_same("huge", &got, &content("huge", 20 << 20)),
        // A refused read is accepted; half of an object is not.
        Err(e) => assert_eq!(e.code(), ErrorCode::OutOfSpace, "{e}"),
    }
    std::fs::write(root.path().join("small"), b"small").unwrap();
    assert_eq!(client.get_bytes(&bucket, "small", None).await.unwrap(), "small");
    check_usage(&cluster, "after the huge one").await;
}

#[tokio::test]
async fn native_objects_are_never_evicted_and_a_full_disk_is_507() {
    let cluster = small(None);
    let client = cluster.client();
    let bucket = native("owned");
    client.create_bucket(&bucket, None).await.unwrap();
    let mut stored = Vec::new();
    let refused = loop {
        let name = format!("object-{:03}", stored.len());
        match client.put(&bucket, &name, content(&name, 1 << 20), None).await {
            Ok(_) => stored.push(name),
            Err(e) => break e,
        }
        assert!(stored.len() <= 24, "more than the budget was taken");
    };
    assert_eq!(refused.code(), ErrorCode::OutOfSpace, "{refused}");
    assert!(stored.len() >= 8, "{} MiB fit into 24 MiB of disks", stored.len());
    for name in &stored {
        assert_same(
            name,
            &client.get_bytes(&bucket, name, None).await.unwrap(),
            &content(name, 1 << 20),
        );
    }
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), stored.len());
    // An operator can free space by evicting objects.
    for name in &stored {
        client.delete(&bucket, name).await.unwrap();
    }
    client.put(&bucket, "object-000", content("again", 1 << 20), None).await.unwrap();
}
