//! Transforms of v1 clients: registration, use and monitoring (§15).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::etl::{self, Etl, EtlCall, EtlPart, Stage, Transformer};
use crate::job::Transform;
use crate::name::{Bucket, NodeId, ObjectName};
use crate::size::parse_duration;
use crate::v1::action::{lower_keys, parse_json};
use crate::v1::query::{Query, decode_path};

/// Image scheme in a client's `init` for a command of the targets' configuration.
const COMMAND_SCHEME: &str = "command://";
/// Advice for a client that names an image.
const INSTEAD: &str = "start the service yourself and give its URL as the image (http://host:port), \
    or command://NAME for a command that the targets' configuration has under [[etl.command]]";

/// Parses the transform in the body of `PUT /v1/etl` or `POST /api/v1/etl`, running as `job`.
///
/// A service is named by `url`, or in `runtime.image`, where foreign clients can put it; a command
/// by `command`, or by an image `command://NAME`. A real image needs Kubernetes: `Unsupported`.
pub fn requested(body: &[u8], job: String) -> Result<Etl> {
    let message = parse_json(body)?;
    if !message.is_object() {
        return Err(Error::invalid("invalid etl message: not a JSON object"));
    }
    let name = text(&message, "name")?.unwrap_or_default().to_owned();
    etl::check_name(&name)?;
    let pulls = pulls(text(&message, "communication")?.unwrap_or_default())?;
    let runtime = message.get("runtime").filter(|r| !r.is_null()).cloned().map(lower_keys);
    let runtime = runtime.unwrap_or(Value::Null);
    let (image, url) = (text(&runtime, "image")?, text(&message, "url")?);
    let command = text(&message, "command")?;
    if message.get("spec").is_some_and(|s| !s.is_null()) {
        return Err(Error::unsupported(format!(
            "etl job {name}: a pod specification needs Kubernetes, which does not run this cluster"
        ))
        .hint(INSTEAD));
    }
    let by = match (image, url, command) {
        (None, Some(url), None) => service(url, pulls)?,
        (None, None, Some(command)) => Transformer::Command { name: command.to_owned() },
        (Some(image), None, None) => from_image(&name, image, &runtime, pulls)?,
        (None, None, None) => {
            return Err(Error::invalid(format!("etl job {name}: runtime.image must be specified"))
                .hint(INSTEAD));
        }
        _ => {
            return Err(Error::invalid(format!(
                "etl job {name}: more than one of image, url, command"
            )));
        }
    };
    if pulls && matches!(by, Transformer::Command { .. }) {
        return Err(
            Error::invalid(format!("etl job {name}: a command cannot pull")).hint("use hpush://")
        );
    }
    let (init_ms, object_ms) =
        (duration_ms(&message, "init_timeout")?, duration_ms(&message, "obj_timeout")?);
    let mut init = message;
    if let Value::Object(map) = &mut init {
        // Clients decode it into a typed structure that requires these two fields.
        map.insert("communication".into(), json!(if pulls { "hpull://" } else { "hpush://" }));
        map.entry("runtime").or_insert_with(|| json!({"image": shown_image(&by)}));
    }
    Ok(Etl {
        name,
        by,
        object_timeout_ms: object_ms.unwrap_or(etl::DEFAULT_OBJECT_TIMEOUT_MS),
        init_timeout_ms: init_ms.unwrap_or(etl::DEFAULT_INIT_TIMEOUT_MS),
        stage: Stage::Running,
        job,
        init,
    })
}

fn from_image(name: &str, image: &str, runtime: &Value, pulls: bool) -> Result<Transformer> {
    let by = if let Some(command) = image.strip_prefix(COMMAND_SCHEME) {
        Transformer::Command { name: command.to_owned() }
    } else if image.contains("://") {
        service(image, pulls)?
    } else {
        return Err(Error::unsupported(format!(
            "etl job {name}: image \"{image}\" needs Kubernetes, which does not run this cluster"
        ))
        .hint(INSTEAD));
    };
    let is_given = |key: &str| match runtime.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    };
    if is_given("command") || is_given("env") {
        return Err(Error::invalid(format!(
            "etl job {name}: a command line and an environment go with an image, not with \"{image}\""
        ))
        .hint("a service has its own; commands stand in the targets' configuration"));
    }
    Ok(by)
}

fn service(url: &str, pulls: bool) -> Result<Transformer> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Err(Error::invalid(format!("etl: \"{url}\" is not the URL of an HTTP service"))
            .hint("for example http://host:8000"));
    }
    let url = url.trim_end_matches('/').to_owned();
    Ok(if pulls { Transformer::Pull { url } } else { Transformer::Push { url } })
}

fn shown_image(by: &Transformer) -> String {
    match by {
        Transformer::Push { url } | Transformer::Pull { url } => url.clone(),
        Transformer::Command { name } => format!("{COMMAND_SCHEME}{name}"),
    }
}

/// Whether the service reads objects itself.
fn pulls(communication: &str) -> Result<bool> {
    match communication.strip_suffix("://").unwrap_or(communication) {
        "" | "hpush" => Ok(false),
        "hpull" => Ok(true),
        "ws" => Err(Error::unsupported("etl: communication by web sockets is not served")
            .hint("use hpush:// or hpull://")),
        other => Err(Error::invalid(format!("unknown comm-type \"{other}\""))),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<Option<&'a str>> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) if s.is_empty() => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(other) => Err(Error::invalid(format!("etl: \"{key}\" must be a string, not {other}"))),
    }
}

/// A duration as text, or as a number of nanoseconds. `None` if absent or 0.
fn duration_ms(value: &Value, key: &str) -> Result<Option<u64>> {
    let ms = match value.get(key) {
        None | Some(Value::Null) => 0,
        Some(Value::String(s)) if s.is_empty() || s == "0" => 0,
        Some(Value::String(s)) => u64::try_from(parse_duration(s)?.as_millis()).unwrap_or(u64::MAX),
        Some(Value::Number(n)) => {
            let ns = n.as_u64();
            ns.ok_or_else(|| Error::invalid(format!("etl: \"{key}\" must not be negative")))?
                / 1_000_000
        }
        Some(other) => {
            return Err(Error::invalid(format!("etl: \"{key}\" must be a duration, not {other}")));
        }
    };
    Ok((ms > 0).then_some(ms))
}

impl EtlCall {
    /// The transform in the query of an object request: `etl_name`, `etl_args`, `etl_pipeline`.
    pub fn from_query(query: &Query) -> Result<Option<Self>> {
        let Some(name) = query.get("etl_name") else {
            return match query.get("etl_pipeline") {
                None => Ok(None),
                Some(_) => Err(Error::invalid("etl_pipeline goes with etl_name")),
            };
        };
        let pipeline = query.get("etl_pipeline").map(|p| p.split(',').map(str::trim));
        let pipeline: Vec<String> = pipeline.into_iter().flatten().map(str::to_owned).collect();
        let args = query.get("etl_args").unwrap_or_default().to_owned();
        Self { name: name.to_owned(), args, pipeline }.named().map(Some)
    }

    /// The transform of `etl-bck` and `etl-listrange`: `id`, `pipeline`, `request_timeout`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let value = lower_keys(value.clone());
        let name = text(&value, "id")?.ok_or_else(|| Error::invalid("etl: \"id\" is empty"))?;
        duration_ms(&value, "request_timeout")?;
        let pipeline = match value.get("pipeline") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list.clone())
                .map_err(|_| Error::invalid("etl: \"pipeline\" must be a list of names"))?,
        };
        Self { name: name.to_owned(), args: String::new(), pipeline }.named()
    }

    /// The transform for the task of a job.
    pub fn to_task(&self) -> Transform {
        let pipeline = std::iter::once(&self.name).chain(&self.pipeline).cloned().collect();
        Transform { pipeline, timeout_ms: 0 }
    }

    fn named(self) -> Result<Self> {
        match self.pipeline.iter().find(|name| name.is_empty()) {
            Some(_) => Err(Error::invalid("etl: the pipeline holds an empty name")),
            None => Ok(self),
        }
    }
}

/// `GET /v1/etl`: one row for each transform, its counters summed over the targets.
pub fn list_json<'a>(rows: impl IntoIterator<Item = (&'a Etl, EtlPart)>) -> Value {
    let row = |(etl, sum): (&Etl, EtlPart)| {
        json!({"id": etl.name, "stage": etl.stage.v1_name(), "xaction_id": etl.job,
            "obj_count": sum.objects, "in_bytes": sum.in_bytes, "out_bytes": sum.out_bytes})
    };
    Value::Array(rows.into_iter().map(row).collect())
}

/// `GET /v1/etl/NAME`: its registration, and recent errors.
pub fn details_json(etl: &Etl, parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let errors = parts.values().flat_map(|part| &part.errors);
    let errors: Vec<Value> = errors
        .map(|e| json!({"obj_name": e.object, "msg": e.message, "ecode": e.status}))
        .collect();
    let mut details = json!({"init_msg": etl.init});
    if !errors.is_empty() {
        details["obj_errors"] = Value::Array(errors);
    }
    details
}

/// `GET /v1/etl/NAME/logs`.
pub fn logs_json(parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let row = |(id, part): (&NodeId, &EtlPart)| json!({"target_id": id, "logs": STANDARD.encode(&part.log)});
    Value::Array(parts.iter().map(row).collect())
}

/// `GET /v1/etl/NAME/health`.
pub fn health_json(parts: &BTreeMap<NodeId, EtlPart>) -> Value {
    let row = |(id, part): (&NodeId, &EtlPart)| {
        let status = if part.away.is_empty() { "Running" } else { part.away.as_str() };
        json!({"target_id": id, "health_status": status})
    };
    Value::Array(parts.iter().map(row).collect())
}

/// The object that a pulling service requests: `/v1/etl/_object/UNAME`, where clients may put the
/// name of the transform and a secret before the name, which is one segment.
pub fn pulled_object(path: &str) -> Result<(Bucket, ObjectName)> {
    let bad = || Error::invalid(format!("invalid request URI: {path}"));
    let rest = path.strip_prefix("/v1/etl/_object/").ok_or_else(bad)?;
    let last = rest.rsplit('/').find(|part| !part.is_empty()).ok_or_else(bad)?;
    let (bucket, object) = Bucket::parse_uname(&decode_path(last)?)?;
    Ok((bucket, object.ok_or_else(bad)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use crate::etl::EtlFailure;

    fn init(message: Value) -> Result<Etl> {
        requested(message.to_string().as_bytes(), "etl-1".into())
    }

    /// As the Python client sends it.
    fn by_image(image: &str) -> Value {
        json!({"name": "my-etl", "communication": "hpush://", "init_timeout": "5m",
            "obj_timeout": "45s", "support_direct_put": false, "runtime": {"image": image}})
    }

    #[test]
    fn a_service_is_named_by_its_url_where_an_image_stands() {
        let etl = init(by_image("http://10.0.0.1:8000/")).unwrap();
        assert_eq!(etl.by, Transformer::Push { url: "http://10.0.0.1:8000".into() });
        assert_eq!((etl.init_timeout_ms, etl.object_timeout_ms), (300_000, 45_000));
        assert_eq!(
            (etl.name.as_str(), etl.job.as_str(), etl.stage),
            ("my-etl", "etl-1", Stage::Running)
        );
        let mut pull = by_image("https://etl");
        pull["communication"] = json!("hpull");
        assert_eq!(init(pull).unwrap().by, Transformer::Pull { url: "https://etl".into() });
        assert_eq!(
            init(by_image("command://upper")).unwrap().by,
            Transformer::Command { name: "upper".into() }
        );
    }

    #[test]
    fn our_own_form_names_url_or_command() {
        let etl =
            init(json!({"Name": "my-etl", "url": "http://h:1", "obj_timeout": 2_000_000_000u64}))
                .unwrap();
        assert_eq!(
            (etl.by, etl.object_timeout_ms),
            (Transformer::Push { url: "http://h:1".into() }, 2000)
        );
        assert_eq!(
            etl.init,
            json!({"name": "my-etl", "url": "http://h:1", "obj_timeout": 2_000_000_000u64,
                "communication": "hpush://", "runtime": {"image": "http://h:1"}})
        );
        let etl = init(json!({"name": "my-etl", "command": "upper"})).unwrap();
        assert_eq!(etl.by, Transformer::Command { name: "upper".into() });
    }

    #[test]
    fn what_needs_kubernetes_is_refused_in_so_many_words() {
        for message in [
            by_image("aistorage/runtime_python:3.11"),
            json!({"name": "my-etl", "communication": "hpush://", "spec": "YQ=="}),
        ] {
            let e = init(message).unwrap_err();
            assert_eq!(e.code, ErrorCode::Unsupported);
            assert!(e.message.contains("needs Kubernetes"), "{e}");
        }
    }

    #[test]
    fn bad_messages_are_the_clients_mistake() {
        let with = |key: &str, value: Value| {
            let mut message = by_image("http://h:1");
            message[key] = value;
            message
        };
        let mut line = by_image("http://h:1");
        line["runtime"]["command"] = json!(["rm", "-rf", "/"]);
        let mut pulls = by_image("command://upper");
        pulls["communication"] = json!("hpull://");
        for bad in [
            json!([]),
            json!("x"),
            json!({"name": "my-etl"}),
            with("name", json!(7)),
            with("name", json!("x")),
            with("communication", json!("smoke://")),
            with("obj_timeout", json!("soon")),
            with("obj_timeout", json!(-1)),
            with("obj_timeout", json!([])),
            with("url", json!("http://h:2")),
            by_image("ftp://h:1"),
            by_image("http:///x"),
            line,
            pulls,
        ] {
            let e = init(bad.clone()).unwrap_err();
            assert_eq!(e.code.status(), 400, "{bad}: {e}");
        }
        assert_eq!(init(with("communication", json!("ws://"))).unwrap_err().code.status(), 501);
        assert!(requested(b"{", String::new()).is_err());
    }

    #[test]
    fn an_inline_request_names_transform_arguments_and_pipeline() {
        let call = |q: &str| EtlCall::from_query(&Query::parse(Some(q)));
        assert_eq!(call("provider=ais&etl_name=&etl_pipeline=").unwrap(), None);
        let got = call("etl_name=a&etl_args=%7B%22x%22%3A1%7D&etl_pipeline=b,c").unwrap().unwrap();
        assert_eq!((got.name.as_str(), got.args.as_str()), ("a", "{\"x\":1}"));
        assert_eq!(got.pipeline, ["b", "c"]);
        assert!(call("etl_name=a&etl_pipeline=").unwrap().unwrap().pipeline.is_empty());
        assert!(call("etl_pipeline=b").is_err() && call("etl_name=a&etl_pipeline=b,,c").is_err());
    }

    #[test]
    fn an_offline_request_is_read_from_the_actions_value() {
        let call = |v: Value| EtlCall::from_value(&v);
        let got = call(json!({"id": "a", "request_timeout": "5m", "pipeline": null, "prefix": ""}))
            .unwrap();
        assert_eq!(got, EtlCall { name: "a".into(), ..EtlCall::default() });
        let two = call(json!({"ID": "a", "pipeline": ["b"]})).unwrap();
        assert_eq!(two.pipeline, ["b"]);
        assert_eq!(EtlCall::from(&two.to_task()), two);
        for bad in [
            json!({}),
            json!({"id": 1}),
            json!({"id": "a", "pipeline": "b"}),
            json!({"id": "a", "pipeline": [""]}),
            json!({"id": "a", "request_timeout": "x"}),
        ] {
            assert_eq!(call(bad).unwrap_err().code.status(), 400);
        }
    }

    #[test]
    fn answers_have_the_shapes_of_the_protocol() {
        let etl = init(by_image("http://h:1")).unwrap();
        let failure = EtlFailure { object: "ais://b/o".into(), message: "no".into(), status: 422 };
        let part = EtlPart {
            objects: 2,
            in_bytes: 3,
            out_bytes: 4,
            errors: vec![failure],
            log: "hi\n".into(),
            away: String::new(),
        };
        assert_eq!(
            list_json([(&etl, part.clone())]).to_string(),
            r#"[{"id":"my-etl","in_bytes":3,"obj_count":2,"out_bytes":4,"stage":"Running","xaction_id":"etl-1"}]"#
        );
        let parts = BTreeMap::from([(NodeId::new("target-01").unwrap(), part)]);
        assert_eq!(
            details_json(&etl, &parts),
            json!({"init_msg": by_image("http://h:1"),
                "obj_errors": [{"obj_name": "ais://b/o", "msg": "no", "ecode": 422}]})
        );
        assert_eq!(
            details_json(&etl, &BTreeMap::new()),
            json!({"init_msg": by_image("http://h:1")})
        );
        assert_eq!(logs_json(&parts), json!([{"target_id": "target-01", "logs": "aGkK"}]));
        assert_eq!(
            health_json(&parts),
            json!([{"target_id": "target-01", "health_status": "Running"}])
        );
    }

    #[test]
    fn a_pulled_object_is_the_last_segment() {
        for path in [
            "/v1/etl/_object/ais%2F@%23%2Fb%2Fd%2Fx%20y",
            "/v1/etl/_object/my-etl/secret/ais%2F@%23%2Fb%2Fd%2Fx%20y",
        ] {
            let (bucket, object) = pulled_object(path).unwrap();
            assert_eq!((bucket.to_string().as_str(), object.as_str()), ("ais://b", "d/x y"));
        }
        for bad in ["/v1/etl/_object/", "/v1/etl/_object/ais", "/v1/etl/x"] {
            assert!(pulled_object(bad).is_err(), "{bad}");
        }
    }
}
