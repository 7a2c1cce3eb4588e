//! Inventories of buckets in v1's form (§16).

use forebay_core::error::{Error, Result};
use forebay_core::inventory::{InventoryInfo, InventoryRequest};
use forebay_core::name::Bucket;
use serde_json::{Value, json};

use crate::action::{lower_keys, number};

/// Names the inventory to list from.
pub const NAME_HEADER: &str = "ais-inv-name";

/// Parses the `value` of a `create-inventory` action; also returns whether it replaces an existing
/// inventory.
///
/// `id` is the job's; an inventory without a name uses it as its name.
pub fn request(value: &Value, bucket: &Bucket, id: String) -> Result<(InventoryRequest, bool)> {
    let value = lower_keys(value.clone());
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(Error::invalid(format!("inventory: \"{key}\" is not a string"))),
    };
    let names_per_chunk = match value.get("names_per_chunk") {
        None | Some(Value::Null) => 0,
        Some(_) => number(&value, "names_per_chunk")
            .ok_or_else(|| Error::invalid("inventory: invalid names_per_chunk"))?,
    };
    let name = match text("name")? {
        name if name.is_empty() => format!("inv-{}", id.rsplit('-').next().unwrap_or_default()),
        name => name,
    };
    let prefix = text("prefix")?;
    let force = value.get("force") == Some(&Value::Bool(true));
    let mut request =
        InventoryRequest { id, bucket: bucket.clone(), name, prefix, names_per_chunk };
    request.check()?;
    Ok((request, force))
}

/// One inventory in the answer to `show-inventory`; times are unix nanoseconds.
pub fn info_json(bucket: &Bucket, object: &str, info: &InventoryInfo) -> Value {
    json!({
        "bucket": bucket.to_string(), "name": info.name, "obj_name": object, "size": info.size,
        "prefix": info.prefix, "started": info.started_ns, "finished": info.finished_ns,
        "ntotal": info.rows, "smap_ver": info.map_version,
        "chunks": info.rows.div_ceil(info.names_per_chunk.max(1)), "nat": info.targets,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_defaults_and_limits() {
        let bucket = Bucket::parse_uri("s3://b").unwrap().0;
        let read = |value: Value| request(&value, &bucket, "job-abcdefghi".into());
        let (plain, force) = read(Value::Null).unwrap();
        assert_eq!(
            (plain.name.as_str(), plain.names_per_chunk, force),
            ("inv-abcdefghi", 20_000, false)
        );
        let (named, force) =
            read(json!({"name": "n1", "prefix": "a/", "names_per_chunk": 2, "force": true}))
                .unwrap();
        assert_eq!((named.name.as_str(), named.prefix.as_str(), force), ("n1", "a/", true));
        for bad in [
            json!({"name": "a/b"}),
            json!({"name": 1}),
            json!({"names_per_chunk": 1}),
            json!({"names_per_chunk": "x"}),
        ] {
            assert_eq!(read(bad.clone()).unwrap_err().code.status(), 400, "{bad}");
        }
    }

    #[test]
    fn an_inventory_is_shown_with_all_that_clients_read() {
        let bucket = Bucket::parse_uri("s3://b").unwrap().0;
        let info =
            InventoryInfo { name: "n".into(), rows: 5, names_per_chunk: 2, ..Default::default() };
        let shown = info_json(&bucket, "aws/@#/b/n", &info);
        assert_eq!(
            shown,
            json!({"bucket": "s3://b", "name": "n", "obj_name": "aws/@#/b/n",
            "size": 0, "prefix": "", "started": 0, "finished": 0, "ntotal": 5, "smap_ver": 0,
            "chunks": 3, "nat": 0})
        );
    }
}
