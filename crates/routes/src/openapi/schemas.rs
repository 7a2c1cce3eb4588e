//! Schemas of the types of bodies: those of the native API from the files beside this one, the others as
//! references to the definitions of AIStore and Amazon.

use serde_json::{Map, Value, json};

/// Objects of name → schema.
const FILES: [&str; 9] = [
    include_str!("schemas/access.json"),
    include_str!("schemas/cluster.json"),
    include_str!("schemas/errors.json"),
    include_str!("schemas/jobs.json"),
    include_str!("schemas/map.json"),
    include_str!("schemas/objects.json"),
    include_str!("schemas/overview.json"),
    include_str!("schemas/traces.json"),
    include_str!("schemas/transforms.json"),
];

/// Where the types of `/v1` are defined.
pub(super) const AISTORE: &str = "https://aistore.nvidia.com/docs/http-api";
/// Where the types of `/s3` are defined.
pub(super) const AMAZON: &str = "https://docs.aws.amazon.com/AmazonS3/latest/API/Welcome.html";

/// The schemas of the native API, by name. A test checks that each file is a JSON object.
pub(super) fn native() -> Map<String, Value> {
    FILES.iter().flat_map(|text| object(text)).collect()
}

/// A JSON object; an empty one if the text is something else.
pub(super) fn object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

/// A type that AIStore or Amazon defines.
pub(super) fn foreign(name: &str) -> Value {
    let (owner, url) = if name == "Xml" { ("Amazon S3", AMAZON) } else { ("AIStore", AISTORE) };
    json!({
        "description": format!("`{name}`, as {owner} defines it."),
        "externalDocs": { "url": url },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_an_object_and_no_name_is_used_twice() {
        let sizes =
            FILES.map(|text| serde_json::from_str::<Map<String, Value>>(text).unwrap().len());
        assert_eq!(sizes.iter().sum::<usize>(), native().len());
    }

    #[test]
    fn every_schema_says_what_it_is() {
        for (name, schema) in native() {
            let is_plain = schema.get("type").is_some_and(|kind| kind != "object");
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(is_plain || !text.is_empty(), "{name}");
        }
    }
}
