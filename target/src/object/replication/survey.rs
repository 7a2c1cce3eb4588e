//! Looks at many objects on other targets by one request: most copies are where they belong
//! already, and cost no request each when objects move or copies are made.

use std::collections::BTreeMap;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, CopyRequest, Stamp, SurveyRequest};
use forebay_core::erasure::Form;
use forebay_core::state::Node;
use forebay_core::{NodeId, Result, rebalance};

use super::Replication;

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
            let look = CopyRequest { in_part: true, ..CopyRequest::new(&info.bucket, name) };
            looks.push(self.peek(info, &look).await?);
        }
        Ok(looks)
    }

    /// The objects that need a transfer or a removal, by a look at all of them; the caller then
    /// checks each by itself. Later writes are replicated to all holders anyway.
    pub(crate) async fn still_to_spread(
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
}
