//! The scrub: reads every stored block from time to time and compares it with its checksum, so that
//! damage is found while another copy still exists.
//!
//! One task per disk walks its objects in the order of buckets and names, at a configured rate and
//! without evicting pages from the page cache. After a restart it continues where it was.

mod orphans;
mod pace;
mod progress;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_core::Result;
use forebay_core::config::ScrubConfig;
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use forebay_store::{Record, blocking};

use self::pace::Pace;
use self::progress::Progress;
use crate::object::{CheckedParts, ObjectService, Verdict};

/// Wait after a start: other work has precedence then.
const AFTER_START: Duration = Duration::from_secs(5 * 60);
/// Records taken from the index at once.
const PAGE: usize = 256;
/// How often to check whether a pass is due.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);
/// How often the position is saved.
const SAVE_EVERY: Duration = Duration::from_secs(30);
/// Pause after a pass that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10 * 60);
/// A file that no record names for this time belongs to no write in progress.
const ORPHAN_AFTER: Duration = Duration::from_secs(60);

/// Scrubs each disk, including those attached later, until the node stops.
pub(crate) fn start(objects: &ObjectService, config: &ScrubConfig, lifecycle: &Lifecycle) {
    let (objects, config, mine) = (objects.clone(), config.clone(), lifecycle.clone());
    lifecycle.spawn(async move {
        let (mut turns, stop) = (objects.disk_turns(), mine.token());
        let mut started = 0;
        loop {
            turns.mark_unchanged();
            for number in objects.disk_numbers().skip(started) {
                start_one(&objects, number, &config, &mine);
                started = number + 1;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = turns.changed() => if changed.is_err() { return },
            }
        }
    });
}

fn start_one(objects: &ObjectService, number: usize, config: &ScrubConfig, lifecycle: &Lifecycle) {
    let scrub = Scrub {
        objects: objects.clone(),
        number,
        pace: Pace::new(config.bytes_per_second.0),
        orphan_after: ORPHAN_AFTER,
    };
    let pause = Duration::from_secs(u64::from(config.pause_hours) * 3600);
    let (enabled, stop) = (config.enabled, lifecycle.token());
    lifecycle.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = scrub.run(enabled, pause) => {}
        }
    });
}

/// The scrub of one disk. It holds no reference to the disk between two steps, so that the disk can
/// be removed.
struct Scrub {
    objects: ObjectService,
    number: usize,
    pace: Pace,
    orphan_after: Duration,
}

impl Scrub {
    async fn run(mut self, enabled: bool, pause: Duration) {
        if let Ok(progress) = self.load().await {
            for (bucket_id, name, generation) in &progress.lost {
                self.objects.remember_lost(*bucket_id, name, *generation).await;
            }
        }
        if !enabled {
            return;
        }
        tokio::time::sleep(AFTER_START).await;
        loop {
            if let Err(e) = self.turn(pause).await {
                tracing::warn!(disk = self.number, "the scrub cannot go on for now: {e}");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Waits until a pass is due, and runs it. Reads the saved progress each time: the disk may be
    /// another one by now.
    async fn turn(&mut self, pause: Duration) -> Result<()> {
        let mut progress = self.load().await?;
        if progress.started_ns == 0 {
            let over = Duration::from_nanos(unix_ns().saturating_sub(progress.ended_ns));
            if over < pause {
                tokio::time::sleep((pause - over).min(LOOK_EVERY)).await;
                return Ok(());
            }
        }
        self.pass(&mut progress).await
    }

    fn disk(&self) -> Result<PathBuf> {
        Ok(self.objects.volume(self.number)?.path().to_owned())
    }

    async fn load(&self) -> Result<Progress> {
        Ok(Progress::load(&self.disk()?).await)
    }

    /// Starts a pass, or continues an unfinished one, to its end.
    async fn pass(&mut self, progress: &mut Progress) -> Result<()> {
        progress.begin(unix_ns());
        let started = Instant::now();
        let unnamed = self.unnamed_files().await?;
        let mut saved = Instant::now();
        for bucket_id in self.objects.bucket_ids().await? {
            if bucket_id < progress.bucket_id {
                continue;
            }
            let mut after = match bucket_id == progress.bucket_id {
                true => progress.name.clone(),
                false => String::new(),
            };
            loop {
                let (records, more) = self.objects.records(bucket_id, &after, PAGE).await?;
                let Some(last) = records.last() else { break };
                after.clone_from(&last.name);
                let number = self.number;
                for record in records.iter().filter(|r| r.disk == number) {
                    self.check(record, progress).await;
                    (progress.bucket_id, progress.name) = (bucket_id, record.name.clone());
                    if saved.elapsed() >= SAVE_EVERY {
                        self.save(progress).await?;
                        saved = Instant::now();
                    }
                }
                if !more {
                    break;
                }
            }
        }
        self.check_parts(progress).await?;
        if !unnamed.is_empty() {
            tokio::time::sleep(self.orphan_after.saturating_sub(started.elapsed())).await;
            let volume = self.objects.volume(self.number)?;
            progress.orphans += blocking(move || {
                let still = orphans::find(&volume)?;
                orphans::remove(&volume, still.intersection(&unnamed).copied())
            })
            .await?;
        }
        // A disk that left in the middle was not scanned completely.
        let disk = self.disk()?;
        progress.end(unix_ns());
        self.save(progress).await?;
        tracing::info!(disk = %disk.display(), objects = progress.objects,
            bytes = progress.bytes, damaged = progress.damaged, orphans = progress.orphans,
            lost = progress.lost.len(), "every object of the disk was checked");
        Ok(())
    }

    /// Checks the partial objects of the disk. They are so few that their position is not saved.
    async fn check_parts(&mut self, progress: &mut Progress) -> Result<()> {
        for head in self.objects.cold_cache().parts_on(self.number)? {
            let pace = &mut self.pace;
            let rest = |bytes, took, full| pace.rest(bytes, took, full);
            match self.objects.cold_cache().check_parts(head.bucket_id, &head.name, rest).await {
                Ok(Some(CheckedParts { bytes, damaged })) => {
                    progress.objects += 1;
                    progress.bytes += bytes;
                    progress.damaged += damaged;
                }
                Ok(None) => {}
                Err(e) => tracing::warn!(name = head.name, "parts were not checked: {e}"),
            }
        }
        Ok(())
    }

    async fn unnamed_files(&self) -> Result<BTreeSet<u64>> {
        let volume = self.objects.volume(self.number)?;
        blocking(move || orphans::find(&volume)).await
    }

    /// Checks one object. A failure does not stop the check of the others.
    async fn check(&mut self, record: &Record, progress: &mut Progress) {
        let pace = &mut self.pace;
        let rest = |bytes, took, full| pace.rest(bytes, took, full);
        match self.objects.reads().check(record, rest).await {
            Ok(Verdict::Sound) => {
                progress.objects += 1;
                progress.bytes += record.size;
            }
            Ok(Verdict::Healed | Verdict::Lost) => {
                progress.objects += 1;
                progress.damaged += 1;
            }
            Ok(Verdict::Gone) => {}
            Err(e) => tracing::warn!(name = record.name, "an object was not checked: {e}"),
        }
    }

    /// Saves the position of the pass, and the objects known to be lost.
    async fn save(&self, progress: &mut Progress) -> Result<()> {
        progress.lost = self.objects.lost();
        progress.save(&self.disk()?).await
    }
}
