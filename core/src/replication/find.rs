//! Finds the newest version of a coded object, in whatever forms targets have it.

use super::available::{Available, FormLook, has_available_before, newest_available};
use super::command::{Command, LookMode, ObsoleteForms};
use super::steps::{LookAnswer, Steps};
use crate::copies::{CopyLook, Stamp};
use crate::error::{Error, ErrorCode, Result};
use crate::placement;
use crate::state::{ClusterState, Node};

/// The forms of an object on all targets that answered.
pub(super) struct FoundForms {
    pub(super) newest: Available,
    /// The last removal.
    pub(super) removed: Option<Stamp>,
    /// Every target that may have a form has answered, and none may lack any.
    pub(super) is_complete: bool,
}

impl FoundForms {
    fn of(look: FormLook) -> Self {
        let removed = look.1.removed;
        Self { newest: newest_available(&[look], |_| false), removed, is_complete: false }
    }
}

impl Steps {
    /// Whether this target is the owner of the object.
    pub(super) fn owns(&self, state: &ClusterState) -> bool {
        let owner = placement::owner(state, self.info(), self.name());
        owner.is_ok_and(|owner| owner.id == *self.me())
    }

    /// The other targets that may have any form of the object.
    pub(super) fn form_holders(&self, state: &ClusterState) -> Vec<Node> {
        let digest = placement::digest_in(&self.info().bucket, self.name());
        let nodes: Vec<&Node> = match state.is_in_place(self.info()) {
            true => placement::holders(state, self.info(), digest),
            false => state.holding_targets().collect(),
        };
        nodes.into_iter().filter(|node| node.id != *self.me()).cloned().collect()
    }

    /// Looks for the object on all targets that may have any form of it. The owner holds the lock
    /// meanwhile: only then can it decide which writes were never acknowledged. Other targets do
    /// not: two targets that lock and look would wait for each other.
    pub(super) async fn find_forms(&self) -> Result<FoundForms> {
        let guard = match self.owns(&self.state()) {
            true => Some(self.lock().await?),
            false => None,
        };
        let state = self.state();
        let own = self.forms_here(true).await?;
        let is_last = |gone| own.newest() <= Some(gone) && self.is_last_word(&state, gone);
        let is_removed = own.removed.is_some_and(is_last);
        let required = self.required_answers(&state, &own)?;
        if is_removed || own.newest().is_none() && required.is_empty() {
            return Ok(FoundForms::of((self.me().clone(), own)));
        }
        let others = self.form_holders(&state);
        let asked = others.len();
        let answers = self.look_at_all(others, LookMode::Final).await;
        self.check_answers(&state, &own, &required, &answers)?;

        let mut looks: Vec<FormLook> = vec![(self.me().clone(), own)];
        let answered = answers.iter().filter_map(|(node, look)| Some((node, look.as_ref().ok()?)));
        looks.extend(answered.map(|(node, look)| (node.id.clone(), look.clone())));
        let may_lack = |look: &CopyLook| look.may_lack || look.damaged;
        let is_complete = looks.len() > asked && !looks.iter().any(|(_, look)| may_lack(look));
        let decides = guard.is_some() && self.owns(&state);
        let newest = newest_available(&looks, |stamp| {
            decides && self.was_never_acknowledged(&state, stamp, &looks, is_complete)
        });
        self.drop_unacknowledged(&newest.unacknowledged, &looks).await?;
        let removed = looks.iter().filter_map(|(_, look)| look.removed).max();
        if newest.stamp.is_none() {
            self.propagate_delete(&answers, removed).await?;
            self.check_not_hidden()?;
        }
        Ok(FoundForms { newest, removed, is_complete })
    }

    /// The targets that must answer. A target that is not stale and has some form of the object has
    /// it in the newest version, or another target has a newer form.
    fn required_answers(&self, state: &ClusterState, own: &CopyLook) -> Result<Vec<Node>> {
        match own.newest() {
            None => self.candidate_holders(),
            Some(_) if self.info().has_copies() && self.is_stale(state) => Ok(self.lookup_peers()),
            Some(_) => Ok(Vec::new()),
        }
    }

    /// An error if a target that did not answer may have a newer version than those that did.
    fn check_answers(
        &self,
        state: &ClusterState,
        own: &CopyLook,
        required: &[Node],
        answers: &[LookAnswer],
    ) -> Result<()> {
        let is_answer = |answer: &Result<CopyLook>| match answer {
            Ok(_) => true,
            Err(e) => e.code == ErrorCode::BucketNotFound,
        };
        let has_answered = |node: &Node| {
            answers.iter().any(|(from, answer)| from.id == node.id && is_answer(answer))
        };
        if required.iter().all(has_answered) {
            return Ok(());
        }
        let is_stale = self.info().has_copies() && self.is_stale(state);
        let looks = || answers.iter().filter_map(|(node, look)| Some((node, look.as_ref().ok()?)));
        let newest = looks().map(|(_, look)| look.newest()).max().flatten().max(own.newest());
        let is_current = |look: &CopyLook| look.newest() == newest;
        let is_sure = newest.is_some()
            && !is_stale
            && (is_current(own) || looks().any(|(node, look)| !node.lagging && is_current(look)));
        match self.unanswered(answers).filter(|_| !is_sure) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Whether the write of a version with too few slices was certainly not acknowledged: an
    /// acknowledged one reached all living holders, and here a holder that missed nothing since does
    /// not have it. Its holders may be unknown, because the places changed since the write, or all may
    /// have missed writes. Then all targets must have answered, and have an older version, which an
    /// acknowledged write would have removed from all targets that were alive.
    fn was_never_acknowledged(
        &self,
        state: &ClusterState,
        stamp: Stamp,
        looks: &[FormLook],
        is_complete: bool,
    ) -> bool {
        if is_complete && has_available_before(looks, stamp) {
            return true;
        }
        if !state.is_in_place(self.info()) && stamp.epoch < state.targets_changed {
            return false;
        }
        let digest = placement::digest_in(&self.info().bucket, self.name());
        let holders = placement::holders(state, self.info(), digest);
        looks.iter().any(|(id, look)| {
            let has =
                look.there == Some(stamp) || look.slices.iter().any(|here| here.stamp == stamp);
            let is_current = |node: &&Node| node.id == *id && node.alive && !node.lagging;
            !has && !look.may_lack && holders.iter().any(is_current)
        })
    }

    /// Drops the slices of incomplete writes, so that they are not found again. The caller holds the
    /// object's lock. A slice that stays for now is found again, and dropped then.
    async fn drop_unacknowledged(&self, stamps: &[Stamp], looks: &[FormLook]) -> Result<()> {
        for stamp in stamps {
            self.remove_slices(|of| of == *stamp).await?;
            let has = |look: &CopyLook| look.slices.iter().any(|here| here.stamp == *stamp);
            let others = looks.iter().filter(|(id, look)| id != self.me() && has(look));
            let requests: Vec<_> = others
                .map(|(id, _)| {
                    let forms = ObsoleteForms::Unacknowledged(*stamp);
                    let by = Some(self.me().clone());
                    self.issue(Command::DropForms { to: id.clone(), forms, by })
                })
                .collect();
            for request in requests {
                request.await;
            }
        }
        Ok(())
    }

    /// The error if there are too few slices of the newest version.
    pub(super) fn too_few(&self, found: &FoundForms, (there, needed): (usize, usize)) -> Error {
        let uri = self.object.uri();
        if found.is_complete {
            let text = format!("{uri} is lost: {there} of {needed} slices are left");
            return Error::new(ErrorCode::Corrupt, text)
                .hint("there is no other copy: write the object again, or delete it");
        }
        Error::unavailable(format!("{uri}: {there} of {needed} slices can be read"))
            .hint("it is served again when the targets that have the others are back")
    }
}
