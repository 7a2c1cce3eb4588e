//! Accounts of clouds, in addition to the account of the environment.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::NodeConfig;
use crate::bucket::{BackendKind, check_account};
use crate::egress::{AllowEntry, Server};
use crate::error::{Error, Result};
use crate::name::Provider;

/// An account of a cloud. A bucket uses it if its property `backend.account` has this name. Every target
/// needs the same accounts; gateways need none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloudConfig {
    /// Name of the account, unique in the list: 1 to 64 letters, digits, `-` or `_`.
    pub name: String,
    /// Cloud of the account: `s3`, `gcs` or `azure`.
    pub provider: String,
    /// URL of the server. Absent: that of the cloud itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Further servers, as `host` or `host:port`, that a bucket of this account may name as its endpoint.
    /// The credentials of the account go to no other server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Region of S3. Absent: that of the environment, or `us-east-1`. A bucket that is in another region
    /// is found there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Profile of S3, in `credentials_file` or in the files of AWS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// File with credentials: for S3 in the format of `~/.aws/credentials`, for Google the JSON of an
    /// account, for Azure a connection string.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credentials_file: String,
    /// Access key of S3, with `secret_key_file`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// File with the secret key of S3, or with the key of the storage account of Azure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret_key_file: String,
    /// Storage account of Azure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage_account: String,
    /// File with a shared access signature of Azure, instead of a key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sas_file: String,
    /// Pays for requests to buckets of S3 whose owner lets requesters pay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requester_pays: bool,
}

impl CloudConfig {
    /// The kind of backend of the account.
    pub fn kind(&self) -> Result<BackendKind> {
        match self.provider.parse() {
            Ok(Provider::Aws) => Ok(BackendKind::S3),
            Ok(Provider::Gcp) => Ok(BackendKind::Gcs),
            Ok(Provider::Azure) => Ok(BackendKind::Azure),
            Ok(Provider::Ais | Provider::Ht) | Err(_) => {
                let text = self.about(&format!("unknown provider \"{}\"", self.provider));
                Err(Error::invalid(text).hint("one of s3, gcs, azure"))
            }
        }
    }

    /// The servers of `endpoints`.
    pub fn servers(&self) -> Result<Vec<AllowEntry>> {
        let servers = self.endpoints.iter().map(|entry| match entry.parse::<AllowEntry>() {
            Ok(server) if server.is_one_server() => Ok(server),
            _ => {
                let text = self.about(&format!("endpoints: \"{entry}\" is no server"));
                Err(Error::invalid(text).hint("host or host:port, such as minio.lab:9000"))
            }
        });
        servers.collect()
    }

    /// The text of an error, with the account that it is about.
    fn about(&self, what: &str) -> String {
        format!("cloud \"{}\": {what}", self.name)
    }

    fn validate(&self) -> Result<()> {
        check_account(&self.name).map_err(|e| Error::invalid(self.about(&e.message)))?;
        let kind = self.kind()?;
        self.servers()?;
        if !self.endpoint.is_empty() && Server::of(&self.endpoint).is_none() {
            let text = self.about("endpoint is not a URL");
            return Err(Error::invalid(text).hint("give it as http://host:port or https://host"));
        }
        let (s3, azure) = (kind == BackendKind::S3, kind == BackendKind::Azure);
        for (key, is_set, is_for_kind) in [
            ("region", !self.region.is_empty(), s3),
            ("profile", !self.profile.is_empty(), s3),
            ("access_key", !self.access_key.is_empty(), s3),
            ("requester_pays", self.requester_pays, s3),
            ("secret_key_file", !self.secret_key_file.is_empty(), s3 || azure),
            ("storage_account", !self.storage_account.is_empty(), azure),
            ("sas_file", !self.sas_file.is_empty(), azure),
        ] {
            if is_set && !is_for_kind {
                let text = format!("{key} is no setting of the provider {}", self.provider);
                return Err(Error::invalid(self.about(&text)));
            }
        }
        if s3 && self.access_key.is_empty() != self.secret_key_file.is_empty() {
            let text = self.about("access_key and secret_key_file belong together");
            return Err(Error::invalid(text));
        }
        let is_profile = !self.profile.is_empty() || !self.credentials_file.is_empty();
        let sources = [!self.secret_key_file.is_empty(), is_profile, !self.sas_file.is_empty()];
        if sources.iter().filter(|is_set| **is_set).count() > 1 {
            let text = self.about("has more than one credential");
            let hint = "keep one of secret_key_file, sas_file, and profile or credentials_file";
            return Err(Error::invalid(text).hint(hint));
        }
        let names_place = [&self.storage_account, &self.endpoint, &self.credentials_file];
        if azure && names_place.iter().all(|text| text.is_empty()) {
            return Err(Error::invalid(self.about("storage_account is missing")));
        }
        Ok(())
    }
}

impl NodeConfig {
    /// The violations of rules for the accounts of clouds.
    pub(super) fn problems_of_clouds(&self) -> Vec<Error> {
        let mut names = BTreeSet::new();
        let taken = self.cloud.iter().filter(|cloud| !names.insert(&cloud.name));
        let taken = taken.map(|cloud| Error::invalid(cloud.about("the name is not unique")));
        let invalid = self.cloud.iter().filter_map(|cloud| cloud.validate().err());
        invalid.chain(taken).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(cloud: serde_json::Value) -> Vec<String> {
        let config: NodeConfig = serde_json::from_value(json!({ "cloud": cloud })).unwrap();
        config.problems_of_clouds().into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn accounts_of_each_cloud_are_read() {
        let found = problems(json!([
            {"name": "prod", "provider": "s3", "access_key": "A", "secret_key_file": "/s",
                "endpoints": ["minio.lab:9000"]},
            {"name": "lab", "provider": "gcs", "credentials_file": "/lab.json"},
            {"name": "images", "provider": "azure", "storage_account": "images",
                "sas_file": "/sas"},
        ]));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_mistake_is_named_with_its_account() {
        for (rest, word) in [
            (json!({"provider": "ftp"}), "unknown provider"),
            (json!({"provider": "s3", "access_key": "A"}), "belong together"),
            (json!({"provider": "gcs", "region": "eu"}), "region"),
            (json!({"provider": "s3", "endpoint": "minio:9000"}), "endpoint"),
            (json!({"provider": "s3", "endpoints": ["10.0.0.0/8"]}), "is no server"),
            (json!({"provider": "azure"}), "storage_account"),
            (
                json!({"provider": "s3", "profile": "p", "access_key": "A",
                    "secret_key_file": "/s"}),
                "more than one",
            ),
        ] {
            let mut account = rest.clone();
            account["name"] = json!("prod");
            let found = problems(json!([account]));
            assert!(found.iter().any(|e| e.contains(word) && e.contains("prod")), "{found:?}");
        }
        let one = json!({"name": "a", "provider": "s3"});
        assert!(problems(json!([one, one]))[0].contains("not unique"));
        assert!(problems(json!([{"name": "a b", "provider": "s3"}]))[0].contains("a b"));
    }
}
