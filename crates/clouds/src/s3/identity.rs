//! The identity with which S3 is called.

use std::path::Path;

use aws_config::Region;
use aws_credential_types::provider::ProvideCredentials;
use forebay_core::backend_access::CloudIdentity;
use forebay_core::egress::EndpointTrust;
use tokio::time::timeout;

use super::client::{CREDENTIALS_WITHIN, DEFAULT_REGION, S3Clients, load_base, shown_endpoint};
use crate::access::set;
use crate::egress::innermost;
use crate::place::UNTRUSTED;

impl S3Clients {
    /// The identity for `endpoint`, or for the configured endpoint if there is none. The credential
    /// is fetched as for a call, so an unavailable role is reported.
    pub(crate) async fn identity(
        &self,
        endpoint: Option<&str>,
        trust: EndpointTrust,
        region: Option<&str>,
    ) -> CloudIdentity {
        let is_trusted = self.guard(endpoint, trust).is_ok_and(|guard| guard.is_trusted);
        let base = self.base.get_or_init(|| load_base(&self.settings)).await;
        let own = base.region().map_or(DEFAULT_REGION, Region::as_ref);
        let region = region.unwrap_or(own).to_owned();
        let endpoint = endpoint.or(self.settings.endpoint.as_deref()).filter(|e| !e.is_empty());
        if !is_trusted {
            return none(UNTRUSTED, endpoint, region);
        }
        let from = match (&self.settings.credentials, &self.settings.source) {
            (Some(_), _) => "of the settings".to_owned(),
            (None, Some(own)) => own.shown(),
            (None, None) => source(set),
        };
        let provided = match base.credentials_provider() {
            Some(provider) => timeout(CREDENTIALS_WITHIN, provider.provide_credentials()).await,
            None => return none("none is configured", endpoint, region),
        };
        match provided {
            Ok(Ok(found)) => CloudIdentity {
                credential: format!("the access key {} {from}", found.access_key_id()),
                endpoint: shown_endpoint(endpoint, &region),
                region: Some(region),
                ..CloudIdentity::default()
            },
            Ok(Err(e)) => none(&format!("{} (looked for {from})", innermost(&e)), endpoint, region),
            Err(_) => none("nobody handed one out in time", endpoint, region),
        }
    }
}

fn none(why: &str, endpoint: Option<&str>, region: String) -> CloudIdentity {
    CloudIdentity {
        credential: format!("none: {why}"),
        endpoint: shown_endpoint(endpoint, &region),
        region: Some(region),
        ..CloudIdentity::default()
    }
}

/// The source of the SDK's credential, in the order of the SDK.
fn source(set: impl Fn(&str) -> Option<String>) -> String {
    if set("AWS_ACCESS_KEY_ID").is_some() {
        return "of AWS_ACCESS_KEY_ID".to_owned();
    }
    let home = set("HOME").unwrap_or_else(|| "/".into());
    let file = |variable: &str, default: &str| {
        let file = set(variable).unwrap_or_else(|| format!("{home}/.aws/{default}"));
        Path::new(&file).is_file().then_some(file)
    };
    let file = file("AWS_SHARED_CREDENTIALS_FILE", "credentials")
        .or_else(|| file("AWS_CONFIG_FILE", "config"));
    let profile = set("AWS_PROFILE");
    if let Some(file) =
        file.filter(|_| profile.is_some() || set("AWS_WEB_IDENTITY_TOKEN_FILE").is_none())
    {
        return format!("of the profile \"{}\" of {file}", profile.as_deref().unwrap_or("default"));
    }
    if let Some(token) = set("AWS_WEB_IDENTITY_TOKEN_FILE") {
        let role = set("AWS_ROLE_ARN").unwrap_or_else(|| "?".into());
        return format!("of the role {role}, by the token in {token}");
    }
    "of the container's or machine's role".to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_place_of_the_key_is_named_and_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let described = |environment: &[(&str, &str)]| {
            let all: HashMap<_, _> = environment.iter().copied().chain([("HOME", home)]).collect();
            source(|name| all.get(name).map(|value| (*value).to_owned()))
        };
        assert!(described(&[]).contains("machine's role"));
        let role = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:reader")];
        assert_eq!(described(&role), "of the role arn:reader, by the token in /token");
        let file = folder.path().join("keys");
        std::fs::write(&file, "[lab]\naws_secret_access_key = planted-secret").unwrap();
        let file = ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap());
        assert_eq!(
            described(&[file, ("AWS_PROFILE", "lab")]),
            format!("of the profile \"lab\" of {}", file.1)
        );
        let key = [("AWS_ACCESS_KEY_ID", "AKIA1"), ("AWS_SECRET_ACCESS_KEY", "planted-secret")];
        assert_eq!(described(&key), "of AWS_ACCESS_KEY_ID");
    }
}
