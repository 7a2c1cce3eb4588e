//! Types of AIStore's AuthN API: logins, users, roles and registered clusters.

use std::collections::BTreeMap;

use forebay_core::access::{
    AccessState, BucketRights, ClusterEntry, ClusterRights, Right, Rights, Role, RoleDefinition,
};
use serde::{Deserialize, Serialize};

/// `POST /v1/users/NAME`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct LoginMessage {
    pub password: String,
    /// Nanoseconds; absent: the configured lifetime; 0: the longest.
    pub expires_in: Option<i64>,
}

/// A token, as answer to a login and as message of a logout.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenMessage {
    pub token: String,
}

/// A user. Answers have no password.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UserMessage {
    pub id: String,
    #[serde(rename = "pass", skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(deserialize_with = "or_empty")]
    pub roles: Vec<RoleMessage>,
}

/// A role with its rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleMessage {
    pub name: String,
    #[serde(deserialize_with = "or_empty")]
    pub desc: String,
    #[serde(deserialize_with = "or_empty")]
    pub clusters: Vec<ClusterPermission>,
    #[serde(deserialize_with = "or_empty")]
    pub buckets: Vec<BucketPermission>,
    pub admin: bool,
}

/// Rights on a cluster; `perm` is the mask in decimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterPermission {
    pub id: String,
    pub perm: String,
}

/// Rights on a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketPermission {
    pub bck: BucketName,
    pub perm: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketName {
    pub name: String,
    pub provider: String,
    #[serde(deserialize_with = "or_empty")]
    pub namespace: NamespaceName,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceName {
    pub uuid: String,
    pub name: String,
}

/// A registered cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterMessage {
    pub id: String,
    #[serde(deserialize_with = "or_empty")]
    pub alias: String,
    #[serde(deserialize_with = "or_empty")]
    pub urls: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterList {
    pub clusters: BTreeMap<String, ClusterMessage>,
}

fn or_empty<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl RoleMessage {
    /// A role in AIStore's form. Roles that every cluster has are on the cluster with this id.
    pub fn of(state: &AccessState, name: &str, cluster_id: &str) -> Option<Self> {
        if let Some(role) = Role::of_name(name) {
            let perm = ClusterPermission { id: cluster_id.into(), perm: mask(role.rights()) };
            let admin = role == Role::Admin;
            let desc = role.description().to_owned();
            return Some(Self {
                name: name.into(),
                desc,
                clusters: vec![perm],
                admin,
                ..Self::default()
            });
        }
        state.roles.get(name).map(|role| Self::of_definition(name, role))
    }

    fn of_definition(name: &str, role: &RoleDefinition) -> Self {
        let cluster = |c: &ClusterRights| ClusterPermission {
            id: c.cluster.clone(),
            perm: c.rights.0.to_string(),
        };
        let bucket = |b: &BucketRights| BucketPermission {
            bck: BucketName {
                name: b.name.clone(),
                provider: b.provider.clone(),
                namespace: NamespaceName { uuid: b.cluster.clone(), name: b.namespace.clone() },
            },
            perm: b.rights.0.to_string(),
        };
        Self {
            name: name.to_owned(),
            desc: role.description.clone(),
            clusters: role.clusters.iter().map(cluster).collect(),
            buckets: role.buckets.iter().map(bucket).collect(),
            admin: role.admin,
        }
    }

    /// The definition; an unreadable mask gives no rights.
    pub fn definition(&self) -> RoleDefinition {
        let rights = |perm: &str| Rights(perm.parse().unwrap_or(0));
        let cluster = |c: &ClusterPermission| ClusterRights {
            cluster: c.id.clone(),
            rights: rights(&c.perm),
        };
        let bucket = |b: &BucketPermission| BucketRights {
            cluster: b.bck.namespace.uuid.clone(),
            provider: b.bck.provider.clone(),
            namespace: b.bck.namespace.name.clone(),
            name: b.bck.name.clone(),
            rights: rights(&b.perm),
        };
        RoleDefinition {
            description: self.desc.clone(),
            admin: self.admin,
            clusters: self.clusters.iter().map(cluster).collect(),
            buckets: self.buckets.iter().map(bucket).collect(),
        }
    }
}

/// The mask of AIStore's rights: without those that AIStore does not have.
fn mask(rights: Rights) -> String {
    let known = Rights::of(&Right::ALL).0 & !(Right::RunJobs as u64);
    (rights.0 & known).to_string()
}

impl UserMessage {
    /// A user in AIStore's form, without password; `None`: no such user.
    pub fn of(state: &AccessState, name: &str, cluster_id: &str) -> Option<Self> {
        let user = state.users.get(name)?;
        let roles = user.roles.iter().filter_map(|role| RoleMessage::of(state, role, cluster_id));
        Some(Self { id: name.to_owned(), password: None, roles: roles.collect() })
    }
}

impl ClusterMessage {
    pub fn of(id: &str, entry: &ClusterEntry) -> Self {
        Self { id: id.to_owned(), alias: entry.alias.clone(), urls: entry.urls.clone() }
    }

    pub fn entry(&self) -> ClusterEntry {
        ClusterEntry { alias: self.alias.clone(), urls: self.urls.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_returned_as_it_was_sent() {
        let sent = serde_json::json!({"name": "r", "desc": "d", "clusters": null, "buckets": [
            {"bck": {"name": "b", "provider": "ais", "namespace": {"uuid": "c1", "name": ""}},
             "perm": "831"}], "admin": false});
        let role: RoleMessage = serde_json::from_value(sent).unwrap();
        assert_eq!(RoleMessage::of_definition("r", &role.definition()), role);
        assert_eq!(role.definition().buckets[0].rights.0, 831);
        let state = AccessState::default();
        let reader = RoleMessage::of(&state, "reader", "c1").unwrap();
        assert_eq!(reader.clusters[0].perm, (771 + 12288).to_string());
        assert!(RoleMessage::of(&state, "nobody", "c1").is_none());
    }
}
