//! Settings of users and tokens.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Users and tokens. The users themselves are part of the cluster's state (`forebay auth`).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Requires a user for every request, also while the cluster has none. Without it, a cluster
    /// without users is open to everybody who reaches it.
    pub required: bool,
    /// Serves requests without a token as before, while the cluster has users: for a migration. A token
    /// that a request has is checked. Not for S3, which has keys of its own.
    pub optional: bool,
    /// Name of the first administrator. The leading gateway creates the user if the cluster has no
    /// users. Empty: the variable `AIS_AUTHN_SU_NAME`, if it is set.
    pub admin: String,
    /// File with the password of the first administrator. Empty: the variable `AIS_AUTHN_SU_PASS`.
    pub admin_password_file: String,
    /// Lifetime in seconds of a token from a login that asks for none.
    pub token_ttl_s: u32,
    /// Issuers of tokens other than this cluster.
    pub issuer: Vec<IssuerConfig>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            required: false,
            optional: false,
            admin: String::new(),
            admin_password_file: String::new(),
            token_ttl_s: 24 * 3600,
            issuer: Vec::new(),
        }
    }
}

impl AuthConfig {
    /// Checks rules that types alone cannot express.
    pub(super) fn validate(&self) -> Result<()> {
        if self.token_ttl_s == 0 {
            return Err(Error::invalid("auth.token_ttl_s must be at least 1"));
        }
        if self.required && self.optional {
            return Err(Error::invalid("auth.required and auth.optional exclude each other"));
        }
        for (i, issuer) in self.issuer.iter().enumerate() {
            let is_taken = self.issuer[..i].iter().any(|other| other.name == issuer.name);
            issuer.validate(is_taken)?;
        }
        Ok(())
    }
}

/// An issuer of tokens: an OpenID Connect provider, a Kubernetes cluster, or AIStore's AuthN. Every
/// node needs the same issuers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Name of the issuer, unique in the list. The users of its tokens are named `NAME:USER`.
    pub name: String,
    /// URL of the issuer. Its public keys are found by OpenID Connect discovery, unless a file has
    /// them.
    #[serde(default)]
    pub url: String,
    /// Expected claim `iss`. Empty: `url`.
    #[serde(default)]
    pub issuer: String,
    /// File with the public keys, as a JWKS.
    #[serde(default)]
    pub jwks_file: String,
    /// File with one public key, as PEM.
    #[serde(default)]
    pub key_file: String,
    /// File with a shared secret, for HS algorithms.
    #[serde(default)]
    pub secret_file: String,
    /// Expected among the claim `aud`. Empty only with `secret_file`.
    #[serde(default)]
    pub audience: String,
    /// Accepted algorithms, such as `["RS256"]`.
    pub algorithms: Vec<String>,
    /// Claim with the name of the user.
    #[serde(default = "subject")]
    pub user_claim: String,
    /// Claim with names of roles, as a list or as words in one string. Empty: tokens name no roles,
    /// and users have the roles that an administrator gave to `NAME:USER`.
    #[serde(default)]
    pub roles_claim: String,
    /// Whether AIStore's claims `admin`, `clusters` and `buckets` give rights.
    #[serde(default)]
    pub aistore_claims: bool,
    /// File with the certificates that the issuer's own is checked with, as PEM. Empty: those of
    /// the system.
    #[serde(default)]
    pub ca_file: String,
    /// File with a token that the node sends to the issuer. Kubernetes needs one.
    #[serde(default)]
    pub token_file: String,
}

fn subject() -> String {
    "sub".into()
}

impl IssuerConfig {
    /// The expected claim `iss`; empty: every issuer whose tokens the keys verify.
    pub fn issuer(&self) -> &str {
        if self.issuer.is_empty() { &self.url } else { &self.issuer }
    }

    fn validate(&self, is_taken: bool) -> Result<()> {
        let invalid = |what: &str| Error::invalid(format!("auth.issuer \"{}\" {what}", self.name));
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || is_taken || !self.name.chars().all(is_word) {
            return Err(invalid("needs a name of its own, of letters, digits, -, _ and ."));
        }
        let files = [&self.jwks_file, &self.key_file, &self.secret_file];
        let files = files.iter().filter(|file| !file.is_empty()).count();
        if files > 1 || (files == 0 && self.url.is_empty()) {
            return Err(invalid("needs one of url, jwks_file, key_file and secret_file"));
        }
        if self.algorithms.is_empty() {
            return Err(invalid("needs the algorithms that it signs with"));
        }
        if self.audience.is_empty() && self.secret_file.is_empty() {
            return Err(invalid("needs an audience")
                .hint("without one, a token for another service would be valid here"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn issuer() -> IssuerConfig {
        IssuerConfig {
            name: "idp".into(),
            url: "https://idp".into(),
            issuer: String::new(),
            jwks_file: String::new(),
            key_file: String::new(),
            secret_file: String::new(),
            audience: "forebay".into(),
            algorithms: vec!["RS256".into()],
            user_claim: "sub".into(),
            roles_claim: String::new(),
            aistore_claims: false,
            ca_file: String::new(),
            token_file: String::new(),
        }
    }

    #[test]
    fn an_issuer_has_one_source_of_keys_an_audience_and_a_name_of_its_own() {
        let valid = |issuer: Vec<IssuerConfig>| {
            AuthConfig { issuer, ..AuthConfig::default() }.validate().is_ok()
        };
        assert!(valid(vec![issuer()]));
        assert!(!valid(vec![issuer(), issuer()]));
        assert!(!valid(vec![IssuerConfig { name: "a:b".into(), ..issuer() }]));
        assert!(!valid(vec![IssuerConfig { url: String::new(), ..issuer() }]));
        assert!(!valid(vec![IssuerConfig { audience: String::new(), ..issuer() }]));
        assert!(!valid(vec![IssuerConfig { algorithms: Vec::new(), ..issuer() }]));
        let two = IssuerConfig { key_file: "a".into(), secret_file: "b".into(), ..issuer() };
        assert!(!valid(vec![two]));
    }
}
