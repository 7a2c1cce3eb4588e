//! Access control lists: what users other than its owner may do with a bucket or an object.
//!
//! The owner may always do everything, so a list contains only the grants to others. The names of
//! grantees and permissions are a stored format: the state has the lists of buckets, and the custom
//! metadata of objects has theirs.

use serde::{Deserialize, Serialize};

/// The receiver of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grantee {
    User(String),
    Everybody,
    /// Everybody with an access key.
    Holders,
}

/// The permission granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    #[serde(rename = "FULL_CONTROL")]
    FullControl,
    #[serde(rename = "READ")]
    Read,
    #[serde(rename = "WRITE")]
    Write,
    #[serde(rename = "READ_ACP")]
    ReadAcp,
    #[serde(rename = "WRITE_ACP")]
    WriteAcp,
}

/// One permission for one grantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub to: Grantee,
    pub may: Permission,
}

/// The grants to users other than the owner; empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Acl(Vec<Grant>);

impl Acl {
    /// No grants.
    pub const fn private() -> Self {
        Self(Vec::new())
    }

    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants)
    }

    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// Whether only the owner has access.
    pub fn is_private(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a user (`None`: a sender without a key) has this permission.
    pub fn gives(&self, user: Option<&str>, wanted: Permission) -> bool {
        self.0.iter().any(|grant| {
            let to = match &grant.to {
                Grantee::User(id) => user == Some(id.as_str()),
                Grantee::Everybody => true,
                Grantee::Holders => user.is_some(),
            };
            to && (grant.may == wanted || grant.may == Permission::FullControl)
        })
    }

    /// The list without grants to the owner, who has them anyway.
    #[must_use]
    pub fn without(mut self, owner: &str) -> Self {
        self.0.retain(|grant| !matches!(&grant.to, Grantee::User(id) if id == owner));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_control_includes_every_permission_and_holders_are_those_with_a_key() {
        let grant = |to, may| Grant { to, may };
        let acl = Acl::new(vec![
            grant(Grantee::User("ann".into()), Permission::FullControl),
            grant(Grantee::Holders, Permission::Read),
        ]);
        assert!(acl.gives(Some("ann"), Permission::WriteAcp));
        assert!(acl.gives(Some("bob"), Permission::Read));
        assert!(!acl.gives(Some("bob"), Permission::Write));
        assert!(!acl.gives(None, Permission::Read));
        assert!(!acl.is_private() && Acl::private().is_private());
        assert_eq!(acl.without("ann").grants(), [grant(Grantee::Holders, Permission::Read)]);
    }
}
