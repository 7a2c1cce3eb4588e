//! The StatefulSet of a pod, by the Kubernetes API, and what it means for a pod that stops.

use std::fs;
use std::path::Path;
use std::time::Duration;

use forebay_client::tls::{TlsClient, TlsOptions};
use forebay_core::{Error, Result};
use serde_json::Value;

use crate::probe::{self, Answer};

/// Number of tries to reach the Kubernetes API.
const TRIES: usize = 3;
/// Interval between them.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why a pod of a StatefulSet stops.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The pod comes back, or all pods go: the data stays. With the reason.
    Restart(String),
    /// The StatefulSet has no place for the pod any more. With the reason.
    ScaleDown(String),
}

/// Access to the Kubernetes API as a pod has it.
pub(super) struct Kubernetes<'a> {
    /// Folder with the token, the CA and the namespace of the pod's service account.
    pub(super) dir: &'a Path,
    /// Address of the API, from the environment of the pod.
    pub(super) host: String,
    pub(super) port: String,
}

impl<'a> Kubernetes<'a> {
    /// Reads the address of the API from the environment.
    pub(super) fn from_env(dir: &'a Path) -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
                Error::invalid(format!("{name} is not set"))
                    .hint("run the command in a pod: Kubernetes sets this variable there")
            })
        };
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        Ok(Self { dir, host, port: variable("KUBERNETES_SERVICE_PORT")? })
    }

    /// Returns the StatefulSet `name`; `None` if it does not exist.
    pub(super) async fn stateful_set(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        let namespace = match namespace {
            Some(namespace) => namespace.to_owned(),
            None => self.read("namespace")?,
        };
        let ca_file = Some(self.dir.join("ca.crt"));
        let tls = TlsClient::new(TlsOptions { ca_file, ..TlsOptions::default() });
        tls.config()?;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}");
        let mut tries = 1;
        let answer = loop {
            match self.get(&tls, &path).await {
                Err(_) if tries < TRIES => tries += 1,
                answer => break answer?,
            }
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
        };
        match answer.status {
            200 => serde_json::from_slice(&answer.body).map(Some).map_err(|e| {
                Error::unavailable(format!("the Kubernetes API sent no StatefulSet: {e}"))
            }),
            404 => Ok(None),
            status => Err(refusal(status, &answer.body, &path)),
        }
    }

    async fn get(&self, tls: &TlsClient, path: &str) -> Result<Answer> {
        // Kubernetes renews the token.
        let token = self.read("token")?;
        let url = base_url(&self.host, &self.port);
        let headers = format!("authorization: Bearer {token}\r\naccept: application/json\r\n");
        let answer = probe::send(tls, &url, &format!("GET {path}"), &headers, b"").await;
        answer.map_err(|e| {
            Error::unavailable(format!("the Kubernetes API at {url} cannot be reached: {e}"))
        })
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.dir.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(e) => Err(Error::invalid(format!("cannot read {}: {e}", path.display()))
                .hint("the pod needs a service account with automountServiceAccountToken: true")),
        }
    }
}

/// An answer of the API that is no StatefulSet.
fn refusal(status: u16, body: &[u8], path: &str) -> Error {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = said["message"].as_str().unwrap_or("no message").to_owned();
    let error =
        Error::unavailable(format!("the Kubernetes API refused GET {path} with {status}: {said}"));
    match status {
        401 | 403 => error.hint(
            "give the pod's service account a Role with the verb get on statefulsets of apps/v1",
        ),
        _ => error,
    }
}

/// The URL of the API; an IPv6 address needs brackets.
fn base_url(host: &str, port: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("https://{host}:{port}")
}

/// The ordinal in the first of these names that is `SET-ORDINAL`.
pub(super) fn ordinal(names: &[String], set: &str) -> Option<u64> {
    names.iter().find_map(|name| {
        let digits = name.strip_prefix(set)?.strip_prefix('-')?;
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    })
}

/// Why the pod with this ordinal stops. `None`: the StatefulSet does not exist.
pub(super) fn cause(set: Option<&Value>, ordinal: u64) -> Cause {
    let Some(set) = set else {
        return Cause::Restart("the StatefulSet does not exist any more".into());
    };
    if !set["metadata"]["deletionTimestamp"].is_null() {
        return Cause::Restart("the StatefulSet is being deleted".into());
    }
    // The defaults of Kubernetes.
    let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let start = set["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
    if replicas == 0 {
        return Cause::Restart("the StatefulSet has 0 replicas: all targets stop".into());
    }
    let (last, what) = (start + replicas - 1, "the StatefulSet has the ordinals");
    match (start..=last).contains(&ordinal) {
        true => Cause::Restart(format!("{what} {start} to {last}, {ordinal} among them")),
        false => Cause::ScaleDown(format!("{what} {start} to {last}, without {ordinal}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_scale_down(set: &Value, ordinal: u64) -> bool {
        matches!(cause(Some(set), ordinal), Cause::ScaleDown(_))
    }

    #[test]
    fn a_pod_whose_ordinal_is_outside_of_the_replicas_stops_for_good() {
        let set = json!({ "metadata": {}, "spec": { "replicas": 3 } });
        assert!(!is_scale_down(&set, 2) && is_scale_down(&set, 3));
        let set = json!({ "metadata": {}, "spec": { "replicas": 2, "ordinals": { "start": 5 } } });
        assert!(!is_scale_down(&set, 5) && !is_scale_down(&set, 6));
        assert!(is_scale_down(&set, 4) && is_scale_down(&set, 7));
        let set = json!({ "metadata": {}, "spec": {} });
        assert!(!is_scale_down(&set, 0) && is_scale_down(&set, 1), "one replica by default");
    }

    #[test]
    fn the_data_stays_where_all_pods_stop() {
        let deleted = json!({
            "metadata": { "deletionTimestamp": "2025-01-01T00:00:00Z" }, "spec": { "replicas": 1 },
        });
        assert!(!is_scale_down(&deleted, 3));
        assert!(!is_scale_down(&json!({ "spec": { "replicas": 0 } }), 3));
        assert!(matches!(cause(None, 3), Cause::Restart(_)));
    }

    #[test]
    fn the_ordinal_is_that_of_the_set() {
        let of = |names: &[&str], set: &str| {
            ordinal(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>(), set)
        };
        assert_eq!(of(&["store-target-12"], "store-target"), Some(12));
        assert_eq!(of(&["node.example.com", "target-3"], "target"), Some(3));
        for other in ["target", "target-", "target-x", "target-1-2", "target-+1", "mytarget-1"] {
            assert_eq!(of(&[other], "target"), None, "{other}");
        }
    }

    #[test]
    fn an_ipv6_address_has_brackets_in_the_url() {
        assert_eq!(base_url("10.0.0.1", "443"), "https://10.0.0.1:443");
        assert_eq!(base_url("fd00::1", "443"), "https://[fd00::1]:443");
    }
}
