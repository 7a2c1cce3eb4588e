//! Damages one place of a stopped store, anywhere, and opens it again. It never returns a wrong
//! byte and never panics, and everything that was not damaged is still there.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use proptest::prelude::*;

use super::format::SEGMENT_HEADER;
use super::log::{Entry, Found};
use super::tests::{cached, files, owned};
use super::*;

/// Gives segments of 256 KiB.
const BUDGET: u64 = 16 << 20;
const NAMES: usize = 40;

/// A frame of the log.
struct Frame {
    segment: u64,
    from: u64,
    to: u64,
    name: String,
    /// It is the newest frame of its name.
    last: bool,
}

/// A store at rest.
struct Base {
    dir: tempfile::TempDir,
    /// Current values. Names that are only in `history` were removed.
    model: BTreeMap<String, Bytes>,
    /// Every value that a name ever had.
    history: BTreeMap<String, Vec<Bytes>>,
    /// Objects in files.
    large: BTreeMap<String, u64>,
    frames: Vec<Frame>,
}

fn name(n: usize) -> String {
    format!("dir{}/object-{n:03}", n % 3)
}

fn value(n: usize, round: usize) -> Bytes {
    let sizes = [0, 1, 17, 1000, 4096, 20_000, 65_536, 65_537, 100_000, 131_072, 131_073, 200_000];
    let size = sizes[(n * 7 + round * 5) % sizes.len()];
    (0..size).map(|i: usize| (i.wrapping_mul(31) ^ (i >> 9) ^ (n << 3) ^ round) as u8).collect()
}

async fn open(path: &Path, rebuild_index: bool) -> Result<Store> {
    let settings = DiskSettings { rebuild_index, ..DiskSettings::new(path, Some(BUDGET)) };
    Store::open(vec![settings], Arc::new(RealDisk)).await
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Overwritten, removed, compacted, with sidecars, stopped twice. Parts of the index are in tables
/// and parts in its journal, depending on `variant`.
async fn build(variant: usize) -> Base {
    let dir = memory();
    let mut base = Base {
        model: BTreeMap::new(),
        history: BTreeMap::new(),
        large: BTreeMap::new(),
        frames: Vec::new(),
        dir,
    };
    let flushed = [[0, 0, 0], [0x7f, 0, 0], [0, 0x7f, 0x01], [0x01, 0x40, 0x31]][variant];
    for (round, parts) in flushed.into_iter().enumerate() {
        let store = open(base.dir.path(), false).await.unwrap();
        for n in (0..NAMES).filter(|n| (n + round) % 2 == 0 || round == 0) {
            let meta = if n % 4 == 3 { cached() } else { owned() };
            let (name, value) = (name(n), value(n, round));
            let record = store.put(1, &name, value.clone(), meta).await.unwrap();
            if n % 5 == 0 {
                assert!(store.keep_sidecar(&record, vec![n as u8; 100]).await.unwrap());
            }
            if n % 9 == 1 {
                let change = |m: &mut RecordMeta| drop(m.custom.insert("k".into(), "v".into()));
                store.update(&record, change).await.unwrap();
            }
            base.history.entry(name.clone()).or_default().push(value.clone());
            base.model.insert(name, value);
            if n % 11 == round {
                let gone = self::name((n + 5) % NAMES);
                store.remove(1, &gone).await.unwrap();
                base.model.remove(&gone);
            }
        }
        let volume = store.volumes()[0].clone();
        volume.shared().index.flush(parts).unwrap();
        if variant == 3 && round == 1 {
            blocking(move || volume.compact_all()).await.unwrap();
        }
    }
    let store = open(base.dir.path(), false).await.unwrap();
    let volume = store.volumes()[0].clone();
    let mut newest = BTreeMap::new();
    for found in volume.shared().log.scan(Default::default(), true) {
        let Found::Entry { at, len, entry, .. } = found.unwrap() else { panic!("sound") };
        let (name, sequence) = match &entry {
            Entry::Put(r) => (r.name.clone(), r.sequence),
            Entry::Remove { name, sequence, .. } => (name.clone(), *sequence),
        };
        let (from, to) = (at.offset, at.offset + len);
        let place = (sequence, base.frames.len());
        let best = newest.entry(name.clone()).or_insert(place);
        *best = (*best).max(place);
        base.frames.push(Frame { segment: at.segment, from, to, name, last: false });
    }
    newest.values().for_each(|(_, i)| base.frames[*i].last = true);
    for record in volume.records() {
        let record = record.unwrap();
        base.large.extend(record.extents().iter().map(|e| (record.name.clone(), e.id)));
    }
    let segments: BTreeSet<u64> = base.frames.iter().map(|f| f.segment).collect();
    assert!(segments.len() > 3 && base.large.len() > 3 && base.model.len() < NAMES);
    base
}

fn base(variant: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; 4] = [const { OnceLock::new() }; 4];
    BASES[variant].get_or_init(|| runtime().block_on(build(variant)))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(u8),
    Cut,
    ZeroPage,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Log,
    Objects,
    Sidecars,
    Index,
}

/// One place, chosen in thousandths (of files, then of bytes) so that it fits every store.
#[derive(Clone, Debug)]
struct Case {
    variant: usize,
    part: Part,
    file: u32,
    at: u32,
    /// Of a file that ends in zeros only the used part.
    used: bool,
    damage: Damage,
    rebuild: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let part = prop_oneof![
        3 => Just(Part::Log),
        2 => Just(Part::Objects),
        1 => Just(Part::Sidecars),
        5 => Just(Part::Index),
    ];
    let damage = prop_oneof![
        4 => (0..8u8).prop_map(Damage::Flip),
        1 => Just(Damage::Cut),
        1 => Just(Damage::ZeroPage),
    ];
    (0..4usize, part, any::<u32>(), any::<u32>(), any::<bool>(), damage, 0..5u8).prop_map(
        |(variant, part, file, at, used, damage, rebuild)| Case {
            variant,
            part,
            file,
            at,
            used,
            damage,
            rebuild: rebuild == 0,
        },
    )
}

/// The damage that was done: the file, and bytes of it.
struct Hit {
    path: PathBuf,
    from: u64,
    to: u64,
}

/// Some damaged bytes in the index library's manifests abort the process that opens them. The next
/// process rebuilds the index, see `an_index_that_ended_a_process_is_made_again`.
fn may_abort(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_str().unwrap();
    let is_version = name.strip_prefix('v').is_some_and(|n| n.parse::<u64>().is_ok());
    is_version && file.to_str().unwrap().contains("/keyspaces/")
}

fn strike(disk: &Path, case: &Case) -> Hit {
    let folder = match case.part {
        Part::Log => disk.join("log"),
        Part::Objects => disk.join("objects"),
        Part::Sidecars => disk.join("companions"),
        Part::Index => disk.join(".forebay/index"),
    };
    let mut all = files(&folder);
    all.retain(|f| fs::metadata(f).unwrap().len() > 0 && !may_abort(f));
    all.sort();
    let path = all.swap_remove(case.file as usize % all.len());
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len();
    let used = bytes.iter().rposition(|b| *b != 0).map_or(1, |last| last + 1);
    let at = case.at as usize % if case.used { used } else { len };
    let (from, to) = match case.damage {
        Damage::Flip(bit) => {
            bytes[at] ^= 1 << bit;
            (at, at + 1)
        }
        Damage::Cut => {
            bytes.truncate(at);
            (at, len)
        }
        Damage::ZeroPage => {
            let page = at / 4096 * 4096..(at / 4096 * 4096 + 4096).min(len);
            bytes[page.clone()].fill(0);
            (page.start, page.end)
        }
    };
    fs::write(&path, bytes).unwrap();
    Hit { path, from: from as u64, to: to as u64 }
}

/// Names whose newest frame was damaged.
fn hit_names(base: &Base, case: &Case, hit: &Hit) -> BTreeSet<String> {
    let id = || u64::from_str_radix(hit.path.file_name().unwrap().to_str().unwrap(), 16).unwrap();
    match case.part {
        Part::Log => {
            let hits = |f: &&Frame| {
                // All header fields are known or stored twice.
                let header = hit.from < SEGMENT_HEADER && hit.to > SEGMENT_HEADER;
                f.segment == id() && f.last && (header || f.from < hit.to && hit.from < f.to)
            };
            base.frames.iter().filter(hits).map(|f| f.name.clone()).collect()
        }
        Part::Objects => {
            base.large.iter().filter(|(_, file)| **file == id()).map(|(n, _)| n.clone()).collect()
        }
        Part::Sidecars | Part::Index => BTreeSet::new(),
    }
}

/// Reads one object in all ways; they must agree where they work. `Err` if one of them failed.
async fn read(store: &Store, name: &str) -> Result<Option<Bytes>> {
    let small = store.read_small(1, name, 1 << 20).await?;
    let Some(reader) = store.open_object(1, name).await? else {
        assert!(small.is_none(), "{name}");
        return Ok(None);
    };
    let all = reader.read_all().await?;
    assert!(small.unwrap().1.unwrap() == all, "{name}: read in two ways");
    let (start, end) = (reader.record().size / 3, reader.record().size);
    let range = reader.read(ByteRange { start, end }).await?;
    assert!(range == all.slice(start as usize..), "{name}: a range of it");
    if let Some(sidecar) = store.sidecar(reader.record()).await? {
        assert_eq!(sidecar.len(), 100);
        assert!(sidecar.iter().all(|b| name == self::name(*b as usize)));
    }
    Ok(Some(all))
}

/// Whether everything could be read. `index_hit`: errors are excused, wrong answers are not.
/// `rebuilt`: if the log was damaged, older values of the damaged objects may come back.
async fn check(
    store: &Store,
    base: &Base,
    hit: &BTreeSet<String>,
    index_hit: bool,
    rebuilt: bool,
) -> bool {
    let mut sound = true;
    let usage = store.usage();
    let listed = store.list(1, "", None, None, 1000).await;
    match &listed {
        Ok((rows, false)) => {
            let listed: BTreeSet<&str> = rows.iter().map(|r| r.name.as_str()).collect();
            for name in base.history.keys().filter(|n| !rebuilt || !hit.contains(*n)) {
                let there = base.model.contains_key(name);
                assert_eq!(listed.contains(name.as_str()), there, "{name} in the list");
            }
            assert_eq!(usage.objects as usize, rows.len());
            assert_eq!(usage.bytes, rows.iter().map(|r| r.size).sum::<u64>());
        }
        Ok((_, true)) => panic!("more than there can be"),
        Err(e) => {
            assert!(index_hit, "{e}");
            sound = false;
        }
    }
    for (name, history) in &base.history {
        let (found, want) = (read(store, name).await, base.model.get(name));
        match found {
            Ok(found) if found.as_ref() == want => {}
            Ok(Some(found)) => {
                assert!(rebuilt && hit.contains(name), "{name}: a wrong value");
                assert!(history.contains(&found), "{name}: no value it ever had");
            }
            Ok(None) => assert!(rebuilt && hit.contains(name), "{name} is lost"),
            Err(e) => {
                assert!(is_corrupt(&e) || index_hit, "{name}: {e}");
                assert!(index_hit || hit.contains(name), "{name} was not hit: {e}");
                sound = false;
            }
        }
    }
    sound
}

async fn run(base: &Base, case: &Case) {
    let dir = memory();
    let disk = dir.path();
    copy(base.dir.path(), disk);
    let hit = strike(disk, case);
    let names = hit_names(base, case, &hit);
    let mut index_hit = matches!(case.part, Part::Index);
    // A log that is shorter than its index says may come from a power cut: the index is rebuilt as
    // well.
    let mut rebuilt = case.rebuild || matches!((case.part, case.damage), (Part::Log, Damage::Cut));
    let mut store = match open(disk, case.rebuild).await {
        Ok(store) => store,
        Err(e) => {
            assert!(index_hit && !case.rebuild, "{e}");
            eprintln!("not opened by itself: {e}: {case:?} {:?}", hit.path);
            rebuilt = true;
            open(disk, true).await.unwrap()
        }
    };
    if rebuilt {
        index_hit = false;
    }
    if !check(&store, base, &names, index_hit, rebuilt).await && index_hit {
        // The store noticed, so the next start makes the index again.
        drop(store);
        store = open(disk, false).await.unwrap();
        index_hit = false;
        assert!(check(&store, base, &names, false, true).await);
    }
    // The store still works.
    let new = Bytes::from_static(b"new");
    let mut acknowledged = Vec::new();
    for n in [0, 1, 7] {
        match store.put(1, &name(n), new.clone(), owned()).await {
            Ok(_) => acknowledged.push(name(n)),
            Err(e) => assert!(index_hit, "{e}"),
        }
    }
    drop(store);
    let mut store = open(disk, false).await.unwrap();
    let mut left = acknowledged.as_slice();
    for _ in 0..2 {
        while let Some((name, rest)) = left.split_first() {
            match read(&store, name).await {
                Ok(found) => assert_eq!(found, Some(new.clone())),
                Err(e) if index_hit => {
                    eprintln!("once more: {e}");
                    break;
                }
                Err(e) => panic!("{name}: {e}"),
            }
            left = rest;
        }
        if left.is_empty() {
            return;
        }
        drop(store);
        store = open(disk, false).await.unwrap();
        index_hit = false;
    }
    panic!("{left:?} cannot be read");
}

#[tokio::test]
async fn an_index_that_ended_a_process_is_made_again() {
    let dir = memory();
    let store = open(dir.path(), false).await.unwrap();
    store.put(1, &name(1), value(1, 0), owned()).await.unwrap();
    let index = dir.path().join(".forebay/index");
    drop(store);
    for file in files(&index) {
        fs::write(file, b"nothing that anybody could read").unwrap();
    }
    // The note that a process leaves if it ends while it opens the index.
    let note = super::index::distrusted(&index);
    fs::write(&note, b"").unwrap();
    for _ in 0..2 {
        let store = open(dir.path(), false).await.unwrap();
        assert_eq!(read(&store, &name(1)).await.unwrap(), Some(value(1, 0)));
        assert!(!note.exists());
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    ProptestConfig {
        cases,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn damage_anywhere_is_never_a_wrong_byte_and_never_spreads(case in cases()) {
        let base = base(case.variant);
        runtime().block_on(run(base, &case));
    }
}
