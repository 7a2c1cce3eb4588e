//! Limits the read rate of the scrub: as configured while the disk is idle, little while others
//! wait for it.

use std::time::Duration;

/// A read slower than this many typical ones means that the disk is busy,
const BUSY: u32 = 4;
/// unless it is faster than this anyway.
const QUICK: Duration = Duration::from_millis(10);
/// Rest after a read of a busy disk, as a multiple of that read: the scrub takes at most a tenth of
/// its time.
const STEP_BACK: u32 = 9;
const LONGEST: Duration = Duration::from_secs(5);
/// Least bytes that an object counts as: an object costs more than its bytes.
const MIN_CHARGED_BYTES: u64 = 4096;
/// Rests shorter than this are accumulated.
const SHORTEST: Duration = Duration::from_millis(5);

/// The rate of one disk.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    /// Duration of a typical full read.
    usual: Option<Duration>,
    /// Accumulated time to rest; negative if reads were slower than configured.
    owed_s: f64,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), usual: None, owed_s: 0.0 }
    }

    /// How long to rest after `bytes` took that long to read. `full`: it was a read of the largest
    /// size, which can be compared with others.
    pub(super) fn rest(&mut self, bytes: u64, took: Duration, full: bool) -> Duration {
        if full && self.is_busy(took) {
            self.owed_s = 0.0;
            return (took * STEP_BACK).min(LONGEST);
        }
        let due = bytes.max(MIN_CHARGED_BYTES) as f64 / self.bytes_per_second as f64;
        // Missed time is not caught up with.
        self.owed_s = (self.owed_s + due - took.as_secs_f64()).max(-1.0);
        if self.owed_s < SHORTEST.as_secs_f64() {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(std::mem::take(&mut self.owed_s))
    }

    fn is_busy(&mut self, took: Duration) -> bool {
        let usual = *self.usual.get_or_insert(took);
        let busy = took > QUICK && took > usual * BUSY;
        // Down at once, up slowly: a disk that is busy for minutes still counts as busy.
        let slowly = if busy { 4096 } else { 256 };
        self.usual =
            Some(if took < usual { (usual + took) / 2 } else { usual + (took - usual) / slowly });
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn time_for(pace: &mut Pace, reads: u32, bytes: u64, took: Duration) -> Duration {
        (0..reads).map(|_| took + pace.rest(bytes, took, bytes == MIB)).sum()
    }

    #[test]
    fn a_quiet_disk_is_read_at_the_agreed_rate() {
        for took_us in [50, 4_000, 20_000] {
            let mut pace = Pace::new(16 * MIB);
            let time = time_for(&mut pace, 1600, MIB, Duration::from_micros(took_us)).as_secs_f64();
            assert!((95.0..105.0).contains(&time), "{took_us}: {time} s for 1600 MiB");
        }
        // Small objects count as more than their bytes.
        let time = time_for(&mut Pace::new(16 * MIB), 4096, 1, Duration::from_micros(20));
        assert!((0.9..1.1).contains(&time.as_secs_f64()), "{time:?}");
    }

    #[test]
    fn a_busy_disk_is_left_to_others() {
        let mut pace = Pace::new(16 * MIB);
        time_for(&mut pace, 100, MIB, Duration::from_millis(4));
        let slow = Duration::from_millis(60);
        let time = time_for(&mut pace, 100, MIB, slow);
        assert!(slow * 100 < time / 9, "{time:?}");
        assert!(pace.rest(MIB, Duration::from_secs(3), true) <= LONGEST);
        // When the disk is idle again, the configured rate is used again.
        let time = time_for(&mut pace, 160, MIB, Duration::from_millis(4));
        assert!((9.0..11.0).contains(&time.as_secs_f64()), "{time:?}");
    }
}
