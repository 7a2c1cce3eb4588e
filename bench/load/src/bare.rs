//! The roof for small reads: axum, one route, one `pread` of an open file, nothing else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen
    #[arg(long)]
    port: u16,
    /// The file whose bytes every answer has
    #[arg(long)]
    file: PathBuf,
}

/// Serves until it is killed.
pub(crate) async fn serve(args: Args) -> std::io::Result<()> {
    let file = File::open(&args.file)?;
    let len = file.metadata()?.len() as usize;
    let read = |State(shared): State<Arc<(File, usize)>>| async move {
        let mut bytes = vec![0; shared.1];
        match shared.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(bytes),
            Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        }
    };
    let router = Router::new().route("/{*name}", get(read)).with_state(Arc::new((file, len)));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |tcp| {
        let _ = tcp.set_nodelay(true);
    });
    axum::serve(listener, router).await
}
