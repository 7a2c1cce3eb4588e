//! A bounded pipe from an asynchronous source to a parser that reads as from a file.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use forebay_archive::into_io;
use forebay_core::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Minimum charge to the budget for one value.
const MIN_CHARGE_BYTES: usize = 64;

/// Sends values whose sizes together stay within a budget; a larger value is sent alone.
pub(crate) struct Sender<T> {
    channel: UnboundedSender<(T, OwnedSemaphorePermit)>,
    budget: Arc<Semaphore>,
    most: u32,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { channel: self.channel.clone(), budget: self.budget.clone(), most: self.most }
    }
}

/// The receiver was dropped.
#[derive(Debug)]
pub(crate) struct Gone;

impl<T> Sender<T> {
    /// Waits until the budget has space, then sends the value.
    pub(crate) async fn send(&self, value: T, size: usize) -> Result<(), Gone> {
        let size = size.saturating_add(MIN_CHARGE_BYTES).min(self.most as usize) as u32;
        let room = self.budget.clone().acquire_many_owned(size).await.map_err(|_| Gone)?;
        self.channel.send((value, room)).map_err(|_| Gone)
    }
}

/// Receives what a [`Sender`] sends.
pub(crate) struct Receiver<T> {
    channel: UnboundedReceiver<(T, OwnedSemaphorePermit)>,
    budget: Arc<Semaphore>,
}

impl<T> Receiver<T> {
    /// Returns a value that has arrived already: `Some(None)` is the end, `None` means nothing yet.
    pub(crate) fn try_next(&mut self) -> Option<Option<T>> {
        use tokio::sync::mpsc::error::TryRecvError;
        match self.channel.try_recv() {
            Ok((value, _)) => Some(Some(value)),
            Err(TryRecvError::Disconnected) => Some(None),
            Err(TryRecvError::Empty) => None,
        }
    }

    pub(crate) async fn next(&mut self) -> Option<T> {
        self.channel.recv().await.map(|(value, _)| value)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Wakes a sender that waits for space.
        self.budget.close();
    }
}

/// A channel for about `bytes` bytes.
pub(crate) fn channel<T>(bytes: usize) -> (Sender<T>, Receiver<T>) {
    let most = bytes.clamp(MIN_CHARGE_BYTES, u32::MAX as usize / 2) as u32;
    let budget = Arc::new(Semaphore::new(most as usize));
    let (sender, receiver) = unbounded_channel();
    (
        Sender { channel: sender, budget: budget.clone(), most },
        Receiver { channel: receiver, budget },
    )
}

/// A [`Receiver`] of bytes as a reader, for a thread that may block.
pub(crate) struct PipeReader<F> {
    pieces: Receiver<Result<Bytes, Error>>,
    piece: Bytes,
    /// Called before it blocks for bytes.
    before_wait: F,
}

impl<F: FnMut()> PipeReader<F> {
    pub(crate) fn new(pieces: Receiver<Result<Bytes, Error>>, before_wait: F) -> Self {
        Self { pieces, piece: Bytes::new(), before_wait }
    }
}

impl<F: FnMut()> Read for PipeReader<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = self.pieces.try_next().unwrap_or_else(|| {
                (self.before_wait)();
                self.pieces.channel.blocking_recv().map(|(next, _)| next)
            });
            match next {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(e)) => return Err(into_io(e)),
                None => return Ok(0),
            }
        }
        let n = self.piece.len().min(buf.len());
        self.piece.copy_to_slice(&mut buf[..n]);
        Ok(n)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_sender_waits_when_the_budget_is_used_up() {
        let (sender, mut receiver) = channel(1000);
        sender.send(1, 900).await.unwrap();
        let waits = |size| tokio::time::timeout(Duration::from_millis(20), sender.send(2, size));
        assert!(waits(900).await.is_err());
        assert_eq!(receiver.next().await, Some(1));
        // Larger than the budget: sent when nothing else is in flight.
        assert!(waits(1 << 40).await.is_ok());
        assert_eq!(receiver.try_next(), Some(Some(2)));
        assert_eq!(receiver.try_next(), None);
        drop(receiver);
        assert!(sender.send(3, 1).await.is_err());
    }

    #[tokio::test]
    async fn a_reader_says_that_it_waits_when_nothing_is_there() {
        let (sender, receiver) = channel(64);
        sender.send(Ok("ab".into()), 2).await.unwrap();
        let (waits, waited) = std::sync::mpsc::channel();
        let reading = tokio::task::spawn_blocking(move || {
            let mut reader = PipeReader::new(receiver, || waits.send(()).unwrap());
            let mut buf = [0; 2];
            reader.read_exact(&mut buf).unwrap();
            (reader.read(&mut buf).unwrap(), buf)
        });
        tokio::task::spawn_blocking(move || waited.recv().unwrap()).await.unwrap();
        drop(sender);
        assert_eq!(reading.await.unwrap(), (0, *b"ab"));
    }

    #[tokio::test]
    async fn a_reader_gets_all_bytes_and_then_the_error() {
        let (sender, receiver) = channel(64);
        let reading = tokio::task::spawn_blocking(move || {
            let mut reader = PipeReader::new(receiver, || {});
            let mut text = String::new();
            let error = reader.read_to_string(&mut text).unwrap_err();
            (text, forebay_archive::from_io(error))
        });
        for piece in ["ab", "", "cde"] {
            sender.send(Ok(piece.into()), piece.len()).await.unwrap();
        }
        sender.send(Err(Error::unavailable("t1 left")), 0).await.unwrap();
        let (text, error) = reading.await.unwrap();
        assert_eq!((text.as_str(), error.message.as_str()), ("abcde", "t1 left"));
    }
}
