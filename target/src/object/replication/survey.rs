//! Looks at many objects on other targets by one request: most copies are where they belong
//! already, and cost no request each when objects move or copies are made.

use std::collections::BTreeMap;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::requests::SurveyRequest;
use forebay_core::copies::{CopyLook, Stamp};
use forebay_core::erasure::{Form, Slice};
use forebay_core::replication::LookMode;
use forebay_core::state::Node;
use forebay_core::{NodeId, Result, rebalance};

use super::Replication;
use super::slices::object_of;

/// Path of this request.
pub(super) const SURVEY_PATH: &str = "/internal/v1/copy/survey";

/// An object in a request: its index in the names, and the stamp and form that should be there.
type Row = (usize, Stamp, Form);

impl Replication {
    /// This target's current looks at many objects, on the disks that are in use.
    pub(crate) async fn survey(
        &self,
        info: &BucketInfo,
        request: &SurveyRequest,
    ) -> Result<Vec<CopyLook>> {
        let mut looks = Vec::with_capacity(request.names.len());
        for name in &request.names {
            looks.push(self.look_here(info, name, LookMode::ImmediateInPart).await?);
        }
        Ok(looks)
    }

    /// The objects that need a transfer or a removal, by a look at all of them; the caller then
    /// checks each by itself. Later writes are replicated to all holders anyway.
    pub(crate) async fn objects_to_relocate(
        &self,
        info: &BucketInfo,
        names: Vec<String>,
    ) -> Vec<String> {
        if !info.has_copies() {
            return names;
        }
        let state = self.state();
        let mut asked: BTreeMap<&NodeId, (&Node, Vec<Row>)> = BTreeMap::new();
        // Number of targets that may lack each object; objects of which no target has to be asked
        // stay at the maximum.
        let mut lacking = vec![usize::MAX; names.len()];
        for (at, name) in names.iter().enumerate() {
            let Ok(Some(record)) = self.store().get(info.id, name).await else { continue };
            let mut forms = rebalance::forms(&state, info, name, record.size);
            if !forms.iter().any(|(n, form)| n.id == *self.me() && *form == Form::Whole) {
                continue;
            }
            forms.retain(|(node, _)| node.alive && node.id != *self.me());
            lacking[at] = forms.len();
            for (node, form) in forms {
                let (_, rows) = asked.entry(&node.id).or_insert((node, Vec::new()));
                rows.push((at, record.stamp(), form));
            }
        }
        for (node, rows) in asked.into_values() {
            let names = rows.iter().map(|(at, ..)| names[*at].clone()).collect();
            let request = SurveyRequest { bucket: info.bucket.clone(), names };
            let answer = self.0.peer.post_json(&node.url, SURVEY_PATH, &request).await;
            // If a target does not respond, each of its objects is checked.
            let looks: Vec<CopyLook> = answer.unwrap_or_default();
            for ((at, stamp, form), look) in rows.into_iter().zip(looks) {
                // A small object that became a large one leaves a copy beside a slice.
                if look.has_form(form, stamp) && !look.has_older(stamp) {
                    lacking[at] -= 1;
                }
            }
        }
        let left = names.into_iter().zip(lacking).filter(|(_, lacking)| *lacking > 0);
        left.map(|(name, _)| name).collect()
    }

    /// The names whose slice under an id needs repair, by a look at all of them: if the slice
    /// belongs here, and the whole is where it belongs, there is nothing to do.
    pub(crate) async fn slices_to_relocate(
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
}
