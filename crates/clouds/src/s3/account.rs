//! Credentials of an account of the configuration.

use std::sync::Arc;
use std::time::SystemTime;

use aws_config::profile::ProfileFileCredentialsProvider;
// The type has moved to a crate that only Amazon's crates need.
#[allow(deprecated)]
use aws_config::profile::profile_file::{ProfileFileKind, ProfileFiles};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_s3::config::Credentials;

use crate::account::{CredentialFile, REREAD};

/// The source of the credentials of an account.
#[derive(Clone, Debug)]
pub(crate) enum S3Source {
    Keys {
        access_key: String,
        secret: Arc<CredentialFile>,
    },
    /// A profile, in a file or in the files of AWS.
    Profile {
        name: Option<String>,
        file: Option<Arc<CredentialFile>>,
    },
}

impl S3Source {
    /// The source of an account; `None` if it has the credentials of the environment.
    pub(crate) fn of(
        access_key: &str,
        secret: Option<Arc<CredentialFile>>,
        profile: Option<String>,
        file: Option<Arc<CredentialFile>>,
    ) -> Option<Self> {
        match secret {
            Some(secret) => Some(Self::Keys { access_key: access_key.to_owned(), secret }),
            None if profile.is_some() || file.is_some() => {
                Some(Self::Profile { name: profile, file })
            }
            None => None,
        }
    }

    /// Describes the source, without a secret.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Keys { secret, .. } => format!("with the secret key in {}", secret.shown()),
            Self::Profile { name, file } => {
                let name = name.as_deref().unwrap_or("default");
                let file = file.as_ref().map_or_else(|| "the files of AWS".into(), |f| f.shown());
                format!("of the profile \"{name}\" of {file}")
            }
        }
    }

    async fn read(&self) -> Result<Credentials, CredentialsError> {
        let (id, secret, token, expiry) = match self {
            Self::Keys { access_key, secret } => {
                (access_key.clone(), secret.text().to_string(), None, None)
            }
            Self::Profile { name, file } => {
                let mut builder = ProfileFileCredentialsProvider::builder();
                if let Some(name) = name {
                    builder = builder.profile_name(name);
                }
                if let Some(file) = file {
                    builder = builder.profile_files(files(&file.text()));
                }
                let found = builder.build().provide_credentials().await?;
                let token = found.session_token().map(str::to_owned);
                let keys = (found.access_key_id().to_owned(), found.secret_access_key().to_owned());
                (keys.0, keys.1, token, found.expiry())
            }
        };
        // A file may get new content at any time. Credentials of a role have their own expiry.
        let expiry = expiry.unwrap_or_else(|| SystemTime::now() + 3 * REREAD);
        Ok(Credentials::new(id, secret, token, Some(expiry), "account"))
    }
}

#[allow(deprecated)]
fn files(text: &str) -> ProfileFiles {
    ProfileFiles::builder().with_contents(ProfileFileKind::Credentials, text).build()
}

impl ProvideCredentials for S3Source {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.read())
    }
}
