//! The counters of buckets equal a scan, whatever happened.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use forebay_core::history;
use proptest::prelude::*;

use super::attach_tests::no_lock;
use super::faulty::{Fault, FaultyDisk};
use super::tests::{FILE_OBJECT_BYTES, cached, open, owned, payload, rebuilt};
use super::*;

const BUCKETS: [u64; 3] = [1, 2, 7];
const LARGE: &str = "large";
/// Two granules and a bit of a third one.
const LARGE_BYTES: u64 = 2 * GRANULE + 70_001;

/// Counts by a scan of each disk: whole objects from the index, partial ones from their maps.
async fn scan(store: &Store) -> BTreeMap<u64, BucketUsage> {
    let mut all = BTreeMap::<u64, BucketUsage>::new();
    for volume in store.volumes().iter() {
        for record in volume.records() {
            let record = record.unwrap();
            let sum = all.entry(record.bucket_id).or_default();
            (sum.objects, sum.bytes) = (sum.objects + 1, sum.bytes + record.size);
        }
    }
    for head in store.volumes().iter().flat_map(|v| v.partial_heads()) {
        let partial = store.partial(head.bucket_id, &head.name).await.unwrap().unwrap();
        let sum = all.entry(head.bucket_id).or_default();
        sum.partial_objects += 1;
        let stored = (0..head.granules()).filter(|granule| partial.has(*granule));
        sum.partial_bytes += stored.map(|granule| head.granule_len(granule)).sum::<u64>();
    }
    all
}

/// Compares all counters with a scan, and their bounds with the access times of the scan.
async fn compare(store: &Store, place: &str) {
    let counters = store.bucket_usages().await.unwrap();
    let mut oldest = BTreeMap::<u64, u64>::new();
    for volume in store.volumes().iter() {
        for record in volume.records() {
            let record = record.unwrap();
            let least = oldest.entry(record.bucket_id).or_insert(u64::MAX);
            *least = (*least).min(record.meta.atime_ns);
        }
    }
    let mut plain = counters.clone();
    for (id, usage) in &mut plain {
        let least = oldest.get(id).copied().unwrap_or(u64::MAX);
        assert!(usage.no_access_before_ns <= least, "{place}: bucket {id}");
        usage.no_access_before_ns = 0;
    }
    assert_eq!(plain, scan(store).await, "{place}");
    for (id, usage) in counters {
        assert_eq!(store.bucket_usage(id).await.unwrap(), usage, "{place}");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        bucket: usize,
        name: u8,
        bytes: usize,
        is_owned: bool,
    },
    Remove {
        bucket: usize,
        name: u8,
    },
    RemoveBucket(usize),
    Update {
        bucket: usize,
        name: u8,
    },
    /// Removes evictable copies of one disk, the oldest first.
    Evict(usize),
    Keep {
        bucket: usize,
        granules: Vec<u32>,
    },
    Complete(usize),
    EvictPartials(u64),
    Compact,
    Resilver,
    /// One disk leaves with its objects, which are written or removed meanwhile, and comes back.
    DiskAway {
        put: u8,
        remove: u8,
    },
    /// A crash at this step of the following changes; then the disks are opened again.
    Crash {
        steps: u64,
        torn: bool,
    },
    Reopen {
        rebuild: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (bucket, name) = (0..BUCKETS.len(), 0u8..8);
    let bytes = prop_oneof![4 => 0usize..3000, 1 => Just(FILE_OBJECT_BYTES)];
    let op = prop_oneof![
        10 => (bucket.clone(), name.clone(), bytes, any::<bool>())
            .prop_map(|(bucket, name, bytes, is_owned)| Op::Put { bucket, name, bytes, is_owned }),
        4 => (bucket.clone(), name.clone()).prop_map(|(bucket, name)| Op::Remove { bucket, name }),
        1 => bucket.clone().prop_map(Op::RemoveBucket),
        1 => (bucket.clone(), name.clone()).prop_map(|(bucket, name)| Op::Update { bucket, name }),
        2 => (0usize..4).prop_map(Op::Evict),
        5 => (bucket.clone(), proptest::collection::vec(0u32..3, 1..3))
            .prop_map(|(bucket, granules)| Op::Keep { bucket, granules }),
        2 => bucket.prop_map(Op::Complete),
        1 => (0u64..600_000).prop_map(Op::EvictPartials),
        1 => Just(Op::Compact),
        1 => Just(Op::Resilver),
        1 => (name.clone(), name).prop_map(|(put, remove)| Op::DiskAway { put, remove }),
        2 => (0u64..12, any::<bool>()).prop_map(|(steps, torn)| Op::Crash { steps, torn }),
        1 => any::<bool>().prop_map(|rebuild| Op::Reopen { rebuild }),
    ];
    proptest::collection::vec(op, 1..40)
}

/// A store over two disks whose changes may fail at a planned step.
struct Bench {
    dir: tempfile::TempDir,
    io: FaultyDisk,
    store: Option<Store>,
    clock: u64,
}

impl Bench {
    async fn new() -> Self {
        let dir = super::crash_tests::folder();
        let mut bench = Self { dir, io: FaultyDisk::new(), store: None, clock: 1_000 };
        bench.reopen(None, false).await;
        bench
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Opens the disks but one as after the end of the process.
    async fn reopen(&mut self, away: Option<&str>, rebuild_index: bool) {
        drop(self.store.take());
        self.io = FaultyDisk::new();
        let settings = ["a", "b"].into_iter().map(|disk| DiskSettings {
            rebuild_index,
            disabled: (away == Some(disk)).then_some(Disabled { emptied: false }),
            ..DiskSettings::new(self.dir.path().join(disk), Some(1 << 30))
        });
        let store = Store::open(settings.collect(), Arc::new(self.io.clone())).await.unwrap();
        self.store = Some(store);
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Makes a change; after a planned crash it may fail.
    async fn apply(&mut self, op: Op) -> Result<()> {
        let now_ns = self.now();
        let id = |bucket: usize| BUCKETS[bucket];
        let object = |name: u8| format!("o{name}");
        match op {
            Op::Put { bucket, name, bytes, is_owned } => {
                let meta = if is_owned { owned() } else { cached() };
                let meta = RecordMeta { atime_ns: now_ns, ..meta };
                let data = payload(bytes, name);
                self.store().drop_partial(id(bucket), &object(name)).await?;
                self.store().put(id(bucket), &object(name), data, meta).await?;
            }
            Op::Remove { bucket, name } => {
                self.store().remove(id(bucket), &object(name)).await?;
            }
            Op::RemoveBucket(bucket) => {
                self.store().remove_bucket(id(bucket)).await?;
            }
            Op::Update { bucket, name } => {
                if let Some(record) = self.store().get(id(bucket), &object(name)).await? {
                    let change = move |meta: &mut RecordMeta| {
                        meta.custom.insert("time".into(), now_ns.to_string());
                        meta.epoch += 1;
                    };
                    self.store().update(&record, change).await?;
                    self.store().touch(&record, now_ns);
                    self.store().flush().await?;
                }
            }
            Op::Evict(limit) => {
                let volume = self.store().volumes()[0].clone();
                let evicted = move || {
                    let records = volume.residents(0, limit.max(1))?;
                    volume.remove_all_blocking(&records)
                };
                blocking(evicted).await?;
            }
            Op::Keep { bucket, granules } => self.keep(id(bucket), &granules).await?,
            Op::Complete(bucket) => {
                if let Some(partial) = self.store().partial(id(bucket), LARGE).await? {
                    let meta = RecordMeta { atime_ns: now_ns, ..cached() };
                    self.store().complete_partial(&partial, meta).await?;
                }
            }
            Op::EvictPartials(need) => {
                let volumes = self.store().volumes();
                let evict = move |v: &Arc<Volume>| drop(v.evict_partials(need, u64::MAX, |_| true));
                blocking(move || {
                    volumes.iter().for_each(evict);
                    Ok(())
                })
                .await?;
            }
            Op::Compact => {
                let volumes = self.store().volumes().to_vec();
                for volume in volumes {
                    blocking(move || volume.compact_all()).await?;
                }
            }
            Op::Resilver => {
                self.store().resilver_once(&no_lock()).await?;
            }
            Op::DiskAway { put, remove } => {
                self.reopen(Some("a"), false).await;
                let meta = RecordMeta { atime_ns: now_ns, ..owned() };
                self.store().put(1, &object(put), payload(50, put), meta).await?;
                self.store().remove(1, &object(remove)).await?;
                compare(self.store(), "one disk").await;
                self.reopen(None, false).await;
            }
            Op::Crash { steps, torn } => {
                self.io.plan(steps, if torn { Fault::Torn } else { Fault::Crash });
            }
            Op::Reopen { rebuild } => self.reopen(None, rebuild).await,
        }
        Ok(())
    }

    async fn keep(&self, bucket_id: u64, granules: &[u32]) -> Result<()> {
        let store = self.store();
        if store.get(bucket_id, LARGE).await?.is_some() {
            return Ok(());
        }
        let partial = match store.partial(bucket_id, LARGE).await? {
            Some(partial) => partial,
            None => {
                let (name, made_ns) = (LARGE.to_owned(), self.clock);
                let head =
                    PartialHead { bucket_id, name, size: LARGE_BYTES, made_ns, ..<_>::default() };
                store.begin_partial(head, Validation::default()).await?
            }
        };
        let mut writer = store.fill_partial(&partial, granules.len() as u32).await?;
        for granule in granules {
            let len = partial.head().granule_len(*granule) as usize;
            writer.keep(*granule, payload(len, 5)).await?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn counters_equal_a_scan_after_any_history(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new().await;
            for (n, op) in ops.into_iter().enumerate() {
                let place = format!("after change {n}, {op:?}");
                let is_done = bench.apply(op).await.is_ok();
                if bench.io.struck() {
                    bench.reopen(None, false).await;
                } else {
                    assert!(is_done, "{place}");
                }
                compare(bench.store(), &place).await;
            }
            for rebuild in [false, true] {
                bench.reopen(None, rebuild).await;
                compare(bench.store(), if rebuild { "rebuilt" } else { "opened again" }).await;
            }
        });
    }
}

async fn some_objects(path: &Path) -> Store {
    let store = open(path).await.unwrap();
    for n in 0..40u8 {
        let bucket = BUCKETS[usize::from(n) % BUCKETS.len()];
        let meta = RecordMeta { atime_ns: 100 + u64::from(n), ..cached() };
        let name = format!("o{n}");
        store.put(bucket, &name, payload(usize::from(n), 0), meta).await.unwrap();
    }
    store
}

#[tokio::test]
async fn an_index_of_an_earlier_version_gets_counters_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let store = some_objects(dir.path()).await;
    let before = store.bucket_usages().await.unwrap();
    assert_eq!(before.values().map(|usage| usage.objects).sum::<u64>(), 40);
    assert_eq!(before[&1].no_access_before_ns, 100);
    store.volumes()[0].shared().index.forget_buckets().unwrap();
    drop(store);
    // A crash at any step of opening leaves an index that is counted the next time.
    for step in 0.. {
        let io = FaultyDisk::new();
        io.plan(step, Fault::Crash);
        let settings = vec![DiskSettings::new(dir.path(), Some(1 << 30))];
        let opened = Store::open(settings, Arc::new(io.clone())).await;
        if opened.is_ok() && !io.struck() {
            break;
        }
    }
    for _ in 0..2 {
        let store = open(dir.path()).await.unwrap();
        assert!(store.volumes()[0].shared().index.counts_buckets());
        assert_eq!(store.bucket_usages().await.unwrap(), before);
    }
    assert_eq!(rebuilt(dir.path()).await.unwrap().bucket_usages().await.unwrap(), before);
}

#[tokio::test]
async fn a_removed_bucket_has_no_counters_and_tombstones_are_not_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let store = some_objects(dir.path()).await;
    let tombstones = history::tombstones(2);
    store.put(tombstones, "gone", Bytes::new(), owned()).await.unwrap();
    let objects = store.bucket_usage(2).await.unwrap().objects;
    assert_eq!((objects, store.bucket_usage(tombstones).await.unwrap().objects), (13, 1));
    assert_eq!(store.remove_bucket(1).await.unwrap().0, 14);
    let gone = |store: Store| async move {
        assert_eq!(store.bucket_usage(1).await.unwrap(), BucketUsage::default());
        let ids: Vec<u64> = store.bucket_usages().await.unwrap().into_keys().collect();
        assert_eq!(ids, [2, 7, tombstones]);
    };
    gone(store).await;
    gone(open(dir.path()).await.unwrap()).await;
    gone(rebuilt(dir.path()).await.unwrap()).await;
}

#[tokio::test]
async fn damaged_counters_are_made_again_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = some_objects(dir.path()).await;
    let before = store.bucket_usages().await.unwrap();
    store.volumes()[0].shared().index.damage_buckets().unwrap();
    drop(store);
    assert_eq!(open(dir.path()).await.unwrap().bucket_usages().await.unwrap(), before);
}
