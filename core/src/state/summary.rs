//! Summarizes a command's change for the log.

use serde_json::Value;

use super::{ClusterState, Command};
use crate::bucket::BucketInfo;
use crate::shown_url;

/// Maximum length of one value; longer values are truncated.
const MAX_VALUE: usize = 80;
/// Maximum length of all values together.
const MAX_DETAIL: usize = 1_000;

/// A change of the cluster made by a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The change, for example `bucket made`.
    pub change: &'static str,
    /// The name of the changed item; empty for the cluster's settings.
    pub subject: String,
    /// The new values, `key=value` separated by commas; may be empty.
    pub detail: String,
}

impl Summary {
    /// A change without details.
    pub fn new(change: &'static str, subject: impl ToString) -> Self {
        Self { change, subject: subject.to_string(), detail: String::new() }
    }

    /// The same change with these details.
    pub fn with(self, detail: String) -> Self {
        Self { detail, ..self }
    }
}

impl Command {
    /// The summary of the command in this state. `None` for reports of nodes, which have log lines
    /// of their own.
    pub fn summary(&self, state: &ClusterState) -> Option<Summary> {
        Some(match self {
            Self::Init { .. }
            | Self::Join { .. }
            | Self::SetAlive { .. }
            | Self::NodeKey { .. }
            | Self::RebalanceComplete { .. } => {
                return None;
            }
            Self::Remove { id } => Summary::new("node removed", id),
            Self::CreateBucket { info, .. } => {
                let fresh = state.requested(info.bucket.clone(), None);
                Summary::new("bucket made", &info.bucket).with(differences(&fresh, info))
            }
            Self::SetBucket { info } => {
                let detail = match state.bucket(&info.bucket) {
                    Ok(before) => differences(before, info),
                    Err(_) => String::new(),
                };
                Summary::new("bucket changed", &info.bucket).with(detail)
            }
            Self::DestroyBucket { bucket } => Summary::new(
                if bucket.is_remote() { "bucket evicted" } else { "bucket removed" },
                bucket,
            ),
            Self::RenameBucket { from, to } => {
                Summary::new("bucket renamed", from).with(format!("to={to}"))
            }
            Self::Configure { change, reset, .. } => {
                let set = change.iter().map(|(key, value)| (key.clone(), value.clone()));
                let change = if *reset { "settings reset" } else { "settings changed" };
                Summary::new(change, "").with(join(set))
            }
            Self::SetMaintenance { id, on: true } => Summary::new("node drained", id),
            Self::SetMaintenance { id, on: false } => Summary::new("node back in use", id),
            Self::Retire { id, leaving } => {
                Summary::new("node leaves", id).with(format!("for={leaving:?}").to_lowercase())
            }
            Self::CreateEtl { etl } => Summary::new("transform made", &etl.name),
            Self::SetEtl { etl } => {
                let stage = format!("stage={}", etl.stage.v1_name());
                Summary::new("transform changed", &etl.name).with(stage)
            }
            Self::DeleteEtl { name } => Summary::new("transform removed", name),
            Self::AttachCluster { alias, url, .. } => {
                Summary::new("cluster attached", alias).with(format!("url={}", shown_url(url)))
            }
            Self::DetachCluster { alias } => Summary::new("cluster detached", alias),
            Self::Access { change, .. } => {
                let (change, subject, detail) = change.summary();
                Summary::new(change, subject).with(detail)
            }
        })
    }
}

/// Keys of a bucket whose values differ, with the new values.
fn differences(before: &BucketInfo, after: &BucketInfo) -> String {
    let mut found = Vec::new();
    let value = |info: &BucketInfo| serde_json::to_value(info).unwrap_or_default();
    compare("", &value(before), &value(after), &mut found);
    // Set by the cluster, not by the sender.
    let by_cluster = ["id", "created_ns", "created_version", "endpoint_trust"];
    found.retain(|(key, _)| !by_cluster.contains(&key.as_str()));
    join(found)
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<(String, String)>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        match (before, after) {
            _ if before == after => {}
            // A section that is new.
            (Value::Null, Value::Object(new)) => {
                for (key, value) in new {
                    compare(&below(path, key), &Value::Null, value, found);
                }
            }
            (_, Value::Null) => found.push((path.to_owned(), "unset".to_owned())),
            (_, Value::String(text)) => found.push((path.to_owned(), text.clone())),
            (_, value) => found.push((path.to_owned(), value.to_string())),
        }
        return;
    };
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
        let at = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        compare(&below(path, key), &at(old), &at(new), found);
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn join(pairs: impl IntoIterator<Item = (String, String)>) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        if text.len() > MAX_DETAIL {
            text.push_str(", …");
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&format!("{key}={}", shortened(&value)));
    }
    text
}

/// A value for the log; of a URL the part that cannot be a secret.
fn shortened(value: &str) -> String {
    let value = if value.contains("://") { &shown_url(value) } else { value };
    match value.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::{Bucket, Provider};

    fn bucket() -> Bucket {
        Bucket::new(Provider::Ais, "runs").unwrap()
    }

    fn with_bucket() -> (ClusterState, BucketInfo) {
        let mut state = ClusterState::default();
        state.apply(1, Command::Init { cluster_id: "c".into(), now_ns: 1 }).unwrap();
        let info = Box::new(state.requested(bucket(), None));
        state.apply(2, Command::CreateBucket { info, now_ns: 2 }).unwrap();
        let info = state.bucket(&bucket()).unwrap().as_ref().clone();
        (state, info)
    }

    #[test]
    fn a_change_of_a_bucket_names_the_keys_and_their_new_values() {
        let (state, before) = with_bucket();
        let mut after = before.clone();
        after.copies = 2;
        after.extra.insert("access".into(), "2".into());
        after.extra.insert("lru".into(), serde_json::json!({"batch_size": 7}));
        let summary = Command::SetBucket { info: Box::new(after) }.summary(&state).unwrap();
        assert_eq!((summary.change, summary.subject.as_str()), ("bucket changed", "ais://runs"));
        assert_eq!(summary.detail, "copies=2, extra.access=2, extra.lru.batch_size=7");
    }

    #[test]
    fn a_new_bucket_shows_what_differs_from_the_default() {
        let (state, mut info) = with_bucket();
        let made =
            |info: &BucketInfo| Command::CreateBucket { info: Box::new(info.clone()), now_ns: 3 };
        assert_eq!(made(&info).summary(&state).unwrap().detail, "");
        info.copies = 3;
        assert_eq!(made(&info).summary(&state).unwrap().detail, "copies=3");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let (state, mut info) = with_bucket();
        info.s3.policy = Some("é".repeat(500));
        let summary = Command::SetBucket { info: Box::new(info) }.summary(&state).unwrap();
        assert!(summary.detail.ends_with('…') && summary.detail.chars().count() < 120);
    }

    #[test]
    fn what_nodes_report_themselves_is_no_change_that_somebody_asked_for() {
        let (state, _) = with_bucket();
        let completed = Command::RebalanceComplete { placed: 1, repaired: Vec::new() };
        assert_eq!(completed.summary(&state), None);
    }
}
