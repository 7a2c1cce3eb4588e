//! Transforms of objects on read: their registration in the cluster's state, and a request for one.
//!
//! A transform is an HTTP service that runs near the targets, or a command that the targets' own
//! configuration names. The API never accepts commands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::egress::EndpointTrust;
use crate::error::{Error, ErrorCode, Result};
use crate::job::Transform;
use crate::state::ClusterState;

/// Default timeout for one object, in milliseconds.
pub const DEFAULT_OBJECT_TIMEOUT_MS: u64 = 45_000;
/// Default timeout for a service to answer at its registration, in milliseconds.
pub const DEFAULT_INIT_TIMEOUT_MS: u64 = 45_000;
/// Maximum number of transforms in one request.
pub const MAX_STAGES: usize = 16;
/// Maximum bytes of the text that a request passes to a transform.
pub const MAX_ARGS: usize = 64 << 10;

/// How the bytes are transformed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transformer {
    /// The target PUTs an object to this URL and uses the answer's body.
    Push { url: String },
    /// The target GETs from this URL, and the service reads the object from the cluster itself.
    Pull { url: String },
    /// A command of the target's configuration, fed by its standard input.
    Command { name: String },
}

/// Whether a transform takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Running,
    /// Stopped by a user; it can be started again.
    Stopped,
}

impl Stage {
    /// The stage's name in AIStore v1.
    pub fn v1_name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Stopped => "Aborted",
        }
    }
}

/// A registered transform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etl {
    pub name: String,
    pub by: Transformer,
    /// Timeout for the first byte of an answer, and between two parts of it.
    pub object_timeout_ms: u64,
    pub init_timeout_ms: u64,
    pub stage: Stage,
    /// Id of the job that it runs as; a new one after each start.
    pub job: String,
    /// The message that registered it, for clients to read back.
    pub init: Value,
    /// Whether the URL of its service was checked when it was registered.
    #[serde(default, skip_serializing_if = "EndpointTrust::is_accepted")]
    pub endpoint_trust: EndpointTrust,
}

/// A request to transform an object, by one transform or several in sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtlCall {
    pub name: String,
    /// Text that all stages get unchanged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
    /// Names of the transforms after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<String>,
}

impl EtlCall {
    /// The transform for the task of a job.
    pub fn to_task(&self) -> Transform {
        let pipeline = std::iter::once(&self.name).chain(&self.pipeline).cloned().collect();
        Transform { pipeline, timeout_ms: 0 }
    }

    /// The transforms to apply, in order; an error if one of them is not running.
    pub fn stages<'a>(&self, state: &'a ClusterState) -> Result<Vec<&'a Etl>> {
        if self.pipeline.len() >= MAX_STAGES {
            return Err(Error::invalid(format!(
                "more than {MAX_STAGES} transforms in one request"
            )));
        }
        if self.args.len() > MAX_ARGS {
            return Err(Error::invalid(format!("etl_args is longer than {MAX_ARGS} bytes")));
        }
        std::iter::once(&self.name).chain(&self.pipeline).map(|n| state.running_etl(n)).collect()
    }

    /// Checks the request against the cluster's state.
    pub fn check(&self, state: &ClusterState) -> Result<()> {
        self.stages(state).map(drop)
    }
}

impl From<&Transform> for EtlCall {
    /// The call for each object of a job.
    fn from(job: &Transform) -> Self {
        let (first, rest) = job.pipeline.split_first().unzip();
        Self {
            name: first.cloned().unwrap_or_default(),
            args: String::new(),
            pipeline: rest.unwrap_or_default().to_vec(),
        }
    }
}

impl ClusterState {
    /// The transform of this name, running or not.
    pub fn etl(&self, name: &str) -> Result<&Etl> {
        self.etls.get(name).ok_or_else(|| unknown_etl(name))
    }

    /// The transform of this name, which must be running.
    pub fn running_etl(&self, name: &str) -> Result<&Etl> {
        let etl = self.etl(name)?;
        match etl.stage {
            Stage::Running => Ok(etl),
            Stage::Stopped => Err(Error::invalid(format!("etl job {name} is not running"))
                .hint("it was stopped; start it again")),
        }
    }
}

/// The error for a name that is not registered; clients search it for "etl job".
pub fn unknown_etl(name: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("etl job {name} does not exist"))
}

/// The error for a name that is in use; clients search it for "etl job".
pub fn etl_exists(name: &str) -> Error {
    Error::new(ErrorCode::Conflict, format!("etl job {name} already exists"))
}

/// Checks a name: 6 to 32 lower-case letters, digits and `-`, a letter or digit at both ends.
pub fn check_name(name: &str) -> Result<()> {
    let bad =
        |why: &str| Err(Error::new(ErrorCode::InvalidName, format!("ETL name \"{name}\" {why}")));
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    match name.len() {
        0..6 => return bad("is too short"),
        33.. => return bad("is too long"),
        _ => {}
    }
    if !name.starts_with(letter)
        || !name.ends_with(letter)
        || !name.chars().all(|c| letter(c) || c == '-')
    {
        return bad(
            "is invalid: it must start and end with a lower-case letter or a digit, and hold only [a-z0-9-]",
        );
    }
    Ok(())
}

/// `POST /internal/v1/etl/part` on a target: a request about one transform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtlQuestion {
    pub name: String,
    /// The job whose failures are reported; if absent, the transform's own job, which serves
    /// readers.
    #[serde(default)]
    pub job: Option<String>,
    /// Whether the target should check that the transform can be reached.
    #[serde(default)]
    pub look: bool,
}

/// The report of one target on one transform; JSON between nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtlPart {
    pub objects: u64,
    pub in_bytes: u64,
    pub out_bytes: u64,
    /// The last failures of the requested job.
    #[serde(default)]
    pub errors: Vec<EtlFailure>,
    /// Standard error of commands, and failures.
    #[serde(default)]
    pub log: String,
    /// Why the transform cannot be reached from this target; empty if it can.
    #[serde(default)]
    pub away: String,
}

/// An object that could not be transformed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtlFailure {
    /// `scheme://bucket/object`.
    pub object: String,
    pub message: String,
    /// HTTP status of this kind of failure.
    pub status: u16,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::state::Command;

    fn etl(name: &str) -> Etl {
        Etl {
            name: name.into(),
            by: Transformer::Command { name: "upper".into() },
            object_timeout_ms: 1,
            init_timeout_ms: 1,
            stage: Stage::Running,
            job: "etl-1".into(),
            init: Value::Null,
            endpoint_trust: EndpointTrust::Judged,
        }
    }

    #[test]
    fn names_are_those_of_the_protocol() {
        for good in ["abcdef", "0-a--b9", &"x".repeat(32)] {
            check_name(good).unwrap();
        }
        for bad in
            ["", "abcde", &"x".repeat(33), "-abcdef", "abcdef-", "Abcdef", "abc_def", "äabcdef"]
        {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_transform_is_made_once_changed_and_forgotten() {
        let mut state = ClusterState::default();
        let create = || Command::CreateEtl { etl: Box::new(etl("upper-1")) };
        state.apply(1, create()).unwrap();
        let again = state.apply(2, create()).unwrap_err();
        assert_eq!(
            (again.code.status(), again.message.as_str()),
            (409, "etl job upper-1 already exists")
        );
        let call = EtlCall { name: "upper-1".into(), ..EtlCall::default() };
        call.check(&state).unwrap();
        let stopped = Etl { stage: Stage::Stopped, ..etl("upper-1") };
        state.apply(3, Command::SetEtl { etl: Box::new(stopped) }).unwrap();
        assert!(call.check(&state).unwrap_err().message.contains("is not running"));
        state.apply(4, Command::DeleteEtl { name: "upper-1".into() }).unwrap();
        let gone = call.check(&state).unwrap_err();
        assert_eq!(
            (gone.code.status(), gone.message.as_str()),
            (404, "etl job upper-1 does not exist")
        );
        assert!(state.apply(5, Command::DeleteEtl { name: "upper-1".into() }).is_err());
        assert!(state.apply(6, Command::SetEtl { etl: Box::new(etl("upper-1")) }).is_err());
    }

    #[test]
    fn a_pipeline_needs_all_of_its_stages_and_has_a_bound() {
        let mut state = ClusterState::default();
        state.apply(1, Command::CreateEtl { etl: Box::new(etl("upper-1")) }).unwrap();
        let call = |n: usize, last: &str| EtlCall {
            name: "upper-1".into(),
            args: String::new(),
            pipeline: std::iter::repeat_n("upper-1", n).chain([last]).map(str::to_owned).collect(),
        };
        assert_eq!(call(1, "upper-1").stages(&state).unwrap().len(), 3);
        assert_eq!(call(1, "nobody").check(&state).unwrap_err().code.status(), 404);
        assert_eq!(call(MAX_STAGES, "upper-1").check(&state).unwrap_err().code.status(), 400);
    }

    #[test]
    fn a_state_from_before_there_were_transforms_is_read() {
        let written = serde_json::to_value(ClusterState::default()).unwrap();
        assert!(written.get("etls").is_none(), "nor does an older version see an unknown field");
        assert_eq!(
            serde_json::from_value::<ClusterState>(written).unwrap(),
            ClusterState::default()
        );
    }
}
