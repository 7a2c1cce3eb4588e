//! Disks that are attached and detached by command, and a damaged index, while the store runs.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use bytes::Bytes;

use super::disks_tests::{Tended, data, fill, name, on, soon, tended, two};
use super::tests::{cached, contents, files, owned};
use super::*;

pub(super) fn no_lock() -> ObjectLock {
    Box::new(|_, _| Box::pin(async { Box::new(()) as Box<dyn Send> }))
}

/// One lock for all objects, which writers have to take, too.
fn one_lock(lock: &Arc<tokio::sync::Mutex<()>>) -> ObjectLock {
    let lock = lock.clone();
    Box::new(move |_, _| {
        let lock = lock.clone();
        Box::pin(async move { Box::new(lock.lock_owned().await) as Box<dyn Send> })
    })
}

async fn all_there(store: &Store) {
    for n in 0..24 {
        assert_eq!(contents(store, 1, &name(n)).await.unwrap(), data(n, 1), "{n}");
    }
}

/// Empties a disk and detaches it, as a command does.
async fn take_out(store: &Store, path: &Path, state: DiskState) -> Result<()> {
    let volume = store.begin_leaving(path)?;
    match store.empty(&volume, &no_lock()).await {
        Ok(()) => store.take_out(path, state),
        Err(e) => {
            store.stay(&volume, &e);
            Err(e)
        }
    }
}

async fn one_and_another(dir: &Path) -> (Tended, DiskSettings) {
    let [a, b] = two(dir);
    let t = tended(&[a], Arc::new(RealDisk)).await;
    fill(&t.store).await;
    std::fs::create_dir(&b.path).unwrap();
    (t, b)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_is_attached_filled_detached_and_attached_again() {
    let dir = tempfile::tempdir().unwrap();
    let (t, b) = one_and_another(dir.path()).await;
    let store = &t.store;
    store.attach_disk(b.clone(), false).await.unwrap();
    let e = store.attach_disk(b.clone(), false).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
    assert!(store.resilver_once(&no_lock()).await.unwrap() > 4);
    assert!(on(store, 1).await.len() > 4);
    store.put(2, "copy", data(3, 1), cached()).await.unwrap();

    take_out(store, &b.path, DiskState::Detached).await.unwrap();
    all_there(store).await;
    assert_eq!(contents(store, 2, "copy").await.unwrap(), data(3, 1));
    assert_eq!((store.usage().objects, store.volumes().len()), (25, 1));
    assert!(store.disks_away().is_empty());
    assert!(store.check_absent(1, "never there").is_ok());
    assert_eq!(store.disk_report().len(), 1);

    // It is empty: no outdated objects are on it.
    store.attach_disk(b, false).await.unwrap();
    assert_eq!(store.volumes()[1].room().usage().objects, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_while_a_disk_leaves_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    let volume = t.store.begin_leaving(&disks[0].path).unwrap();
    let mut started = Vec::new();
    for n in 0..24 {
        // All of these are started on the disk that stays, from now on.
        let mut work = t.store.begin(1, &name(100 + n), None).await.unwrap();
        work.write(data(n, 2)).await.unwrap();
        started.push((n, work));
    }
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    let (writer, writes) = (t.store.clone(), lock.clone());
    let writing = tokio::spawn(async move {
        for (n, work) in started {
            let _guard = writes.lock().await;
            assert_eq!(writer.commit(work, owned()).await.unwrap().disk, 1);
            writer.put(1, &name(n), data(n, 3), owned()).await.unwrap();
        }
    });
    t.store.empty(&volume, &one_lock(&lock)).await.unwrap();
    drop(volume);
    t.store.take_out(&disks[0].path, DiskState::Detached).unwrap();
    writing.await.unwrap();
    for n in 0..24 {
        assert_eq!(contents(&t.store, 1, &name(n)).await.unwrap(), data(n, 3), "{n}");
        assert_eq!(contents(&t.store, 1, &name(100 + n)).await.unwrap(), data(n, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_started_on_a_disk_that_leaves_is_there_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let t = tended(&disks, Arc::new(RealDisk)).await;
    let mut early = Vec::new();
    for n in 0..24 {
        let mut work = t.store.begin(1, &name(n), None).await.unwrap();
        work.write(data(n, 1)).await.unwrap();
        early.push((n, work));
    }
    let late = early.split_off(12);
    let volume = t.store.begin_leaving(&disks[0].path).unwrap();
    for (_, work) in early {
        t.store.commit(work, owned()).await.unwrap();
    }
    t.store.empty(&volume, &no_lock()).await.unwrap();
    let mut refused = 0;
    for (n, work) in late {
        match t.store.commit(work, owned()).await {
            Ok(record) => assert_eq!(record.disk, 1),
            Err(e) => {
                assert_eq!((e.code, e.retry_after_s), (ErrorCode::Unavailable, Some(3)), "{e}");
                t.store.put(1, &name(n), data(n, 1), owned()).await.unwrap();
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    drop(volume);
    t.store.take_out(&disks[0].path, DiskState::Detached).unwrap();
    all_there(&t.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_stays_while_objects_that_live_only_there_have_no_other_room() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let b = DiskSettings { budget: Some(1 << 20), ..b };
    let t = tended(std::slice::from_ref(&a), Arc::new(RealDisk)).await;
    fill(&t.store).await;
    // Its backend has this one: it makes no difference.
    t.store.put(2, "copy", Bytes::from(vec![7; 900_000]), cached()).await.unwrap();
    let only = t.store.begin_leaving(&a.path).err().unwrap();
    assert!(only.message.contains("the only disk"), "{only}");
    std::fs::create_dir(&b.path).unwrap();
    t.store.attach_disk(b.clone(), false).await.unwrap();

    let e = take_out(&t.store, &a.path, DiskState::Detached).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::OutOfSpace, "{e}");
    let report = t.store.disk_report();
    assert_eq!(report[0].state, DiskState::InUse);
    assert!(report[0].note.contains("no other disk"), "{}", report[0].note);
    all_there(&t.store).await;
    t.store.put(1, "new", data(1, 1), owned()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_was_disabled_with_objects_hides_them_until_it_is_enabled() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    let hidden = on(&t.store, 0).await;
    t.store.take_out(&disks[0].path, DiskState::Disabled { emptied: false }).unwrap();
    for n in 0..24 {
        let found = contents(&t.store, 1, &name(n)).await;
        assert_eq!(found.is_none(), hidden.contains(&n));
        assert_eq!(t.store.check_absent(1, &name(n)).unwrap_err().code, ErrorCode::Unavailable);
    }
    let e = t.store.begin_leaving(&disks[1].path).err().unwrap();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
    // Writes made while the disk is away count.
    t.store.put(1, &name(hidden[0]), data(hidden[0], 1), owned()).await.unwrap();
    t.store.put(1, &name(hidden[1]), data(0, 2), owned()).await.unwrap();
    t.store.remove(1, &name(hidden[1])).await.unwrap().unwrap();
    t.store.enable_disk(&disks[0].path).await.unwrap();
    for n in (0..24).filter(|n| *n != hidden[1]) {
        assert_eq!(contents(&t.store, 1, &name(n)).await.unwrap(), data(n, 1));
    }
    assert!(contents(&t.store, 1, &name(hidden[1])).await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_disabled_disk_hides_nothing_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let t = tended(&[a.clone(), b.clone()], Arc::new(RealDisk)).await;
    fill(&t.store).await;
    take_out(&t.store, &a.path, DiskState::Disabled { emptied: true }).await.unwrap();
    assert!(t.store.check_absent(1, "never there").is_ok());
    drop(t);
    let a = DiskSettings { disabled: Some(Disabled { emptied: true }), ..a };
    // The store before ends when the last of its tasks does.
    let path = b.path.clone();
    let is_free = || RealDisk.lock(&path.join(".forebay").join("lock")).is_ok();
    soon("the store before is closed", is_free).await;
    let t = tended(&[a.clone(), b], Arc::new(RealDisk)).await;
    assert!(t.store.check_absent(1, "never there").is_ok());
    all_there(&t.store).await;
    t.store.enable_disk(&a.path).await.unwrap();
    assert_eq!(t.store.volumes().len(), 2);
    all_there(&t.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_an_earlier_time_come_with_a_disk_only_if_they_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    let given_up = on(&t.store, 0).await;
    t.store.take_out(&disks[0].path, DiskState::Detached).unwrap();
    // They are given up, not awaited.
    assert!(t.store.check_absent(1, &name(given_up[0])).is_ok());
    t.store.put(1, &name(given_up[0]), data(0, 2), owned()).await.unwrap();
    let e = t.store.attach_disk(disks[0].clone(), false).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::Conflict, "{e}");
    assert_eq!(t.store.volumes().len(), 1);
    t.store.attach_disk(disks[0].clone(), true).await.unwrap();
    for n in 0..24 {
        let want = if n == given_up[0] { data(0, 2) } else { data(n, 1) };
        assert_eq!(contents(&t.store, 1, &name(n)).await.unwrap(), want, "{n}");
    }
}

/// Flips a bit in every page of every table of an index.
fn damage_tables(disk: &Path) -> usize {
    let index = disk.join(".forebay").join("index");
    let tables = files(&index).into_iter().filter(|f| f.parent().unwrap().ends_with("tables"));
    let mut hit = 0;
    for path in tables {
        let mut bytes = std::fs::read(&path).unwrap();
        for at in (50..bytes.len()).step_by(512) {
            bytes[at] ^= 4;
        }
        // In place: the library has the file open.
        std::fs::write(&path, bytes).unwrap();
        hit += 1;
    }
    hit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_damaged_while_it_is_used_is_made_again_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    let hit = on(&t.store, 0).await;
    let volume = t.store.volumes()[0].clone();
    volume.shared().index.flush(0x7f).unwrap();
    drop(volume);
    assert!(damage_tables(&disks[0].path) > 0);
    let mut waited = 0;
    for n in 0..24 {
        match t.store.open_object(1, &name(n)).await.unwrap() {
            Some(reader) => assert_eq!(reader.read_all().await.unwrap(), data(n, 1)),
            None => {
                // It is out of use from the first damage on.
                assert!(hit.contains(&n));
                waited += 1;
            }
        }
    }
    assert!(waited > 0, "no damage was seen");
    soon("in use again", || t.store.disks_away().is_empty()).await;
    all_there(&t.store).await;
    assert_eq!(t.store.usage().objects, 24);
    assert!(!disks[0].path.join(".forebay").join("index.damaged").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_or_listing_that_meets_a_damaged_index_is_to_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let disks = [DiskSettings::new(dir.path(), Some(1 << 30))];
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    t.store.volumes()[0].shared().index.flush(0x7f).unwrap();
    assert!(damage_tables(dir.path()) > 0);
    let listed = t.store.list(1, "", None, None, 100).await;
    if let Err(e) = listed {
        assert_eq!((e.code, e.retry_after_s), (ErrorCode::Unavailable, Some(3)), "{e}");
    }
    let mut refused = 0;
    for n in 0..24 {
        if let Err(e) = t.store.put(1, &name(n), data(n, 1), owned()).await {
            let expected = [ErrorCode::Unavailable, ErrorCode::OutOfSpace];
            assert!(expected.contains(&e.code) && e.retry_after_s.is_some(), "{e}");
            refused += 1;
        }
    }
    assert!(refused > 0, "no damage was seen");
    let sound = |v: &Arc<Volume>| !v.shared().index.is_damaged();
    soon("in use again", || t.store.volumes().first().is_some_and(sound)).await;
    all_there(&t.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubted_index_is_read_through_and_made_again_before_it_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = DiskSettings::new(dir.path(), Some(1 << 30));
    let store = Store::open(vec![settings.clone()], Arc::new(RealDisk)).await.unwrap();
    fill(&store).await;
    store.volumes()[0].shared().index.flush(0x01).unwrap();
    drop(store);
    assert!(damage_tables(dir.path()) > 0);
    let settings = DiskSettings { check_index: true, ..settings };
    let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
    all_there(&store).await;
    assert!(!store.volumes()[0].shared().index.is_damaged());
}
