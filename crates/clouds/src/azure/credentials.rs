//! Authentication at Azure: by an account's key, a shared access signature, or Entra ID.

use std::collections::HashMap;
use std::sync::Arc;

use azure_core::credentials::{Secret, TokenCredential};
use azure_core::http::{ClientOptions, Transport};
use azure_identity::{
    ClientSecretCredential, ClientSecretCredentialOptions, ManagedIdentityCredential,
    ManagedIdentityCredentialOptions, UserAssignedId, WorkloadIdentityCredential,
    WorkloadIdentityCredentialOptions,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_core::error::{Error, ErrorCode, Result};

use super::error::CREDENTIALS_HINT;
use super::token::Kept;
use crate::account::CredentialFile;

/// The credentials of requests.
#[derive(Clone, Default)]
pub enum AzureCredentials {
    /// None: for containers with public access.
    #[default]
    Anonymous,
    /// An account's key, in base 64.
    Key(String),
    /// A shared access signature: the query of its URL.
    Sas(String),
    /// An account's key in a file, which may get a new one.
    KeyFile(Arc<CredentialFile>),
    /// A shared access signature in a file.
    SasFile(Arc<CredentialFile>),
    /// Entra ID, as the environment describes it: a client's secret, a federated token (workload
    /// identity) or the machine's own managed identity.
    Entra,
}

impl std::fmt::Debug for AzureCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Key(_) => "Key(…)",
            Self::Sas(_) => "Sas(…)",
            Self::KeyFile(_) => "KeyFile(…)",
            Self::SasFile(_) => "SasFile(…)",
            Self::Entra => "Entra",
        })
    }
}

/// The account settings of the environment, or of a connection string.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: Option<String>,
    pub(super) key: Option<String>,
    pub(super) sas: Option<String>,
    pub(super) endpoint: Option<String>,
}

impl Account {
    /// Parses a connection string, as shown in Azure's portal.
    pub(super) fn parse(connection: &str) -> Self {
        let fields = connection.split(';').filter_map(|field| field.trim().split_once('='));
        let fields: HashMap<_, _> =
            fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let field = |name: &str| fields.get(name).filter(|value| !value.is_empty()).cloned();
        let name = field("accountname");
        let endpoint = field("blobendpoint").or_else(|| {
            let protocol = field("defaultendpointsprotocol").unwrap_or_else(|| "https".into());
            let suffix = field("endpointsuffix")?;
            Some(format!("{protocol}://{}.blob.{suffix}", name.as_deref()?))
        });
        Self { name, key: field("accountkey"), sas: field("sharedaccesssignature"), endpoint }
    }

    /// The settings of the environment; the connection string has precedence.
    pub(super) fn from_env(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let given = set("AZURE_STORAGE_CONNECTION_STRING");
        let given = given.as_deref().map(Self::parse).unwrap_or_default();
        let key = || set("AZURE_STORAGE_KEY").or_else(|| set("AZURE_STORAGE_ACCESS_KEY"));
        Self {
            name: given.name.or_else(|| set("AZURE_STORAGE_ACCOUNT")),
            key: given.key.or_else(key),
            sas: given.sas.or_else(|| set("AZURE_STORAGE_SAS_TOKEN")),
            endpoint: given.endpoint.or_else(|| set("AZURE_STORAGE_ENDPOINT")),
        }
    }
}

/// Whether the environment configures an identity of Entra.
pub(super) fn names_entra(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    ["AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT"].into_iter().any(set)
        || variable("AZURE_STORAGE_AUTH_MODE").is_some_and(|mode| mode == "login")
}

/// The identity that the environment describes; tokens are fetched and renewed as they are needed.
pub(super) fn entra(transport: Transport) -> Result<Arc<dyn TokenCredential>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let client_options = ClientOptions { transport: Some(transport), ..ClientOptions::default() };
    let client = set("AZURE_CLIENT_ID");
    let secret = (set("AZURE_TENANT_ID"), client.clone(), set("AZURE_CLIENT_SECRET"));
    let made: azure_core::Result<Arc<dyn TokenCredential>> = match secret {
        (Some(tenant), Some(client), Some(secret)) => {
            let options = ClientSecretCredentialOptions { client_options };
            ClientSecretCredential::new(&tenant, client, Secret::new(secret), Some(options))
                .map(|made| made as _)
        }
        _ if set("AZURE_FEDERATED_TOKEN_FILE").is_some() => {
            let mut options = WorkloadIdentityCredentialOptions::default();
            options.credential_options.client_options = client_options;
            WorkloadIdentityCredential::new(Some(options)).map(|made| made as _)
        }
        _ => {
            let user_assigned_id = client.map(UserAssignedId::ClientId);
            let options = ManagedIdentityCredentialOptions { user_assigned_id, client_options };
            ManagedIdentityCredential::new(Some(options)).map(|made| made as _)
        }
    };
    let made = made.map(|identity| -> Arc<dyn TokenCredential> { Arc::new(Kept::new(identity)) });
    made.map_err(|e| {
        let text = format!("no credentials for Azure Blob Storage: {e}");
        Error::new(ErrorCode::AccessDenied, text).hint(CREDENTIALS_HINT)
    })
}

/// The bytes of an account's key.
pub(super) fn key_bytes(key: &str) -> Result<Vec<u8>> {
    BASE64.decode(key.trim()).map_err(|_| {
        Error::new(ErrorCode::AccessDenied, "the key of the Azure account is not base 64")
            .hint(CREDENTIALS_HINT)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_is_taken_apart() {
        let given = Account::parse(
            "DefaultEndpointsProtocol=https;AccountName=images;AccountKey=a+b/c==;\
             EndpointSuffix=core.windows.net",
        );
        assert_eq!(given.name.unwrap(), "images");
        assert_eq!(given.key.unwrap(), "a+b/c==");
        assert_eq!(given.endpoint.unwrap(), "https://images.blob.core.windows.net");
        let sas = Account::parse(
            "BlobEndpoint=http://127.0.0.1:10000/dev;SharedAccessSignature=sv=1&sig=x%3D",
        );
        assert_eq!(sas.sas.unwrap(), "sv=1&sig=x%3D");
        assert_eq!(sas.endpoint.unwrap(), "http://127.0.0.1:10000/dev");
        assert_eq!(Account::parse("nonsense"), Account::default());
    }

    #[test]
    fn a_connection_string_counts_before_single_variables() {
        let env = HashMap::from([
            ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=first;AccountKey=Zmlyc3Q="),
            ("AZURE_STORAGE_ACCOUNT", "second"),
            ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000"),
        ]);
        let found = Account::from_env(|name| env.get(name).map(|v| (*v).to_owned()));
        assert_eq!(
            (found.name.as_deref(), found.key.as_deref()),
            (Some("first"), Some("Zmlyc3Q="))
        );
        assert_eq!(found.endpoint.as_deref(), Some("http://127.0.0.1:10000"));
    }

    #[test]
    fn what_is_printed_of_credentials_holds_no_secret() {
        let shown = format!(
            "{:?} {:?}",
            AzureCredentials::Key("c2VjcmV0".into()),
            AzureCredentials::Sas("sig=secret".into())
        );
        assert!(!shown.contains("c2VjcmV0") && !shown.contains("secret"), "{shown}");
        let error = key_bytes("not base 64: hidden").unwrap_err().to_string();
        assert!(!error.contains("hidden"), "{error}");
    }
}
