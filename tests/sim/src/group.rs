//! A model of the gateways' Raft group: one committed log, terms, votes and leases by messages. The
//! real one is `openraft`, known only to the gateway; what every entry of the log does is the real
//! [`ClusterState::apply`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

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

/// What is committed, whoever knows of it already.
pub(crate) struct Group {
    /// The state after each entry, by index.
    log: RefCell<Vec<Rc<ClusterState>>>,
    /// Term of the last leader.
    pub(crate) term: Cell<u64>,
    /// Entry of a leader that failed, which the next one may find at some other gateway.
    left_over: RefCell<Option<Command>>,
}

impl Default for Group {
    fn default() -> Self {
        let log = RefCell::new(vec![Rc::new(ClusterState::default())]);
        Self { log, term: Cell::new(0), left_over: RefCell::default() }
    }
}

impl Group {
    pub(crate) fn len(&self) -> usize {
        self.log.borrow().len() - 1
    }

    /// The newest state.
    pub(crate) fn newest(&self) -> Rc<ClusterState> {
        self.state(self.len())
    }

    /// The state after the entry of this index.
    pub(crate) fn state(&self, index: usize) -> Rc<ClusterState> {
        self.log.borrow()[index].clone()
    }

    /// Commits a command; the index it got.
    fn push(&self, command: Command) -> Result<u64> {
        let mut state = (*self.newest()).clone();
        let index = self.log.borrow().len() as u64;
        let applied = state.apply(index, command);
        self.log.borrow_mut().push(Rc::new(state));
        applied.map(|()| index)
    }

    /// The first entry of each leader has no command: versions skip its index.
    fn push_blank(&self) {
        let state = self.newest();
        self.log.borrow_mut().push(state);
    }
}

/// A gateway's part in the group.
#[derive(Default)]
pub(crate) struct Member {
    /// Kept on disk.
    pub(crate) term: Cell<u64>,
    pub(crate) log_end: Cell<usize>,
    /// Up to which entry it knows that the log is committed.
    pub(crate) applied: Cell<usize>,
    /// When a leader was heard.
    record_heartbeat: Cell<Micros>,
    /// Whom it takes for the leader.
    pub(crate) leader: Cell<Option<At>>,
    /// It leads in this term.
    pub(crate) leads: Cell<Option<u64>>,
    /// When a majority last said so; before that it acts in nothing.
    pub(crate) confirmed: Cell<Option<Micros>>,
}

impl Member {
    /// A process starts with what lies on the disk.
    pub(crate) fn restart(&self, now: Micros) {
        self.record_heartbeat.set(now);
        self.leader.set(None);
        self.leads.set(None);
    }
}

/// What a member says to a candidate or to a leader.
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
    pub(crate) fn state_at(&self, at: At) -> Rc<ClusterState> {
        self.group.state(self.member(at).applied.get())
    }

    /// A follower's life: it asks for votes when no leader is heard.
    pub(crate) async fn follow(self: W, me: At) {
        loop {
            let timeout = VOTED_AGAIN_AFTER + self.exec.between(ELECTION.0, ELECTION.1);
            let alone = self.gateways.len() == 1;
            self.exec.sleep(50 * MS).await;
            let member = self.member(me);
            let silent = self.exec.now() - member.record_heartbeat.get() > timeout;
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
        // One that stood still hears of its election when another has been elected since.
        self.group.term.set(term.max(self.group.term.get()));
        member.leads.set(Some(term));
        member.leader.set(Some(me));
        member.confirmed.set(None);
        self.exec.spawn(me, self.clone().beat(me, term));
    }

    /// A leader begins to act when a majority has the first entry of its term.
    fn take_over(self: &W, me: At, term: u64) {
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
        let waits = self.exec.now() - member.record_heartbeat.get() < VOTED_AGAIN_AFTER
            || member.leads.get().is_some_and(|_| self.leads_still(at));
        let votes = term > member.term.get() && !waits && end >= member.log_end.get();
        if votes {
            member.term.set(term);
            member.leads.set(None);
        }
        Answer { yes: votes, term: member.term.get() }
    }

    /// Whether a majority confirmed the leader at `me` a moment ago.
    pub(crate) fn leads_still(&self, me: At) -> bool {
        self.confirmed_within(me, LEADS_FOR)
    }

    /// Whether a majority confirmed the leader at `me` so lately that it votes for nobody else.
    pub(crate) fn is_sure_to_lead(&self, me: At) -> bool {
        self.confirmed_within(me, VOTED_AGAIN_AFTER)
    }

    fn confirmed_within(&self, me: At, limit: Micros) -> bool {
        let member = self.member(me);
        let confirmed = member.confirmed.get().map(|at| self.exec.now() - at);
        member.leads.get().is_some() && confirmed.is_some_and(|ago| ago < limit)
    }

    /// A leader's messages to the others, until it leads no more.
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
                self.take_over(me, term);
            }
            self.exec.sleep(BEAT_EVERY).await;
        }
        if member.leads.get() == Some(term) {
            self.note(|| format!("gateway {me} gives up its term {term}"));
            member.leads.set(None);
            member.record_heartbeat.set(self.exec.now());
        }
    }

    /// Whether a majority takes this gateway for the leader of the term; they have its log then.
    async fn hear_of(self: &W, me: At, term: u64, end: usize, within: Micros) -> bool {
        let applied = self.member(me).applied.get();
        let mut answers: futures::stream::FuturesUnordered<_> = self
            .gateways()
            .filter(|at| *at != me)
            .map(|at| {
                let world = self.clone();
                let hears = async move { Ok(world.hears(at, me, term, end, applied)) };
                self.call_within(within, (me, at), hears)
            })
            .collect();
        let mut yes = 1;
        while yes < self.majority() {
            match futures::StreamExt::next(&mut answers).await {
                Some(Ok(answer)) if answer.term > term => {
                    // Somebody who heard nobody asked for votes: it gets no further as a follower.
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
        // The slower ones hear of it all the same: the message is on its way.
        self.member(me).term.get() == term
    }

    fn hears(&self, at: At, leader: At, term: u64, end: usize, applied: usize) -> Answer {
        let member = self.member(at);
        if term < member.term.get() || member.leads.get() == Some(term) {
            return Answer { yes: false, term: member.term.get() };
        }
        let end = if term > member.term.get() { end } else { end.max(member.log_end.get()) };
        member.term.set(term);
        member.leads.set(None);
        member.leader.set(Some(leader));
        member.record_heartbeat.set(self.exec.now());
        member.log_end.set(end);
        if applied > member.applied.get() {
            member.applied.set(applied);
            self.gateways[at].news.ring();
        }
        Answer { yes: true, term }
    }

    /// Has a command decided by the leader at `me`.
    pub(crate) async fn propose(self: &W, me: At, command: Command) -> Result<u64> {
        let lost = || Error::unavailable("the change may or may not take effect");
        let gateway = &self.gateways[me];
        let (turns, term) = (gateway.turns.clone(), gateway.member.leads.get());
        let term = term.filter(|_| self.leads_still(me));
        let term = term.ok_or_else(|| Error::unavailable("this gateway does not lead"))?;
        let _turn = turns.lock(&()).await;
        let state = self.state_at(me);
        (*state).clone().apply(state.version + 1, command.clone())?;
        let record_heartbeat = self.hear_of(me, term, self.group.len() + 1, DECIDED_WITHIN).await;
        let leads = gateway.member.leads.get() == Some(term) && self.group.term.get() == term;
        if !record_heartbeat || !leads {
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
