//! Ways to send a large file: the costs of copies, checksums and threads, and so the upper bound of
//! large reads.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// A new buffer for each chunk, read on the blocking pool, one chunk ahead
    Fresh,
    /// The same with reused buffers
    Pooled,
    /// Reused buffers, read on the connection's thread
    Inline,
    /// sendfile
    Sendfile,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    way: Way,
    /// KiB of a chunk
    #[arg(long, default_value_t = 256)]
    piece: usize,
    /// Check a CRC-32C of each 64 KiB
    #[arg(long)]
    crc: bool,
    /// KiB of SO_SNDBUF; 0: the kernel's default
    #[arg(long, default_value_t = 0)]
    sndbuf: usize,
}

/// Placeholder of bytes that the kernel is to send: hyper passes it on without reading it, and
/// [`Wire`] recognizes it by its address.
static FILLER: [u8; 1 << 20] = [0; 1 << 20];

fn is_filler(slice: &[u8]) -> bool {
    FILLER.as_ptr_range().contains(&slice.as_ptr()) && !slice.is_empty()
}

/// The file ranges behind a connection's placeholders: file, offset, bytes left.
type Queue = Arc<Mutex<VecDeque<(Arc<File>, u64, usize)>>>;

/// A connection that sends ranges of files in place of placeholders.
struct Wire {
    stream: TokioIo<TcpStream>,
    queue: Queue,
}

impl Wire {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let stream = self.stream.inner();
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let mut queue = self.queue.lock().unwrap_or_else(|e| e.into_inner());
            let Some((file, at, left)) = queue.front_mut() else {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            let mut offset = *at;
            let sent = stream.try_io(tokio::io::Interest::WRITABLE, || {
                Ok(rustix::fs::sendfile(stream, &**file, Some(&mut offset), *left)?)
            });
            match sent {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    *at += n as u64;
                    *left -= n;
                    if *left == 0 {
                        queue.pop_front();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if is_filler(buf) {
            self.poll_send(cx)
        } else {
            Pin::new(&mut self.stream).poll_write(cx, buf)
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match bufs.iter().position(|b| is_filler(b)) {
            Some(0) => self.poll_send(cx),
            Some(n) => Pin::new(&mut self.stream).poll_write_vectored(cx, &bufs[..n]),
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, bufs),
        }
    }
}

/// Reused buffers: their pages are mapped, and perhaps still in the CPU's cache.
type Pool = Arc<Mutex<Vec<Vec<u8>>>>;

/// A buffer that is returned to its pool on drop.
struct Pooled(Vec<u8>, Pool);

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        self.1.lock().unwrap_or_else(|e| e.into_inner()).push(buffer);
    }
}

fn read(file: &File, at: u64, len: usize, pool: Option<&Pool>, crc: bool) -> Bytes {
    let kept = pool.and_then(|p| p.lock().unwrap_or_else(|e| e.into_inner()).pop());
    let mut buffer = kept.unwrap_or_else(|| vec![0; len]);
    buffer.resize(len, 0);
    let _ = file.read_exact_at(&mut buffer, at);
    if crc {
        for block in buffer.chunks(64 << 10) {
            std::hint::black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block));
        }
    }
    match pool {
        Some(pool) => Bytes::from_owner(Pooled(buffer, pool.clone())),
        None => buffer.into(),
    }
}

/// Serves until it is killed.
pub(crate) async fn serve(args: Args) -> io::Result<()> {
    let file = Arc::new(File::open(&args.file)?);
    let size = file.metadata()?.len();
    let pool = Pool::default();
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        if args.sndbuf > 0 {
            SockRef::from(&stream).set_send_buffer_size(args.sndbuf << 10)?;
        }
        let queue = Queue::default();
        let wire = Wire { stream: TokioIo::new(stream), queue: queue.clone() };
        let (args, file, pool) = (args.clone(), file.clone(), pool.clone());
        let service = service_fn(move |_: Request<hyper::body::Incoming>| {
            let body = body(&args, file.clone(), size, pool.clone(), queue.clone());
            let body = StreamBody::new(body.map(|b| Ok::<_, Infallible>(Frame::data(b))));
            let mut response = Response::new(body);
            response.headers_mut().insert("content-length", size.into());
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            let _ = http.max_buf_size(256 << 10).serve_connection(wire, service).await;
        });
    }
}

fn body(
    args: &Args,
    file: Arc<File>,
    size: u64,
    pool: Pool,
    queue: Queue,
) -> BoxStream<'static, Bytes> {
    let piece = args.piece << 10;
    let crc = args.crc;
    let step = move |at: u64| piece.min((size - at) as usize);
    let pieces = (0..size.div_ceil(piece as u64)).map(move |i| i * piece as u64);
    let pieces = stream::iter(pieces);
    match args.way {
        Way::Fresh | Way::Pooled => {
            let pool = (args.way == Way::Pooled).then_some(pool);
            pieces
                .map(move |at| {
                    let (file, pool) = (file.clone(), pool.clone());
                    let read = tokio::task::spawn_blocking(move || {
                        read(&file, at, step(at), pool.as_ref(), crc)
                    });
                    async move { read.await.unwrap_or_default() }
                })
                .buffered(2)
                .boxed()
        }
        Way::Inline => pieces.map(move |at| read(&file, at, step(at), Some(&pool), crc)).boxed(),
        Way::Sendfile => pieces
            .map(move |at| {
                let mut queue = queue.lock().unwrap_or_else(|e| e.into_inner());
                queue.push_back((file.clone(), at, step(at)));
                Bytes::from_static(&FILLER[..step(at)])
            })
            .boxed(),
    }
}
