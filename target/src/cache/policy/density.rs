//! Hit density: keeps the objects with most hits for the time that they must be kept.
//!
//! The time until objects of a bucket are read again is measured on a sample of all names, cached
//! or not, so that evictions do not hide the hits that keeping would have brought. On epochs the
//! measure shows that the objects read last are read again last. The newest are evicted, and the
//! rest bring a hit each per epoch, which no policy can better. On reads of a few favourites it
//! shows the opposite. Objects that are not read any more outlive all measured intervals and are
//! evicted first.
//!
//! After Beckmann et al., "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018,
//! with the sampling of Waldspurger et al., "SHARDS", FAST 2015; the aim for epochs is that of
//! CoorDL (Mohan et al., "Analyzing and Mitigating Data Stalls in DNN Training", VLDB 2021).

use std::collections::HashMap;

use super::reuse::{Histogram, bin, worth};
use super::{Buckets, Dice, Policy, Slot, Verdict, draw, reach};

/// Most names whose accesses are sampled.
const FOLLOWED: usize = 32 << 10;
/// A sampled name that was not read for this many times as many accesses as there are residents is
/// replaced: a data set as many times larger than the cache can still be measured.
const HORIZON: u64 = 64;
/// Residents compared for the first victim of a pass; the next constant: how many are added for
/// each further one.
const FIRST_DRAWS: usize = 32;
const MORE_DRAWS: usize = 16;
/// How the last interval of an object splits its bucket: 0 is unknown, then by powers of four.
const KINDS: usize = 17;
/// Weight of the whole bucket's intervals in those of a kind.
const PRIOR: f32 = 32.0;
/// Worth of unmeasured residents, by age: below everything measured.
const UNKNOWN: f32 = 1e-30;
const NOBODY: u8 = u8::MAX;

/// Evicts the residents with the fewest expected hits for the time until them.
#[derive(Debug, Default)]
pub struct Density {
    seats: Vec<Seat>,
    len: usize,
    classes: Vec<Class>,
    /// Accesses of all buckets.
    clock: u64,
    followed: Followed,
    /// Residents whose name is sampled.
    names: HashMap<Slot, u64>,
    judged_at: Option<u64>,
    dice: Dice,
}

/// The policy's entry of one resident: 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// Clock of its class at the last access.
    seen: u32,
    class: u16,
    kind: u8,
    /// Whether its name is among `names`.
    is_followed: bool,
}

/// Residents of one bucket.
#[derive(Debug)]
struct Class {
    /// Accesses of this bucket; wraps.
    clock: u32,
    /// Recent accesses, with less weight for older ones, as of `rated_at`.
    recent: f64,
    rated_at: u64,
    ended: Vec<Histogram>,
    ended_since_halved: usize,
    open: Vec<Histogram>,
    /// Worth by kind and age.
    worth: Vec<Vec<f32>>,
}

impl Default for Class {
    fn default() -> Self {
        let histograms = || vec![Histogram::default(); KINDS];
        let (ended, open) = (histograms(), histograms());
        let (clock, recent, rated_at) = (0, 0.0, 0);
        Self { clock, recent, rated_at, ended, ended_since_halved: 0, open, worth: Vec::new() }
    }
}

impl Class {
    fn rate(&self, now: u64, window: f64) -> f64 {
        self.recent * (-((now - self.rated_at) as f64) / window).exp() / window
    }
}

/// The sample of names.
#[derive(Debug, Default)]
struct Followed {
    /// One in 2^`shift` names is sampled.
    shift: u32,
    at: HashMap<u64, usize>,
    list: Vec<Name>,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    key: u64,
    class: u16,
    kind: u8,
    /// Clock of its class, and of all, at the last access.
    seen: u32,
    seen_at: u64,
}

impl Followed {
    fn wants(&self, key: u64) -> bool {
        key.trailing_zeros() >= self.shift
    }

    fn remove(&mut self, at: usize) {
        let gone = self.list.swap_remove(at);
        self.at.remove(&gone.key);
        if let Some(moved) = self.list.get(at) {
            self.at.insert(moved.key, at);
        }
    }

    /// Removes entries: an old name if there is one, else half of all.
    fn make_room(&mut self, dice: &mut Dice, oldest_wanted: u64) {
        let drawn = (0..16).map(|_| dice.below(self.list.len() as u64) as usize);
        match drawn.min_by_key(|at| self.list[*at].seen_at) {
            Some(at) if self.list[at].seen_at < oldest_wanted => self.remove(at),
            _ => {
                self.shift += 1;
                for at in (0..self.list.len()).rev() {
                    if !self.wants(self.list[at].key) {
                        self.remove(at);
                    }
                }
            }
        }
    }
}

fn kind_of(interval: u32) -> u8 {
    1 + ((u64::from(interval) + 1).ilog2() / 2).min(KINDS as u32 - 2) as u8
}

impl Density {
    /// Number of accesses over which a bucket's share of all accesses is measured.
    fn window(&self) -> f64 {
        (2 * self.len).max(1024) as f64
    }

    /// Notes an access of a bucket; returns the bucket's clock.
    fn tick(&mut self, class: u16) -> u32 {
        while self.classes.len() <= usize::from(class) {
            self.classes.push(Class::default());
        }
        self.clock += 1;
        let (now, window) = (self.clock, self.window());
        let class = &mut self.classes[usize::from(class)];
        class.clock = class.clock.wrapping_add(1);
        class.recent = class.rate(now, window) * window + 1.0;
        class.rated_at = now;
        class.clock
    }

    /// Notes an access of a sampled name; `kind` is its kind from now on.
    fn follow(&mut self, key: u64, class: u16, now: u32, is_hit: bool) -> bool {
        if !self.followed.wants(key) {
            return false;
        }
        let seen_at = self.clock;
        if let Some(at) = self.followed.at.get(&key) {
            let name = &mut self.followed.list[*at];
            let interval = now.wrapping_sub(name.seen);
            let before = std::mem::replace(
                name,
                Name {
                    kind: if is_hit { kind_of(interval) } else { 0 },
                    seen: now,
                    seen_at,
                    ..*name
                },
            );
            let followed = self.followed.list.len();
            let class = &mut self.classes[usize::from(class)];
            class.ended[usize::from(before.kind)].add(interval);
            class.ended_since_halved += 1;
            if class.ended_since_halved > followed.max(256) {
                class.ended_since_halved = 0;
                class.ended.iter_mut().for_each(Histogram::halve);
            }
            return true;
        }
        if self.followed.list.len() >= FOLLOWED {
            let reach = HORIZON * self.len.max(1) as u64;
            self.followed.make_room(&mut self.dice, self.clock.saturating_sub(reach));
            if !self.followed.wants(key) {
                return false;
            }
        }
        self.followed.at.insert(key, self.followed.list.len());
        self.followed.list.push(Name { key, class, kind: 0, seen: now, seen_at });
        true
    }

    /// Recomputes the tables of worth, after enough accesses.
    fn judge(&mut self) {
        let due = (self.len as u64 / 16).clamp(256, 1 << 20);
        if self.judged_at.is_some_and(|at| self.clock - at < due) {
            return;
        }
        self.judged_at = Some(self.clock);
        for class in &mut self.classes {
            class.open.iter_mut().for_each(Histogram::clear);
        }
        for name in &self.followed.list {
            let class = &mut self.classes[usize::from(name.class)];
            let age = class.clock.wrapping_sub(name.seen);
            class.open[usize::from(name.kind)].add(age);
        }
        for class in &mut self.classes {
            let (mut ended, mut open) = (Histogram::default(), Histogram::default());
            class.ended.iter().for_each(|h| ended.add_all(h, 1.0));
            class.open.iter().for_each(|h| open.add_all(h, 1.0));
            let prior = PRIOR / (ended.total + open.total).max(PRIOR);
            let overall = worth(&ended, &open);
            let each = class.ended.iter().zip(&class.open).map(|(e, o)| {
                if e.total + o.total == 0.0 {
                    return overall.clone();
                }
                let (mut e, mut o) = (e.clone(), o.clone());
                e.add_all(&ended, prior);
                o.add_all(&open, prior);
                worth(&e, &o)
            });
            class.worth = if ended.total > 0.0 { each.collect() } else { Vec::new() };
        }
    }

    /// The worth of a resident; the lowest is evicted.
    fn score(&self, seat: Seat, rates: &[f32]) -> f32 {
        let class = &self.classes[usize::from(seat.class)];
        let age = class.clock.wrapping_sub(seat.seen);
        let Some(worth) = class.worth.get(usize::from(seat.kind)) else {
            // Nothing was read again in this bucket yet. It may be the first epoch: keep the
            // present residents.
            return UNKNOWN * age as f32;
        };
        match worth[bin(age)] {
            // Not read for longer than any measured interval: the longest is evicted first.
            0.0 => -(age as f32),
            worth => worth * rates[usize::from(seat.class)],
        }
    }

    fn vacate(&mut self, slot: Slot) {
        let seat = &mut self.seats[slot as usize];
        seat.kind = NOBODY;
        self.len -= 1;
        if seat.is_followed {
            self.names.remove(&slot);
        }
    }
}

impl Policy for Density {
    fn insert(&mut self, slot: Slot, bucket: u16, key: u64) {
        let seen = self.tick(bucket);
        let is_followed = self.follow(key, bucket, seen, false);
        if is_followed {
            self.names.insert(slot, key);
        }
        let nobody = Seat { seen: 0, class: 0, kind: NOBODY, is_followed: false };
        reach(&mut self.seats, slot, nobody);
        self.seats[slot as usize] = Seat { seen, class: bucket, kind: 0, is_followed };
        self.len += 1;
    }

    fn access(&mut self, slot: Slot) {
        let Seat { class, seen: before, mut is_followed, .. } = self.seats[slot as usize];
        let seen = self.tick(class);
        let kind = kind_of(seen.wrapping_sub(before));
        if is_followed && let Some(key) = self.names.get(&slot).copied() {
            is_followed = self.follow(key, class, seen, true);
            if !is_followed {
                self.names.remove(&slot);
            }
        }
        self.seats[slot as usize] = Seat { seen, class, kind, is_followed };
    }

    fn remove(&mut self, slot: Slot) {
        self.vacate(slot);
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        self.judge();
        let (now, window) = (self.clock, self.window());
        let rates: Vec<f32> = self.classes.iter().map(|c| c.rate(now, window) as f32).collect();
        // Drawn residents that were not taken yet, the least worth last.
        let mut drawn: Vec<(f32, Slot)> = Vec::new();
        let mut draws = FIRST_DRAWS;
        let mut skipped = 0;
        while skipped <= 2 * self.len {
            for _ in 0..draws {
                let (seats, dice) = (&self.seats, &mut self.dice);
                let is_there = |at: usize| {
                    let seat = seats[at];
                    seat.kind != NOBODY && of.has(seat.class)
                };
                let Some(at) = draw(dice, seats.len(), is_there) else { return };
                if drawn.iter().all(|(_, slot)| *slot != at as Slot) {
                    drawn.push((self.score(seats[at], &rates), at as Slot));
                }
            }
            drawn.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            drawn.drain(..drawn.len().saturating_sub(FIRST_DRAWS));
            draws = MORE_DRAWS;
            let Some((_, slot)) = drawn.pop() else { return };
            match judge(slot) {
                Verdict::Take => self.vacate(slot),
                Verdict::Skip => skipped += 1,
                Verdict::Enough => return,
            }
        }
    }
}
