//! Repair of the placement of coded objects: missing forms are made again, surplus ones are dropped
//! when the rest is safe. The owner of an object does it, from the whole, which it first rebuilds
//! from slices if it is missing. All of it is paced like moves of objects.

use std::collections::BTreeMap;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, CopyRequest, Ensured, Stamp, SurveyRequest};
use forebay_core::erasure::{Form, Slice};
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, NodeId, Result, placement, rebalance};
use futures::future::join_all;

use super::{as_object, object_of};
use crate::object::Key;
use crate::object::replication::Replication;
use crate::object::replication::survey::SURVEY_PATH;
use crate::object::replication::transfer::{
    COST_OF_ONE, LOOK_PATH, REMOVE_PATH, SENT_WITHIN, Sent, Which,
};
use crate::pace::Pace;
use crate::store::Record;

/// Path of the request to an object's owner to repair its placement.
pub(crate) const ENSURE_PATH: &str = "/internal/v1/copy/ensure";

/// The result of restoring an object's placement.
enum Spread {
    /// The bytes that were sent or dropped; `None` if there was nothing to do.
    Done(Option<u64>),
    /// Another target has this newer version of it.
    Older(Stamp),
}

impl Replication {
    /// Makes sure that all due forms of an object that this target owns are where they belong. The
    /// request's stamp is that of the requesting target's copy.
    pub(crate) async fn ensure(&self, info: &BucketInfo, request: &CopyRequest) -> Result<Ensured> {
        let (name, state) = (request.name.as_str(), self.state());
        let which = Which { info, name, older: false };
        if placement::owner(&state, info, name)?.id != *self.me() {
            return Err(which.belongs_elsewhere());
        }
        let _turn = self.0.ensuring.lock(&Key::new(info, name)).await;
        self.settle(info, name).await?;
        let here = self.store().get(info.id, name).await?;
        let here = here.filter(|r| r.stamp() >= request.stamp && self.knows_all(info, name));
        let (record, removed) = match here {
            Some(record) => (Some(record), None),
            None => {
                let sought = self.sought(info, name).await?;
                (sought.record, sought.removed)
            }
        };
        let Some(record) = record else {
            return Ok(Ensured { removed, ..Ensured::default() });
        };
        match info.erasure {
            Some(_) => match self.spread_forms(which, &record, &self.0.repair_pace).await? {
                Spread::Done(_) => {}
                Spread::Older(_) => {
                    let text = format!("{} changes just now", which.uri());
                    return Err(Error::unavailable(text).retry_after(1));
                }
            },
            None => drop(self.spread(which, &self.0.repair_pace).await?),
        }
        let forms = rebalance::forms(&state, info, name, record.size);
        let all = forms.iter().all(|(node, _)| node.alive);
        Ok(Ensured { stamp: Some(record.stamp()), all, removed: None })
    }

    /// As [`Self::ensure`], at the object's owner.
    pub(in crate::object) async fn have_ensured(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
    ) -> Result<Ensured> {
        let state = self.state();
        let owner = placement::owner(&state, info, name)?;
        let request = CopyRequest { stamp, ..CopyRequest::new(&info.bucket, name) };
        if owner.id == *self.me() {
            return Box::pin(self.ensure(info, &request)).await;
        }
        let peer = self.0.peer.with_idle_timeout(SENT_WITHIN);
        Ok(peer.post_json(&owner.url, ENSURE_PATH, &request).await?)
    }

    /// Sends a whole object of a coded bucket to where it belongs, in the due forms. The copy here
    /// is dropped after that, unless the whole belongs here. Older versions are dropped then.
    async fn spread_forms(&self, which: Which<'_>, record: &Record, pace: &Pace) -> Result<Spread> {
        let (info, name, stamp) = (which.info, which.name, record.stamp());
        let state = self.state();
        let forms = rebalance::forms(&state, info, name, record.size);
        let stays = forms.iter().any(|(n, form)| n.id == *self.me() && *form == Form::Whole);
        if let Some((dead, _)) = forms.iter().find(|(node, _)| !node.alive && !stays) {
            let text = format!("{} belongs to target {}, too, which is down", which.uri(), dead.id);
            return Err(Error::unavailable(text));
        }
        let there = forms.iter().filter(|(node, _)| node.alive);
        let looked =
            there.map(async |(node, form)| (*node, *form, self.look_at(node, which).await));
        let (mut whole, mut slices, mut newer) = (Vec::new(), Vec::new(), None);
        let mut have_older = Vec::new();
        for (node, form, look) in join_all(looked).await {
            let look = look?;
            if look.removed > Some(stamp).max(look.newest()) {
                self.remove_older(info, name, look.removed.unwrap_or_default()).await?;
                return Ok(Spread::Done(Some(0)));
            }
            if look.has_older(stamp) {
                have_older.push(node);
            }
            newer = newer.max(look.newest().filter(|newest| *newest > stamp));
            match form {
                _ if look.knows_form(form, stamp) => {}
                Form::Whole if node.id != *self.me() => whole.push(node),
                Form::Whole => {}
                Form::Slice(slice) => slices.push((node, slice)),
            }
        }
        if let Some(newer) = newer {
            return Ok(Spread::Older(newer));
        }
        let mut bytes = None;
        for to in whole {
            pace.pass(cost(record.size)).await;
            self.send(to, which, record, Sent::Moved { alone: false }).await?;
            bytes = Some(bytes.unwrap_or(0) + record.size);
        }
        if let Some((_, Slice { data, .. })) = slices.first() {
            let sent = record.size / u64::from(*data) * slices.len() as u64;
            pace.pass(cost(sent)).await;
            bytes = Some(bytes.unwrap_or(0) + sent);
            for (id, sent) in self.send_slices(info, record, slices, false).await {
                let died = || Error::unavailable(format!("target {id} died"));
                sent.unwrap_or_else(|| Err(died()))?;
            }
        }
        let replaced =
            CopyRequest { stamp, replaced: true, ..CopyRequest::new(&info.bucket, name) };
        for node in have_older {
            if node.id == *self.me() {
                self.overtaken(info, &replaced).await?;
            } else {
                let () = self.0.peer.post_json(&node.url, REMOVE_PATH, &replaced).await?;
            }
        }
        if !stays {
            bytes = Some(bytes.unwrap_or(record.size));
            self.drop_this(which, record).await?;
        }
        Ok(Spread::Done(bytes))
    }

    /// As [`Self::spread_forms`]; drops the copy here if another target has a newer version.
    /// Returns the bytes sent or dropped; `None` if there was nothing to do.
    pub(in crate::object) async fn spread_or_drop(
        &self,
        which: Which<'_>,
        record: &Record,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let newer = match self.spread_forms(which, record, pace).await? {
            Spread::Done(bytes) => return Ok(bytes),
            Spread::Older(newer) => newer,
        };
        // Unless the newer write was not completed, which the owner can decide.
        let Some(ensured) = self.unless_lost(which.info, which.name, newer).await? else {
            return Ok(None);
        };
        if ensured.stamp > Some(record.stamp()) {
            self.drop_this(which, record).await?;
        }
        Ok(Some(record.size))
    }

    /// As [`Self::have_ensured`]; `None` if too little is left of the object.
    async fn unless_lost(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
    ) -> Result<Option<Ensured>> {
        match Box::pin(self.have_ensured(info, name, stamp)).await {
            Err(e) if e.code == ErrorCode::Corrupt => {
                // The remaining slices stay; a retry would not change anything.
                tracing::error!(name, "lost: {}", e.message);
                Ok(None)
            }
            ensured => ensured.map(Some),
        }
    }

    /// The look of a target, also of this one, at an object.
    async fn look_at(&self, node: &Node, which: Which<'_>) -> Result<CopyLook> {
        let request = CopyRequest::new(&which.info.bucket, which.name);
        if node.id == *self.me() {
            return self.look(which.info, &request).await;
        }
        Ok(self.0.peer.post_json(&node.url, LOOK_PATH, &request).await?)
    }

    /// The names whose slice under an id needs repair, by a look at all of them: if the slice
    /// belongs here, and the whole is where it belongs, there is nothing to do.
    pub(crate) async fn fragments_to_repair(
        &self,
        info: &BucketInfo,
        id: u64,
        names: Vec<String>,
    ) -> Vec<String> {
        let state = self.state();
        let mut asked: BTreeMap<&NodeId, (&Node, Vec<(usize, Stamp)>)> = BTreeMap::new();
        let mut fine = vec![false; names.len()];
        for (at, name) in names.iter().enumerate() {
            let Ok(Some(record)) = self.store().get(id, name).await else { continue };
            let Some((size, slice)) = object_of(&record).map(|m| m.size).zip(Slice::of_id(id))
            else {
                continue;
            };
            let forms = rebalance::forms(&state, info, name, size);
            let due = |(n, f): &(&Node, Form)| n.id == *self.me() && *f == Form::Slice(slice.0);
            let Some((main, _)) = forms.first().filter(|_| forms.iter().any(due)) else { continue };
            match main.alive {
                true => {
                    let (_, rows) = asked.entry(&main.id).or_insert((main, Vec::new()));
                    rows.push((at, record.stamp()));
                }
                // That target is only unavailable, not gone.
                false => fine[at] = true,
            }
        }
        for (node, rows) in asked.into_values() {
            let of: Vec<String> = rows.iter().map(|(at, _)| names[*at].clone()).collect();
            let request = SurveyRequest { bucket: info.bucket.clone(), names: of };
            let answer = self.0.peer.post_json(&node.url, SURVEY_PATH, &request).await;
            let looks: Vec<CopyLook> = answer.unwrap_or_default();
            for ((at, stamp), look) in rows.into_iter().zip(looks) {
                fine[at] = look.there == Some(stamp) && look.has(stamp);
            }
        }
        names.into_iter().zip(fine).filter(|(_, fine)| !fine).map(|(name, _)| name).collect()
    }

    /// Repairs one slice here: has its object's whole restored, and drops the slice if it is not
    /// due any more, or is of an older version.
    pub(crate) async fn repair_fragment(
        &self,
        info: &BucketInfo,
        id: u64,
        name: &str,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let Some(record) = self.store().get(id, name).await? else { return Ok(None) };
        let Some((object, (slice, _))) = as_object(&record).zip(Slice::of_id(id)) else {
            self.store().discard(&record).await?;
            return Ok(Some(record.size));
        };
        let (state, stamp) = (self.state(), record.stamp());
        let forms = rebalance::forms(&state, info, name, object.size);
        let due = forms.iter().any(|(n, f)| n.id == *self.me() && *f == Form::Slice(slice));
        if due && forms.first().is_some_and(|(main, _)| !main.alive) {
            return Ok(None);
        }
        pace.pass(cost(0)).await;
        let Some(ensured) = self.unless_lost(info, name, stamp).await? else { return Ok(None) };
        if due && ensured.stamp == Some(stamp) {
            return Ok(Some(0));
        }
        let overtaken = ensured.stamp > Some(stamp) || ensured.removed >= Some(stamp);
        let safe = ensured.all && ensured.stamp == Some(stamp);
        if !overtaken && !safe {
            let text = format!("a slice of {} stays", info.bucket.object_uri(name));
            return Err(Error::unavailable(format!("{text}: not all is where it belongs yet")));
        }
        let _guard = self.local().locks.lock(&Key::new(info, name)).await;
        self.store().discard(&record).await?;
        Ok(Some(record.size))
    }

    /// Handles a damaged slice here: drops it and has it made again, if its object is safe. False:
    /// it stays as it is.
    pub(in crate::object) async fn repair_damaged_fragment(
        &self,
        info: &BucketInfo,
        record: &Record,
    ) -> Result<bool> {
        let (name, stamp) = (record.name.as_str(), record.stamp());
        let state = self.state();
        let which = Which { info, name, older: false };
        let owner = placement::owner(&state, info, name)?;
        if self.look_at(owner, which).await?.there < Some(stamp) {
            return Ok(false);
        }
        let guard = self.local().locks.lock(&Key::new(info, name)).await;
        self.store().discard(record).await?;
        drop(guard);
        self.have_ensured(info, name, stamp).await.map(|_| true)
    }
}

fn cost(bytes: u64) -> usize {
    usize::try_from(bytes.saturating_add(COST_OF_ONE)).unwrap_or(usize::MAX)
}
