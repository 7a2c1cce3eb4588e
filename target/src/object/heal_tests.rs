//! Damaged disks: bits flipped under a real store, read through every call of the service.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::size::ByteRange;
use forebay_core::{ErrorCode, Result};
use forebay_store::{RecordMeta, testing};
use futures::TryStreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::tests::{Bench, put};
use super::{Verdict, read_first_chunk};

/// Files that hold objects, in any layout: all of a disk except its own folder.
fn data_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != ".forebay" {
            found.extend(data_files(&path));
        } else if path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn flip(path: &Path, at: u64, bit: u8) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
}

/// Flips a bit of `needle`'s first byte wherever it lies below `disk`: a chosen place of a payload.
pub(crate) fn flip_where(disk: &Path, needle: &[u8]) {
    for path in data_files(disk) {
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(needle.len()).position(|w| w == needle) {
            return flip(&path, at as u64, 0);
        }
    }
    panic!("it is not on the disk");
}

pub(crate) fn disk(bench: &Bench) -> PathBuf {
    bench.dir.path().join("disk")
}

/// Flips one bit somewhere in what is stored.
fn flip_any(bench: &Bench, rng: &mut StdRng) -> String {
    let files = data_files(&disk(bench));
    let path = &files[rng.random_range(0..files.len())];
    let at = rng.random_range(0..std::fs::metadata(path).unwrap().len());
    flip(path, at, rng.random_range(0..8));
    format!("{} at {at}", path.display())
}

fn counter(bench: &Bench, name: &str) -> u64 {
    counted(bench, "read", name)
}

pub(crate) fn counted(bench: &Bench, path: &str, name: &str) -> u64 {
    let text = bench.service.metrics().render();
    let start = format!("forebay_{name}_total{{path=\"{path}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
    value.parse().unwrap()
}

/// Content without a repetition, so that a wrong position shows as well as a wrong bit.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

/// Reads `range` by one of the read paths.
async fn read(bench: &Bench, info: &BucketInfo, way: usize, range: ByteRange) -> Result<Bytes> {
    let service = &bench.service;
    Ok(match way {
        0 => {
            let found = service.reads().get(info, "o").await?;
            let pieces: Vec<Bytes> =
                read_first_chunk(found.stream(range)).await?.try_collect().await?;
            pieces.concat().into()
        }
        1 => {
            let all = service.reads().get(info, "o").await?.read_all().await?;
            all.slice(range.start as usize..range.end as usize)
        }
        2 => service.reads().stored(info, "o").await?.read(range).await?,
        3 => {
            let stored = service.reads().stored(info, "o").await?;
            tokio::task::spawn_blocking(move || stored.read_blocking(range)).await.unwrap()?
        }
        4 => {
            let stored = service.reads().stored(info, "o").await?;
            let pieces: Vec<Bytes> = stored.stream(range).try_collect().await?;
            pieces.concat().into()
        }
        _ => {
            let found = service.reads().present(info, "o").await?;
            let part = match found {
                Some(record) => service.reads().part(info, &record, range).await?,
                None => None,
            };
            match part {
                Some(bytes) => bytes,
                None => service.reads().stored(info, "o").await?.read(range).await?,
            }
        }
    })
}

const WAYS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_anywhere_is_healed_from_the_backend_whoever_reads() {
    let mut rng = StdRng::seed_from_u64(7);
    for size in [700usize, 200_000, 3_000_001] {
        let bench = Bench::new(64 << 20).await;
        let info = bench.bucket("images", true, Freshness::Never);
        let data = content(size as u64, size);
        std::fs::write(bench.folder().join("o"), &data).unwrap();
        for turn in 0..30 {
            bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
            let (damaged, healed) = (counter(&bench, "damaged"), counter(&bench, "healed"));
            let place = flip_any(&bench, &mut rng);
            let from = rng.random_range(0..size);
            let part =
                ByteRange { start: from as u64, end: rng.random_range(from..size) as u64 + 1 };
            // The whole object last: that finds the damage if any read can.
            for range in [part, ByteRange::whole(size as u64)] {
                let what = format!("{size} bytes, way {}, {range:?}, {place}", turn % WAYS);
                let got = read(&bench, &info, turn % WAYS, range).await;
                let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(got == data[range.start as usize..range.end as usize], "{what}");
            }
            let found = counter(&bench, "damaged") - damaged;
            assert!(found <= 1, "{place}: what was replaced is sound");
            assert_eq!(counter(&bench, "healed") - healed, found, "{place}");
        }
        assert!(counter(&bench, "healed") > 0, "{size}");
        assert_eq!(counter(&bench, "lost"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_a_later_version_has_to_read_is_neither_served_nor_damaged() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("b", false, Freshness::Never);
    let (service, store) = (&bench.service, bench.service.store());
    for size in [700, 200_000] {
        let meta = RecordMeta { extensions: testing::extensions(&[1]), ..RecordMeta::default() };
        let record = store.put(info.id, "o", content(1, size).into(), meta).await.unwrap();
        for way in 0..WAYS {
            let got = read(&bench, &info, way, ByteRange { start: 0, end: 10 }).await;
            assert_eq!(got.unwrap_err().code, ErrorCode::Unsupported, "way {way}");
        }
        let verdict = service.reads().check(&record, |_, _, _| Duration::ZERO).await.unwrap();
        assert_eq!(verdict, Verdict::Sound);
        let now = store.get(info.id, "o").await.unwrap().unwrap();
        assert_eq!(now.generation, record.generation);
        assert_eq!((counter(&bench, "damaged"), counter(&bench, "lost")), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_middle_of_an_answer_costs_one_request_to_the_backend() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    let data = content(1, 5 << 20);
    std::fs::write(bench.folder().join("o"), &data).unwrap();
    bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
    let found = bench.service.reads().get(&info, "o").await.unwrap();
    assert_eq!(found.result(), "hit");
    flip_where(&disk(&bench), &data[3_000_000..3_000_032]);
    let gets = bench.gets();
    let range = ByteRange { start: 100, end: 5_000_000 };
    let pieces: Vec<Bytes> = found.stream(range).try_collect().await.unwrap();
    assert!(pieces.concat() == data[100..5_000_000]);
    assert_eq!(bench.gets() - gets, 1);
    assert_eq!((counter(&bench, "damaged"), counter(&bench, "healed")), (1, 1));
    assert!(counter(&bench, "checked_bytes") >= 2_500_000);
    assert!(counter(&bench, "checked_blocks") >= 2_500_000 / (64 << 10));
    // The damaged copy is gone, and the next reader brings a new one.
    assert_eq!(bench.read(&info, "o").await.unwrap().1, "miss");
    bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
    assert_eq!(bench.read(&info, "o").await.unwrap().1, "hit");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_are_never_mixed() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    let (old, new) = (content(1, 3 << 20), content(2, 3 << 20));
    let file = bench.folder().join("o");
    for damage in [2 << 20, 0] {
        std::fs::write(&file, &old).unwrap();
        bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
        let found = bench.service.reads().get(&info, "o").await.unwrap();
        flip_where(&disk(&bench), &old[damage..damage + 32]);
        std::fs::write(&file, &new).unwrap();
        let mut pieces = found.stream(ByteRange::whole(3 << 20));
        let mut sent = Vec::new();
        let error = loop {
            match pieces.try_next().await {
                Ok(Some(piece)) => sent.extend_from_slice(&piece),
                Ok(None) => panic!("it ended as if it were whole"),
                Err(e) => break e,
            }
        };
        assert_eq!(error.code, ErrorCode::ObjectChanged);
        // The sent bytes are of the old object. If the beginning is damaged, nothing is sent, so
        // that a request can start again.
        assert!(old.starts_with(&sent));
        assert_eq!(sent.is_empty(), damage == 0);
        assert!(bench.read(&info, "o").await.unwrap().0 == new);
        bench.service.cold_cache().evict(&info, "o").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_object_is_an_error_never_wrong_bytes_until_it_is_written_again() {
    let mut rng = StdRng::seed_from_u64(11);
    for (size, bytes) in [(700usize, 0..700), (3_000_001, 1_000_000..1_000_032)] {
        let bench = Bench::new(64 << 20).await;
        let info = bench.bucket("native", false, Freshness::default());
        let data = content(3, size);
        bench.service.writes().put(&info, "o", put(vec![Ok(data.clone().into())])).await.unwrap();
        flip_where(&disk(&bench), &data[bytes]);
        let whole = ByteRange::whole(size as u64);
        for way in 0..WAYS {
            let e = read(&bench, &info, way, whole).await.unwrap_err();
            assert_eq!((e.code, e.code.status()), (ErrorCode::Corrupt, 500), "{way}: {e}");
        }
        assert_eq!(counter(&bench, "lost"), counter(&bench, "damaged"));
        assert_eq!(counter(&bench, "healed"), 0);
        assert_eq!(bench.service.lost_summary().0, 1);
        assert_eq!(bench.service.lost_summary().1, ["ais://native/o"]);
        let again = content(4, size);
        bench.service.writes().put(&info, "o", put(vec![Ok(again.clone().into())])).await.unwrap();
        assert_eq!(bench.service.lost_summary().0, 0);
        assert!(bench.read(&info, "o").await.unwrap().0 == again);
        // A flipped bit elsewhere leads to the right bytes or to an error.
        for turn in 0..20 {
            bench
                .service
                .writes()
                .put(&info, "o", put(vec![Ok(again.clone().into())]))
                .await
                .unwrap();
            let place = flip_any(&bench, &mut rng);
            match read(&bench, &info, turn % WAYS, whole).await {
                Ok(got) => assert!(got == again, "{place}"),
                Err(e) => assert_eq!(e.code, ErrorCode::Corrupt, "{place}: {e}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_backend_cannot_be_asked_the_sound_part_of_a_copy_stays() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    let data = Bytes::from(content(5, 3 << 20));
    bench.service.writes().put(&info, "o", put(vec![Ok(data.clone())])).await.unwrap();
    let aside = bench.dir.path().join("aside");
    flip_where(&disk(&bench), &data[3_000_000..3_000_032]);
    std::fs::rename(bench.folder(), &aside).unwrap();
    let whole = ByteRange::whole(3 << 20);
    let e = read(&bench, &info, 0, whole).await.unwrap_err();
    assert_ne!(e.code, ErrorCode::Corrupt, "{e}");
    let sound = ByteRange { start: 0, end: 2 << 20 };
    assert!(read(&bench, &info, 2, sound).await.unwrap() == data[..2 << 20]);
    std::fs::rename(&aside, bench.folder()).unwrap();
    assert!(read(&bench, &info, 0, whole).await.unwrap() == data);
}
