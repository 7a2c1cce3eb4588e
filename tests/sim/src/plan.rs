//! The parameters of a run, from its seed: cluster size, buckets, clients and faults.

use forebay_core::erasure::Erasure;

use crate::exec::{Exec, Micros, SECOND};

/// The shape of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub gateways: usize,
    /// Targets at the start.
    pub targets: usize,
    /// Including targets that join later.
    pub targets_at_most: usize,
    /// Copies of the objects of each bucket.
    pub copies: Vec<u32>,
    /// The coding of the objects of one more bucket: in every fifth seed, so that the others keep
    /// their histories.
    pub erasure: Option<Erasure>,
    /// Whether the last of `copies` is of a bucket that keeps versions: in every ninth seed, so that
    /// the others keep their histories.
    pub versions: bool,
    pub keys: u64,
    pub clients: usize,
    /// Duration of the phase with faults, and the limit for recovery after it.
    pub safety: Micros,
    pub liveness: Micros,
    /// Pause between two faults, on average.
    pub fault_every: Micros,
    /// Whether disks are lost, but none with the only copy of an object.
    pub disks: bool,
    /// Whether some of these come back: in every eleventh seed, so that the others keep their
    /// histories.
    pub disks_return: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let chance = Exec::new(seed ^ 0x5eed);
        let targets = chance.between(2, 5) as usize;
        let disks_return = seed % 11 == 3;
        let disks = chance.percent(35) || disks_return;
        let copies = match (disks, chance.below(4)) {
            (_, 0) if disks_return => vec![1, 2],
            (_, 1) if disks_return => vec![1],
            (true, 0..=2) => vec![2],
            (true, _) => vec![2, 3],
            (false, 0) => vec![1, 2],
            (false, 1) => vec![1, 3],
            (false, 2) => vec![1],
            (false, _) => vec![2],
        };
        let plan = Self {
            gateways: if chance.percent(80) { 3 } else { 1 },
            targets,
            targets_at_most: targets + chance.below(3) as usize,
            copies,
            erasure: None,
            versions: false,
            keys: chance.between(2, 6),
            clients: chance.between(2, 5) as usize,
            safety: chance.between(25, 60) * SECOND,
            liveness: 180 * SECOND,
            fault_every: chance.between(2, 9) * SECOND,
            disks,
            disks_return,
        };
        match (seed % 5, seed % 9) {
            (2, _) => plan.with_erasure(seed),
            (_, 1) => plan.with_versions(seed),
            _ => plan,
        }
    }

    /// The plan with one more bucket, mostly the only one, whose objects are coded.
    fn with_erasure(self, seed: u64) -> Self {
        let chance = Exec::new(seed ^ 0x000e_c0de);
        let (data, parity) = [(2, 1), (2, 1), (3, 1), (2, 2), (1, 1)][chance.below(5) as usize];
        // Objects of one byte are copied if the limit is 1.
        let erasure = Erasure { data, parity, limit: chance.below(2) };
        let targets = erasure.width() + chance.below(2) as usize;
        Self {
            copies: if chance.percent(25) { self.copies } else { Vec::new() },
            erasure: Some(erasure),
            targets,
            targets_at_most: targets + chance.below(3) as usize,
            ..self
        }
    }

    /// The plan with one more bucket, mostly the only one, that keeps older versions of its objects.
    fn with_versions(self, seed: u64) -> Self {
        let chance = Exec::new(seed ^ 0x0005_a5a5);
        let mut copies = if chance.percent(25) { self.copies } else { Vec::new() };
        copies.push(1);
        let (keys, fault_every) = (chance.between(1, 3), chance.between(1, 3) * SECOND);
        Self { copies, versions: true, keys, fault_every, ..self }
    }

    /// Whether the bucket of this number keeps older versions of its objects.
    pub fn keeps_versions(&self, bucket: usize) -> bool {
        self.versions && bucket + 1 == self.copies.len()
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.copies.len() + usize::from(self.erasure.is_some())
    }
}
