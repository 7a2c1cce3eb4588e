//! Upper bounds for small objects: axum with one route. A GET is one `pread` of an open file; a PUT
//! is a write and a sync, which concurrent PUTs share.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of writes that wait for the disk.
const WAITING: usize = 1024;
/// The log is truncated at this size. It only grows until then: overwriting would be cheaper,
/// because no length and no block mapping has to be synced, but a server that keeps its data cannot
/// do that.
const LOG: u64 = 8 << 30;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen
    #[arg(long)]
    port: u16,
    /// The file whose bytes every response has
    #[arg(long)]
    file: PathBuf,
    /// The file that bodies are written to
    #[arg(long)]
    log: Option<PathBuf>,
}

struct Bare {
    file: File,
    len: usize,
    log: Option<mpsc::Sender<Write>>,
}

/// A body, and the sender that reports its sync.
type Write = (Bytes, oneshot::Sender<()>);

/// Serves until it is killed.
pub(crate) async fn serve(args: Args) -> io::Result<()> {
    let file = File::open(&args.file)?;
    let len = file.metadata()?.len() as usize;
    let mut log = None;
    if let Some(path) = args.log {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let (sender, queue) = mpsc::channel(WAITING);
        std::thread::spawn(move || keep(&file, queue));
        log = Some(sender);
    }
    let router = Router::new().route("/{*name}", get(read).put(write));
    let router = router.with_state(Arc::new(Bare { file, len, log }));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |tcp| {
        let _ = tcp.set_nodelay(true);
    });
    axum::serve(listener, router).await
}

async fn read(State(bare): State<Arc<Bare>>) -> Result<Vec<u8>, StatusCode> {
    let mut bytes = vec![0; bare.len];
    let read = bare.file.read_exact_at(&mut bytes, 0);
    read.map(|()| bytes).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn write(State(bare): State<Arc<Bare>>, body: Bytes) -> Result<(), StatusCode> {
    let (done, safe) = oneshot::channel();
    let log = bare.log.as_ref().ok_or(StatusCode::METHOD_NOT_ALLOWED)?;
    log.send((body, done)).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    safe.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Writes all waiting bodies together, syncs, and acknowledges them. Ends with the first error.
fn keep(file: &File, mut queue: mpsc::Receiver<Write>) {
    let (mut writes, mut at) = (Vec::new(), 0);
    while queue.blocking_recv_many(&mut writes, WAITING) > 0 {
        let parts: Vec<_> = writes.iter().map(|(body, _)| IoSlice::new(body)).collect();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let whole = rustix::io::pwritev(file, &parts, at) == Ok(len);
        if !whole || file.sync_data().is_err() {
            return;
        }
        at += len as u64;
        if at >= LOG {
            if file.set_len(0).is_err() {
                return;
            }
            at = 0;
        }
        for (_, done) in writes.drain(..) {
            // A client that has disconnected needs no response.
            let _ = done.send(());
        }
    }
}
