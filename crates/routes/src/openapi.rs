//! The description of the API (OpenAPI 3.1), from the table of routes. It is complete for the native API;
//! for `/v1` and `/s3` it lists methods and parameters, and refers to AIStore's and Amazon's documents.

mod native;
mod schemas;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::native::Native;
use super::{By, Case, Need, Rule, ServedBy, Verb, Who, table};

/// Methods that a route of every method is described with.
const EVERY: [Verb; 6] = [Verb::Get, Verb::Head, Verb::Put, Verb::Post, Verb::Delete, Verb::Patch];

const DESCRIPTION: &str = "The native API (/api), with health and metrics, is described completely: bodies, \
    parameters, errors and headers. Clients ignore fields that they do not know. AIStore's REST API (/v1) \
    and S3 (/s3) are described by their methods and parameters; AIStore and Amazon define the rest. HEAD is \
    served wherever GET is. Requests between nodes are left out. A request that fails has a body `Error`.";

/// The document, as JSON.
pub fn document(version: &str) -> Value {
    let native = Native::new();
    let mut paths = Map::new();
    let mut schemas = schemas::native();
    let mut ids = BTreeSet::new();
    for rule in table().filter(|rule| rule.who != Who::Node) {
        for path in rule.paths {
            let verbs: &[Verb] = if rule.verb == Verb::Any { &EVERY } else { &[rule.verb] };
            for verb in verbs {
                let item = paths.entry(plain(path)).or_insert_with(|| json!({}));
                let id = unused(&mut ids, &operation_id(rule, *verb));
                item[verb.name().to_ascii_lowercase()] = operation(&native, rule, path, &id);
            }
        }
        for name in types(rule) {
            schemas.entry(name).or_insert_with(|| schemas::foreign(name));
        }
    }
    let mut components = native::components();
    components["schemas"] = Value::Object(schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": version,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": "native", "description": "The API of Forebay's own clients."},
            {"name": "users", "description": "Users, roles, keys and tokens."},
            {"name": "health", "description": "Health and metrics of nodes."},
            {
                "name": "aistore",
                "description": "AIStore's API. The table has methods and parameters.",
                "externalDocs": {"url": schemas::AISTORE},
            },
            {
                "name": "s3",
                "description": "Amazon's API. The table has methods and parameters.",
                "externalDocs": {"url": schemas::AMAZON},
            },
        ],
        "paths": paths,
        "components": components,
    })
}

/// A path without the `*` of a parameter that may have slashes.
fn plain(path: &str) -> String {
    path.replace("{*", "{")
}

/// The names of the parameters of a path.
fn path_names(path: &str) -> impl Iterator<Item = &str> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names.map(|name| name.trim_start_matches('*'))
}

fn parameters(native: &Native, rule: &Rule, path: &str) -> Vec<Value> {
    let is_native = native.of(rule).is_some();
    let show = |name: &str, is_in: &str| match is_native {
        true => native.parameter(rule, name, is_in),
        false => json!({"name": name, "in": is_in, "required": is_in == "path",
            "schema": {"type": "string"}}),
    };
    let of_path = path_names(path).map(|name| show(name, "path"));
    of_path.chain(rule.query.iter().map(|name| show(name, "query"))).collect()
}

fn operation_id(rule: &Rule, verb: Verb) -> String {
    let path = plain(rule.paths[0]);
    let words = path.split(['/', '{', '}', '.', '-', '_']).filter(|word| !word.is_empty());
    let words: Vec<_> = words.collect();
    format!("{}_{}", verb.name().to_ascii_lowercase(), words.join("_"))
}

/// The id, or the id with a number: one route may have several paths.
fn unused(ids: &mut BTreeSet<String>, id: &str) -> String {
    let numbered = (2..).map(|n| format!("{id}_{n}"));
    let mut candidates = std::iter::once(id.to_owned()).chain(numbered);
    candidates.find(|id| ids.insert(id.clone())).unwrap_or_default()
}

fn types(rule: &Rule) -> impl Iterator<Item = &'static str> {
    let cases = rule.cases.iter().flat_map(|case| [case.request, case.answer]);
    [rule.request, rule.answer].into_iter().chain(cases).filter(|name| !name.is_empty())
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The media types of the bodies of a type.
fn media(name: &str) -> &'static [&'static str] {
    match name {
        "Bytes" | "Archive" => &["application/octet-stream"],
        "BatchStream" => &["application/vnd.forebay.batch"],
        "EventStream" => &["text/event-stream"],
        "Xml" => &["application/xml"],
        "Html" => &["text/html"],
        "Form" => &["multipart/form-data"],
        "Text" | "JobId" | "UploadId" => &["text/plain"],
        "Metrics" => &["text/plain", "application/openmetrics-text"],
        _ => &["application/json"],
    }
}

fn content(name: &str) -> Value {
    let kinds =
        media(name).iter().map(|kind| ((*kind).to_owned(), json!({"schema": schema(name)})));
    Value::Object(kinds.collect())
}

fn operation(native: &Native, rule: &Rule, path: &str, id: &str) -> Value {
    let mut answer = json!({"description": "The request was served"});
    if !rule.answer.is_empty() {
        answer["content"] = content(rule.answer);
    }
    let mut operation = json!({
        "operationId": id,
        "summary": rule.summary,
        "parameters": parameters(native, rule, path),
        "responses": { "2XX": answer, "4XX": {"description": "The request was refused"} },
        "x-forebay-operation": rule.operation,
        "x-forebay-who": who(rule.who),
        "x-forebay-rights": rights(rule.needs),
    });
    if !rule.request.is_empty() {
        operation["requestBody"] = json!({"content": content(rule.request)});
    }
    if rule.who != Who::Anyone {
        operation["security"] = json!([{"token": []}, {}]);
    }
    if !rule.cases.is_empty() {
        operation["x-forebay-cases"] = rule.cases.iter().map(case).collect();
    }
    operation["x-forebay-served-by"] = json!(match rule.served_by {
        ServedBy::Gateways => &["gateways"][..],
        ServedBy::Targets => &["targets"],
        ServedBy::Both => &["gateways", "targets"],
    });
    match native.of(rule) {
        Some(text) => native.complete(rule, text, &mut operation),
        None if rule.is_of_s3() => operation["tags"] = json!(["s3"]),
        None => operation["tags"] = json!(["aistore"]),
    }
    operation
}

fn who(who: Who) -> &'static str {
    match who {
        Who::Anyone => "anyone",
        Who::User => "user",
        Who::Operator => "operator",
        Who::Node => "node",
    }
}

/// Each right with what it is needed on, such as `get-object on source`.
fn rights(needs: &[Need]) -> Vec<String> {
    needs
        .iter()
        .map(|need| {
            let names: Vec<_> = need.any_of.iter().map(|right| right.name()).collect();
            format!("{} on {}", names.join(" or "), format!("{:?}", need.on).to_lowercase())
        })
        .collect()
}

fn case(case: &Case) -> Value {
    let (by, name) = match case.by {
        By::Action(name) => ("action", name),
        By::What(name) => ("what", name),
        By::Query(name) => ("query", name),
        By::Header(name) => ("header", name),
    };
    let mut shown = json!({
        by: name,
        "operation": case.operation,
        "who": who(case.who),
        "rights": rights(case.needs),
    });
    for (key, name) in [("request", case.request), ("answer", case.answer)] {
        if !name.is_empty() {
            shown[key] = schema(name);
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_described_and_every_id_is_used_once() {
        let document = document("1.0");
        let mut ids = BTreeSet::new();
        let mut operations = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            assert!(!path.contains('*'), "{path}");
            for (verb, operation) in item.as_object().unwrap() {
                assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{verb} {path}");
                let names = path.matches('{').count();
                let parameters = operation["parameters"].as_array().unwrap();
                let of_path = parameters.iter().filter(|parameter| parameter["in"] == "path");
                assert_eq!(of_path.count(), names, "{path}");
                operations.insert(operation["x-forebay-operation"].as_str().unwrap());
                let cases = operation.get("x-forebay-cases").and_then(Value::as_array);
                for case in cases.into_iter().flatten() {
                    operations.insert(case["operation"].as_str().unwrap());
                }
            }
        }
        for row in table().filter(|rule| rule.who != Who::Node).flat_map(|rule| rule.rows()) {
            assert!(operations.contains(row.operation()), "{}", row.operation());
        }
    }

    #[test]
    fn every_type_that_is_referred_to_has_a_schema() {
        let document = document("1.0");
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_schema_is_used_and_has_content() {
        let document = document("1.0");
        let text = document.to_string();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            let reference = format!("\"#/components/schemas/{name}\"");
            assert!(text.contains(&reference), "{name} is not used");
            assert!(schema.as_object().is_some_and(|schema| !schema.is_empty()), "{name} is empty");
        }
    }

    #[test]
    fn every_body_of_the_native_api_has_a_schema_of_its_own() {
        let (native, own) = (Native::new(), schemas::native());
        for rule in table().filter(|rule| native.of(rule).is_some()) {
            for name in types(rule) {
                assert!(own.contains_key(name), "{}: {name}", rule.operation);
            }
        }
    }
}
