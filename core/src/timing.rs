//! The time that a request spent in each stage of a target, for clients that ask for it.
//!
//! A client asks with the header [`TIMING_HEADER`]. The answer to a GET then has the times until its
//! head in the same header; a batch stream has them in frames.

use std::time::Duration;

/// Header of a request that asks for the times (`1`), and of an answer with them:
/// `queue_us=0,cold_us=31004,disk_us=0,rest_us=112`. If the body of an answer comes from a cloud,
/// `cold_body=1` is added.
pub const TIMING_HEADER: &str = "forebay-timing";

/// Where bytes come from that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStage {
    /// From the backend of the bucket.
    Cold,
    /// From a disk of this target, or from another target of the cluster.
    Disk,
}

impl ReadStage {
    /// The stage of a read with this cache result: `hit`, `miss` or `coalesced`.
    pub fn of_result(result: &str) -> Self {
        if result == "hit" { Self::Disk } else { Self::Cold }
    }

    /// The name in traces.
    pub fn span_name(self) -> &'static str {
        match self {
            Self::Cold => "cold read",
            Self::Disk => "disk read",
        }
    }
}

/// The time that a request spent in each stage of a target. The time in which the client had to take
/// bytes is in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Waiting for a place among the requests that are served.
    pub queue: Duration,
    /// Waiting for the backend.
    pub cold: Duration,
    /// Waiting for disks.
    pub disk: Duration,
    /// All other work of the target.
    pub rest: Duration,
}

impl StageTimes {
    /// Adds to a stage of reading.
    pub fn add(&mut self, stage: ReadStage, time: Duration) {
        match stage {
            ReadStage::Cold => self.cold += time,
            ReadStage::Disk => self.disk += time,
        }
    }

    /// The sum of all stages.
    pub fn total(&self) -> Duration {
        self.queue + self.cold + self.disk + self.rest
    }

    /// The difference to earlier times of the same request.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            queue: self.queue.saturating_sub(before.queue),
            cold: self.cold.saturating_sub(before.cold),
            disk: self.disk.saturating_sub(before.disk),
            rest: self.rest.saturating_sub(before.rest),
        }
    }

    /// The microseconds of the stages, in the order of the frames of a batch stream.
    pub fn to_micros(&self) -> [u64; 4] {
        [self.queue, self.cold, self.disk, self.rest].map(|time| time.as_micros() as u64)
    }

    /// The inverse of [`Self::to_micros`].
    pub fn from_micros([queue, cold, disk, rest]: [u64; 4]) -> Self {
        let time = Duration::from_micros;
        Self { queue: time(queue), cold: time(cold), disk: time(disk), rest: time(rest) }
    }

    /// The value of the header of an answer.
    pub fn to_header(&self, is_cold_body: bool) -> String {
        let [queue, cold, disk, rest] = self.to_micros();
        let body = if is_cold_body { ",cold_body=1" } else { "" };
        format!("queue_us={queue},cold_us={cold},disk_us={disk},rest_us={rest}{body}")
    }

    /// Parses the header of an answer: the times, and whether the body comes from a cloud. Fields that
    /// are unknown are ignored.
    pub fn parse_header(value: &str) -> (Self, bool) {
        let (mut micros, mut is_cold_body) = ([0; 4], false);
        for (key, value) in value.split(',').filter_map(|field| field.trim().split_once('=')) {
            let number = value.parse().unwrap_or(0);
            match key {
                "queue_us" => micros[0] = number,
                "cold_us" => micros[1] = number,
                "disk_us" => micros[2] = number,
                "rest_us" => micros[3] = number,
                "cold_body" => is_cold_body = number != 0,
                _ => {}
            }
        }
        (Self::from_micros(micros), is_cold_body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_all_stages_and_ignores_what_it_does_not_know() {
        let times = StageTimes::from_micros([1, 31_004, 7, 112]);
        assert_eq!(times.to_header(false), "queue_us=1,cold_us=31004,disk_us=7,rest_us=112");
        assert_eq!(StageTimes::parse_header(&times.to_header(true)), (times, true));
        let odd = StageTimes::parse_header("cold_us=5, new_us=9,disk_us=x,,queue_us");
        assert_eq!(odd, (StageTimes::from_micros([0, 5, 0, 0]), false));
    }

    #[test]
    fn a_coalesced_read_waits_for_the_backend_too() {
        assert_eq!(ReadStage::of_result("coalesced"), ReadStage::Cold);
        assert_eq!(ReadStage::of_result("hit"), ReadStage::Disk);
        let mut times = StageTimes::default();
        times.add(ReadStage::Cold, Duration::from_micros(4));
        times.add(ReadStage::Disk, Duration::from_micros(2));
        assert_eq!(
            (times.total(), times.since(&times)),
            (Duration::from_micros(6), StageTimes::default())
        );
    }
}
