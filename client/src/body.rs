//! Upload bodies: bytes that can be sent again, and one transmission of them.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, TryStreamExt};
use http_body::{Frame, SizeHint};
use tokio_util::io::ReaderStream;

use forebay_core::Error as CoreError;
use forebay_core::buffers::GrowingBuffer;
use forebay_core::locks::MutexExt;

/// Bytes being read.
pub type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;
/// Opens the source of a body from its start; called once per try.
pub type OpenStream = Arc<dyn Fn() -> BoxFuture<'static, io::Result<ByteStream>> + Send + Sync>;

const READ_SIZE: usize = 256 << 10;

/// The body of a PUT.
#[derive(Clone)]
pub enum Body {
    /// All of it, in memory.
    Bytes(Bytes),
    /// Read while it is sent.
    Stream {
        /// Number of bytes, if known; more or fewer are an error.
        len: Option<u64>,
        /// Opens the stream again for each try.
        open: OpenStream,
    },
}

impl Body {
    /// The content of a file, whose size must not change meanwhile.
    pub async fn file(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path: PathBuf = path.into();
        let len = tokio::fs::metadata(&path).await?.len();
        let open: OpenStream = Arc::new(move || {
            let path = path.clone();
            Box::pin(async move {
                let file = tokio::fs::File::open(path).await?;
                let stream: ByteStream = Box::pin(ReaderStream::with_capacity(file, READ_SIZE));
                Ok(stream)
            })
        });
        Ok(Self::Stream { len: Some(len), open })
    }

    /// A stream that can be read only once, of unknown length: such a PUT is tried once.
    pub fn once(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self::Stream { len: None, open: once(stream) }
    }

    /// As [`Self::once`], of a length that may be known.
    pub(crate) fn once_of(
        stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        len: Option<u64>,
    ) -> Self {
        Self::Stream { len, open: once(stream) }
    }

    /// Length of the body in bytes, if known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Stream { len, .. } => *len,
        }
    }

    /// Whether the body is known to have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Opens the body for one try.
    pub(crate) async fn open(&self) -> Result<(Upload, Arc<Progress>), CoreError> {
        let progress = Arc::new(Progress::default());
        let source = match self {
            Self::Bytes(bytes) => Source::Bytes(Some(bytes.clone()).filter(|b| !b.is_empty())),
            Self::Stream { len, open } => {
                let stream = open().await.map_err(unreadable)?;
                Source::Stream { stream, left: *len }
            }
        };
        Ok((Upload { source, progress: progress.clone() }, progress))
    }
}

fn once(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> OpenStream {
    let stream: Mutex<Option<ByteStream>> = Mutex::new(Some(Box::pin(stream)));
    Arc::new(move || {
        let taken = stream.locked().take();
        Box::pin(async move { taken.ok_or_else(|| io::Error::other("cannot be read twice")) })
    })
}

fn unreadable(e: io::Error) -> CoreError {
    let mut error = CoreError::from(e);
    error.message = format!("cannot read what is to be sent: {}", error.message);
    error
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(text.into())
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Body({:?} bytes)", self.len())
    }
}

/// Progress of one transmission, for the task that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    sent: AtomicU64,
    failed: Mutex<Option<CoreError>>,
}

impl Progress {
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The failure of the local source; another try cannot help.
    pub(crate) fn failure(&self) -> Option<CoreError> {
        self.failed.locked().clone()
    }

    fn fail(&self, error: CoreError) -> io::Error {
        let shown = io::Error::other(error.to_string());
        *self.failed.locked() = Some(error);
        shown
    }
}

enum Source {
    Bytes(Option<Bytes>),
    Stream { stream: ByteStream, left: Option<u64> },
}

/// The request body of one try.
pub(crate) struct Upload {
    source: Source,
    progress: Arc<Progress>,
}

impl Upload {
    pub(crate) fn empty() -> Self {
        Self { source: Source::Bytes(None), progress: Arc::default() }
    }
}

impl From<Vec<u8>> for Upload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<Bytes> for Upload {
    fn from(bytes: Bytes) -> Self {
        let bytes = Some(bytes).filter(|b| !b.is_empty());
        Self { source: Source::Bytes(bytes), progress: Arc::default() }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let next = match &mut this.source {
            Source::Bytes(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Source::Stream { stream, left } => match stream.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(bytes))) => match left.as_mut() {
                    Some(left) if (bytes.len() as u64) > *left => {
                        Poll::Ready(Some(Err(CoreError::invalid("it grew while it was sent"))))
                    }
                    left => {
                        if let Some(left) = left {
                            *left -= bytes.len() as u64;
                        }
                        Poll::Ready(Some(Ok(bytes)))
                    }
                },
                Poll::Ready(Some(Err(e))) => Poll::Ready(Some(Err(unreadable(e)))),
                Poll::Ready(None) if left.is_some_and(|left| left > 0) => {
                    Poll::Ready(Some(Err(CoreError::invalid("it shrank while it was sent"))))
                }
                Poll::Ready(None) => Poll::Ready(None),
            },
        };
        next.map(|item| {
            item.map(|bytes| match bytes {
                Ok(bytes) => {
                    this.progress.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    Ok(Frame::data(bytes))
                }
                Err(e) => Err(this.progress.fail(e)),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Bytes(bytes) => bytes.is_none(),
            Source::Stream { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Bytes(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Source::Stream { left: Some(left), .. } => SizeHint::with_exact(*left),
            Source::Stream { left: None, .. } => SizeHint::default(),
        }
    }
}

/// All bytes of a stream.
pub(crate) async fn collect(
    stream: impl Stream<Item = crate::Result<Bytes>>,
    size: u64,
) -> crate::Result<Bytes> {
    let mut stream = std::pin::pin!(stream);
    let Some(first) = stream.try_next().await? else { return Ok(Bytes::new()) };
    let mut next = None;
    if first.len() as u64 >= size {
        // Nothing may follow, but the stream's own end checks must run.
        next = stream.try_next().await?;
        if next.is_none() {
            return Ok(first);
        }
    }
    let mut all = GrowingBuffer::new(size);
    all.append(&first);
    if let Some(next) = next {
        all.append(&next);
    }
    while let Some(more) = stream.try_next().await? {
        all.append(&more);
    }
    Ok(all.freeze())
}
