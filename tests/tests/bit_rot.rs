//! Disks that turn bits: no reader ever gets a wrong byte, and what a backend has is read as if
//! nothing had happened.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::job::{JobKind, JobState, Selection};
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, ErrorCode, ObjectName};
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, Options, http, wait};

const SIZES: [usize; 6] = [300, 5_000, 70_000, 200_000, 1_500_000, 4_000_000];
const MEMBERS: [(&str, usize); 3] = [("a.bin", 700), ("b.bin", 1_300_000), ("c.bin", 90_000)];

/// The ways to read an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Whole,
    Range,
    Redirected,
    Batch,
    V1Batch,
}

const WAYS: [Way; 5] = [Way::Whole, Way::Range, Way::Redirected, Way::Batch, Way::V1Batch];

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Files of a disk that hold objects, in any layout: all except those in the disk's own folder.
fn data_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with(".forebay") {
            data_files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Flips bits in every file of every target's disk, a few in each. Returns how many.
fn rot(cluster: &Cluster, seed: u64) -> u64 {
    let (mut numbers, mut flipped) = (Numbers(seed), 0);
    for target in &cluster.targets {
        let mut files = Vec::new();
        data_files(&cluster.dir().join(&target.id).join("disk1"), &mut files);
        for path in files {
            let len = std::fs::metadata(&path).unwrap().len();
            if len == 0 {
                continue;
            }
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            for _ in 0..=len / 300_000 {
                let (at, mut byte) = (numbers.below(len), [0]);
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 << numbers.below(8))], at).unwrap();
                flipped += 1;
            }
        }
    }
    flipped
}

fn tar(seed: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, size) in MEMBERS {
        let mut header = tar::Header::new_ustar();
        header.set_size(size as u64);
        header.set_mode(0o644);
        let data = content(&format!("{seed}/{name}"), size);
        builder.append_data(&mut header, name, data.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Objects by name and size: for each way some that are read first by it.
fn objects() -> Vec<(Way, String, usize)> {
    let named = |way: Way| {
        SIZES.iter().enumerate().map(move |(i, size)| (way, format!("{way:?}/{i}"), *size))
    };
    WAYS.into_iter().flat_map(named).collect()
}

/// Reads objects by one way; returns the result of each.
async fn read(
    cluster: &Cluster,
    bucket: &Bucket,
    way: Way,
    names: &[(String, usize)],
) -> Vec<Result<Vec<u8>, ErrorCode>> {
    let client = cluster.client_with_deadline(Duration::from_secs(20));
    let mut all = Vec::new();
    match way {
        Way::Batch => {
            let entries =
                names.iter().map(|(n, _)| BatchEntry::whole(0, ObjectName::new(n).unwrap()));
            let request = BatchRequest {
                buckets: vec![bucket.clone()],
                entries: entries.collect(),
                ordered: true,
            };
            let got = client.batch_all(&request).await.unwrap();
            all.extend(got.into_iter().map(|one| one.map(|b| b.to_vec()).map_err(|e| e.code)));
        }
        // One at a time: an entry that fails in the middle ends the whole v1 batch.
        Way::V1Batch => all.extend(names.iter().map(|(name, _)| moss(cluster, bucket, name))),
        Way::Redirected => {
            let get = |name: &str| {
                let url = cluster.object_url(&bucket.name, name);
                let got = http::request("GET", &format!("{url}?provider=ais"));
                let url = got.send().header("location").unwrap().to_owned();
                match http::request("GET", &url).try_send() {
                    Ok(got) if got.status == 200 => Ok(got.body),
                    Ok(got) => Err(ErrorCode::from_status(got.status)),
                    // Bytes were sent before the damage was found; the client sees that the
                    // response is cut.
                    Err(_) => Err(ErrorCode::Internal),
                }
            };
            all.extend(names.iter().map(|(name, _)| get(name)));
        }
        Way::Whole | Way::Range => {
            for (name, size) in names {
                let range = format!("bytes={}-{}", size / 3, size - 2);
                let range = (way == Way::Range).then(|| RangeSpec::parse(&range).unwrap().unwrap());
                let got = client.get_bytes(bucket, name, range).await;
                all.push(got.map(|bytes| bytes.to_vec()).map_err(|e| e.code()));
            }
        }
    }
    assert_eq!(all.len(), names.len(), "{way:?}");
    all
}

/// One object by a v1 batch.
fn moss(cluster: &Cluster, bucket: &Bucket, name: &str) -> Result<Vec<u8>, ErrorCode> {
    let body = serde_json::json!({
        "in": [{"objname": name}], "mime": ".tar", "coer": false, "onob": true, "strm": true
    });
    let url = format!("{}/v1/ml/moss/{}?provider=ais", cluster.endpoint, bucket.name);
    let redirect = http::request("GET", &url).json(&body).send();
    let url = redirect.header("location").unwrap().to_owned();
    let answer = http::request("GET", &url).json(&body).try_send();
    let answer = answer.map_err(|_| ErrorCode::Internal)?;
    if answer.status != 200 {
        return Err(ErrorCode::from_status(answer.status));
    }
    let mut archive = tar::Archive::new(answer.body.as_slice());
    let mut member = archive.entries().unwrap().next().expect("an entry").unwrap();
    let mut bytes = Vec::new();
    member.read_to_end(&mut bytes).map_err(|_| ErrorCode::Internal)?;
    Ok(bytes)
}

fn wanted(way: Way, name: &str, size: usize) -> Vec<u8> {
    let all = content(name, size);
    if way == Way::Range { all[size / 3..size - 1].to_vec() } else { all }
}

/// Reads every object first by its own way, then by all other ways.
async fn read_all(cluster: &Cluster, bucket: &Bucket, is_whole: bool) -> u64 {
    let (objects, mut failures) = (objects(), 0);
    for turn in 0..WAYS.len() {
        for (i, way) in WAYS.into_iter().enumerate() {
            let own = WAYS[(i + turn) % WAYS.len()];
            let names: Vec<_> = objects
                .iter()
                .filter(|(of, _, _)| *of == own)
                .map(|(_, name, size)| (name.clone(), *size))
                .collect();
            let got = read(cluster, bucket, way, &names).await;
            for ((name, size), got) in names.iter().zip(got) {
                let what = format!("{bucket} {name}, {size} bytes, by {way:?}");
                match got {
                    Ok(got) => assert_same(&what, &got, &wanted(way, name, *size)),
                    Err(code) => {
                        assert!(!is_whole, "{what}: {code:?}");
                        // An object that is there and damaged is not one that does not exist.
                        assert_eq!(code.status(), 500, "{what}: {code:?}");
                        failures += 1;
                    }
                }
            }
        }
    }
    failures
}

async fn read_members(cluster: &Cluster, bucket: &Bucket) {
    let client = cluster.client();
    for shard in ["s/0.tar", "s/1.tar"] {
        for (name, size) in MEMBERS {
            let got = client.get_member(bucket, shard, name, None, None).await.unwrap();
            let got = got.bytes().await.unwrap();
            assert_same(name, &got, &content(&format!("{shard}/{name}"), size));
        }
    }
}

pub(crate) fn counted(cluster: &Cluster, name: &str, path: &str) -> f64 {
    cluster.metric(&format!("forebay_{name}_total"), &[&format!("path=\"{path}\"")])
}

/// Has all of a bucket compared with its checksums: how that ended, objects and errors.
pub(crate) async fn scrubbed(cluster: &Cluster, bucket: &Bucket) -> (JobState, u64, u64) {
    let client = cluster.client();
    let all = Selection::Prefix(String::new());
    let id = client.start_job(JobKind::Scrub, bucket, &all).await.unwrap();
    wait::until_async("the scrub is over", Duration::from_secs(60), || {
        let (client, id) = (client.clone(), id.clone());
        async move { client.job(&id).await.unwrap().is_over() }
    })
    .await;
    let status = client.job(&id).await.unwrap();
    (status.state, status.objects, status.errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_never_reach_a_client_and_a_backends_objects_are_healed() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let mut cluster = Cluster::start(Options { folder_roots, targets: 2, ..Options::default() });
    let (files, own) = (native("files"), native("own"));
    let client = cluster.client();
    client.create_bucket(&files, Some(folder_backend(root.path()))).await.unwrap();
    client.create_bucket(&own, None).await.unwrap();
    for (way, name, size) in objects() {
        std::fs::create_dir_all(root.path().join(format!("{way:?}"))).unwrap();
        std::fs::write(root.path().join(&name), content(&name, size)).unwrap();
        client.put(&own, &name, content(&name, size), None).await.unwrap();
    }
    std::fs::create_dir(root.path().join("s")).unwrap();
    for shard in ["s/0.tar", "s/1.tar"] {
        std::fs::write(root.path().join(shard), tar(shard)).unwrap();
    }
    drop(client);
    let (count, shards) = (objects().len() as u64, 2);
    for round in 1..=2 {
        // Everything lies on the disks, whole.
        let prefetched = cluster.client();
        let all = Selection::Prefix(String::new());
        let id = prefetched.start_job(JobKind::Prefetch, &files, &all).await.unwrap();
        wait::until_async("all is fetched", Duration::from_secs(60), || {
            let (client, id) = (prefetched.clone(), id.clone());
            async move { client.job(&id).await.unwrap().is_over() }
        })
        .await;
        drop(prefetched);
        cluster.stop();
        let flipped = rot(&cluster, round);
        assert!(flipped > count, "{flipped}");
        cluster = cluster.start_again(None);
        if round == 1 {
            read_members(&cluster, &files).await;
            assert_eq!(read_all(&cluster, &files, true).await, 0);
            assert!(counted(&cluster, "damaged", "read") >= 10.0);
            assert!(counted(&cluster, "healed", "read") >= 10.0);
            assert_eq!(counted(&cluster, "lost", "read"), 0.0);
            assert!(counted(&cluster, "checked_bytes", "read") > 1e6);
            let failures = read_all(&cluster, &own, false).await;
            assert!(failures > 0, "bits were flipped in native objects, too");
            assert!(counted(&cluster, "lost", "read") > 0.0);
        } else {
            // Found before a client reads them.
            let (state, checked, errors) = scrubbed(&cluster, &files).await;
            assert_eq!((state, checked, errors), (JobState::Done, count + shards, 0));
            assert!(counted(&cluster, "healed", "scrub") >= 10.0);
            let (damaged, gets) = (counted(&cluster, "damaged", "read"), "forebay_get_bytes_total");
            assert_eq!(read_all(&cluster, &files, true).await, 0);
            read_members(&cluster, &files).await;
            assert_eq!(counted(&cluster, "damaged", "read"), damaged, "all was found before");
            assert!(cluster.metric(gets, &["result=\"miss\""]) > 0.0);
            let (state, _, errors) = scrubbed(&cluster, &own).await;
            assert_eq!(state, JobState::Failed);
            assert!(errors > 0 && errors <= count, "{errors}");
        }
    }
}

/// Flips a bit of the first of these bytes on each disk that has them.
fn damage(cluster: &Cluster, bytes: &[u8]) {
    let found = cluster.targets.iter().any(|target| damage_at(cluster, &target.id, bytes));
    assert!(found, "they are on no disk");
}

/// The same on one target's disk; false: they are not on it.
pub(crate) fn damage_at(cluster: &Cluster, target: &str, bytes: &[u8]) -> bool {
    let mut files = Vec::new();
    data_files(&cluster.dir().join(target).join("disk1"), &mut files);
    files.into_iter().any(|path| {
        let content = std::fs::read(&path).unwrap();
        let found = content.windows(bytes.len()).position(|window| window == bytes);
        if let Some(at) = found {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[content[at] ^ 1], at as u64).unwrap();
        }
        found.is_some()
    })
}

#[tokio::test]
async fn an_object_replaced_at_its_backend_is_never_mixed_with_a_damaged_copy() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, targets: 1, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("files"));
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let (old, new) = (content("old", 4_000_000), content("new", 4_000_000));
    for (name, damaged) in [("first", 10), ("middle", 2_000_000)] {
        std::fs::write(root.path().join(name), &old).unwrap();
        assert_same(name, &client.get_bytes(&bucket, name, None).await.unwrap(), &old);
        damage(&cluster, &old[damaged..damaged + 64]);
        std::fs::write(root.path().join(name), &new).unwrap();
        match client.get_bytes(&bucket, name, None).await {
            Ok(got) => assert_same(name, &got, &new),
            Err(e) => {
                assert_eq!(e.code(), ErrorCode::ObjectChanged, "{e}");
                assert_eq!(name, "middle", "nothing had gone out");
            }
        }
        assert_same(name, &client.get_bytes(&bucket, name, None).await.unwrap(), &new);
        client.delete(&bucket, name).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_checked_a_moment_ago_is_sent_as_it_lies_until_its_file_changes() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, targets: 1, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("files"));
    client.create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let all = content("o", 4_000_000);
    std::fs::write(root.path().join("o"), &all).unwrap();
    let read = async |when: &str| {
        assert_same(when, &client.get_bytes(&bucket, "o", None).await.unwrap(), &all);
        for (text, part) in [
            ("bytes=1-3000000", &all[1..=3_000_000]),
            ("bytes=-200001", &all[all.len() - 200_001..]),
            ("bytes=70000-139999", &all[70_000..140_000]),
        ] {
            let range = RangeSpec::parse(text).unwrap();
            let got = client.get_bytes(&bucket, "o", range).await.unwrap();
            assert_same(&format!("{when}: {text}"), &got, part);
        }
    };
    read("when it came").await;
    read("checked").await;
    let checked = counted(&cluster, "checked_bytes", "read");
    read("again").await;
    if kernel_tells_what_is_cached() {
        assert_eq!(counted(&cluster, "checked_bytes", "read"), checked);
    }
    damage(&cluster, &all[2_000_000..2_000_064]);
    read("damaged").await;
    assert!(counted(&cluster, "healed", "read") > 0.0);
}

/// Linux 6.5 or later.
fn kernel_tells_what_is_cached() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(5))
}
