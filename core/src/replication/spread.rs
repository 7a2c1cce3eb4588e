//! Brings the forms of a coded object to where they belong, from its whole.

use super::Rule;
use super::command::{Command, LocalCopy, LookMode, ObsoleteForms, Removal};
use super::operation::all_done;
use super::relocate::OBJECT_COST_BYTES;
use super::steps::Steps;
use crate::copies::{CopyLook, Stamp};
use crate::erasure::{Form, Slice};
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::rebalance;
use crate::state::{ClusterState, Node};

/// The result of bringing the forms of an object to their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// The bytes that were sent or dropped; `None` if there was nothing to do.
    Done(Option<u64>),
    /// Another target has this newer version.
    Newer(Stamp),
}

/// The targets that lack their forms of a version.
#[derive(Default)]
struct Lacking {
    whole: Vec<NodeId>,
    slices: Vec<(NodeId, Slice)>,
    /// The slice that this target lacks beside the whole.
    own_slice: Option<Slice>,
    /// Targets with older forms.
    obsolete: Vec<NodeId>,
}

impl Steps {
    /// The form of an object of this size that each target should have; the whole, if the bucket has
    /// no erasure coding.
    pub(super) fn forms(&self, state: &ClusterState, size: u64) -> Vec<(Node, Form)> {
        let forms = rebalance::forms(state, self.info(), self.name(), size);
        forms.into_iter().map(|(node, form)| (node.clone(), form)).collect()
    }

    /// Moves the whole of a coded object to where it belongs, as [`Self::relocate`] does. The copy
    /// here is also dropped if another target has a newer version.
    pub(super) async fn relocate_whole(&self) -> Result<Option<u64>> {
        let Some(copy) = self.final_copy_here().await? else { return Ok(None) };
        let newer = match self.spread(copy).await? {
            Spread::Done(bytes) => return Ok(bytes),
            Spread::Newer(newer) => newer,
        };
        // Unless the newer write was not completed, which the owner can decide.
        let Some(ensured) = self.ensured_unless_lost(newer).await? else { return Ok(None) };
        if ensured.stamp > Some(copy.stamp) {
            self.drop_misplaced(copy).await?;
        }
        Ok(Some(copy.size))
    }

    /// Sends the targets that lack their form of a whole here what they lack. Then older forms are
    /// dropped there, and the whole is dropped here, unless it belongs here.
    pub(super) async fn spread(&self, copy: LocalCopy) -> Result<Spread> {
        let mut forms = self.forms(&self.state(), copy.size);
        let stays = forms.iter().any(|(node, form)| node.id == *self.me() && *form == Form::Whole);
        if let Some((dead, _)) = forms.iter().find(|(node, _)| !node.alive && !stays) {
            let uri = self.object.uri();
            let text = format!("{uri} belongs to target {}, too, which is down", dead.id);
            return Err(Error::unavailable(text));
        }
        forms.retain(|(node, _)| node.alive);
        if !stays && !self.keeps(Rule::FormsStayUntilSafe) {
            self.drop_misplaced(copy).await?;
        }
        let looks = self.look_at_holders(&forms).await?;
        let is_removal = |look: &&CopyLook| look.removed > Some(copy.stamp).max(look.newest());
        if let Some(removed) = looks.iter().find(is_removal).and_then(|look| look.removed) {
            self.remove_older_here(&Removal::of(removed)).await?;
            return Ok(Spread::Done(Some(0)));
        }
        let newest = looks.iter().filter_map(CopyLook::newest).max();
        if let Some(newer) = newest.filter(|newest| *newest > copy.stamp) {
            return Ok(Spread::Newer(newer));
        }
        let lacking = self.lacking(&forms, &looks, copy.stamp);
        let mut bytes = self.send_forms(copy, &lacking).await?;
        self.drop_obsolete(copy.stamp, &lacking.obsolete).await?;
        if !stays {
            bytes = Some(bytes.unwrap_or(copy.size));
            self.drop_misplaced(copy).await?;
        }
        Ok(Spread::Done(bytes))
    }

    /// The states of an object at the targets of its forms; an error if one does not answer.
    async fn look_at_holders(&self, forms: &[(Node, Form)]) -> Result<Vec<CopyLook>> {
        let nodes: Vec<Node> = forms.iter().map(|(node, _)| node.clone()).collect();
        let others = nodes.iter().filter(|node| node.id != *self.me()).cloned().collect();
        let mut answers = self.look_at_all(others, LookMode::Final).await.into_iter();
        let mut looks = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let look = match node.id == *self.me() {
                true => Some(self.look_here(LookMode::Final).await),
                false => answers.next().map(|(_, look)| look),
            };
            looks.push(look.ok_or_else(|| Error::internal("a look has no answer"))??);
        }
        Ok(looks)
    }

    fn lacking(&self, forms: &[(Node, Form)], looks: &[CopyLook], stamp: Stamp) -> Lacking {
        let mut lacking = Lacking::default();
        for ((node, form), look) in forms.iter().zip(looks) {
            let id = node.id.clone();
            if look.has_older(stamp) {
                lacking.obsolete.push(id.clone());
            }
            match form {
                _ if look.knows_form(*form, stamp) => {}
                Form::Whole if id != *self.me() => lacking.whole.push(id),
                Form::Whole => {}
                Form::Slice(slice) if id == *self.me() => lacking.own_slice = Some(*slice),
                Form::Slice(slice) => lacking.slices.push((id, *slice)),
            }
        }
        lacking
    }

    /// Sends forms of a copy; returns the bytes.
    async fn send_forms(&self, copy: LocalCopy, lacking: &Lacking) -> Result<Option<u64>> {
        let mut bytes = None;
        if let Some(slice) = lacking.own_slice {
            self.keep_slice(copy, slice).await?;
            bytes = Some(0);
        }
        for to in &lacking.whole {
            self.pace(copy.size).await?;
            self.send_misplaced(to, copy, Form::Whole).await?;
            bytes = Some(bytes.unwrap_or(0) + copy.size);
        }
        let Some((_, Slice { data, .. })) = lacking.slices.first() else { return Ok(bytes) };
        let sent = copy.size / u64::from(*data) * lacking.slices.len() as u64;
        self.pace(sent).await?;
        let sends = lacking.slices.iter().map(|(to, slice)| {
            let form = Form::Slice(*slice);
            self.issue(Command::Send { to: to.clone(), copy, form, written: false })
        });
        all_done(sends.collect()).await?;
        Ok(Some(bytes.unwrap_or(0) + sent))
    }

    /// Commits a slice of the copy here beside it, unless the slice is here.
    async fn keep_slice(&self, copy: LocalCopy, slice: Slice) -> Result<()> {
        let _guard = self.lock().await?;
        if self.forms_here(true).await?.knows_form(Form::Slice(slice), copy.stamp) {
            return Ok(());
        }
        self.issue(Command::KeepSlice { copy, slice }).await.done()
    }

    /// Drops the forms that are older than a version which all living holders have.
    async fn drop_obsolete(&self, stamp: Stamp, targets: &[NodeId]) -> Result<()> {
        let forms = ObsoleteForms::Before(stamp);
        for to in targets {
            if to == self.me() {
                self.drop_forms_here(forms, None).await?;
            } else {
                let request = Command::DropForms { to: to.clone(), forms, by: None };
                self.issue(request).await.done()?;
            }
        }
        Ok(())
    }

    /// Waits until so many bytes of one object may be sent.
    pub(super) async fn pace(&self, bytes: u64) -> Result<()> {
        self.issue(Command::Pace { bytes: bytes + OBJECT_COST_BYTES }).await.done()
    }
}
