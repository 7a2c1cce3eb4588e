//! Stops the store at every single step of a change and starts it again, with and without its
//! index. Afterwards the old or the new state is there, acknowledged changes are kept, and no file
//! is left over.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use bytes::Bytes;

use super::faulty::{Fault, FaultyDisk};
use super::tests::{cached, contents, files, open, owned};
use super::*;

pub(super) const NAME: &str = "some/object";
const SIDECAR: &[u8] = b"what is known of the old object";

pub(super) fn old() -> Bytes {
    Bytes::from(vec![1; 70_000])
}

fn new() -> Bytes {
    Bytes::from((0..200_000).map(|i| i as u8).collect::<Vec<_>>())
}

/// Too large for the log.
fn large() -> Bytes {
    Bytes::from((0..150_000).map(|i| (i % 251) as u8).collect::<Vec<_>>())
}

/// A folder in memory where there is one: these tests sync thousands of times.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Copies a disk without its index.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|e| (e.path(), e.file_name())).unwrap();
        if name == "index" {
            continue;
        }
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

async fn start(disks: &[&Path], rebuild_index: bool, io: Arc<dyn Disk>) -> Store {
    let settings = disks
        .iter()
        .map(|d| DiskSettings { rebuild_index, ..DiskSettings::new(*d, Some(1 << 30)) })
        .collect();
    Store::open(settings, io).await.unwrap()
}

/// The object that the store has under the one name, after checking that there is nothing else.
async fn state(store: &Store, disks: &[&Path]) -> Option<Bytes> {
    // Reading cleans up, so list first.
    let (rows, _) = store.list(1, "", None, None, 10).await.unwrap();
    let usage = store.usage();
    let found = contents(store, 1, NAME).await;
    let count = usize::from(found.is_some());
    assert_eq!(rows.len(), count);
    assert_eq!(usage.objects as usize, count);
    assert_eq!(usage.bytes as usize, found.as_ref().map_or(0, Bytes::len));
    let left: Vec<_> = disks.iter().flat_map(|d| files(&d.join("objects"))).collect();
    let needed: usize = rows.iter().map(|r| r.extents().len()).sum();
    assert_eq!(left.len(), needed, "{left:?}");
    for disk in disks {
        assert!(files(&disk.join("work")).is_empty());
        assert!(!disk.join(".forebay/lost").exists());
    }
    for volume in store.volumes().iter() {
        let index = &volume.shared().index;
        assert!(index.strays().unwrap().is_empty());
    }
    // A sidecar belongs to the current object, or it is absent.
    let record = store.get(1, NAME).await.unwrap();
    let own = record.as_ref().map(|r| format!("{:016x}", r.generation));
    for path in disks.iter().flat_map(|d| files(&d.join("companions"))) {
        assert_eq!(path.file_name().and_then(|n| n.to_str()), own.as_deref());
    }
    if let Some(record) = record
        && let Some(sidecar) = store.sidecar(&record).await.unwrap()
    {
        let found = found.as_ref().unwrap();
        assert!(sidecar == SIDECAR && (*found == old() || *found == large()));
    }
    found
}

/// Runs `change` with `fault` at step 0, 1, 2, … until one run meets no fault any more.
pub(super) async fn at_every_step(
    before: Option<RecordMeta>,
    fault: Fault,
    after: Option<Bytes>,
    change: impl AsyncFn(&Store) -> Result<()>,
) -> u64 {
    over_at_every_step(before.map(|meta| (old(), meta)), fault, after, change).await
}

/// The same over an object of any content.
async fn over_at_every_step(
    before: Option<(Bytes, RecordMeta)>,
    fault: Fault,
    after: Option<Bytes>,
    change: impl AsyncFn(&Store) -> Result<()>,
) -> u64 {
    let first = before.as_ref().map(|(data, _)| data.clone());
    for step in 0.. {
        let dir = folder();
        let (disk, twin) = (dir.path().join("disk"), dir.path().join("twin"));
        let io = FaultyDisk::new();
        let store = start(&[&disk], false, Arc::new(io.clone())).await;
        if let Some((data, meta)) = before.clone() {
            let record = store.put(1, NAME, data, meta).await.unwrap();
            assert!(store.keep_sidecar(&record, SIDECAR.to_vec()).await.unwrap());
        }
        io.plan(step, fault);
        let acknowledged = change(&store).await.is_ok();
        let struck = io.struck();
        if matches!(fault, Fault::Fail(_)) {
            let live = contents(&store, 1, NAME).await;
            assert!(live == first || live == after, "step {step}: mixed without a restart");
        }
        drop(store);
        copy(&disk, &twin);
        for (path, rebuild) in [(&disk, false), (&twin, true)] {
            let store = start(&[path], false, Arc::new(RealDisk)).await;
            let found = state(&store, &[path]).await;
            let place = format!("{fault:?} at step {step}, rebuild {rebuild}");
            assert!(found == first || found == after, "{place}: mixed");
            assert!(!acknowledged || found == after, "{place}: an acknowledged change is lost");
            store.put(1, NAME, old(), owned()).await.unwrap();
            assert_eq!(state(&store, &[path]).await, Some(old()));
        }
        if !struck {
            assert!(acknowledged);
            return step;
        }
    }
    unreachable!("the loop ends at the first run without a fault")
}

pub(super) const FAULTS: [Fault; 3] =
    [Fault::Crash, Fault::Torn, Fault::Fail(std::io::ErrorKind::Other)];

async fn put_in_pieces(store: &Store, meta: RecordMeta) -> Result<()> {
    let mut work = store.begin(1, NAME, None).await?;
    let data = new();
    work.write(data.slice(..90_000)).await?;
    work.write(data.slice(90_000..)).await?;
    store.commit(work, meta).await.map(drop)
}

#[tokio::test]
async fn a_crash_in_the_first_put_leaves_all_or_nothing() {
    for fault in FAULTS {
        let steps =
            at_every_step(None, fault, Some(new()), async |s| put_in_pieces(s, owned()).await)
                .await;
        assert!(steps >= 5, "{steps}");
    }
}

#[tokio::test]
async fn a_crash_in_an_overwrite_leaves_the_old_or_the_new_object() {
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, Some(new()), async |s| put_in_pieces(s, owned()).await)
            .await;
    }
}

#[tokio::test]
async fn a_crash_in_an_overwrite_of_another_kind_leaves_the_old_or_the_new_object() {
    let sizes = [old(), large(), new()];
    for fault in FAULTS {
        // From the log to a file, from there to another one, and back.
        for step in sizes.windows(2).chain([[large(), old()].as_slice()]) {
            let metas = [owned(), cached()];
            for meta in metas.into_iter().take(if fault == Fault::Crash { 2 } else { 1 }) {
                let after = step[1].clone();
                let put =
                    async |s: &Store| s.put(1, NAME, after.clone(), meta.clone()).await.map(drop);
                let before = Some((step[0].clone(), meta.clone()));
                over_at_every_step(before, fault, Some(after.clone()), put).await;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_while_it_is_evicted_leaves_the_object_or_nothing() {
    for fault in FAULTS {
        for data in [old(), large()] {
            let before = Some((data, cached()));
            let steps = over_at_every_step(before, fault, None, async |s| {
                let record = s.get(1, NAME).await?.unwrap();
                let volume = s.volumes()[0].clone();
                blocking(move || {
                    volume.remove_all_blocking(&[record])?;
                    volume.reclaim()?;
                    volume.shared().log.seal();
                    volume.compact_all().map(drop)
                })
                .await
            })
            .await;
            assert!(steps >= 5, "{steps}");
        }
    }
}

#[tokio::test]
async fn a_crash_in_a_removal_or_a_change_of_a_large_object_leaves_it_or_nothing() {
    for fault in FAULTS {
        let before = || Some((large(), owned()));
        let remove = async |s: &Store| s.remove(1, NAME).await.map(drop);
        over_at_every_step(before(), fault, None, remove).await;
        over_at_every_step(before(), fault, Some(large()), async |s| {
            let record = s.get(1, NAME).await?.unwrap();
            let change = |m: &mut RecordMeta| drop(m.custom.insert("k".into(), "v".into()));
            s.update(&record, change).await.map(drop)
        })
        .await;
        over_at_every_step(before(), fault, Some(large()), async |s| {
            s.put(1, NAME, large(), owned()).await?;
            let volume = s.volumes()[0].clone();
            volume.shared().log.seal();
            blocking(move || volume.compact_all()).await.map(drop)
        })
        .await;
    }
}

/// Compaction may drop a removal only when nothing it hides is left anywhere.
#[tokio::test]
async fn what_was_removed_stays_so_when_compaction_crashes() {
    for fault in FAULTS {
        over_at_every_step(Some((old(), owned())), fault, None, async |s| {
            let volume = s.volumes()[0].clone();
            volume.shared().log.seal();
            s.remove(1, NAME).await?;
            volume.shared().log.seal();
            blocking(move || {
                volume.compact_all()?;
                volume.shared().log.seal();
                volume.compact_all().map(drop)
            })
            .await
        })
        .await;
    }
}

/// Recovery from a crash may itself crash, at any step of both, and still loses nothing.
#[tokio::test]
async fn a_crash_while_opening_after_a_crash_loses_nothing() {
    for after in [Some(new()), None] {
        for step in 0.. {
            let dir = folder();
            let (disk, twin) = (dir.path().join("disk"), dir.path().join("twin"));
            let io = FaultyDisk::new();
            let store = start(&[&disk], false, Arc::new(io.clone())).await;
            store.put(1, NAME, large(), owned()).await.unwrap();
            io.plan(step, Fault::Crash);
            let done = match after.clone() {
                Some(data) => store.put(1, NAME, data, owned()).await.map(drop),
                None => store.remove(1, NAME).await.map(drop),
            };
            let struck = io.struck();
            drop(store);
            copy(&disk, &twin);
            for (path, rebuild_index) in [(&disk, false), (&twin, false), (&twin, true)] {
                for opening in 0.. {
                    let io = FaultyDisk::new();
                    io.plan(opening, Fault::Crash);
                    let settings =
                        DiskSettings { rebuild_index, ..DiskSettings::new(path, Some(1 << 30)) };
                    let opened = Store::open(vec![settings], Arc::new(io.clone())).await;
                    if opened.is_ok() {
                        break;
                    }
                }
                let store = start(&[path], false, Arc::new(RealDisk)).await;
                let found = state(&store, &[path]).await;
                assert!(found == Some(large()) || found == after, "step {step}: mixed");
                assert!(done.is_err() || found == after, "step {step}: lost");
            }
            if !struck {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_while_caching_leaves_the_old_or_the_new_copy() {
    at_every_step(Some(cached()), Fault::Crash, Some(new()), async |s| {
        put_in_pieces(s, cached()).await
    })
    .await;
}

#[tokio::test]
async fn a_crash_around_a_small_put_leaves_the_old_or_the_new_object() {
    let small = Bytes::from_static(b"small enough for the log");
    for fault in FAULTS {
        for meta in [owned(), cached()] {
            let put = async |s: &Store| s.put(1, NAME, small.clone(), meta.clone()).await.map(drop);
            at_every_step(None, fault, Some(small.clone()), put).await;
            at_every_step(Some(owned()), fault, Some(small.clone()), put).await;
        }
    }
}

#[tokio::test]
async fn a_crash_in_compaction_loses_nothing() {
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, Some(old()), async |s| {
            s.put(1, NAME, old(), owned()).await?;
            let volume = s.volumes()[0].clone();
            volume.shared().log.seal();
            blocking(move || volume.compact_all()).await.map(drop)
        })
        .await;
    }
}

#[tokio::test]
async fn a_crash_in_a_removal_leaves_the_object_or_nothing() {
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, None, async |s| s.remove(1, NAME).await.map(drop))
            .await;
    }
}

#[tokio::test]
async fn a_crash_in_a_change_of_metadata_leaves_the_object_whole() {
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, Some(old()), async |s| {
            let record = s.get(1, NAME).await?.unwrap();
            let change = |m: &mut RecordMeta| drop(m.custom.insert("k".into(), "v".into()));
            s.update(&record, change).await.map(drop)
        })
        .await;
    }
}

#[tokio::test]
async fn a_crash_while_a_sidecar_is_kept_leaves_the_object_and_a_whole_one_or_none() {
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, Some(old()), async |s| {
            let record = s.get(1, NAME).await?.unwrap();
            s.keep_sidecar(&record, SIDECAR.to_vec()).await.map(drop)
        })
        .await;
    }
}

#[tokio::test]
async fn a_crash_while_opening_loses_nothing() {
    let dir = folder();
    std::fs::create_dir(dir.path().join("companions")).unwrap();
    std::fs::write(dir.path().join("companions/00000000000000ff"), b"an orphan").unwrap();
    open(dir.path()).await.unwrap().put(1, NAME, old(), owned()).await.unwrap();
    for rebuild_index in [false, true] {
        for step in 0.. {
            let io = FaultyDisk::new();
            io.plan(step, Fault::Crash);
            let settings =
                DiskSettings { rebuild_index, ..DiskSettings::new(dir.path(), Some(1 << 30)) };
            let opened = Store::open(vec![settings], Arc::new(io.clone())).await;
            assert_eq!(opened.is_err(), io.struck(), "step {step}");
            let done = opened.is_ok();
            drop(opened);
            let store = open(dir.path()).await.unwrap();
            assert_eq!(state(&store, &[dir.path()]).await, Some(old()));
            if done {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_while_an_object_moves_between_disks_leaves_one_copy() {
    for step in 0.. {
        let dir = folder();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        // Whichever disk the name belongs on, the object first lies on the other one.
        let both = start(&[&a, &b], false, Arc::new(RealDisk)).await;
        let best = both.disks.by_score(1, NAME)[0].path().to_owned();
        drop(both);
        let other = if best == a { &b } else { &a };
        let one = start(&[other], false, Arc::new(RealDisk)).await;
        one.put(1, NAME, old(), owned()).await.unwrap();
        drop(one);
        let io = FaultyDisk::new();
        let both = start(&[&a, &b], false, Arc::new(io.clone())).await;
        io.plan(step, Fault::Crash);
        let acknowledged = put_in_pieces(&both, owned()).await.is_ok();
        drop(both);
        let both = start(&[&a, &b], false, Arc::new(RealDisk)).await;
        let found = state(&both, &[&a, &b]).await.unwrap();
        assert!(found == new() || (found == old() && !acknowledged), "step {step}");
        if !io.struck() {
            assert!(acknowledged);
            return;
        }
    }
}

/// Fills segments of a small disk with overwritten objects, so that they are recycled.
async fn with_spares(store: &Store) {
    for _ in 0..12 {
        store.put(1, NAME, old(), owned()).await.unwrap();
    }
    release(store).await.unwrap();
    assert!(store.volumes()[0].shared().log.spare_bytes() > 0);
}

async fn release(store: &Store) -> Result<()> {
    let volume = store.volumes()[0].clone();
    blocking(move || volume.compact_all()).await.map(drop)
}

#[tokio::test]
async fn a_crash_while_a_segment_is_written_over_leaves_the_old_or_the_new_object() {
    for fault in FAULTS {
        for step in 0.. {
            let dir = folder();
            let (disk, twin) = (dir.path().join("disk"), dir.path().join("twin"));
            let small = |path: &Path| DiskSettings::new(path, Some(16 << 20));
            let io = FaultyDisk::new();
            let store = Store::open(vec![small(&disk)], Arc::new(io.clone())).await.unwrap();
            with_spares(&store).await;
            io.plan(step, fault);
            let new = Bytes::from(vec![2; 70_000]);
            // Segments end, recycled ones are overwritten, and one more is released.
            let mut acknowledged = true;
            for _ in 0..8 {
                acknowledged &= store.put(1, NAME, new.clone(), owned()).await.is_ok();
            }
            let released = release(&store).await.is_ok();
            let struck = io.struck();
            drop(store);
            copy(&disk, &twin);
            for path in [&disk, &twin] {
                let store = Store::open(vec![small(path)], Arc::new(RealDisk)).await.unwrap();
                let found = state(&store, &[path]).await;
                assert!(found == Some(old()) || found == Some(new.clone()), "{fault:?} at {step}");
                assert!(!acknowledged || found == Some(new.clone()), "{fault:?} at {step}: lost");
                with_spares(&store).await;
                assert_eq!(contents(&store, 1, NAME).await, Some(old()));
            }
            if !struck {
                assert!(acknowledged && released);
                assert!(step > 30 && io.log().contains(&"rename"), "{step}");
                break;
            }
        }
    }
}
