//! The identity with which Azure Blob Storage is called.

use forebay_core::backend_access::CloudIdentity;
use forebay_core::egress::EndpointTrust;

use super::AzureCredentials;
use super::client::AzureClients;
use crate::access::set;
use crate::place::UNTRUSTED;

impl AzureClients {
    /// The identity for `endpoint`, or for the configured endpoint if there is none.
    pub(crate) async fn identity(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
    ) -> CloudIdentity {
        let settings = &self.settings;
        let account = settings.account.clone();
        let (endpoint, signed) = match self.client_of(endpoint, trust).await {
            Ok(client) => (client.endpoint.clone(), client.signed),
            Err(_) => (endpoint.unwrap_or_default().to_owned(), true),
        };
        let credential = match &settings.credentials {
            AzureCredentials::Anonymous => {
                "none: neither a key, a signature nor an identity is set; only containers that are \
                 open to the public can be read"
                    .to_owned()
            }
            _ if !signed => format!("none: {UNTRUSTED}"),
            AzureCredentials::Key(_) => "the key of the account".to_owned(),
            AzureCredentials::Sas(_) => "a shared access signature".to_owned(),
            AzureCredentials::KeyFile(file) => {
                format!("the key of the account in {}", file.shown())
            }
            AzureCredentials::SasFile(file) => {
                format!("the shared access signature in {}", file.shown())
            }
            AzureCredentials::Entra => entra(set),
        };
        CloudIdentity { credential, endpoint, account, ..CloudIdentity::default() }
    }
}

/// The identity of Entra that the environment describes; the order is that of `credentials::entra`.
fn entra(set: impl Fn(&str) -> Option<String>) -> String {
    let client = set("AZURE_CLIENT_ID");
    let shown = client.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
    if client.is_some() && set("AZURE_TENANT_ID").is_some() && set("AZURE_CLIENT_SECRET").is_some()
    {
        return format!("the application{shown} of Entra, by its secret");
    }
    match set("AZURE_FEDERATED_TOKEN_FILE") {
        Some(token) => format!("the application{shown} of Entra, by the token in {token}"),
        None => format!("the managed identity{shown} of the machine"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::AzureSettings;

    #[tokio::test]
    async fn the_kind_of_credential_and_the_account_are_named_and_no_secret() {
        let of = |credentials| {
            AzureClients::new(AzureSettings {
                account: Some("images".into()),
                credentials,
                ..AzureSettings::default()
            })
        };
        let key = of(AzureCredentials::Key("cGxhbnRlZA==".into()))
            .identity(None, EndpointTrust::Judged)
            .await;
        assert_eq!(key.credential, "the key of the account");
        assert_eq!(key.account.as_deref(), Some("images"));
        assert_eq!(key.endpoint, "https://images.blob.core.windows.net");
        let sas = of(AzureCredentials::Sas("sig=planted".into()));
        let own = sas.identity(None, EndpointTrust::Judged).await;
        assert!(own.credential == "a shared access signature" && !own.endpoint.contains("planted"));
        let other =
            sas.identity(Some("https://elsewhere.example.org"), EndpointTrust::Judged).await;
        assert!(other.credential.starts_with("none"), "{other:?}");
        let open = of(AzureCredentials::Anonymous).identity(None, EndpointTrust::Judged).await;
        assert!(open.credential.starts_with("none"), "{open:?}");
    }

    #[test]
    fn an_identity_of_entra_is_named_by_its_application() {
        let described =
            |names: &[&str]| entra(|name| names.contains(&name).then(|| format!("<{name}>")));
        let secret = ["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"];
        assert_eq!(described(&secret), "the application <AZURE_CLIENT_ID> of Entra, by its secret");
        assert!(
            described(&["AZURE_CLIENT_ID"]).starts_with("the managed identity <AZURE_CLIENT_ID>")
        );
        assert!(described(&["AZURE_FEDERATED_TOKEN_FILE"]).contains("by the token in"));
    }
}
