//! The rights of a user: the union of the rights of all roles.

use super::decision::{Binding, UserAccess};
use super::records::{BucketRights, RoleDefinition};
use super::right::{Right, Rights};
use super::role::Role;
use super::section::AccessState;

impl AccessState {
    /// The rights of a user of this section on the cluster with this id; `None`: no such user.
    pub fn user_access(&self, name: &str, cluster_id: &str) -> Option<UserAccess> {
        let user = self.users.get(name)?;
        let mut access = UserAccess { name: name.to_owned(), ..UserAccess::default() };
        for role in &user.roles {
            self.add_role(&mut access, role, cluster_id);
        }
        for bound in &user.bindings {
            let rights = self.role_rights(&bound.role, cluster_id);
            if rights != Rights::NONE {
                let (buckets, prefix) = (bound.buckets.clone(), bound.prefix.clone());
                access.bindings.push(Binding { buckets, prefix, rights });
            }
        }
        Some(access)
    }

    /// Adds the rights of a role that holds everywhere. A role that does not exist has none.
    pub(super) fn add_role(&self, access: &mut UserAccess, name: &str, cluster_id: &str) {
        if let Some(role) = Role::of_name(name) {
            access.everywhere = access.everywhere.with(role.rights());
        } else if let Some(role) = self.roles.get(name) {
            role.add_to(access, cluster_id);
        }
    }

    /// The rights of a role where it is bound to buckets.
    fn role_rights(&self, name: &str, cluster_id: &str) -> Rights {
        match (Role::of_name(name), self.roles.get(name)) {
            (Some(role), _) => role.rights(),
            (None, Some(role)) => role.cluster_rights(cluster_id),
            (None, None) => Rights::NONE,
        }
    }
}

impl RoleDefinition {
    fn cluster_rights(&self, cluster_id: &str) -> Rights {
        if self.admin {
            return Rights::ALL;
        }
        let here = self.clusters.iter().filter(|c| is_here(&c.cluster, cluster_id));
        here.fold(Rights::NONE, |rights, c| rights.with(full(c.rights)))
    }

    /// Adds the rights of this role on the cluster with this id.
    pub(super) fn add_to(&self, access: &mut UserAccess, cluster_id: &str) {
        access.everywhere = access.everywhere.with(self.cluster_rights(cluster_id));
        let here = self.buckets.iter().filter(|b| is_here(&b.cluster, cluster_id));
        access.bindings.extend(here.map(BucketRights::binding));
    }
}

impl BucketRights {
    fn binding(&self) -> Binding {
        let namespace = match self.namespace.as_str() {
            "" => String::new(),
            name => format!("#{name}/"),
        };
        let provider = match self.provider.as_str() {
            "" => "ais",
            "aws" => "s3",
            "gcp" => "gs",
            provider => provider,
        };
        Binding {
            // A bucket name has no `*`, so this matches one bucket.
            buckets: format!("{provider}://{namespace}{}", self.name),
            prefix: String::new(),
            rights: full(self.rights),
        }
    }
}

/// AIStore's mask of an administrator includes this cluster's own rights, which AIStore lacks.
fn full(rights: Rights) -> Rights {
    if rights.has(Right::Admin) { Rights::ALL } else { rights }
}

fn is_here(cluster: &str, cluster_id: &str) -> bool {
    cluster.is_empty() || cluster == cluster_id
}
