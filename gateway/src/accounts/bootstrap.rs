//! Creates the first administrator, as configured.

use std::path::Path;
use std::time::Duration;

use forebay_core::access::{AccessChange, Role, User, check_user_name};
use forebay_core::{Error, Result};
use forebay_node::access::hash_password;
use forebay_node::secret_file;

use super::Accounts;
use crate::cluster::leadership::{LeaderWatch, Leadership};

/// The variables of AIStore's AuthN.
const PASSWORD_VARIABLE: &str = "AIS_AUTHN_SU_PASS";
/// Pause after a failed try, for example because no majority of gateways runs yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Name and password of the first administrator.
pub(crate) struct FirstAdmin {
    name: String,
    password: String,
}

impl Accounts {
    /// The administrator that configuration and environment name; `None` if they name none.
    pub(crate) fn first_admin(&self) -> Result<Option<FirstAdmin>> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let Some(name) = forebay_node::access::first_admin(&self.config) else { return Ok(None) };
        check_user_name(&name)?;
        let password = match self.config.admin_password_file.as_str() {
            "" => variable(PASSWORD_VARIABLE).ok_or_else(|| {
                Error::invalid("the first administrator has no password")
                    .hint(format!("set auth.admin_password_file or {PASSWORD_VARIABLE}"))
            })?,
            path => secret_file::read_text("auth.admin_password_file", Path::new(path))?
                .trim()
                .to_owned(),
        };
        Ok(Some(FirstAdmin { name, password }))
    }

    /// Creates the administrator while this gateway leads, unless the cluster has users.
    pub(crate) async fn bootstrap(self, admin: FirstAdmin, mut leadership: LeaderWatch) {
        loop {
            if self.state().access.has_users() {
                return;
            }
            if matches!(leadership.now(), Leadership::Leading(_)) && self.state().version > 0 {
                match self.create_admin(&admin).await {
                    Ok(()) => return,
                    Err(e) => tracing::warn!(error = %e, "cannot create the first administrator"),
                }
            }
            let _ = tokio::time::timeout(RETRY_INTERVAL, leadership.changed()).await;
        }
    }

    async fn create_admin(&self, admin: &FirstAdmin) -> Result<()> {
        let (name, password) = (admin.name.clone(), admin.password.clone());
        let password = self.hashed(move || hash_password(&password)).await??;
        let roles = vec![Role::Admin.name().to_owned()];
        let user = Box::new(User { password, roles, ..User::default() });
        self.change(AccessChange::AddUser { name: name.clone(), user }).await?;
        tracing::info!(user = name, "first administrator created: requests need a user now");
        Ok(())
    }
}
