//! Fetches a large object by several concurrent ranges: the first bytes come from the response with
//! its size, the rest by ranges of the same version, read ahead within a share of memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use forebay_clouds::{Backend, BodyStream, RemoteMeta, RemoteObject};
use forebay_core::bucket::{BucketInfo, FetchRanges};
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::cgroup::Resources;
use forebay_node::exchange::carried;
use forebay_v1::object::BlobArgs;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

/// Memory of a target for ranges that arrived ahead, in MiB: at most this, and an eighth of what the
/// process may use.
const MEMORY: usize = 128;
const MEMORY_DIVISOR: u64 = 8;
const MIB: u64 = 1 << 20;
const CONCURRENCY: usize = 4;
/// Ranges that arrived ahead are passed on in chunks of this size.
const STEP: usize = 256 << 10;

/// Memory budget that all fetches of a target share.
#[derive(Clone)]
pub(super) struct AheadMemory(Arc<Semaphore>);

impl Default for AheadMemory {
    fn default() -> Self {
        let bytes = Resources::read().bounded(MEMORY as u64 * MIB, MEMORY_DIVISOR);
        Self(Arc::new(Semaphore::new(usize::try_from(bytes / MIB).unwrap_or(MEMORY))))
    }
}

impl AheadMemory {
    /// Reserves this many bytes, if they are free now.
    fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(MIB)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(units).ok()
    }
}

/// How an object is split into ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Objects up to this size are fetched by one request.
    pub(super) above: u64,
    pub(super) chunk: u64,
    /// Requests in flight, including the first.
    pub(super) concurrency: usize,
}

impl Ranges {
    /// The bucket's settings.
    pub(super) fn of(info: &BucketInfo) -> Self {
        let kind = info.backend.as_ref().map(|backend| backend.kind);
        let FetchRanges { above, range } = FetchRanges::of(kind, &info.cloud);
        Self { above, chunk: range, concurrency: CONCURRENCY }
    }
}

/// Opens a whole object.
pub(super) async fn open(
    backend: Arc<dyn Backend>,
    name: &str,
    ranges: Ranges,
    memory: &AheadMemory,
) -> Result<RemoteObject> {
    let RemoteObject { meta, range, stream } = backend.get(name, None, None).await?;
    // Without a version the ranges could be those of different objects.
    if meta.size <= ranges.above || meta.version.is_empty() || ranges.concurrency < 2 {
        return Ok(RemoteObject { meta, range, stream });
    }
    let chunk = ranges.chunk.max(1);
    let ahead = Ahead {
        from: RangeSource { backend, name: name.into(), meta: meta.clone() },
        chunk,
        concurrency: ranges.concurrency,
        memory: memory.clone(),
        left: chunk.min(meta.size),
        current: stream,
        next: chunk.min(meta.size),
        queue: VecDeque::new(),
    };
    let stream = futures::stream::try_unfold(ahead, |mut ahead| async move {
        Ok(ahead.next_bytes().await?.map(|bytes| (bytes, ahead)))
    });
    Ok(RemoteObject { meta, range, stream: stream.boxed() })
}

/// One version of an object.
#[derive(Clone)]
struct RangeSource {
    backend: Arc<dyn Backend>,
    name: Arc<str>,
    meta: RemoteMeta,
}

impl RangeSource {
    async fn open(&self, range: ByteRange) -> Result<BodyStream> {
        let RemoteMeta { size, version, .. } = &self.meta;
        let got = self.backend.get(&self.name, Some(range), Some(version)).await;
        match got {
            Ok(object) if object.range == range && object.meta.size == *size => Ok(object.stream),
            // A shorter object does not have the range at all.
            Err(e) if e.code != ErrorCode::RangeNotSatisfiable => Err(e),
            _ => {
                let text = format!("{} changed while it was read", self.name);
                Err(Error::new(ErrorCode::ObjectChanged, text).hint("read it again"))
            }
        }
    }

    async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let mut stream = self.open(range).await?;
        let mut all = BytesMut::with_capacity(range.len() as usize);
        while let Some(bytes) = stream.try_next().await? {
            all.extend_from_slice(&bytes);
        }
        if all.len() as u64 != range.len() {
            return Err(self.too_little());
        }
        Ok(all.freeze())
    }

    fn too_little(&self) -> Error {
        Error::unavailable(format!("the backend sent too little of {}", self.name))
    }
}

/// A range that arrived ahead.
struct Piece {
    bytes: Bytes,
    room: OwnedSemaphorePermit,
}

struct Ahead {
    from: RangeSource,
    chunk: u64,
    concurrency: usize,
    memory: AheadMemory,
    /// The remaining bytes of the current range, and their source.
    left: u64,
    current: BodyStream,
    /// The first byte that was not requested yet.
    next: u64,
    queue: VecDeque<AbortOnDropHandle<Result<Piece>>>,
}

impl Ahead {
    async fn next_bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.fetch_ahead();
            if self.left > 0 {
                let mut bytes =
                    self.current.next().await.ok_or_else(|| self.from.too_little())??;
                bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= bytes.len() as u64;
                if self.left == 0 {
                    // Releases the connection and its permit immediately.
                    self.current = futures::stream::empty().boxed();
                }
                return Ok(Some(bytes));
            }
            if let Some(piece) = self.queue.pop_front() {
                let piece = piece.await.map_err(|e| Error::unavailable(e.to_string()))??;
                self.left = piece.bytes.len() as u64;
                self.current = slices(piece);
            } else if self.next < self.from.meta.size {
                // There was no memory: this range is streamed as it arrives.
                let range = self.take_range();
                self.left = range.len();
                self.current = self.from.open(range).await?;
            } else {
                return Ok(None);
            }
        }
    }

    fn take_range(&mut self) -> ByteRange {
        let end = self.next.saturating_add(self.chunk).min(self.from.meta.size);
        ByteRange { start: std::mem::replace(&mut self.next, end), end }
    }

    fn fetch_ahead(&mut self) {
        while self.queue.len() + 1 < self.concurrency && self.next < self.from.meta.size {
            let len = self.chunk.min(self.from.meta.size - self.next);
            let Some(room) = self.memory.room(len) else { return };
            let (from, range) = (self.from.clone(), self.take_range());
            let read = async move { Ok(Piece { bytes: from.read(range).await?, room }) };
            self.queue.push_back(AbortOnDropHandle::new(tokio::spawn(carried(read))));
        }
    }
}

/// Chunks of a range, which hold its memory reservation until the last of them is dropped.
fn slices(piece: Piece) -> BodyStream {
    futures::stream::unfold(piece, |Piece { mut bytes, room }| async move {
        if bytes.is_empty() {
            return None;
        }
        let step = bytes.split_to(bytes.len().min(STEP));
        Some((Ok(step), Piece { bytes, room }))
    })
    .boxed()
}

/// Maximum of bytes of one download in memory.
const BLOB_MEMORY: u64 = 64 << 20;

/// Options of a fetch by ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobOptions {
    /// Bytes per range.
    pub(crate) chunk: u64,
    /// Number of concurrent ranges.
    pub(crate) workers: usize,
    /// Compares an existing copy with the backend first.
    pub(crate) latest: bool,
}

impl From<BlobArgs> for BlobOptions {
    fn from(args: BlobArgs) -> Self {
        Self { chunk: args.chunk, workers: args.workers, latest: args.latest }
    }
}

impl From<BlobOptions> for Ranges {
    fn from(how: BlobOptions) -> Self {
        Self { above: how.chunk, chunk: how.chunk, concurrency: how.concurrency() }
    }
}

impl BlobOptions {
    fn concurrency(self) -> usize {
        self.workers.clamp(1, usize::try_from(BLOB_MEMORY / self.chunk.max(1)).unwrap_or(1).max(1))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_clouds::folder::FolderBackend;
    use forebay_clouds::{Fault, Faulty, Op, PutBody};
    use forebay_core::name::{Bucket, Provider};

    use super::*;
    use crate::object::tests::pattern;

    const RANGES: Ranges = Ranges { above: 1000, chunk: 1000, concurrency: 3 };

    struct Origin {
        faulty: Arc<Faulty>,
        memory: AheadMemory,
        _dir: tempfile::TempDir,
    }

    impl Origin {
        async fn with(bytes: &[u8]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("root");
            std::fs::create_dir(&root).unwrap();
            let bucket = Bucket::new(Provider::Ais, "b").unwrap();
            let roots = [dir.path().to_owned()];
            let folder = FolderBackend::open(bucket, root, &roots).await.unwrap();
            folder.put("x", PutBody::from_bytes(bytes.to_vec())).await.unwrap();
            let faulty = Arc::new(Faulty::new(Arc::new(folder)));
            Self { faulty, memory: AheadMemory::default(), _dir: dir }
        }

        async fn read(&self, ranges: Ranges) -> Result<Vec<u8>> {
            let opened = open(self.faulty.clone(), "x", ranges, &self.memory).await?;
            let parts: Vec<Bytes> = opened.stream.try_collect().await?;
            Ok(parts.concat())
        }

        fn gets(&self) -> u64 {
            self.faulty.calls(Op::Get)
        }
    }

    #[tokio::test]
    async fn every_byte_comes_once_and_in_order() {
        for (size, gets) in [(0, 1), (1000, 1), (1001, 2), (2000, 2), (10_500, 11)] {
            let bytes = pattern(size);
            let origin = Origin::with(&bytes).await;
            assert!(origin.read(RANGES).await.unwrap() == bytes, "{size}");
            assert_eq!(origin.gets(), gets, "{size}");
        }
    }

    #[tokio::test]
    async fn without_memory_the_ranges_come_one_after_the_other() {
        let bytes = pattern(5000);
        let origin = Origin::with(&bytes).await;
        let free = origin.memory.0.available_permits();
        let all = origin.memory.0.clone().acquire_many_owned(free as u32).await.unwrap();
        assert!(origin.read(RANGES).await.unwrap() == bytes);
        drop(all);
        assert!(origin.read(RANGES).await.unwrap() == bytes);
        assert_eq!(origin.memory.0.available_permits(), free, "all of it is given back");
    }

    #[tokio::test]
    async fn what_is_dropped_midway_gives_its_memory_back() {
        let origin = Origin::with(&pattern(50_000)).await;
        let free = origin.memory.0.available_permits();
        let opened = open(origin.faulty.clone(), "x", RANGES, &origin.memory).await.unwrap();
        let mut stream = opened.stream;
        stream.next().await.unwrap().unwrap();
        drop(stream);
        while origin.memory.0.available_permits() < free {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_object_replaced_midway_is_never_mixed() {
        let origin = Origin::with(&pattern(5000)).await;
        let opened = open(origin.faulty.clone(), "x", RANGES, &origin.memory).await.unwrap();
        origin.faulty.put("x", PutBody::from_bytes(vec![7; 5000])).await.unwrap();
        let rest: Result<Vec<Bytes>> = opened.stream.try_collect().await;
        assert_eq!(rest.unwrap_err().code, ErrorCode::ObjectChanged);
    }

    #[tokio::test]
    async fn a_range_that_comes_short_is_an_error() {
        let origin = Origin::with(&pattern(5000)).await;
        origin.faulty.on_call(Op::Get, 3, Fault::Truncate(10));
        let e = origin.read(RANGES).await.unwrap_err();
        assert!(e.message.contains("too little"), "{e}");
    }

    #[test]
    fn memory_is_bounded_whatever_is_asked() {
        let concurrency =
            |chunk, workers| BlobOptions { chunk, workers, latest: false }.concurrency();
        assert_eq!(concurrency(4 << 20, 4), 4);
        assert_eq!(concurrency(4 << 20, 128), 16);
        assert_eq!(concurrency(64 << 20, 128), 1);
        assert_eq!(concurrency(0, 0), 1);
    }
}
