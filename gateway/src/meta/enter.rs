//! How a gateway enters its group: it forms a group with others, joins an existing one, or learns
//! that it was removed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_core::state::{ClusterState, STATE_FORMAT};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::membership::REJECTED_WITHIN;
use openraft::BasicNode;
use openraft::error::RaftError;
use tokio::time::{Instant, sleep, timeout};

use super::group::{Group, Leader};
use super::member::{Beginning, Place};
use super::view::{ENTER_PATH, EnterReply, EnterRequest, GroupView, Look, Seat, ask_leader, look};

/// Interval at which a new gateway checks whether all others are reachable.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Interval between two steps of a join.
const STEP_EVERY: Duration = Duration::from_millis(100);
/// Within this time all gateways of a new group learn that all are reachable.
const HEAR_WITHIN: Duration = Duration::from_millis(60);
/// Timeout of one join step.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Interval between log lines of a gateway that waits.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Interval at which a gateway checks whether it still belongs to the group that has a leader.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a removed gateway still answers clients that use its address.
const REMOVED_GRACE: Duration = Duration::from_millis(500);
/// Timeout for the other nodes to learn that this gateway stops.
const FAREWELL: Duration = Duration::from_secs(3);

/// Limits how often the log repeats what the gateway waits for.
struct LogThrottle {
    next: Instant,
}

impl LogThrottle {
    fn new() -> Self {
        Self { next: Instant::now() + Duration::from_secs(3) }
    }

    fn is_time(&mut self) -> bool {
        let is_time = Instant::now() >= self.next;
        if is_time {
            self.next = Instant::now() + COMPLAIN_EVERY;
        }
        is_time
    }
}

impl Group {
    /// Finds or forms this gateway's group at its start.
    pub(crate) async fn discover(&self) -> Result<()> {
        match &*self.beginning {
            Beginning::Resume => {
                let belongs = self.check_place(true).await;
                self.raft.runtime_config().elect(self.may_vote());
                belongs
            }
            Beginning::Form(urls) if urls.len() == 1 => self.form(urls).await,
            Beginning::Form(urls) => self.form_or_enter(urls).await,
            Beginning::Enter => self.join().await,
        }
    }

    /// Checks whether the group removed this gateway, until the gateway stops.
    pub(crate) async fn persist_identity(&self) {
        let mut doubts = 0;
        loop {
            sleep(LOOK_EVERY).await;
            if self.mine.place() != Place::Inside {
                return;
            }
            let known = self.maps.load();
            let counted = known.version == 0 || known.gateways().any(|n| n.url == self.my_url);
            let led = *self.leader.borrow() != Leader::Unknown;
            doubts = if led && counted { 0 } else { doubts + 1 };
            if doubts >= 2
                && let Err(e) = self.check_place(false).await
            {
                tracing::warn!(error = %e, "cannot determine whether this gateway is in the group");
            }
        }
    }

    /// Whether a gateway without a log may answer a candidate. In a group of two, the other gateway
    /// has everything that was ever acknowledged.
    pub(super) fn may_vote(&self) -> bool {
        match self.mine.place() {
            Place::Entering { blank: true } => self.lends_vote.load(Ordering::Relaxed),
            Place::Entering { blank: false } | Place::Inside => true,
            Place::Removed => false,
        }
    }

    /// Asks the leader, if there is one, whether this gateway is in its group. If a gateway starts
    /// (`at_start`) that is not in the group, it ends with an error.
    async fn check_place(&self, at_start: bool) -> Result<()> {
        let Some(view) = ask_leader(&self.peer, &self.doors()).await else { return Ok(()) };
        match view.seat(self.me) {
            Some(Seat { votes: true, .. }) => Ok(()),
            Some(_) => {
                self.mine.set_place(Place::Entering { blank: false }).await?;
                self.join().await
            }
            None if !at_start => self.go().await,
            None => {
                let urls: Vec<&str> = view.gateways.iter().map(|seat| seat.url.as_str()).collect();
                let gone = self.end_membership().await?;
                tracing::error!(
                    gateways = urls.join(" "),
                    hint = gone.hint.as_deref().unwrap_or(""),
                    "{}",
                    gone.message
                );
                let _ = self.ended.set(gone);
                self.leave().await;
                Ok(())
            }
        }
    }

    /// The leader reports that this gateway was removed; `state` is the cluster without it.
    pub(crate) async fn was_removed(&self, state: ClusterState) -> Result<()> {
        let is_news = state.version >= self.maps.version();
        let is_in = state.gateways().any(|node| node.url == self.my_url);
        if is_news && !is_in {
            self.go().await?;
            self.maps.offer(state);
        }
        Ok(())
    }

    /// Whether this gateway knows that it was removed.
    pub(crate) fn is_out(&self) -> bool {
        self.mine.place() == Place::Removed
    }

    /// Records that this gateway was removed, and stops after clients that use its address got
    /// answers.
    async fn go(&self) -> Result<()> {
        if self.mine.place() != Place::Inside {
            return Ok(());
        }
        let gone = self.end_membership().await?;
        tracing::info!(hint = gone.hint.as_deref().unwrap_or(""), "{}; it stops", gone.message);
        let this = self.clone();
        self.lifecycle.spawn(async move {
            sleep(REMOVED_GRACE).await;
            this.leave().await;
        });
        Ok(())
    }

    /// Records permanently that this gateway was removed; returns the error that describes it.
    async fn end_membership(&self) -> Result<Error> {
        self.raft.runtime_config().elect(false);
        self.mine.set_place(Place::Removed).await?;
        Ok(self.mine.removed())
    }

    async fn leave(&self) {
        self.lifecycle.stop(FAREWELL).await;
    }

    /// Why a gateway that had been removed ended after its start.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.ended.get().cloned()
    }

    /// URLs at which the group may be known: members by the log or the map, and the configuration.
    fn doors(&self) -> Vec<String> {
        let mut urls: Vec<String> = self.seats().into_iter().map(|seat| seat.url).collect();
        let state = self.maps.load();
        let alive = state.gateways().filter(|node| node.alive).map(|node| node.url.clone());
        for url in alive.chain(self.configured.iter().cloned()) {
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        urls.retain(|url| *url != self.my_url);
        urls
    }

    /// Creates the group at the very first start. All its gateways do this with the same members,
    /// so it does not matter which of them is first.
    async fn form(&self, urls: &[String]) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| Error::internal(format!("metadata log: {e}"));
        self.mine.set_place(Place::Inside).await?;
        self.raft.runtime_config().elect(true);
        if urls.len() > 1 {
            // An election before all gateways are initialized would cost half a second.
            sleep(HEAR_WITHIN).await;
        }
        let nodes: std::collections::BTreeMap<u64, BasicNode> = super::member::members(urls)
            .into_iter()
            .map(|(id, url)| (id, BasicNode::new(url)))
            .collect();
        match self.raft.initialize(nodes).await {
            // Another gateway was first, and its log has arrived here already.
            Ok(()) | Err(RaftError::APIError(_)) => Ok(()),
            Err(RaftError::Fatal(e)) => Err(failed(&e)),
        }
    }

    /// Forms a group when all of `urls` are reachable and none of them has a group that ever had a leader;
    /// joins the group that one of them has. A subset of them must not form a group, which could be a
    /// second one.
    async fn form_or_enter(&self, urls: &[String]) -> Result<()> {
        let others: Vec<&String> = urls.iter().filter(|url| **url != self.my_url).collect();
        let mut log_throttle = LogThrottle::new();
        loop {
            let looks = others.iter().map(|url| look(&self.peer, url));
            let looks = futures::future::join_all(looks).await;
            if !self.seats().is_empty() {
                return self.join().await;
            }
            let missing = match next_step(urls, others.iter().map(|url| url.as_str()).zip(&looks)) {
                Step::Join => return self.join().await,
                Step::Form => return self.form(urls).await,
                Step::Wait(missing) => missing,
            };
            if log_throttle.is_time() {
                tracing::warn!(
                    gateways = missing.join(" "),
                    "a new group begins when all gateways are there with the same cluster.gateways; \
                     these are not"
                );
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// Asks to join until this gateway votes.
    async fn join(&self) -> Result<()> {
        let mut log_throttle = LogThrottle::new();
        let began = Instant::now();
        let mut said = false;
        let mut rejected: Option<Instant> = None;
        loop {
            let stepped = self.promote().await;
            match &stepped {
                Err(e) if e.code == ErrorCode::Conflict => {
                    let since = *rejected.get_or_insert_with(|| {
                        tracing::error!("the gateways reject this one: {e}");
                        Instant::now()
                    });
                    if since.elapsed() >= REJECTED_WITHIN {
                        let code = ErrorCode::InvalidArgument;
                        let _ = self.ended.set(Error { code, ..e.clone() });
                        self.leave().await;
                        return Ok(());
                    }
                }
                _ => rejected = None,
            }
            match stepped {
                Ok(EnterReply::Votes) => {
                    self.mine.set_place(Place::Inside).await?;
                    self.raft.runtime_config().elect(true);
                    let ms = began.elapsed().as_millis() as u64;
                    tracing::info!(ms, "this gateway is one of the group and votes");
                    return Ok(());
                }
                Ok(EnterReply::Learns) => {
                    self.mine.set_place(Place::Entering { blank: false }).await?;
                    self.raft.runtime_config().elect(true);
                    if !std::mem::replace(&mut said, true) {
                        tracing::info!(
                            "this gateway enters the group: it gets what the others have"
                        );
                    }
                }
                Ok(EnterReply::NotLeader { .. }) => {
                    self.add_voter().await;
                    if log_throttle.is_time() {
                        let doors = self.doors().join(" ");
                        tracing::warn!(
                            gateways = doors,
                            "no gateway that leads takes this one in yet"
                        );
                    }
                }
                Err(e) => {
                    if log_throttle.is_time() {
                        tracing::warn!(error = %e, "this gateway is not taken in yet");
                    }
                }
            }
            sleep(STEP_EVERY).await;
        }
    }

    /// Requests one join step from the leader. `NotLeader`: no leader was found.
    async fn promote(&self) -> Result<EnterReply> {
        let blank = self.mine.place() == Place::Entering { blank: true };
        let request = EnterRequest {
            id: self.me,
            url: self.my_url.clone(),
            blank,
            node: self.node.clone(),
            state_format: STATE_FORMAT,
        };
        let mut doors = self.doors();
        let (mut at, mut failure) = (0, None);
        while let Some(url) = doors.get(at).cloned() {
            at += 1;
            let asked = self.peer.post_json(&url, ENTER_PATH, &request);
            match timeout(ANSWER_WITHIN, asked).await {
                Ok(Ok(EnterReply::NotLeader { leader })) => {
                    doors.extend(leader.filter(|url| !doors.contains(url) && *url != self.my_url));
                }
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(e)) => failure = Some(Error::from(e)),
                Err(_) => failure = Some(Error::unavailable(format!("gateway {url} is silent"))),
            }
        }
        match failure {
            Some(e) => {
                self.add_voter().await;
                Err(e)
            }
            None => Ok(EnterReply::NotLeader { leader: None }),
        }
    }

    /// In a group of two, the other gateway cannot lead without this vote, and nothing that it
    /// lacks was ever acknowledged.
    async fn add_voter(&self) {
        if self.mine.place() != (Place::Entering { blank: true }) {
            return;
        }
        for url in self.doors() {
            let Look::At(view) = look(&self.peer, &url).await else { continue };
            let voters = view.gateways.iter().filter(|seat| seat.votes).count();
            let counted = view.gateways.iter().any(|s| s.votes && s.url == self.my_url);
            if view.formed && voters == 2 && counted {
                self.lends_vote.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The next step of a gateway without a log.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Form,
    Join,
    /// These are not there, or would form another group.
    Wait(Vec<&'a str>),
}

/// Decides by the views of all other gateways of a new group.
///
/// A gateway that formed the group already may need this one's vote for the first leader: a group in
/// which nobody but the first has formed it would wait forever if the others asked to join. To form it
/// later is safe while no other gateway has seen a leader: a majority stores whatever was acknowledged,
/// so that nothing was, and this gateway has lost nothing even if its disk is a new one.
fn next_step<'a>(
    urls: &[String],
    looks: impl Iterator<Item = (&'a str, &'a Look)> + Clone,
) -> Step<'a> {
    let has_led =
        |look: &Look| matches!(look, Look::At(view) if view.formed) && !agrees(look, urls);
    if looks.clone().any(|(_, look)| has_led(look)) {
        return Step::Join;
    }
    let missing: Vec<&str> =
        looks.filter(|(_, look)| !agrees(look, urls)).map(|(url, _)| url).collect();
    if missing.is_empty() { Step::Form } else { Step::Wait(missing) }
}

/// Whether a gateway would form the group of exactly these, or has formed it and waits for its first
/// leader.
fn agrees(look: &Look, urls: &[String]) -> bool {
    let Look::At(GroupView { formed, fresh, gateways, .. }) = look else { return false };
    let is_same =
        gateways.len() == urls.len() && gateways.iter().all(|seat| urls.contains(&seat.url));
    is_same && (!formed || *fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: [&str; 3] = ["http://a", "http://b", "http://c"];

    fn view(urls: &[&str], formed: bool, fresh: bool) -> Look {
        let seat = |url: &&str| Seat { id: 1, url: (*url).to_owned(), votes: true };
        let gateways = urls.iter().map(seat).collect();
        Look::At(GroupView { formed, fresh, gateways, ..GroupView::default() })
    }

    /// The step of `a` when `b` and `c` look so.
    fn step(b: &Look, c: &Look) -> String {
        let urls = URLS.map(str::to_owned);
        format!("{:?}", next_step(&urls, [(URLS[1], b), (URLS[2], c)].into_iter()))
    }

    #[test]
    fn a_group_is_formed_when_all_would_form_the_same() {
        let waits = view(&URLS, false, false);
        assert_eq!(step(&waits, &waits), "Form");
        assert_eq!(step(&waits, &Look::Silent), "Wait([\"http://c\"])");
        assert_eq!(step(&waits, &view(&URLS[..2], false, false)), "Wait([\"http://c\"])");
    }

    #[test]
    fn a_group_that_others_formed_and_that_had_no_leader_yet_is_formed_too() {
        let (waits, fresh) = (view(&URLS, false, false), view(&URLS, true, true));
        assert_eq!(step(&fresh, &waits), "Form");
        assert_eq!(step(&fresh, &fresh), "Form");
        // The silent one may know of a leader.
        assert_eq!(step(&fresh, &Look::Silent), "Wait([\"http://c\"])");
    }

    #[test]
    fn a_group_that_had_a_leader_or_has_other_members_is_joined() {
        let (waits, fresh) = (view(&URLS, false, false), view(&URLS, true, true));
        for with_leader in [view(&URLS, true, false), view(&URLS[..2], true, true)] {
            for other in [&waits, &fresh, &Look::Silent, &Look::Old] {
                assert_eq!(step(&with_leader, other), "Join");
            }
        }
    }
}
