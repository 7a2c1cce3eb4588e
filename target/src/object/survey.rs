//! What other targets have of many objects, asked for at once: copies that lie where they belong already,
//! which are most of them, cost no request each when objects move or copies are made.

use std::collections::BTreeMap;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyLook, CopyRequest, Stamp, SurveyRequest};
use forebay_core::erasure::Form;
use forebay_core::state::Node;
use forebay_core::{NodeId, Result, rebalance};

use super::ObjectService;

/// Where targets tell it.
pub(super) const SURVEY_PATH: &str = "/internal/v1/copy/survey";

/// An object that is asked about: its place among the names, and what of it is to be there.
type Row = (usize, Stamp, Form);

impl ObjectService {
    /// What lies here of each object at this moment, as far as disks are in use.
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

    /// The objects of which something has to be sent or dropped, as far as a look at all of them
    /// tells; each is looked at by itself after that. What was written since then was told to all
    /// who have to have it.
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
        // Targets that may lack it, by name; those that nobody needs to be asked about stay.
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
            let answer = self.0.parts.peer.post_json(&node.url, SURVEY_PATH, &request).await;
            // A target that tells nothing is asked about each.
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
