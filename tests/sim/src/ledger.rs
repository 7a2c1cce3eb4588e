//! The history of many clients, and the rules that it must keep: reads and writes of each key are
//! linearizable, and a listing has all names that it must have and none that it cannot have.
//!
//! Every write has a value of its own. A write that was refused, interrupted or not answered may
//! have been applied then, later or never.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Microseconds since the load began.
pub type Micros = u64;

/// End of a request that may have been applied at any time after it began.
pub const NEVER: Micros = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Put(u64),
    Get,
    Delete,
}

/// The response that a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observation {
    /// The write is acknowledged.
    Done,
    /// The read found this value.
    Found(u64),
    /// There is no such object.
    Missing,
    /// Nothing that can be relied on: an error or a timeout.
    Nothing,
}

/// One request of one client.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub kind: Kind,
    pub observed: Observation,
    pub begin: Micros,
    pub end: Micros,
}

/// A listing of all keys.
#[derive(Clone, Debug)]
pub struct Listing {
    pub begin: Micros,
    pub end: Micros,
    pub keys: BTreeSet<String>,
}

/// All requests, by key, and all listings that were answered.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub keys: BTreeMap<String, Vec<Act>>,
    pub listings: Vec<Listing>,
    /// Contents that no write has sent, as they were read.
    pub torn: Vec<String>,
}

impl Ledger {
    /// Everything that breaks a rule.
    pub fn violations(&self) -> Vec<String> {
        let mut found = self.torn.clone();
        for (key, acts) in &self.keys {
            found.extend(linearize(acts).err().map(|why| format!("{key}: {why}")));
        }
        for listing in &self.listings {
            let keys = self.keys.iter().filter_map(|(key, acts)| listing.wrong_about(key, acts));
            found.extend(keys);
        }
        found
    }
}

impl Listing {
    fn wrong_about(&self, key: &str, acts: &[Act]) -> Option<String> {
        let is_put = |act: &&Act| matches!(act.kind, Kind::Put(_));
        let is_delete = |act: &&Act| act.kind == Kind::Delete;
        let puts = || acts.iter().filter(is_put);
        let deletes = || acts.iter().filter(is_delete);
        let reached = |act: &&Act| act.begin < self.end;
        let over = |act: &&Act| act.end < self.begin && act.observed != Observation::Nothing;
        // A write was acknowledged before, and no removal can have been applied after it.
        let must = puts()
            .filter(over)
            .any(|put| !deletes().filter(reached).any(|delete| effect_end(delete) > put.begin));
        // Never written, or removed before with no write that can have been applied after.
        let removed = deletes()
            .filter(over)
            .any(|delete| !puts().filter(reached).any(|put| effect_end(put) > delete.begin));
        let cannot = removed || !puts().any(|put| reached(&put));
        let listed = self.keys.contains(key);
        let at = format!("the listing of {}…{} µs", self.begin, self.end);
        match (listed, must, cannot) {
            (false, true, _) => Some(format!("{key}: is not in {at}")),
            (true, _, true) => Some(format!("{key}: is in {at} and cannot be")),
            _ => None,
        }
    }
}

fn effect_end(act: &Act) -> Micros {
    if act.observed == Observation::Nothing { NEVER } else { act.end }
}

/// A possible order of the requests so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    value: Option<u64>,
    /// Requests that were applied and have no response yet.
    done: BTreeSet<usize>,
    /// How many of the unanswered deletes were applied; which of them makes no difference.
    lost_deletes: usize,
    /// The same for unanswered writes whose value no read returned; a delete may have found theirs.
    lost_puts: usize,
}

impl Way {
    /// Applies all reads that fit the current value: they change nothing, so applying one later is
    /// never better.
    fn with_reads(mut self, acts: &[Act], open: &BTreeSet<usize>) -> Self {
        let fits = |at: &&usize| {
            let act = &acts[**at];
            !writes(act) && apply(act, self.value).is_some()
        };
        self.done.extend(open.iter().filter(fits).copied().collect::<Vec<_>>());
        self
    }
}

/// Whether some order of the requests, each applied between its begin and its end, explains all
/// responses.
pub fn linearize(acts: &[Act]) -> Result<(), String> {
    let read: HashSet<u64> = acts
        .iter()
        .filter_map(
            |act| if let Observation::Found(value) = act.observed { Some(value) } else { None },
        )
        .collect();
    let unseen = |act: &Act| {
        act.observed == Observation::Nothing
            && matches!(act.kind, Kind::Put(value) if !read.contains(&value))
    };
    let matters = |act: &Act| match act.kind {
        Kind::Put(_) => true,
        Kind::Get => act.observed != Observation::Nothing,
        Kind::Delete => true,
    };
    let mut moments: Vec<(Micros, bool, usize)> = Vec::new();
    for (at, act) in acts.iter().enumerate().filter(|(_, act)| matters(act)) {
        moments.push((act.begin, false, at));
        if act.observed != Observation::Nothing {
            moments.push((act.end, true, at));
        }
    }
    moments.sort_unstable();
    let first = Way { value: None, done: BTreeSet::new(), lost_deletes: 0, lost_puts: 0 };
    let mut ways = HashSet::from([first]);
    let (mut open, mut lost_deletes, mut lost_puts) = (BTreeSet::new(), 0, 0);
    for (_, answered, at) in moments {
        let act = &acts[at];
        if !answered {
            match (act.kind, act.observed) {
                (Kind::Delete, Observation::Nothing) => lost_deletes += 1,
                _ if unseen(act) => lost_puts += 1,
                _ => drop(open.insert(at)),
            }
            continue;
        }
        let before = ways.clone();
        ways = answer(acts, ways, &open, (lost_deletes, lost_puts), at);
        open.remove(&at);
        if ways.is_empty() {
            return Err(explain(acts, act, &before));
        }
    }
    Ok(())
}

const DELETED: (Kind, Observation) = (Kind::Delete, Observation::Done);

/// The orders that remain when a request is answered: it has been applied by now.
fn answer(
    acts: &[Act],
    ways: HashSet<Way>,
    open: &BTreeSet<usize>,
    (lost_deletes, lost_puts): (usize, usize),
    answered: usize,
) -> HashSet<Way> {
    let mut left = HashSet::new();
    let mut next: Vec<Way> = ways.into_iter().map(|way| way.with_reads(acts, open)).collect();
    let mut seen: HashSet<Way> = next.iter().cloned().collect();
    while let Some(way) = next.pop() {
        if way.done.contains(&answered) {
            let mut way = way;
            way.done.remove(&answered);
            left.insert(way);
            continue;
        }
        let mut more: Vec<Way> = open
            .iter()
            .filter(|at| !way.done.contains(at) && writes(&acts[**at]))
            .filter_map(|&at| {
                let value = apply(&acts[at], way.value)?;
                let mut done = way.done.clone();
                done.insert(at);
                Some(Way { value, done, ..way }.with_reads(acts, open))
            })
            .collect();
        if way.value.is_none() && way.lost_puts < lost_puts {
            let found = |at: &&usize| (acts[**at].kind, acts[**at].observed) == DELETED;
            more.extend(open.iter().filter(found).filter(|at| !way.done.contains(at)).map(|&at| {
                let mut done = way.done.clone();
                done.insert(at);
                Way { done, lost_puts: way.lost_puts + 1, ..way }.with_reads(acts, open)
            }));
        }
        if way.value.is_some() && way.lost_deletes < lost_deletes {
            let lost_deletes = way.lost_deletes + 1;
            more.push(Way { value: None, lost_deletes, ..way }.with_reads(acts, open));
        }
        next.extend(more.into_iter().filter(|way| seen.insert(way.clone())));
    }
    left
}

/// Whether a request may change the value; all others read.
fn writes(act: &Act) -> bool {
    act.kind != Kind::Get && act.observed != Observation::Missing
}

/// The value after a request, if its response fits the value before.
fn apply(act: &Act, value: Option<u64>) -> Option<Option<u64>> {
    match (act.kind, act.observed) {
        (Kind::Put(new), _) => Some(Some(new)),
        (Kind::Get, Observation::Found(found)) => (value == Some(found)).then_some(value),
        (Kind::Get, _) => value.is_none().then_some(None),
        (Kind::Delete, Observation::Missing) => value.is_none().then_some(None),
        (Kind::Delete, _) => value.is_some().then_some(None),
    }
}

fn explain(acts: &[Act], act: &Act, before: &HashSet<Way>) -> String {
    let can_be: BTreeSet<Option<u64>> = before.iter().map(|way| way.value).collect();
    let mut near: Vec<&Act> = acts.iter().filter(|other| other.begin <= act.end).collect();
    near.sort_by_key(|other| other.begin);
    let near = &near[near.len().saturating_sub(12)..];
    let can_be = can_be.iter().take(6).collect::<Vec<_>>();
    let near: Vec<String> = near.iter().map(|act| format!("{act:?}")).collect();
    format!(
        "{act:?} cannot be; possible before: {can_be:?}; last requests:\n  {}",
        near.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(kind: Kind, observed: Observation, begin: Micros, end: Micros) -> Act {
        Act { kind, observed, begin, end }
    }

    fn put(value: u64, begin: Micros, end: Micros) -> Act {
        act(Kind::Put(value), Observation::Done, begin, end)
    }

    fn get(value: u64, begin: Micros, end: Micros) -> Act {
        act(Kind::Get, Observation::Found(value), begin, end)
    }

    fn missing(begin: Micros, end: Micros) -> Act {
        act(Kind::Get, Observation::Missing, begin, end)
    }

    #[test]
    fn reads_that_overlap_a_write_may_see_either_value_but_not_go_back() {
        let old = put(1, 0, 10);
        assert!(linearize(&[old, put(2, 20, 50), get(1, 21, 25), get(2, 30, 40)]).is_ok());
        assert!(linearize(&[old, put(2, 20, 50), get(2, 21, 25), get(1, 30, 40)]).is_err());
    }

    #[test]
    fn a_lost_or_a_stale_value_is_a_violation() {
        assert!(linearize(&[put(1, 0, 10), missing(11, 12)]).is_err());
        assert!(linearize(&[put(1, 0, 10), put(2, 11, 20), get(1, 21, 22)]).is_err());
        assert!(linearize(&[put(1, 0, 10), get(7, 11, 12)]).is_err(), "nobody wrote it");
    }

    #[test]
    fn a_write_that_was_not_answered_may_be_done_late_but_only_once() {
        let lost = act(Kind::Put(2), Observation::Nothing, 11, 20);
        let acts = [put(1, 0, 10), lost, get(1, 30, 31), get(2, 100, 101), get(2, 110, 111)];
        assert!(linearize(&acts).is_ok());
        let back = [put(1, 0, 10), lost, get(2, 30, 31), get(1, 40, 41)];
        assert!(linearize(&back).is_err());
        let removed = [missing(1, 2), lost, act(Kind::Delete, Observation::Done, 21, 25)];
        assert!(linearize(&removed).is_ok());
        let again = act(Kind::Delete, Observation::Done, 26, 27);
        assert!(linearize(&[&removed[..], &[again]].concat()).is_err());
        let twice = [lost, get(2, 30, 31), put(1, 40, 41), get(1, 42, 43), get(2, 50, 51)];
        assert!(linearize(&twice).is_err());
    }

    #[test]
    fn each_delete_that_was_not_answered_explains_one_disappearance() {
        let lost = act(Kind::Delete, Observation::Nothing, 11, 20);
        assert!(linearize(&[put(1, 0, 10), lost, get(1, 21, 22), missing(30, 31)]).is_ok());
        let again = [put(1, 0, 10), lost, missing(30, 31), put(2, 40, 41), missing(50, 51)];
        assert!(linearize(&again).is_err());
        let delete = act(Kind::Delete, Observation::Done, 11, 20);
        assert!(linearize(&[put(1, 0, 10), delete, get(1, 30, 31)]).is_err(), "it comes back");
    }

    #[test]
    fn many_requests_that_all_wait_for_the_same_target_are_soon_checked() {
        let waiting = |n: u64| [put(n, 10 * n, 50_000 + n), missing(10 * n, 50_000 + n)];
        let mut acts: Vec<Act> = (1..12).flat_map(waiting).collect();
        acts.extend((1..200).map(|n| missing(10 * n, 49_000 + n)));
        acts.push(get(11, 60_000, 60_001));
        assert!(linearize(&acts).is_ok());
        acts.push(get(5, 60_002, 60_003));
        assert!(linearize(&acts).is_err());
    }

    #[test]
    fn a_listing_has_what_must_be_there_and_nothing_that_cannot_be() {
        let keys = BTreeMap::from([
            ("kept".to_owned(), vec![put(1, 0, 10)]),
            ("gone".to_owned(), vec![put(2, 0, 10), act(Kind::Delete, Observation::Done, 11, 20)]),
            ("late".to_owned(), vec![put(3, 35, 60)]),
            (
                "open".to_owned(),
                vec![put(4, 0, 10), act(Kind::Delete, Observation::Nothing, 11, 20)],
            ),
        ]);
        let listed = |keys: &[&str]| Listing {
            begin: 30,
            end: 40,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let found = |listing: Listing| {
            Ledger { keys: keys.clone(), listings: vec![listing], torn: Vec::new() }.violations()
        };
        for fine in [&["kept"][..], &["kept", "late"], &["kept", "open"]] {
            assert_eq!(found(listed(fine)), Vec::<String>::new(), "{fine:?}");
        }
        assert!(found(listed(&[]))[0].starts_with("kept: is not in"));
        assert!(found(listed(&["kept", "gone"]))[0].starts_with("gone: is in"));
    }
}
