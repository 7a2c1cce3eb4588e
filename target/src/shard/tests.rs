//! Guarantees of member reads, over a real store and real archives.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_clouds::{BackendSettings, Backends};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::shard::{ArchiveFormat, MemberMatch, MemberMatcher};
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::size::ByteRange;
use forebay_core::state::Command;
use forebay_core::{Bucket, ErrorCode, NodeId, Provider};
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{DiskSettings, RealDisk, Store};
use futures::{StreamExt, TryStreamExt};

use super::*;
use crate::object::heal_tests::flip_where;
use crate::object::tests::one_target;
use crate::object::{Parts, PutRequest};

const FORMATS: [ArchiveFormat; 5] = [
    ArchiveFormat::Tar,
    ArchiveFormat::TarGz,
    ArchiveFormat::TarLz4,
    ArchiveFormat::TarZst,
    ArchiveFormat::Zip,
];

const PAUSE: Duration = Duration::from_millis(20);

struct Bench {
    dir: tempfile::TempDir,
    objects: ObjectService,
    shards: Shards,
    store: Store,
    maps: Maps,
}

impl Bench {
    async fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap()).await
    }

    async fn open(dir: tempfile::TempDir) -> Self {
        std::fs::create_dir_all(dir.path().join("folder")).unwrap();
        let settings = DiskSettings::new(dir.path().join("disk"), Some(1 << 30));
        // A task that ends a little later may still hold the dropped store.
        let mut tries = 0..200;
        let store = loop {
            match Store::open(vec![settings.clone()], Arc::new(RealDisk)).await {
                Err(_) if tries.next().is_some() => tokio::time::sleep(PAUSE).await,
                opened => break opened.unwrap(),
            }
        };
        let roots = BackendSettings { folder_roots: vec![dir.path().into()], ..Default::default() };
        let maps = Maps::default();
        let id = NodeId::new("target-01").unwrap();
        let state = one_target(&id);
        maps.lease_for_good();
        maps.offer(state);
        let lifecycle = Lifecycle::new();
        let objects = ObjectService::new(Parts {
            id,
            store: store.clone(),
            backends: Arc::new(Backends::new(roots, Arc::new(|_, _, _, _| {}))),
            maps: maps.clone(),
            peer: PeerClient::new(Signer::new(
                ClusterSecret::new("0123456789abcdef").unwrap(),
                NodeId::new("target-1").unwrap(),
                1,
            )),
            metrics: Metrics::default(),
            lifecycle: lifecycle.clone(),
            cold_gets: 4,
            prefetch_percent: 50,
            gate: crate::cache::Gate::new(95),
            watch: Arc::new(crate::cache::CacheWatch::new(Default::default(), [1 << 40])),
        });
        let shards = Shards::new(objects.clone(), lifecycle);
        Self { dir, objects, shards, store, maps }
    }

    fn bucket(&self, name: &str, folder: bool) -> BucketInfo {
        let backend = folder.then(|| BackendSpec {
            root: Some(self.folder().display().to_string()),
            ..BackendSpec::new(BackendKind::Folder, "")
        });
        let bucket = Bucket::new(Provider::Ais, name).unwrap();
        let info = BucketInfo::requested(bucket.clone(), backend);
        let mut state = (*self.maps.load()).clone();
        let command = Command::CreateBucket { info: Box::new(info), now_ns: 1 };
        state.apply(state.version + 1, command).unwrap();
        self.maps.offer(state);
        BucketInfo::clone(self.maps.load().bucket(&bucket).unwrap())
    }

    fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("folder")
    }

    async fn put(&self, info: &BucketInfo, name: &str, bytes: Vec<u8>) {
        let body = futures::stream::iter([Ok(Bytes::from(bytes))]).boxed();
        let request = PutRequest::new(body);
        self.objects.writes().put(info, name, request).await.unwrap();
    }

    async fn read(&self, info: &BucketInfo, name: &str, member: &str) -> Result<Bytes> {
        self.shards.member(info, name, member, None).await?.read_all().await
    }
}

fn body(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed as u64 | 1);
            (state >> 56) as u8
        })
        .collect()
}

fn archive(format: ArchiveFormat, members: &[(String, Vec<u8>)]) -> Vec<u8> {
    if format == ArchiveFormat::Zip {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (i, (name, data)) in members.iter().enumerate() {
            let method = match i % 2 {
                0 => zip::CompressionMethod::Deflated,
                _ => zip::CompressionMethod::Stored,
            };
            let options = zip::write::SimpleFileOptions::default().compression_method(method);
            zip.start_file(name.as_str(), options).unwrap();
            zip.write_all(data).unwrap();
        }
        return zip.finish().unwrap().into_inner();
    }
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, data.as_slice()).unwrap();
    }
    let tar = tar.into_inner().unwrap();
    match format {
        ArchiveFormat::TarGz => {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(&tar).unwrap();
            gz.finish().unwrap()
        }
        ArchiveFormat::TarLz4 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(&tar).unwrap();
            lz4.finish().unwrap()
        }
        ArchiveFormat::TarZst => zstd::stream::encode_all(tar.as_slice(), 1).unwrap(),
        _ => tar,
    }
}

fn samples() -> Vec<(String, Vec<u8>)> {
    let sizes = [0, 1, 511, 512, 513, 70_000, 3_000_000, 5, 2_000_000, 100];
    let mut all: Vec<_> =
        sizes.iter().enumerate().map(|(i, n)| (format!("s/{i:03}.bin"), body(i, *n))).collect();
    all.push((format!("{}/long.txt", "d".repeat(200)), b"long".to_vec()));
    all.push(("ü/ß.txt".into(), "grün".into()));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_member_of_every_format_is_read_whole_and_in_parts() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let members = samples();
    for format in FORMATS {
        let name = format!("dir/shard{}", format.extension());
        bench.put(&info, &name, archive(format, &members)).await;
        let index = bench.shards.index(&info, &name, None).await.unwrap();
        assert_eq!(index.format, format);
        let names: Vec<_> = index.members.iter().map(|m| (&m.name, m.size)).collect();
        let want: Vec<_> = members.iter().map(|(n, d)| (n, d.len() as u64)).collect();
        assert_eq!(names, want, "{format:?}");
        for (member, data) in members.iter().chain(members.iter().rev()) {
            let got = bench.shards.member(&info, &name, member, None).await.unwrap();
            assert_eq!((got.size, got.result()), (data.len() as u64, "hit"));
            assert!(got.read_all().await.unwrap() == data, "{format:?} {member}");
            let len = data.len() as u64;
            for range in [(0, len), (len / 3, len / 2), (len / 2, len), (len, len)] {
                let got = bench.shards.member(&info, &name, member, None).await.unwrap();
                let range = ByteRange { start: range.0, end: range.1 };
                let parts: Vec<Bytes> = got.stream(range).try_collect().await.unwrap();
                let want = &data[range.start as usize..range.end as usize];
                assert!(parts.concat() == want, "{format:?} {member} {range:?}");
            }
        }
    }
}

#[tokio::test]
async fn members_are_found_as_clients_write_them() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let members = [("a/1.txt", "one"), ("./b.txt", "two"), ("/abs", "three"), ("a/1.txt", "again")];
    let members = members.map(|(n, d)| (n.to_owned(), d.as_bytes().to_vec()));
    // The tar crate would normalize such names.
    let mut tar = Vec::new();
    for (name, data) in &members {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(data);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend([0; 1024]);
    bench.put(&info, "x/s.tar", tar).await;
    for (asked, data) in [
        ("a/1.txt", "one"),
        ("/a/1.txt", "one"),
        ("x/s.tar/a/1.txt", "one"),
        ("/x/s.tar/a/1.txt", "one"),
        ("b.txt", "two"),
        ("./b.txt", "two"),
        ("/abs", "three"),
    ] {
        assert_eq!(bench.read(&info, "x/s.tar", asked).await.unwrap(), data, "{asked}");
    }
    let index = bench.shards.index(&info, "x/s.tar", None).await.unwrap();
    assert_eq!(index.members.len(), 4);
    let last = index.members[3].clone();
    let data = bench.shards.data(&info, "x/s.tar", &last, None).await.unwrap();
    assert_eq!(data.read_all().await.unwrap(), "again");
    for missing in ["a/2.txt", "abs", "", "x/s.tar"] {
        let error = bench.read(&info, "x/s.tar", missing).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::MemberNotFound);
        assert_eq!(error.message, format!("{missing} in ais://b/x/s.tar does not exist"));
    }
    let matcher = MemberMatcher::new(MemberMatch::WdsKey, "a/1").unwrap();
    let found = bench.shards.matching(&info, "x/s.tar", &matcher, None).await.unwrap();
    assert_eq!(found, [index.members[0].clone(), index.members[3].clone()]);
    let gone = bench.read(&info, "no.tar", "a").await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn what_is_no_archive_is_refused_with_the_shards_name() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let whole = archive(ArchiveFormat::Tar, &samples());
    for (name, bytes, says) in [
        ("plain.txt", b"hello".to_vec(), "neither its name nor its content"),
        ("bad.tar", vec![7; 5000], "header at byte 0"),
        ("cut.tar", whole[..1_000_000].to_vec(), "in the middle of member"),
        ("cut.tgz", archive(ArchiveFormat::TarGz, &samples())[..50_000].to_vec(), "ends at byte"),
        ("bad.zip", vec![0; 100], "without its directory"),
        ("empty.tar", vec![], "ends at byte 0"),
    ] {
        bench.put(&info, name, bytes).await;
        let error = bench.read(&info, name, "x").await.unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{name}: {error}");
        assert!(error.message.starts_with(&format!("ais://b/{name}: ")), "{error}");
        assert!(error.message.contains(says), "{error}");
    }
    // Content and request decide where the name implies no format.
    bench.put(&info, "noext", archive(ArchiveFormat::TarGz, &samples())).await;
    assert_eq!(bench.read(&info, "noext", "s/001.bin").await.unwrap().len(), 1);
    bench.put(&info, "odd.zip", whole).await;
    let data = bench.shards.member(&info, "odd.zip", "s/001.bin", Some(ArchiveFormat::Tar)).await;
    assert_eq!(data.unwrap().size, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_shard_is_fetched_once_and_then_read_here() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", true);
    let members = samples();
    let path: &Path = &bench.folder().join("s.tar");
    std::fs::write(path, archive(ArchiveFormat::Tar, &members)).unwrap();
    let first = bench.shards.member(&info, "s.tar", "s/005.bin", None).await.unwrap();
    assert_eq!(first.result(), "miss");
    assert!(first.read_all().await.unwrap() == members[5].1);
    let second = bench.shards.member(&info, "s.tar", "s/006.bin", None).await.unwrap();
    assert_eq!(second.result(), "hit");
    assert!(bench.store.get(info.id, "s.tar").await.unwrap().is_some());
}

impl Bench {
    fn built(&self) -> u64 {
        self.shards.0.built.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Waits until an index is stored beside the object.
    async fn learned(&self, info: &BucketInfo, name: &str) {
        for _ in 0..2000 {
            let record = self.store.get(info.id, name).await.unwrap().unwrap();
            if self.store.sidecar(&record).await.unwrap().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no index was kept beside {name}");
    }

    fn sidecars(&self) -> Vec<std::path::PathBuf> {
        let folder = std::fs::read_dir(self.dir.path().join("disk/companions")).unwrap();
        folder.map(|e| e.unwrap().path()).collect()
    }

    /// The same disk, as after a restart.
    async fn again(self) -> Self {
        let Self { dir, objects, shards, store, maps } = self;
        drop((objects, shards, store));
        let again = Self::open(dir).await;
        again.maps.offer((*maps.load()).clone());
        again
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_new_shard_build_its_index_once() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", true);
    let path = bench.folder().join("s.tgz");
    std::fs::write(path, archive(ArchiveFormat::TarGz, &samples())).unwrap();
    let reads = (0..40).map(|i| {
        let (bench, info) = (&bench, &info);
        async move { bench.read(info, "s.tgz", &format!("s/{:03}.bin", i % 10)).await }
    });
    for (i, data) in futures::future::join_all(reads).await.into_iter().enumerate() {
        assert!(data.unwrap() == samples()[i % 10].1);
    }
    assert_eq!(bench.built(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_tar_is_indexed_while_it_is_written_or_fetched() {
    let bench = Bench::new().await;
    let members = samples();
    let tar = archive(ArchiveFormat::Tar, &members);
    let native = bench.bucket("native", false);
    bench.put(&native, "s.tar", tar.clone()).await;
    let backed = bench.bucket("backed", true);
    std::fs::write(bench.folder().join("s.tar"), tar).unwrap();
    bench.objects.cold_cache().prefetch(&backed, "s.tar").await.unwrap();
    for info in [&native, &backed] {
        bench.learned(info, "s.tar").await;
        assert!(bench.read(info, "s.tar", "s/006.bin").await.unwrap() == members[6].1);
    }
    // A file that is not a TAR is stored like any other, and a name of no archive is not examined.
    bench.put(&native, "lie.tar", vec![1; 100_000]).await;
    bench.put(&native, "plain.bin", archive(ArchiveFormat::Tar, &members)).await;
    assert_eq!(bench.built(), 0);
    assert_eq!(bench.sidecars().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_survives_a_restart() {
    let mut bench = Bench::new().await;
    let info = bench.bucket("b", false);
    for format in FORMATS {
        let name = format!("s{}", format.extension());
        bench.put(&info, &name, archive(format, &samples())).await;
        bench.shards.index(&info, &name, None).await.unwrap();
        bench.learned(&info, &name).await;
    }
    bench = bench.again().await;
    for format in FORMATS {
        let name = format!("s{}", format.extension());
        assert!(bench.read(&info, &name, "s/005.bin").await.unwrap() == samples()[5].1);
    }
    assert_eq!(bench.built(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_of_a_replaced_shard_is_never_served() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let one = |text: &str| vec![("only".to_owned(), text.as_bytes().to_vec())];
    for format in FORMATS {
        let name = format!("s{}", format.extension());
        let mut member = None;
        for round in 0..4usize {
            let text = format!("{}{round}", "x".repeat(700 * round));
            bench.put(&info, &name, archive(format, &one(&text))).await;
            if let Some(member) = &member {
                let stale = bench.shards.data(&info, &name, member, None).await.err().unwrap();
                assert_eq!(stale.code, ErrorCode::ObjectChanged);
            }
            assert_eq!(bench.read(&info, &name, "only").await.unwrap(), text);
            let (meta, index) = bench.shards.described(&info, &name, None).await.unwrap();
            assert_eq!(meta.version, (round + 1).to_string());
            assert_eq!(index.members.len(), 1);
            member = index.members.first().cloned();
        }
    }
    assert!(bench.sidecars().len() <= FORMATS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_index_file_is_made_again() {
    let mut bench = Bench::new().await;
    let info = bench.bucket("b", false);
    bench.put(&info, "s.tar", archive(ArchiveFormat::Tar, &samples())).await;
    bench.learned(&info, "s.tar").await;
    for damage in [b"".as_slice(), b"rubbish", &[0; 300]] {
        let [path] = bench.sidecars().try_into().unwrap();
        std::fs::write(&path, damage).unwrap();
        bench = bench.again().await;
        assert!(bench.read(&info, "s.tar", "s/005.bin").await.unwrap() == samples()[5].1);
        assert_eq!(bench.built(), 1);
        bench.learned(&info, "s.tar").await;
    }
    // A valid file, but of a later layout.
    let record = bench.store.get(info.id, "s.tar").await.unwrap().unwrap();
    assert!(bench.store.keep_sidecar(&record, b"FBSHARDX\x09\0....".to_vec()).await.unwrap());
    bench = bench.again().await;
    assert!(bench.read(&info, "s.tar", "s/005.bin").await.unwrap() == samples()[5].1);
    assert_eq!(bench.built(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_shard_takes_its_index_along() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", true);
    std::fs::write(bench.folder().join("s.zip"), archive(ArchiveFormat::Zip, &samples())).unwrap();
    bench.read(&info, "s.zip", "s/001.bin").await.unwrap();
    assert_eq!(bench.sidecars().len(), 1);
    bench.objects.cold_cache().evict(&info, "s.zip").await.unwrap();
    assert!(bench.sidecars().is_empty());
    let usage = bench.store.usage();
    assert_eq!((usage.objects, usage.stored), (0, 0));
    let again = bench.shards.member(&info, "s.zip", "s/001.bin", None).await.unwrap();
    assert_eq!(again.result(), "miss");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_read_one_after_another_are_unpacked_by_one_decoder() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let members: Vec<_> = (0..200).map(|i| (format!("{i:03}"), body(i, 3000))).collect();
    bench.put(&info, "s.tar.zst", archive(ArchiveFormat::TarZst, &members)).await;
    for (name, data) in &members {
        assert!(bench.read(&info, "s.tar.zst", name).await.unwrap() == data);
    }
    assert_eq!(bench.shards.0.decoders.waiting(), 1);
    // Requested all at once, as a batch does, they are served one by one, in any order.
    let reads = members.iter().map(|(name, _)| bench.read(&info, "s.tar.zst", name));
    for (data, (_, want)) in futures::future::join_all(reads).await.into_iter().zip(&members) {
        assert!(data.unwrap() == want);
    }
    assert_eq!(bench.shards.0.decoders.waiting(), 1);
    // Far back is another case, and a shard never holds many decoders.
    let large: Vec<_> = (0..40).map(|i| (format!("{i:03}"), body(i, 400_000))).collect();
    bench.put(&info, "l.tar.lz4", archive(ArchiveFormat::TarLz4, &large)).await;
    for (name, data) in large.iter().rev().chain(&large) {
        assert!(bench.read(&info, "l.tar.lz4", name).await.unwrap() == data);
    }
    assert!(bench.shards.0.decoders.waiting() <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_shard_still_has_every_member_and_a_native_one_never_a_wrong_byte() {
    let bench = Bench::new().await;
    let (backed, native) = (bench.bucket("backed", true), bench.bucket("native", false));
    let members = samples();
    for format in FORMATS {
        let name = format!("s{}", format.extension());
        let bytes = archive(format, &members);
        std::fs::write(bench.folder().join(&name), &bytes).unwrap();
        // At times its index is known, at times it has to be read with the damage.
        for (share, known) in [(0, true), (4, true), (6, false), (10, false)] {
            let at = (bytes.len() - 64) * share / 10;
            let needle = &bytes[at..at + 64];
            bench.objects.cold_cache().prefetch(&backed, &name).await.unwrap();
            if known {
                bench.shards.index(&backed, &name, None).await.unwrap();
            }
            flip_where(&bench.dir.path().join("disk"), needle);
            for (member, data) in &members {
                let what = format!("{format:?} {member}, damaged at {at}");
                let got = bench.shards.member(&backed, &name, member, None).await;
                let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
                let range = ByteRange { start: data.len() as u64 / 3, end: data.len() as u64 };
                let parts: Vec<Bytes> = got.stream(range).try_collect().await.unwrap();
                assert!(parts.concat() == data[data.len() / 3..], "{what}");
            }
            bench.objects.cold_cache().evict(&backed, &name).await.unwrap();
            bench.put(&native, &name, bytes.clone()).await;
            flip_where(&bench.dir.path().join("disk"), needle);
            for (member, data) in &members {
                match bench.read(&native, &name, member).await {
                    Ok(got) => assert!(got == data, "{format:?} {member}, damaged at {at}"),
                    Err(e) => assert_eq!(e.code, ErrorCode::Corrupt, "{e}"),
                }
            }
            bench.objects.writes().delete(&native, &name).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_shard_that_a_job_had_unpacked_is_read_by_place_until_the_job_gives_it_up() {
    let bench = Bench::new().await;
    let info = bench.bucket("b", false);
    let members: Vec<(String, Vec<u8>)> = (0..6)
        .map(|i| (format!("m{i}"), body(i, if i == 3 { 2 << 20 } else { 999 * i })))
        .collect();
    for format in FORMATS {
        let name = format!("s{}", format.extension());
        bench.put(&info, &name, archive(format, &members)).await;
        let key = bench.shards.open(&info, &name, None).await.unwrap().key;
        bench.shards.unpack(&info, &name, "job").await.unwrap();
        bench.shards.unpack(&info, &name, "another").await.unwrap();
        let is_unpacked = || bench.shards.0.unpacked.get(&key).is_some();
        assert_eq!(is_unpacked(), format.is_compressed_tar(), "{format:?}");
        for held in [true, false] {
            bench.shards.hold_unpacked("another", false);
            bench.shards.hold_unpacked("job", held);
            assert_eq!(is_unpacked(), held && format.is_compressed_tar(), "{format:?}");
            for (member, data) in members.iter().rev() {
                assert_eq!(bench.read(&info, &name, member).await.unwrap(), data, "{member}");
            }
            let data = bench.shards.member(&info, &name, "m3", None).await.unwrap();
            let range = ByteRange { start: 300_000, end: 1_500_000 };
            let part: Vec<Bytes> = data.stream(range).try_collect().await.unwrap();
            assert_eq!(part.concat(), members[3].1[300_000..1_500_000]);
        }
    }
}
