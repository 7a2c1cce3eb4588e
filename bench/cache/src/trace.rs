//! Traces of reads, and the hits of a policy on them.

use std::collections::HashMap;

use forebay_target::cache::policy::{Buckets, Dice, Policy, Slot, Verdict, mix};
use forebay_target::cache::{Resident, Residents};

/// One read: bucket and number of the object.
pub(crate) type Read = (u16, u32);

/// A trace, and the index of the first read whose hits count.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    pub(crate) reads: Vec<Read>,
    pub(crate) counted_from: usize,
}

/// Hits among the counted reads, from 0 to 1, with a cache of `capacity` objects of equal size.
pub(crate) fn hit_ratio(policy: &mut dyn Policy, trace: &Trace, capacity: usize) -> f64 {
    let mut there: HashMap<Read, Slot> = HashMap::new();
    let mut held: Vec<Read> = Vec::new();
    let mut free: Vec<Slot> = Vec::new();
    // As the evictor does: nothing up to a mark, then several at once.
    let batch = (capacity / 64).max(1);
    let mut hits = 0usize;
    for (i, read) in trace.reads.iter().enumerate() {
        if let Some(slot) = there.get(read) {
            policy.access(*slot);
            hits += usize::from(i >= trace.counted_from);
            continue;
        }
        let slot = free.pop().unwrap_or(held.len() as Slot);
        if slot as usize == held.len() {
            held.push(*read);
        }
        held[slot as usize] = *read;
        there.insert(*read, slot);
        policy.insert(slot, read.0, mix(u64::from(read.0) << 32 | u64::from(read.1)));
        if there.len() > capacity {
            let aim = capacity + 1 - batch;
            policy.evict(Buckets::All, &mut |victim| {
                if there.len() <= aim {
                    return Verdict::Enough;
                }
                there.remove(&held[victim as usize]);
                free.push(victim);
                Verdict::Take
            });
        }
    }
    hits as f64 / (trace.reads.len() - trace.counted_from) as f64
}

/// Hits of each of two buckets among the counted reads, from 0 to 1, with a cache of `capacity` objects of
/// which bucket 0 is guaranteed `min`.
pub(crate) fn hit_ratios(
    policy: Box<dyn Policy>,
    trace: &Trace,
    capacity: usize,
    min: usize,
) -> [f64; 2] {
    const OBJECT_BYTES: u64 = 1 << 10;
    let mut residents = Residents::new(policy);
    residents.set_min(0, min as u64 * OBJECT_BYTES);
    let mut there: HashMap<Read, u64> = HashMap::new();
    let mut of_id: HashMap<u64, Read> = HashMap::new();
    let batch = (capacity / 64).max(1);
    let (mut hits, mut reads) = ([0usize; 2], [0usize; 2]);
    for (i, read) in trace.reads.iter().enumerate() {
        let (is_counted, of) = (i >= trace.counted_from, usize::from(read.0.min(1)));
        reads[of] += usize::from(is_counted);
        if let Some(id) = there.get(read) {
            residents.access(*id, 0);
            hits[of] += usize::from(is_counted);
            continue;
        }
        let (generation, bucket_id) = (i as u64, u64::from(read.0));
        let new = Resident { generation, bucket_id, stored: OBJECT_BYTES, seen_s: 0 };
        residents.insert(new, mix(u64::from(read.0) << 32 | u64::from(read.1)));
        there.insert(*read, generation);
        of_id.insert(generation, *read);
        if there.len() > capacity {
            for victim in residents.victims(None, batch as u64 * OBJECT_BYTES, batch) {
                if let Some(read) = of_id.remove(&victim.generation) {
                    there.remove(&read);
                }
            }
        }
    }
    [0, 1].map(|of| hits[of] as f64 / reads[of].max(1) as f64)
}

/// Shuffled epochs over a data set of `n` objects in bucket 0, and for each read `pace` reads of objects of
/// bucket 1 that nobody reads again.
pub(crate) fn beside_scanner(n: u32, count: usize, pace: u32) -> Trace {
    let job = epochs(&mut Dice::new(7), 0, 0, n, count);
    let mut next = 0;
    let mut reads = Vec::new();
    for read in job {
        reads.push(read);
        reads.extend((0..pace).map(|at| (1, next + at)));
        next += pace;
    }
    let name = "epochs beside a scanner";
    Trace { name, reads, counted_from: (n * (1 + pace)) as usize }
}

/// All traces over data sets of `n` objects.
pub(crate) fn all(n: u32) -> Vec<Trace> {
    vec![
        scan(n, 10),
        shuffled(n, 10),
        two_jobs(n, 10),
        zipf(n, 20),
        epochs_and_zipf(n, 10),
        next_data_set(n, 0),
        next_data_set(n, 1),
        scanned_once(n),
    ]
}

fn shuffle(dice: &mut Dice, from: u32, to: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (from..to).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, dice.below(i as u64 + 1) as usize);
    }
    order
}

fn epochs(dice: &mut Dice, bucket: u16, from: u32, to: u32, count: usize) -> Vec<Read> {
    let each = (0..count).flat_map(|_| shuffle(dice, from, to));
    each.map(|object| (bucket, object)).collect()
}

/// The data set in the same order, again and again.
pub(crate) fn scan(n: u32, epochs: usize) -> Trace {
    let reads = (0..epochs).flat_map(|_| (0..n).map(|object| (0, object))).collect();
    Trace { name: "same order", reads, counted_from: n as usize }
}

/// Each object once per epoch, in another order each time.
pub(crate) fn shuffled(n: u32, count: usize) -> Trace {
    let reads = epochs(&mut Dice::new(1), 0, 0, n, count);
    Trace { name: "shuffled", reads, counted_from: n as usize }
}

/// Two jobs over 7/10 of the objects each, 4/10 in common, one at a third of the other's speed.
pub(crate) fn two_jobs(n: u32, count: usize) -> Trace {
    let part = n / 10;
    let mut dice = Dice::new(2);
    let fast = epochs(&mut dice, 0, 0, 7 * part, count);
    let mut slow = epochs(&mut dice, 0, 3 * part, n, count).into_iter();
    let mut reads = Vec::new();
    for (i, read) in fast.into_iter().enumerate() {
        reads.push(read);
        if i % 3 == 2 {
            reads.extend(slow.next());
        }
    }
    Trace { name: "two jobs", reads, counted_from: n as usize }
}

/// Some objects are read far more often than others: the k-th with weight 1/k^0.9.
pub(crate) fn zipf(n: u32, rounds: usize) -> Trace {
    let mut dice = Dice::new(3);
    let reads = zipf_reads(&mut dice, 0, n, rounds * n as usize);
    Trace { name: "Zipf 0.9", reads, counted_from: n as usize }
}

fn zipf_reads(dice: &mut Dice, bucket: u16, n: u32, count: usize) -> Vec<Read> {
    let mut sums = Vec::with_capacity(n as usize);
    let mut sum = 0.0;
    for k in 1..=n {
        sum += f64::from(k).powf(-0.9);
        sums.push(sum);
    }
    let rank = |x: f64| sums.partition_point(|s| *s < x).min(n as usize - 1);
    (0..count).map(|_| (bucket, rank(dice.unit() * sum) as u32)).collect()
}

/// Shuffled epochs over half of the objects, and as many reads by Zipf over the other half.
pub(crate) fn epochs_and_zipf(n: u32, count: usize) -> Trace {
    let mut dice = Dice::new(4);
    let job = epochs(&mut dice, 0, 0, n / 2, count);
    let favourites = zipf_reads(&mut dice, 0, n / 2, job.len());
    let favourites = favourites.into_iter().map(|(bucket, object)| (bucket, n / 2 + object));
    let reads = job.into_iter().zip(favourites).flat_map(|(a, b)| [a, b]).collect();
    Trace { name: "epochs + Zipf", reads, counted_from: n as usize }
}

/// Five epochs over one data set, then ten over another, in the same bucket or in the next. Hits
/// count from the second epoch on of the new one.
pub(crate) fn next_data_set(n: u32, bucket: u16) -> Trace {
    let mut dice = Dice::new(5);
    let mut reads = epochs(&mut dice, 0, 0, n, 5);
    reads.extend(epochs(&mut dice, bucket, n, 2 * n, 10));
    let name = if bucket == 0 { "next data set" } else { "next bucket" };
    Trace { name, reads, counted_from: 6 * n as usize }
}

/// One pass over a data set five times as large while favourites are read.
pub(crate) fn scanned_once(n: u32) -> Trace {
    let mut dice = Dice::new(6);
    let once = (n..6 * n).map(|object| (0, object));
    let favourites = zipf_reads(&mut dice, 0, n, 5 * n as usize);
    let mut reads = zipf_reads(&mut dice, 0, n, 2 * n as usize);
    let counted_from = reads.len();
    // Only the favourites can hit: half of all at best.
    reads.extend(favourites.into_iter().zip(once).flat_map(|(a, b)| [a, b]));
    Trace { name: "Zipf + one scan", reads, counted_from }
}
