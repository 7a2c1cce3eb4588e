//! A model of the gateways' Raft group: one committed log, terms, votes and leases by messages. The
//! real group is `openraft`, which only the gateway crate uses; the real [`ClusterState::apply`]
//! applies every entry of the log.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use forebay_core::state::{ClusterState, Command};
use forebay_core::{Error, Result};
use futures::future::join_all;

use crate::exec::{MS, Micros, SECOND};
use crate::world::{At, W, World};

/// Pauses, limits and leases as the gateway configures its group.
const BEAT_EVERY: Micros = 200 * MS;
const VOTED_AGAIN_AFTER: Micros = 700 * MS;
const ELECTION: (Micros, Micros) = (450 * MS, 700 * MS);
const LEADS_FOR: Micros = 1_000 * MS;
const ANSWERED_WITHIN: Micros = 300 * MS;
const DECIDED_WITHIN: Micros = 5 * SECOND;

/// The committed log, independent of which members know of it yet.
pub(crate) struct Group {
    /// The state after each entry, by index.
    log: RefCell<Vec<Arc<ClusterState>>>,
    /// Term of the last leader.
    pub(crate) term: Cell<u64>,
    /// Entry of a leader that failed; the next leader may find it at another gateway.
    left_over: RefCell<Option<Command>>,
}

impl Default for Group {
    fn default() -> Self {
        let log = RefCell::new(vec![Arc::new(ClusterState::default())]);
        Self { log, term: Cell::new(0), left_over: RefCell::default() }
    }
}

impl Group {
    pub(crate) fn len(&self) -> usize {
        self.log.borrow().len() - 1
    }

    /// The newest state.
    pub(crate) fn newest(&self) -> Arc<ClusterState> {
        self.state(self.len())
    }

    /// The state after the entry of this index.
    pub(crate) fn state(&self, index: usize) -> Arc<ClusterState> {
        self.log.borrow()[index].clone()
    }

    /// Commits a command; returns its index.
    fn push(&self, command: Command) -> Result<u64> {
        let mut state = (*self.newest()).clone();
        let index = self.log.borrow().len() as u64;
        let applied = state.apply(index, command);
        self.log.borrow_mut().push(Arc::new(state));
        applied.map(|()| index)
    }

    /// The first entry of each leader has no command: versions skip its index.
    fn push_blank(&self) {
        let state = self.newest();
        self.log.borrow_mut().push(state);
    }
}

/// A gateway's membership in the group.
#[derive(Default)]
pub(crate) struct Member {
    /// Kept on disk.
    pub(crate) term: Cell<u64>,
    pub(crate) log_end: Cell<usize>,
    /// Index up to which the member knows that the log is committed.
    pub(crate) applied: Cell<usize>,
    /// Time of the leader's last message.
    last_heartbeat: Cell<Micros>,
    /// The leader, as this member knows it.
    pub(crate) leader: Cell<Option<At>>,
    /// The term in which this member leads.
    pub(crate) leads: Cell<Option<u64>>,
    /// Time of the last confirmation by a majority; without one it does not act as leader.
    pub(crate) confirmed: Cell<Option<Micros>>,
}

impl Member {
    /// Resets the state of a process that starts; it keeps only what is on disk.
    pub(crate) fn restart(&self, now: Micros) {
        self.last_heartbeat.set(now);
        self.leader.set(None);
        self.leads.set(None);
    }
}

/// A member's response to a candidate or to a leader.
struct Answer {
    yes: bool,
    /// Its own term.
    term: u64,
}

impl World {
    fn member(&self, at: At) -> &Member {
        &self.gateways[at].member
    }

    fn majority(&self) -> usize {
        self.gateways.len() / 2 + 1
    }

    /// The state by which a gateway acts.
    pub(crate) fn state_at(&self, at: At) -> Arc<ClusterState> {
        self.group.state(self.member(at).applied.get())
    }

    /// Runs a follower: it starts an election when the leader is silent.
    pub(crate) async fn follow(self: W, me: At) {
        loop {
            let timeout = VOTED_AGAIN_AFTER + self.exec.between(ELECTION.0, ELECTION.1);
            let alone = self.gateways.len() == 1;
            self.exec.sleep(50 * MS).await;
            let member = self.member(me);
            let silent = self.exec.now() - member.last_heartbeat.get() > timeout;
            if member.leads.get().is_none() && (silent || alone) {
                self.campaign(me).await;
                if member.leads.get().is_none() {
                    self.exec.sleep(self.exec.between(ELECTION.0, ELECTION.1)).await;
                }
            }
        }
    }

    async fn campaign(self: &W, me: At) {
        let member = self.member(me);
        let (term, end) = (member.term.get() + 1, member.log_end.get());
        member.term.set(term);
        member.leader.set(None);
        self.exec.sleep(self.exec.between(MS, 5 * MS)).await;
        let asked = self.gateways().filter(|at| *at != me).map(|at| {
            let world = self.clone();
            let vote = async move { Ok(world.votes(at, term, end)) };
            self.call_within(ANSWERED_WITHIN, (me, at), vote)
        });
        let answers: Vec<Answer> = join_all(asked).await.into_iter().flatten().collect();
        if let Some(greater) = answers.iter().map(|answer| answer.term).max() {
            member.term.set(member.term.get().max(greater));
        }
        let votes = answers.into_iter().filter(|answer| answer.yes).count() + 1;
        if votes < self.majority() || member.term.get() != term {
            return;
        }
        self.note(|| format!("gateway {me} is elected in term {term}"));
        // A candidate that was paused may receive its votes after another leader was elected.
        self.group.term.set(term.max(self.group.term.get()));
        member.leads.set(Some(term));
        member.leader.set(Some(me));
        member.confirmed.set(None);
        self.exec.spawn(me, self.clone().beat(me, term));
    }

    /// A leader begins to act when a majority has the first entry of its term.
    fn begin_term(self: &W, me: At, term: u64) {
        let member = self.member(me);
        self.note(|| format!("gateway {me} leads in term {term}"));
        self.group.push_blank();
        if let Some(command) = self.group.left_over.borrow_mut().take() {
            let _ = self.group.push(command);
        }
        member.log_end.set(self.group.len());
        member.applied.set(self.group.len());
        self.exec.spawn(me, self.clone().lead(me, term));
    }

    fn votes(&self, at: At, term: u64, end: usize) -> Answer {
        let member = self.member(at);
        let waits = self.exec.now() - member.last_heartbeat.get() < VOTED_AGAIN_AFTER
            || member.leads.get().is_some_and(|_| self.leads_still(at));
        let votes = term > member.term.get() && !waits && end >= member.log_end.get();
        if votes {
            member.term.set(term);
            member.leads.set(None);
        }
        Answer { yes: votes, term: member.term.get() }
    }

    /// Whether a majority confirmed the leader at `me` recently.
    pub(crate) fn leads_still(&self, me: At) -> bool {
        self.confirmed_within(me, LEADS_FOR)
    }

    /// Whether a majority confirmed the leader at `me` so recently that it must not vote for
    /// another.
    pub(crate) fn is_sure_to_lead(&self, me: At) -> bool {
        self.confirmed_within(me, VOTED_AGAIN_AFTER)
    }

    fn confirmed_within(&self, me: At, limit: Micros) -> bool {
        let member = self.member(me);
        let confirmed = member.confirmed.get().map(|at| self.exec.now() - at);
        member.leads.get().is_some() && confirmed.is_some_and(|ago| ago < limit)
    }

    /// Sends a leader's heartbeats to the others, while it leads.
    async fn beat(self: W, me: At, term: u64) {
        let (member, started) = (self.member(me), self.exec.now());
        let is_new = || member.confirmed.get().is_none() && self.exec.now() - started < LEADS_FOR;
        while member.leads.get() == Some(term) && (is_new() || self.leads_still(me)) {
            let asked = self.exec.now();
            let led = self.hear_of(me, term, self.group.len(), ANSWERED_WITHIN).await;
            let before = member.confirmed.get();
            if led && member.leads.get() == Some(term) {
                member.confirmed.set(before.max(Some(asked)));
            }
            if before.is_none() && member.confirmed.get().is_some() {
                self.begin_term(me, term);
            }
            self.exec.sleep(BEAT_EVERY).await;
        }
        if member.leads.get() == Some(term) {
            self.note(|| format!("gateway {me} gives up its term {term}"));
            member.leads.set(None);
            member.last_heartbeat.set(self.exec.now());
        }
    }

    /// Whether a majority accepts this gateway as the leader of the term; these members then have
    /// its log.
    async fn hear_of(self: &W, me: At, term: u64, end: usize, within: Micros) -> bool {
        let applied = self.member(me).applied.get();
        let mut answers: futures::stream::FuturesUnordered<_> = self
            .gateways()
            .filter(|at| *at != me)
            .map(|at| {
                let world = self.clone();
                let append_entries =
                    async move { Ok(world.append_entries(at, me, term, end, applied)) };
                self.call_within(within, (me, at), append_entries)
            })
            .collect();
        let mut yes = 1;
        while yes < self.majority() {
            match futures::StreamExt::next(&mut answers).await {
                Some(Ok(answer)) if answer.term > term => {
                    // A member without a leader has started an election in a later term: this
                    // leader steps down.
                    let member = self.member(me);
                    member.term.set(member.term.get().max(answer.term));
                    if member.leads.get() == Some(term) {
                        member.leads.set(None);
                    }
                    return false;
                }
                Some(answer) => yes += usize::from(answer.is_ok_and(|answer| answer.yes)),
                None => return false,
            }
        }
        // The slower members receive the message too: it is on its way.
        self.member(me).term.get() == term
    }

    fn append_entries(&self, at: At, leader: At, term: u64, end: usize, applied: usize) -> Answer {
        let member = self.member(at);
        if term < member.term.get() || member.leads.get() == Some(term) {
            return Answer { yes: false, term: member.term.get() };
        }
        let end = if term > member.term.get() { end } else { end.max(member.log_end.get()) };
        member.term.set(term);
        member.leads.set(None);
        member.leader.set(Some(leader));
        member.last_heartbeat.set(self.exec.now());
        member.log_end.set(end);
        if applied > member.applied.get() {
            member.applied.set(applied);
            self.gateways[at].news.ring();
        }
        Answer { yes: true, term }
    }

    /// Proposes a command to the leader at `me`.
    pub(crate) async fn propose(self: &W, me: At, command: Command) -> Result<u64> {
        let lost = || Error::unavailable("the change may or may not take effect");
        let gateway = &self.gateways[me];
        let (turns, term) = (gateway.turns.clone(), gateway.member.leads.get());
        let term = term.filter(|_| self.leads_still(me));
        let term = term.ok_or_else(|| Error::unavailable("this gateway does not lead"))?;
        let _turn = turns.lock(&()).await;
        let state = self.state_at(me);
        (*state).clone().apply(state.version + 1, command.clone())?;
        let votes = self.hear_of(me, term, self.group.len() + 1, DECIDED_WITHIN).await;
        let leads = gateway.member.leads.get() == Some(term) && self.group.term.get() == term;
        if !votes || !leads {
            if self.exec.percent(50) && self.group.term.get() == term {
                *self.group.left_over.borrow_mut() = Some(command);
            }
            return Err(lost());
        }
        let index = self.group.push(command.clone());
        self.note(|| format!("version {}: {command:?}", self.group.len()));
        gateway.member.log_end.set(self.group.len());
        gateway.member.applied.set(self.group.len());
        gateway.news.ring();
        index
    }
}
