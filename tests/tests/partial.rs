//! Large objects of which only ranges are read: only these come from the backend, and fetched
//! ranges stay cached.

use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_core::job::{JobKind, Selection};
use forebay_core::size::RangeSpec;
use forebay_tests::cluster::{cloud, folder_backend, native, run_job};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, Minio, Options, http};

const MIB: u64 = 1 << 20;

/// A sparse file of 10 GiB with content at `starts` only.
fn huge_file(path: &Path, starts: &[u64]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(10 << 30).unwrap();
    for start in starts {
        file.write_all_at(&content(&start.to_string(), 4096), *start).unwrap();
    }
}

/// Positions all over the object, at no boundary of blocks.
fn starts() -> Vec<u64> {
    (0..100u64).map(|n| n * 7_919_999_983 % ((10 << 30) - MIB)).collect()
}

#[tokio::test]
async fn a_hundred_ranges_of_a_cold_10_gib_object_cost_at_most_twice_their_bytes() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 1, folder_roots, ..Options::default() });
    let bucket = native("huge");
    cluster.client().create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let starts = starts();
    huge_file(&root.path().join("huge.bin"), &starts);
    let from_backend =
        || cluster.metric("forebay_backend_bytes_total", &["provider=\"folder\""]) as u64;
    let url = cluster.object_url("huge", "huge.bin");

    let read_all = || {
        for start in &starts {
            let range = format!("bytes={start}-{}", start + MIB - 1);
            let answer = http::request("GET", &url).header("range", &range).follow();
            assert_eq!(answer.status, 206, "{}", answer.text());
            let says = format!("bytes {start}-{}/{}", start + MIB - 1, 10u64 << 30);
            assert_eq!(answer.header("content-range"), Some(says.as_str()));
            assert_eq!(answer.body.len() as u64, MIB);
            let known = content(&start.to_string(), 4096);
            assert_same("a range", &answer.body[..4096], &known);
        }
    };
    read_all();
    let asked = 100 * MIB;
    let cost = from_backend();
    println!("{cost} bytes came from the backend for {asked} bytes asked");
    assert!((asked..=2 * asked).contains(&cost), "{cost} bytes for {asked}");
    read_all();
    assert_eq!(from_backend(), cost, "what came is kept");

    let target = cluster.targets[0].id.clone();
    cluster.kill9(&target);
    cluster.restart(&target);
    read_all();
    assert_eq!(from_backend(), 0, "the counter began again, and nothing was fetched again");
}

#[tokio::test]
async fn a_range_of_a_large_cloud_object_does_not_wait_for_the_whole() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { targets: 1, env: minio.env(), ..Options::default() });
    minio.create_bucket("large").await;
    let bucket = cloud("large");
    let bytes = content("large", 48 << 20);
    minio.put("large", "o", bytes.clone()).await;
    let client = cluster.client();
    let from_backend =
        || cluster.metric("forebay_backend_bytes_total", &["provider=\"aws\""]) as usize;
    for start in [0usize, 5_000_001, 40 << 20] {
        let end = start + 1_000_000;
        let range = RangeSpec::From(start as u64, Some(end as u64 - 1));
        let got = client.get_bytes(&bucket, "o", Some(range)).await.unwrap();
        assert_same("a range", &got, &bytes[start..end]);
    }
    assert!(from_backend() <= 6_000_000, "{} bytes", from_backend());
    assert!(!client.head(&bucket, "o").await.unwrap().present);

    // The object is replaced: its old parts are never joined with new ones.
    let newer = content("newer", 48 << 20);
    minio.put("large", "o", newer.clone()).await;
    let range = RangeSpec::From(4_000_000, Some(9_999_999));
    let got = client.get_bytes(&bucket, "o", Some(range)).await.unwrap();
    assert_same("after a change", &got, &newer[4_000_000..10_000_000]);

    let before = from_backend();
    assert_same("the whole", &client.get_bytes(&bucket, "o", None).await.unwrap(), &newer);
    let rest = from_backend() - before;
    assert!(rest <= (48 << 20) - 5_000_000, "{rest} bytes: what was here is not fetched again");
    assert!(client.head(&bucket, "o").await.unwrap().present);
}

/// Replaces this file by one of 20 MiB, with these four bytes at 18 MiB.
fn marked_file(path: &Path, mark: &[u8; 4]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = path.with_extension("new");
    let file = std::fs::File::create(&new).unwrap();
    file.set_len(20 * MIB).unwrap();
    file.write_all_at(mark, 18 * MIB).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn every_way_to_evict_covers_what_is_kept_in_part() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 2, folder_roots, ..Options::default() });
    let bucket = native("parts");
    cluster.client().create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let names = ["train/a-1", "train/a-2", "train/b", "c"];
    let read = |name: &str| {
        let range = format!("bytes={}-{}", 18 * MIB, 18 * MIB + 3);
        let url = cluster.object_url("parts", name);
        let answer = http::request("GET", &url).header("range", &range).follow();
        assert_eq!(answer.status, 206, "{name}: {}", answer.text());
        answer.body
    };
    let cached = || {
        let (listed, code) = cluster.cli(&["ls", "ais://parts", "--cached"]);
        assert_eq!(code, 0, "{listed}");
        assert_eq!(listed.matches("in part").count(), listed.matches("20MiB").count(), "{listed}");
        names.into_iter().filter(|name| listed.contains(name)).collect::<Vec<_>>()
    };
    let ways = [
        (Selection::Prefix(String::new()), vec![]),
        (Selection::Prefix("train/".into()), vec!["c"]),
        (Selection::Template("train/a-{1..2}".into()), vec!["train/b", "c"]),
        (Selection::Names(vec!["c".into()]), vec!["train/a-1", "train/a-2", "train/b"]),
    ];
    for (selection, stay) in ways {
        for name in names {
            marked_file(&root.path().join(name), b"old ");
        }
        run_job(&cluster, JobKind::Evict, &bucket, Selection::Prefix(String::new())).await;
        names.iter().for_each(|name| assert_eq!(read(name), b"old ", "{name}"));
        assert_eq!(cached(), names, "{selection:?}");
        for name in names {
            marked_file(&root.path().join(name), b"new ");
        }
        let evicted = run_job(&cluster, JobKind::Evict, &bucket, selection.clone()).await;
        assert_eq!(evicted as usize, names.len() - stay.len(), "{selection:?}");
        assert_eq!(cached(), stay, "{selection:?}");
        for name in names {
            let expected = if stay.contains(&name) { b"old " } else { b"new " };
            assert_eq!(read(name), expected, "{selection:?}: {name}");
        }
    }
}
