//! Long bodies straight off the socket: between it and the memory where they belong stands neither a
//! protocol nor a buffer.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut};

use crate::driven::Bare;

/// Bytes of a body that are worth it.
pub(crate) const LONG: u64 = 256 << 10;

/// Most bytes taken at once.
const PIECE: usize = 1 << 20;

/// Receives the `left` bytes of a body that its connection still has behind what `dest` has, which must
/// have room for them. Silence for as long as `idle` is [`io::ErrorKind::TimedOut`].
pub(crate) async fn read_into(
    mut bare: Bare,
    left: u64,
    dest: &mut (impl BufMut + Send),
    idle: Duration,
) -> io::Result<()> {
    let mut left = usize::try_from(left).unwrap_or(usize::MAX);
    if left > dest.remaining_mut() || bare.ahead.len() > left {
        return Err(io::Error::other("more bytes than announced"));
    }
    left -= bare.ahead.len();
    dest.put(bare.ahead.copy_to_bytes(bare.ahead.len()));
    while left > 0 {
        // A sender that is never waited for holds up no other task.
        tokio::task::consume_budget().await;
        match bare.stream.try_read_buf(&mut (&mut *dest).limit(left.min(PIECE))) {
            Ok(0) => return Err(io::Error::other("fewer bytes than announced")),
            Ok(count) => left -= count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout(idle, bare.stream.readable()).await??;
            }
            Err(e) => return Err(e),
        }
    }
    bare.release().await;
    Ok(())
}
