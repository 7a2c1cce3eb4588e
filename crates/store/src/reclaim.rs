//! Frees the space of removed files, on a thread beside that of the disk.
//!
//! The last close of an unlinked file frees its blocks and its pages in memory: 50 ms for a segment
//! of 256 MiB. The disk's thread would write nothing meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::disk::DiskFile;

/// Smaller files are freed where they are removed: that takes no longer than a message to the
/// thread.
const BACKGROUND_FREE_BYTES: u64 = 4 << 20;
/// Most files that wait to be freed. If more are removed, the remover frees them itself, so that
/// the file system is never fuller than the accounts say by more than these.
const WAITING: usize = 4;

/// The thread and the channel to it. Dropping it waits until all files are freed.
pub(crate) struct Reclaimer {
    files: Option<SyncSender<Arc<dyn DiskFile>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    /// Starts the thread for the disk of this number. If that fails, files are freed where they are
    /// removed.
    pub(crate) fn start(disk: usize) -> Self {
        let (files, removed) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name(format!("reclaim-{disk}"))
            .spawn(move || removed.into_iter().for_each(drop));
        match thread {
            Ok(thread) => Self { files: Some(files), thread: Some(thread) },
            Err(e) => {
                tracing::warn!(disk, "no thread that frees removed files: {e}");
                Self { files: None, thread: None }
            }
        }
    }

    /// Closes an unlinked file, if it was held open.
    pub(crate) fn close(&self, file: Option<Arc<dyn DiskFile>>) {
        let Some(file) = file else { return };
        let is_large = file.size().is_ok_and(|size| size >= BACKGROUND_FREE_BYTES);
        if let Some(files) = self.files.as_ref().filter(|_| is_large) {
            // A file that does not fit the channel is returned with the error, and is closed here.
            drop(files.try_send(file));
        }
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        drop(self.files.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that frees removed files panicked");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::super::faulty::FaultyDisk;
    use super::super::tests::{BIG, MIB, owned};
    use super::super::{DiskSettings, Store};
    use super::*;

    /// Names of threads that closed files under a folder, after some were removed.
    async fn closers(folder: &str, change: impl AsyncFn(&Store)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let io = FaultyDisk::new();
        let settings = vec![DiskSettings::new(dir.path(), Some(BIG))];
        let store = Store::open(settings, Arc::new(io.clone())).await.unwrap();
        change(&store).await;
        drop(store);
        let all = io.closed();
        all.into_iter()
            .filter(|(path, _)| path.starts_with(dir.path().join(folder)))
            .map(|c| c.1)
            .collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_large_removed_file_is_freed_beside_the_disks_thread() {
        let large = Bytes::from(vec![7; 5 * MIB]);
        let closed = closers("objects", async |store: &Store| {
            store.put(1, "a", large.clone(), owned()).await.unwrap();
            store.put(1, "a", large.clone(), owned()).await.unwrap();
            tokio::time::timeout(Duration::from_secs(5), store.remove(1, "a"))
                .await
                .unwrap()
                .unwrap();
        })
        .await;
        assert!(closed.iter().filter(|thread| *thread == "reclaim-0").count() == 2, "{closed:?}");
        assert!(!closed.iter().any(|thread| thread == "disk-0"), "{closed:?}");
    }

    #[test]
    fn files_beyond_the_queue_limit_are_closed_immediately_and_the_rest_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let io = FaultyDisk::new();
        let reclaimer = Reclaimer::start(9);
        for n in 0..20 {
            let file =
                super::super::disk::Disk::create(&io, &dir.path().join(format!("{n}"))).unwrap();
            file.set_len(BACKGROUND_FREE_BYTES - u64::from(n == 0)).unwrap();
            reclaimer.close(Some(file));
        }
        drop(reclaimer);
        let closed = io.closed();
        assert_eq!(closed.len(), 20);
        assert_ne!(closed[0].1, "reclaim-9", "it is small");
    }
}
