//! Registration of a transform: a service by its URL, or a command of the targets' configuration.

use forebay_core::egress::EndpointTrust;
use forebay_core::error::{Error, Result};
use forebay_core::etl::{self, Etl, Stage, Transformer};
use forebay_core::shown_url;
use serde_json::{Value, json};

use super::{duration_ms, text};
use crate::action::{lower_keys, parse_json};

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
        endpoint_trust: EndpointTrust::Judged,
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
            "etl job {name}: a command line and an environment go with an image, not with \"{}\"",
            shown_url(image)
        ))
        .hint("a service has its own; commands stand in the targets' configuration"));
    }
    Ok(by)
}

fn service(url: &str, pulls: bool) -> Result<Transformer> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/')) {
        let shown = shown_url(url);
        return Err(Error::invalid(format!("etl: \"{shown}\" is not the URL of an HTTP service"))
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
