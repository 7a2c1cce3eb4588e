//! The HTTP path below `hyper`: small requests for cached objects are read, answered and written
//! without it.
//!
//! For a small object in memory, the look-up takes less time than `hyper` needs to pass on the
//! request and the answer. So the stream that `hyper` reads from (`FastConnection`) looks at each
//! request first. `hyper` keeps the connection: it gets every request that this path does not take,
//! byte for byte, and waits for the next one while this path answers.
//!
//! # What it serves
//!
//! - A GET of a v1 object that this target owns and has: at once if it is in memory, as a stream
//!   with `sendfile` if it is in files and the answer has at least 64 KiB.
//! - A PUT of a v1 object that this target owns, with a Content-Length of at most 64 KiB.
//!
//! The `Handler` of the server decides both (`fast_path`, `take`). That of a gateway serves nothing
//! here.
//!
//! # What it hands over to `hyper`
//!
//! - For one request: every other method, path and protocol; a header that the handler does not
//!   recognize; `Expect`, `Upgrade`, a `Connection` other than `keep-alive`; HTTP/1.0; a chunked or
//!   a large body; a head above 8 KiB; a cold object; every answer that is an error before a body
//!   was accepted. After `hyper` has answered, this path continues.
//! - For the rest of the connection: bytes that are no request, an invalid length, a head above
//!   64 KiB, a broken chunked body, a client whose data ended within a request.
//!
//! # What it must never do differently
//!
//! - It finds the same requests in the same bytes: the head by the parser that `hyper` uses
//!   (`head`), a chunked body by the same rules (`chunks`). `head_parity_tests` compares both.
//! - It answers with the same status, headers and bytes, in the order of the requests.
//!   `tests/tests/http_fast_path.rs` compares whole nodes, with this path and without it.
//! - The sender of a request passes the same `Edge`, and a handler that panics or declines leaves the
//!   request as it was, for `hyper`.
//!
//! It differs on purpose in these points:
//!
//! - A request with two lengths, a length and a transfer coding, or a coding other than `chunked`,
//!   is refused with an explanation (`Refusal`). `hyper` merges equal lengths, prefers the coding, or
//!   refuses without an explanation. `docs/semantics.md` has the promise.
//! - A client that ends its data after a complete request still gets the answers of this path.
//!   `hyper` drops the answer if it reads that end first.
//! - A client that stops sending within a small body is disconnected without an answer.
//!
//! # Limits
//!
//! A connection holds at most 64 KiB of a head (`MAX_HEAD`), 512 headers (`MAX_HEADERS`) and
//! 64 KiB of a body. It answers at most 32 requests and sends at most 4 MiB before other connections
//! get their turn. Timeouts are those of `hyper`'s requests: 30 s for a head, and `ClientPace` for
//! bodies and answers.
//!
//! # How to turn it off
//!
//! `http.fast_path = false` in the configuration: `hyper` gets every connection from its first byte.

mod byte_stream;
mod chunks;
mod connection;
#[cfg(test)]
mod connection_tests;
mod head;
#[cfg(test)]
mod head_parity_tests;
mod head_timeout;
mod hyper_progress;
mod linger;
mod piece;
mod response_writer;
mod server;
mod small_body;
#[cfg(test)]
mod small_body_tests;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::byte_stream::{ByteStream, Encrypted, TLS_HANDSHAKE};
use self::connection::{FastConnection, FastPath};
pub use self::head::RequestHead;
#[cfg(test)]
pub(crate) use self::head::{HEADERS, Kind, Message, Next, next};
pub(crate) use self::head::{MAX_HEAD, MAX_HEADERS, Refusal};
use self::head_timeout::{HeadTimeout, HeadTimer};
use self::hyper_progress::HyperProgress;
pub use self::piece::{FilePart, Held, Instead, Piece, Pieces};
pub use self::response_writer::{FastAnswer, StreamedAnswer};
pub(crate) use self::server::FastServer;
use crate::stall::ClientPace;

/// Returns the stream of a client's connection as `hyper` has to read it, the timer for heads of
/// requests that `hyper` has to use, and the state that the service behind `hyper` has to update.
/// `is_on`: whether `fast_path` may answer requests.
pub(crate) fn accept<F: FastPath, S: ByteStream>(
    stream: S,
    fast_path: F,
    pace: ClientPace,
    head_limit: Duration,
    is_on: bool,
) -> (FastConnection<F, S>, HeadTimer, Arc<HyperProgress>) {
    let progress = Arc::new(HyperProgress::default());
    let head_timeout = Arc::new(HeadTimeout::new(head_limit));
    let timer = HeadTimer(head_timeout.clone());
    let stream = FastConnection::new(stream, fast_path, progress.clone(), head_timeout, pace);
    let stream = if is_on { stream } else { stream.turned_off() };
    (stream, timer, progress)
}
