//! Intervals until objects of one kind are read again: measured, and estimated for a resident of a
//! given age.

/// Bins per doubling of an age: 19 % wide each.
const FINE: u32 = 4;
pub(super) const BINS: usize = (33 * FINE) as usize;

/// The bin of an age.
pub(super) fn bin(age: u32) -> usize {
    let age = u64::from(age) + 1;
    let octave = age.ilog2();
    let within = ((age << 8 >> octave) & 0xff) as u32 * FINE / 256;
    (octave * FINE + within) as usize
}

/// The age at which a bin begins.
fn start(bin: usize) -> f64 {
    let (octave, within) = (bin as u32 / FINE, bin as u32 % FINE);
    f64::from(octave).exp2() * (1.0 + f64::from(within) / f64::from(FINE)) - 1.0
}

/// Weights by age: intervals that ended with an access, or that are still open.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    pub(super) weights: Vec<f32>,
    pub(super) total: f32,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { weights: vec![0.0; BINS], total: 0.0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, age: u32) {
        self.weights[bin(age)] += 1.0;
        self.total += 1.0;
    }

    pub(super) fn add_all(&mut self, other: &Self, factor: f32) {
        for (to, from) in self.weights.iter_mut().zip(&other.weights) {
            *to += from * factor;
        }
        self.total += other.total * factor;
    }

    pub(super) fn halve(&mut self) {
        self.weights.iter_mut().for_each(|w| *w /= 2.0);
        self.total /= 2.0;
    }

    pub(super) fn clear(&mut self) {
        self.weights.fill(0.0);
        self.total = 0.0;
    }
}

/// The worth of keeping a resident, by its age: expected hits per access of its bucket for which it
/// would have to stay, if it stays for the best time. 0: nothing of that age was seen to be read
/// again.
pub(super) fn worth(ended: &Histogram, open: &Histogram) -> Vec<f32> {
    let last = ended.weights.iter().rposition(|w| *w > 0.0).map_or(0, |b| b + 1);
    // The share that is still open at the start of each bin (the Kaplan-Meier estimate: an open
    // interval is a lower bound).
    let mut waiting = vec![1.0f64; last + 1];
    let mut at_risk: f64 = f64::from(ended.total) + f64::from(open.total);
    for b in 0..last {
        let here = f64::from(ended.weights[b]);
        let hazard = if at_risk > 0.0 { (here / at_risk).clamp(0.0, 1.0) } else { 0.0 };
        waiting[b + 1] = waiting[b] * (1.0 - hazard);
        at_risk -= here + f64::from(open.weights[b]);
    }
    let mut worth = vec![0.0f32; BINS];
    for b in 0..last {
        let (mut best, mut time) = (0.0f64, 0.0);
        if waiting[b] <= 0.0 {
            continue;
        }
        for to in b..last {
            // A hit within a bin comes in its middle, on average.
            time += (waiting[to] + waiting[to + 1]) / 2.0 * (start(to + 1) - start(to));
            best = best.max((waiting[b] - waiting[to + 1]) / time);
        }
        worth[b] = best as f32;
    }
    worth
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth_of(ended: &[u32], open: &[u32]) -> Vec<f32> {
        let (mut e, mut o) = (Histogram::default(), Histogram::default());
        ended.iter().for_each(|age| e.add(*age));
        open.iter().for_each(|age| o.add(*age));
        worth(&e, &o)
    }

    #[test]
    fn bins_grow_with_age_and_cover_all_ages() {
        assert_eq!((bin(0), bin(1)), (0, FINE as usize));
        let mut before = 0;
        for age in (0..40).flat_map(|i| [1u32 << (i % 32), (1u32 << (i % 32)) + 3]) {
            let b = bin(age);
            assert!(b < BINS && start(b) <= f64::from(age) && f64::from(age) <= start(b + 1));
            before = before.max(b);
        }
        assert!(bin(u32::MAX) < BINS && bin(u32::MAX) >= before);
    }

    #[test]
    fn on_a_loop_the_longest_wait_is_worth_most() {
        let worth = worth_of(&[1000; 50], &[]);
        let (new, half, nearly) = (worth[bin(0)], worth[bin(500)], worth[bin(900)]);
        assert!(new < half && half < nearly, "{new} {half} {nearly}");
        assert_eq!(worth[bin(2000)], 0.0, "nobody came back that late");
    }

    #[test]
    fn where_most_come_back_soon_a_long_wait_is_worth_less() {
        let ended: Vec<u32> = (0..12).flat_map(|i| vec![1 << i; 1 << (12 - i)]).collect();
        let worth = worth_of(&ended, &[]);
        assert!(worth[bin(1)] > worth[bin(30)] && worth[bin(30)] > worth[bin(1000)]);
    }

    #[test]
    fn who_never_comes_back_makes_all_worth_less() {
        let alone = worth_of(&[100; 10], &[]);
        let among = worth_of(&[100; 10], &[5000; 90]);
        assert!(among[bin(0)] < alone[bin(0)] / 5.0);
    }
}
