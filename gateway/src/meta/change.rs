//! Changes of the group: the leader adds and removes gateways, one change at a time, and finishes
//! changes that another leader began.
//!
//! A gateway joins in two steps, first as a learner, then as a voter. It repeats its request until
//! it votes, so a lost step is repeated. A gateway leaves by a joint membership of `openraft`,
//! which any leader can finish.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_core::{Error, ErrorCode, NodeId, Result, membership};
use forebay_node::exchange::carried;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::group::{Group, Leader};
use super::view::{
    EnterReply, EnterRequest, GroupView, Look, RemoveReply, RemoveRequest, Seat, look,
};

/// Maximum number of entries that a gateway may lag behind when it becomes a voter.
const LAG: u64 = 64;
/// Time that a learner has to catch up within one request; after it, the learner asks again.
const CATCH_UP_WITHIN: Duration = Duration::from_millis(1_500);
/// A learner that stops asking is removed after this.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// For each gateway that asks to join, the leader's record of the last request.
pub(super) type Asked = BTreeMap<u64, Instant>;

impl Group {
    /// The members of the group, as far as this gateway knows.
    pub(crate) fn seats(&self) -> Vec<Seat> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let members = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = members.voter_ids().collect();
        let seat = |(id, node): (&u64, &BasicNode)| {
            let url = if *id == self.me { self.my_url.clone() } else { node.addr.clone() };
            Seat { id: *id, url, votes: voters.contains(id) }
        };
        members.nodes().map(seat).collect()
    }

    /// Whether the log has nothing but the members with which the group began.
    fn is_fresh(&self) -> bool {
        let last = self.raft.metrics().borrow().last_log_index;
        // Metadata that was restored from a backup is older than the log.
        last.is_none_or(|index| index == 0) && self.maps.version() == 0
    }

    /// This gateway's view of the group.
    pub(crate) fn view(&self) -> GroupView {
        let seats = self.seats();
        if seats.is_empty() {
            let seat = |(id, url): (u64, String)| Seat { id, url, votes: true };
            let gateways = super::member::members(self.planned()).into_iter().map(seat).collect();
            return GroupView { gateways, ..GroupView::default() };
        }
        let leader = self.leader.borrow().clone();
        GroupView {
            formed: true,
            fresh: self.is_fresh(),
            leads: matches!(leader, Leader::Here { .. }),
            leader: match leader {
                Leader::At(url) => Some(url),
                Leader::Here { .. } | Leader::Unknown => None,
            },
            gateways: seats,
        }
    }

    /// URL of the leader if another gateway leads; an error if this gateway may change the group.
    fn elsewhere(&self) -> Option<Option<String>> {
        match self.leader.borrow().clone() {
            Leader::Here { .. } => None,
            Leader::At(url) => Some(Some(url)),
            Leader::Unknown => Some(None),
        }
    }

    fn one_change(&self) -> Result<MutexGuard<'_, Asked>> {
        self.changing.try_lock().map_err(|_| busy())
    }

    /// Advances a joining gateway by one step. Continues if the requester no longer waits.
    pub(crate) async fn enter(&self, request: EnterRequest) -> Result<EnterReply> {
        let group = self.clone();
        unhurried(async move { group.enter_here(request).await }).await
    }

    async fn enter_here(&self, request: EnterRequest) -> Result<EnterReply> {
        if let Some(leader) = self.elsewhere() {
            return Ok(EnterReply::NotLeader { leader });
        }
        let EnterRequest { id, url, blank, node, state_format } = request;
        let state = self.maps.load();
        if state_format < state.format() {
            membership::check_format(&state, &NodeId::new(node.as_str())?, state_format)?;
        }
        let namesake = state.gateways().find(|n| n.id.as_str() == node && n.alive && n.url != url);
        if let Some(other) = namesake {
            let text =
                format!("{node} is alive at {}: a second gateway cannot have its id", other.url);
            return Err(Error::new(ErrorCode::Conflict, text).hint(format!(
                "give this one another node.id, or stop the process at {}",
                other.url
            )));
        }
        let mut asked = self.one_change()?;
        self.finish().await?;
        let seats = self.seats();
        if let Some(other) = seats.iter().find(|seat| seat.id == id && seat.url != url) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("gateway {} was once reached at {url}: its name there is taken", other.url),
            )
            .hint("start the new gateway at another address"));
        }
        // The member of the old disk is removed before the new one is added.
        for seat in seats.iter().filter(|s| s.url == url && (s.id != id || blank)) {
            tracing::info!(gateway = url, "gateway rejoins without its earlier metadata");
            self.take_out(seat, &seats).await?;
        }
        asked.insert(id, Instant::now());
        match self.seats().into_iter().find(|seat| seat.id == id) {
            Some(seat) if seat.votes => return Ok(EnterReply::Votes),
            Some(_) => {}
            None => {
                let added = self.raft.add_learner(id, BasicNode::new(&url), false).await;
                added.map_err(refused)?;
                tracing::info!(gateway = url, "a gateway joins as a learner: it receives the log");
                return Ok(EnterReply::Learns);
            }
        }
        if !self.has_caught_up(id).await {
            return Ok(EnterReply::Learns);
        }
        let voter = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.raft.change_membership(voter, false).await.map_err(refused)?;
        asked.remove(&id);
        let gateways = self.seats().iter().filter(|seat| seat.votes).count();
        tracing::info!(gateway = url, gateways, "gateway votes from now on");
        Ok(EnterReply::Votes)
    }

    async fn has_caught_up(&self, id: u64) -> bool {
        let wait = self.raft.wait(Some(CATCH_UP_WITHIN));
        let caught_up = wait.metrics(
            |metrics| {
                let has = metrics.replication.as_ref().and_then(|all| all.get(&id)).copied();
                let has = has.flatten().map_or(0, |log| log.index);
                has > 0 && has + LAG >= metrics.last_log_index.unwrap_or(0)
            },
            "a new gateway has what the others have",
        );
        caught_up.await.is_ok()
    }

    /// Removes the gateway at a URL. If it is not in the group, this succeeds.
    pub(crate) async fn remove(&self, request: RemoveRequest) -> Result<RemoveReply> {
        let group = self.clone();
        unhurried(async move { group.remove_here(request).await }).await
    }

    async fn remove_here(&self, request: RemoveRequest) -> Result<RemoveReply> {
        if let Some(leader) = self.elsewhere() {
            return Ok(RemoveReply::NotLeader { leader });
        }
        let _asked = self.one_change()?;
        self.finish().await?;
        let seats = self.seats();
        for seat in seats.iter().filter(|seat| seat.url == request.url) {
            self.take_out(seat, &seats).await?;
            let gateways = self.seats().iter().filter(|seat| seat.votes).count();
            tracing::info!(gateway = request.url, gateways, "gateway was taken out of the group");
        }
        Ok(RemoveReply::Done)
    }

    async fn take_out(&self, seat: &Seat, seats: &[Seat]) -> Result<()> {
        let gone = BTreeSet::from([seat.id]);
        let change = if seat.votes {
            let rest: Vec<&Seat> = seats.iter().filter(|s| s.votes && s.id != seat.id).collect();
            self.check_majority(seat, &rest).await?;
            ChangeMembers::RemoveVoters(gone)
        } else {
            ChangeMembers::RemoveNodes(gone)
        };
        self.raft.change_membership(change, false).await.map(drop).map_err(refused)
    }

    /// Refuses a removal after which the group could not decide anything.
    async fn check_majority(&self, goes: &Seat, rest: &[&Seat]) -> Result<()> {
        let conflict = |what: String| Error::new(ErrorCode::Conflict, what);
        if rest.is_empty() {
            return Err(conflict(format!(
                "{} is the only gateway: without it the cluster has no metadata",
                goes.url
            ))
            .hint(
                "start another gateway that lists it in cluster.gateways, then remove this one",
            ));
        }
        let looks = rest.iter().map(async |seat| {
            seat.id == self.me || !matches!(look(&self.peer, &seat.url).await, Look::Silent)
        });
        let answers = futures::future::join_all(looks).await;
        let silent = answers.iter().zip(rest).filter(|(answers, _)| !**answers);
        let silent: Vec<&str> = silent.map(|(_, seat)| seat.url.as_str()).collect();
        let (left, majority) = (rest.len(), rest.len() / 2 + 1);
        if left - silent.len() >= majority {
            return Ok(());
        }
        Err(conflict(format!(
            "{} cannot be taken out: of the {left} gateways that would be left {} does not answer, \
             and {majority} are needed to decide anything",
            goes.url,
            silent.join(" ")
        ))
        .hint("start it again, or take it out first"))
    }

    /// Maintenance by the leader: finishes a change that another leader began, corrects its own
    /// address, and removes gateways that began to join and stopped asking. Returns the members of
    /// the group; nothing while a change is in progress.
    pub(crate) async fn tidy(&self) -> Result<Option<Vec<Seat>>> {
        let Ok(mut asked) = self.changing.try_lock() else { return Ok(None) };
        if self.elsewhere().is_some() {
            return Ok(None);
        }
        self.finish().await?;
        let (seats, now) = (self.seats(), Instant::now());
        asked.retain(|id, _| seats.iter().any(|seat| seat.id == *id && !seat.votes));
        for seat in seats.iter().filter(|seat| !seat.votes) {
            let last = *asked.entry(seat.id).or_insert(now);
            if now.duration_since(last) > FORGET_AFTER {
                self.take_out(seat, &seats).await?;
                tracing::warn!(
                    gateway = seat.url,
                    "gateway that was about to enter is silent, forgotten"
                );
            }
        }
        Ok(Some(self.seats()))
    }

    /// Finishes a change that stopped half-way, and updates the address of this gateway for the
    /// others.
    async fn finish(&self) -> Result<()> {
        let members = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            metrics.membership_config.membership().clone()
        };
        if let [_, goal] = members.get_joint_config().as_slice() {
            tracing::info!("a change of the gateways that was begun is finished");
            let goal = ChangeMembers::ReplaceAllVoters(goal.clone());
            self.raft.change_membership(goal, false).await.map_err(refused)?;
        }
        // Only a gateway that is alone may move, so no other gateway uses the old address.
        let moved = members.get_node(&self.me).is_some_and(|node| node.addr != self.my_url);
        if moved && members.nodes().count() == 1 {
            let here = BTreeMap::from([(self.me, BasicNode::new(&self.my_url))]);
            let here = ChangeMembers::SetNodes(here);
            self.raft.change_membership(here, true).await.map_err(refused)?;
        }
        Ok(())
    }
}

/// Runs a change to its end even if the requester has gone; otherwise half of it could remain.
async fn unhurried<T: Send + 'static>(
    change: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(carried(change)).await;
    done.map_err(|e| Error::internal(format!("changing the group of gateways: {e}")))?
}

fn busy() -> Error {
    Error::unavailable("another change of the gateways is under way").retry_after(1)
}

fn refused(e: RaftError<u64, ClientWriteError<u64, BasicNode>>) -> Error {
    match e {
        RaftError::APIError(ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_),
        )) => busy(),
        e => Error::unavailable(format!("the gateways cannot agree on their members: {e}")),
    }
}
