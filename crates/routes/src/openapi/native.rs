//! The parts of the description that only the native API has: parameters with their types and limits,
//! the errors of each operation, and the headers of answers.

use std::collections::BTreeMap;

use forebay_core::ErrorCode;
use serde_json::{Map, Value, json};

use super::schemas::object;
use super::{content, schema};
use crate::{Rule, Who};

/// Operation → description, errors, answers besides 200, and headers of the request.
const OPERATIONS: &str = include_str!("operations.json");
/// Name of a parameter, or operation and name → description, schema and example.
const PARAMETERS: &str = include_str!("parameters.json");

/// Errors of every operation. A node that starts, stops or is overloaded answers 503 or 429.
const OF_ALL: [ErrorCode; 4] = [
    ErrorCode::InvalidArgument,
    ErrorCode::TooManyRequests,
    ErrorCode::Unavailable,
    ErrorCode::Internal,
];
/// Errors of every operation that needs a right.
const OF_USERS: [ErrorCode; 2] = [ErrorCode::Unauthenticated, ErrorCode::AccessDenied];

/// The texts on operations and parameters.
pub(super) struct Native {
    operations: Map<String, Value>,
    parameters: Map<String, Value>,
}

impl Native {
    pub(super) fn new() -> Self {
        Self { operations: object(OPERATIONS), parameters: object(PARAMETERS) }
    }

    /// The text on the operation of a rule; `None` if it is not one of the native API.
    pub(super) fn of(&self, rule: &Rule) -> Option<&Value> {
        is_native(rule).then(|| self.operations.get(rule.operation)).flatten()
    }

    /// A parameter of an operation.
    pub(super) fn parameter(&self, rule: &Rule, name: &str, is_in: &str) -> Value {
        let own = self.parameters.get(&format!("{}.{name}", rule.operation));
        let text = own.or_else(|| self.parameters.get(name));
        let mut shown = json!({"name": name, "in": is_in});
        for (key, value) in text.and_then(Value::as_object).into_iter().flatten() {
            shown[key] = value.clone();
        }
        if is_in == "path" {
            shown["required"] = json!(true);
        }
        shown
    }

    /// Completes the description of an operation of the native API.
    pub(super) fn complete(&self, rule: &Rule, text: &Value, operation: &mut Value) {
        if let Some(description) = text.get("description") {
            operation["description"] = description.clone();
        }
        if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
            let headers =
                text["headers"].as_array().into_iter().flatten().filter_map(Value::as_str);
            parameters.extend(headers.map(|name| self.parameter(rule, name, "header")));
            parameters.push(json!({"$ref": "#/components/parameters/traceparent"}));
        }
        if !rule.request.is_empty() {
            operation["requestBody"]["required"] = json!(true);
        }
        if rule.who != Who::Anyone {
            let mut security = vec![json!({"token": []}), json!({})];
            if rule.is_of_targets() {
                security.insert(1, json!({"grant": []}));
            }
            operation["security"] = json!(security);
        }
        operation["tags"] = json!([tag(rule)]);
        operation["responses"] = answers(rule, text);
    }
}

/// Whether a rule is of the API that this description is complete for.
fn is_native(rule: &Rule) -> bool {
    let path = rule.paths[0];
    path.starts_with("/api/") || ["/healthz", "/readyz", "/clusterz", "/metrics"].contains(&path)
}

/// The group of an operation in viewers of the description.
fn tag(rule: &Rule) -> &'static str {
    match rule.paths[0] {
        path if path.starts_with("/api/v1/auth/") => "users",
        path if path.starts_with("/api/v1/") => "native",
        _ => "health",
    }
}

/// The answers of an operation by status.
fn answers(rule: &Rule, text: &Value) -> Value {
    let mut answers = BTreeMap::new();
    let mut served = json!({"description": "The request was served.", "headers": headers()});
    if !rule.answer.is_empty() {
        served["content"] = content(rule.answer);
    }
    for (status, why) in text["answers"].as_object().into_iter().flatten() {
        let mut answer = served.clone();
        answer["description"] = why.clone();
        if matches!(status.as_str(), "301" | "307") {
            answer.as_object_mut().map(|answer| answer.remove("content"));
            answer["headers"]["location"] =
                json!({"description": "URL at the target.", "schema": {"type": "string"}});
        }
        answers.insert(status.clone(), answer);
    }
    for (status, codes) in errors(rule, text) {
        let named: Vec<_> = codes.iter().map(|code| format!("`{code}`")).collect();
        let description = format!("The request failed: {}.", named.join(", "));
        let failed = content("Error");
        // A status may also be that of an answer of this operation, such as 503 of a check.
        let answer = answers
            .entry(status.clone())
            .or_insert_with(|| json!({"description": "", "headers": headers(), "content": {}}));
        let before = answer["description"].as_str().unwrap_or_default();
        answer["description"] = json!([before, &description].join(" ").trim());
        for (kind, body) in failed.as_object().into_iter().flatten() {
            let body = match answer["content"].get(kind) {
                Some(own) => json!({"schema": {"anyOf": [own["schema"], body["schema"]]}}),
                None => body.clone(),
            };
            answer["content"][kind] = body;
        }
        if matches!(status.as_str(), "429" | "503") {
            answer["headers"]["retry-after"] = json!({"$ref": "#/components/headers/retry-after"});
        }
    }
    answers.insert("200".to_owned(), served);
    json!(answers)
}

/// The names of the errors of an operation, by status.
fn errors(rule: &Rule, text: &Value) -> BTreeMap<String, Vec<String>> {
    let own = text["errors"].as_array().into_iter().flatten();
    let own = own.filter_map(|name| serde_json::from_value(name.clone()).ok());
    let of_users = if rule.who == Who::Anyone { &[][..] } else { &OF_USERS };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for code in OF_ALL.into_iter().chain(of_users.iter().copied()).chain(own) {
        let code: ErrorCode = code;
        let name = json!(code).as_str().unwrap_or_default().to_owned();
        found.entry(code.status().to_string()).or_default().push(name);
    }
    found
}

fn headers() -> Value {
    json!({
        "forebay-request-id": {"$ref": "#/components/headers/forebay-request-id"},
        "forebay-map": {"$ref": "#/components/headers/forebay-map"},
    })
}

/// Components that the answers and parameters of the native API refer to.
pub(super) fn components() -> Value {
    json!({
        "headers": {
            "forebay-request-id": {
                "description": "Id of the request, also in the logs of the nodes that it passed.",
                "schema": schema("RequestId"),
            },
            "forebay-map": {
                "description": "Version of the cluster's state at the node.",
                "schema": {"type": "integer", "minimum": 0},
            },
            "retry-after": {
                "description": "Seconds after which the request may be sent again.",
                "schema": {"type": "integer", "minimum": 0},
            },
        },
        "parameters": {
            "traceparent": {
                "name": "traceparent",
                "in": "header",
                "description": "The span that causes the request (W3C Trace Context). An invalid value is \
                                ignored.",
                "schema": {"type": "string"},
                "example": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            },
        },
        "securitySchemes": {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `POST /api/v1/auth/login`, in the header `authorization`. A \
                                cluster without users needs none.",
            },
            "grant": {
                "type": "apiKey",
                "in": "header",
                "name": "forebay-grant",
                "description": "`grant` of `GET /api/v1/map`, for requests to targets.",
            },
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::table;

    fn rules() -> impl Iterator<Item = &'static Rule> {
        table().filter(|rule| rule.who != Who::Node && is_native(rule))
    }

    #[test]
    fn every_native_operation_is_described_and_nothing_else_is() {
        let native = Native::new();
        let described: BTreeSet<_> = native.operations.keys().map(String::as_str).collect();
        assert_eq!(rules().map(|rule| rule.operation).collect::<BTreeSet<_>>(), described);
    }

    #[test]
    fn every_parameter_has_a_description_and_a_type_and_every_text_is_used() {
        let native = Native::new();
        let mut used = BTreeSet::new();
        for rule in rules() {
            let text = native.of(rule).unwrap();
            let of_path = super::super::path_names(rule.paths[0]);
            let headers = text["headers"].as_array().into_iter().flatten();
            let headers = headers.map(|name| name.as_str().unwrap());
            for name in of_path.chain(rule.query.iter().copied()).chain(headers) {
                let shown = native.parameter(rule, name, "query");
                assert!(shown["description"].is_string(), "{} {name}", rule.operation);
                assert!(shown["schema"]["type"].is_string(), "{} {name}", rule.operation);
                let own = format!("{}.{name}", rule.operation);
                let is_own = native.parameters.contains_key(&own);
                used.insert(if is_own { own } else { name.to_owned() });
            }
        }
        assert_eq!(native.parameters.keys().cloned().collect::<BTreeSet<_>>(), used);
    }

    #[test]
    fn the_errors_of_an_operation_exist_and_have_a_status() {
        for (name, text) in Native::new().operations {
            for code in text["errors"].as_array().into_iter().flatten() {
                let known = serde_json::from_value::<ErrorCode>(code.clone());
                assert!(known.is_ok(), "{name}: {code}");
            }
        }
    }
}
