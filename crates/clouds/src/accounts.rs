//! The accounts of the configuration: their settings and clients, and the ones that a bucket uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::config::CloudConfig;
use forebay_core::egress::EgressPolicy;
use forebay_core::{Error, Result};

use crate::account::{CredentialFile, NamedAccount};
use crate::azure::{AzureClients, AzureSettings};
use crate::gcs::{GcsClients, GcsSettings};
use crate::s3::{S3Clients, S3Settings, S3Source};

/// Settings of the clients of one account.
#[derive(Clone, Debug)]
pub enum AccountSettings {
    S3(S3Settings),
    Gcs(GcsSettings),
    Azure(AzureSettings),
}

/// Settings of all accounts, by name.
pub type AllAccounts = BTreeMap<String, AccountSettings>;

/// The settings of the accounts in the configuration. Fails if a credential file cannot be read, or if
/// other users of the machine can.
pub(crate) fn settings_of(accounts: &[CloudConfig], policy: &EgressPolicy) -> Result<AllAccounts> {
    accounts.iter().map(|config| Ok((config.name.clone(), one(config, policy)?))).collect()
}

fn one(config: &CloudConfig, policy: &EgressPolicy) -> Result<AccountSettings> {
    let account = Some(NamedAccount::of(config)?);
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let file = |key: &str, path: &String| CredentialFile::optional(&config.name, key, path);
    let endpoint = text(&config.endpoint);
    let egress = policy.clone();
    let credentials_file = file("credentials_file", &config.credentials_file)?;
    Ok(match config.kind()? {
        BackendKind::Azure => {
            let key = file("secret_key_file", &config.secret_key_file)?;
            let sas = file("sas_file", &config.sas_file)?;
            let storage = text(&config.storage_account);
            let settings =
                AzureSettings { account: storage, endpoint, egress, ..Default::default() };
            let settings = settings.with_files(key, sas, credentials_file);
            AccountSettings::Azure(AzureSettings { named: account, ..settings })
        }
        BackendKind::Gcs => AccountSettings::Gcs(GcsSettings {
            endpoint,
            egress,
            named: account,
            file: credentials_file,
            ..GcsSettings::default()
        }),
        _ => {
            let secret = file("secret_key_file", &config.secret_key_file)?;
            let profile = text(&config.profile);
            AccountSettings::S3(S3Settings {
                endpoint,
                egress,
                named: account,
                region: text(&config.region),
                source: S3Source::of(&config.access_key, secret, profile, credentials_file),
                requester_pays: config.requester_pays,
                ..S3Settings::default()
            })
        }
    })
}

/// The clients of all accounts of one kind, beside those of the environment.
pub(crate) struct Clients<C> {
    own: Arc<C>,
    named: BTreeMap<String, Arc<C>>,
}

impl<C> Clients<C> {
    /// The clients for the account of a bucket, or for the account of the environment.
    pub(crate) fn of(
        &self,
        accounts: &AllAccounts,
        info: &BucketInfo,
        spec: &BackendSpec,
    ) -> Result<&Arc<C>> {
        let Some(name) = &spec.account else { return Ok(&self.own) };
        if let Some(clients) = self.named.get(name) {
            return Ok(clients);
        }
        let bucket = &info.bucket;
        if accounts.contains_key(name) {
            let text = format!(
                "bucket \"{bucket}\" cannot be used: its account \"{name}\" is one of another cloud"
            );
            return Err(Error::invalid(text).hint("forebay bucket set URI account=NAME"));
        }
        let known: Vec<&str> = accounts.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let text = format!(
            "bucket \"{bucket}\" cannot be used: its account \"{name}\" is not in the configuration of \
             the target"
        );
        Err(Error::invalid(text).hint(format!(
            "add [[cloud]] with name = \"{name}\" to the configuration of every target; configured: \
             {known}"
        )))
    }
}

/// The clients of each cloud.
pub(crate) struct AllClients {
    pub(crate) s3: Clients<S3Clients>,
    pub(crate) gcs: Clients<GcsClients>,
    pub(crate) azure: Clients<AzureClients>,
}

impl AllClients {
    pub(crate) fn new(
        s3: S3Settings,
        gcs: GcsSettings,
        azure: AzureSettings,
        accounts: &AllAccounts,
    ) -> Self {
        let mut all = Self {
            s3: Clients { own: Arc::new(S3Clients::new(s3)), named: BTreeMap::new() },
            gcs: Clients { own: Arc::new(GcsClients::new(gcs)), named: BTreeMap::new() },
            azure: Clients { own: Arc::new(AzureClients::new(azure)), named: BTreeMap::new() },
        };
        for (name, settings) in accounts {
            let name = name.clone();
            match settings.clone() {
                AccountSettings::S3(s) => {
                    drop(all.s3.named.insert(name, Arc::new(S3Clients::new(s))));
                }
                AccountSettings::Gcs(s) => {
                    drop(all.gcs.named.insert(name, Arc::new(GcsClients::new(s))));
                }
                AccountSettings::Azure(s) => {
                    drop(all.azure.named.insert(name, Arc::new(AzureClients::new(s))));
                }
            }
        }
        all
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use forebay_core::ErrorCode;
    use forebay_core::name::{Bucket, Provider};

    use super::*;

    fn prod(secret: &std::path::Path) -> CloudConfig {
        CloudConfig {
            name: "prod".into(),
            provider: "s3".into(),
            access_key: "trainer".into(),
            secret_key_file: secret.display().to_string(),
            ..CloudConfig::default()
        }
    }

    #[test]
    fn a_credential_file_is_private_and_its_content_is_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prod.key");
        write(&path, "planted-secret\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let policy = EgressPolicy::default();
        let error = settings_of(&[prod(&path)], &policy).unwrap_err();
        assert!(error.message.contains("cloud \"prod\": secret_key_file"), "{error}");
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let found = settings_of(&[prod(&path)], &policy).unwrap();
        assert!(!format!("{found:?}").contains("planted-secret"));
        let file = CredentialFile::open("prod", "secret_key_file", path.to_str().unwrap()).unwrap();
        assert_eq!(&*file.text(), "planted-secret");
    }

    #[test]
    fn an_account_that_is_not_configured_or_of_another_cloud_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prod.key");
        write(&path, "planted-secret").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let accounts = settings_of(&[prod(&path)], &EgressPolicy::default()).unwrap();
        let clients = AllClients::new(
            S3Settings::default(),
            GcsSettings::default(),
            AzureSettings::default(),
            &accounts,
        );
        let info = BucketInfo::requested(Bucket::new(Provider::Aws, "data").unwrap(), None);
        let spec = |account: Option<&str>| BackendSpec {
            account: account.map(str::to_owned),
            ..info.backend.clone().unwrap()
        };
        let s3 = |account| clients.s3.of(&accounts, &info, &spec(account));
        assert!(!Arc::ptr_eq(s3(None).unwrap(), s3(Some("prod")).unwrap()));
        let error = s3(Some("prot")).err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        assert!(error.message.contains("\"prot\"") && error.hint.unwrap().contains("prod"));
        let error = clients.azure.of(&accounts, &info, &spec(Some("prod"))).err().unwrap();
        assert!(error.message.contains("another cloud"), "{error}");
    }
}
