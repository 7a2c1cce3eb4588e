//! The identity with which Google Cloud Storage is called, and whether it may write.

use std::fs;
use std::path::PathBuf;

use forebay_core::backend_access::{Access, CloudIdentity};
use forebay_core::bill::RequestClass;
use forebay_core::error::{Error, ErrorCode};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::Value;

use super::client::{GOOGLE, is_google};
use super::error::CREDENTIALS_HINT;
use super::{GcsBackend, GcsClients};

/// Path of the credential of `gcloud auth application-default login`, below the home folder.
const DEFAULT_FILE: &str = ".config/gcloud/application_default_credentials.json";
const CREATE: &str = "storage.objects.create";

impl GcsClients {
    /// The identity for `endpoint`, or for the configured endpoint if there is none.
    pub(crate) fn identity(&self, endpoint: Option<&str>) -> CloudIdentity {
        let given = endpoint.filter(|e| !e.is_empty()).or(self.settings.endpoint.as_deref());
        let endpoint = given.unwrap_or(GOOGLE).trim_end_matches('/').to_owned();
        if !endpoint.parse::<Url>().is_ok_and(|url| is_google(&url)) {
            let credential = "none: tokens go to Google's own hosts alone".to_owned();
            return CloudIdentity { credential, endpoint, ..CloudIdentity::default() };
        }
        if let Some(file) = &self.settings.file {
            let (credential, project) = described(&file.text(), &file.shown());
            return CloudIdentity { credential, endpoint, project, ..CloudIdentity::default() };
        }
        let (credential, project) = credential(crate::access::set);
        CloudIdentity { credential, endpoint, project, ..CloudIdentity::default() }
    }
}

/// Describes the credential of the environment, and the project that calls count for. Of a file
/// only names are shown.
fn credential(set: impl Fn(&str) -> Option<String>) -> (String, Option<String>) {
    let quota = set("GOOGLE_CLOUD_QUOTA_PROJECT");
    let named = set("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
    let default = || PathBuf::from(set("HOME").unwrap_or_else(|| "/".into())).join(DEFAULT_FILE);
    let path = named.clone().unwrap_or_else(default);
    let shown = path.display();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if named.is_some() => {
            return (format!("GOOGLE_APPLICATION_CREDENTIALS={shown} cannot be read: {e}"), quota);
        }
        Err(_) => {
            let text = "the service account of the machine (metadata server): there is no file of \
                credentials";
            return (text.to_owned(), quota);
        }
    };
    let (credential, project) = described(&text, &shown.to_string());
    (credential, quota.or(project))
}

/// Describes the credential in the text of a file, and its project.
fn described(text: &str, shown: &str) -> (String, Option<String>) {
    let Ok(Value::Object(known)) = serde_json::from_str(text) else {
        return (format!("{shown} is no file of credentials"), None);
    };
    let text = |field: &str| known.get(field).and_then(Value::as_str).map(str::to_owned);
    let who = text("client_email").or_else(|| text("account")).or_else(|| text("type"));
    let project = text("quota_project_id").or_else(|| text("project_id"));
    (format!("{}, from {shown}", who.as_deref().unwrap_or("an unnamed account")), project)
}

/// Those of the tested permissions that the caller has.
#[derive(Deserialize)]
struct Permissions {
    #[serde(default)]
    permissions: Vec<String>,
}

impl GcsBackend {
    /// Whether the credential may write objects, as Google reports without a write.
    pub(crate) async fn may_write(&self) -> Access {
        let path = format!("/storage/v1/b/{}/iam/testPermissions", self.remote);
        let query = [("permissions", CREATE)];
        let request = self.request(RequestClass::B, Method::GET, &path, &query);
        match self.json::<Permissions>(request).await {
            Ok(held) if held.permissions.iter().any(|p| p == CREATE) => {
                Access::ok(format!("the right {CREATE}"))
            }
            Ok(_) => {
                let text = format!("the credential lacks the right {CREATE} for {}", self.remote);
                let error = Error::new(ErrorCode::AccessDenied, text).hint(CREDENTIALS_HINT);
                Access::Fail { error }
            }
            // Emulators, and credentials that may not even test permissions.
            Err(_) => {
                Access::unknown("the server does not say, and nothing is written to find out")
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn described(environment: &[(&str, &str)]) -> (String, Option<String>) {
        let all: HashMap<_, _> = environment.iter().copied().collect();
        credential(|name| all.get(name).map(|value| (*value).to_owned()))
    }

    #[test]
    fn the_account_and_its_project_are_named_and_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.json");
        let content = r#"{"type": "service_account", "client_email": "train@lab.iam",
            "project_id": "lab", "private_key": "planted-secret"}"#;
        fs::write(&file, content).unwrap();
        let key = ("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap());
        let found = described(&[key]);
        assert_eq!(found, (format!("train@lab.iam, from {}", file.display()), Some("lab".into())));
        let other = described(&[key, ("GOOGLE_CLOUD_QUOTA_PROJECT", "other")]);
        assert_eq!(other.1.unwrap(), "other");
        let home = ("HOME", folder.path().to_str().unwrap());
        assert!(described(&[home]).0.contains("metadata server"));
        fs::write(&file, "planted-secret").unwrap();
        assert!(described(&[key]).0.ends_with("is no file of credentials"));
        fs::remove_file(&file).unwrap();
        assert!(described(&[key]).0.contains("cannot be read"));
    }
}
