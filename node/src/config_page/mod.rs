//! Renders `docs/configuration.md` from the types of the configuration, and checks the file, its
//! examples and the notes on each key against them.

#[path = "../../../tests/generated_page.rs"]
mod generated_page;

use std::collections::BTreeSet;
use std::fmt::Write;

use forebay_core::config::NodeConfig;
use toml::{Table, Value};

use self::generated_page::{cell, check, sentence};
use crate::config_load::{env_path, load};

/// The types, from which doc comments, names and types of keys are read.
const SOURCE: &str = concat!(
    include_str!("../../../core/src/config.rs"),
    include_str!("../../../core/src/config/destinations.rs"),
    include_str!("../../../core/src/config/clouds.rs"),
    include_str!("../../../core/src/config/cache.rs"),
    include_str!("../../../core/src/config/tls.rs"),
    include_str!("../../../core/src/config/trace.rs"),
    include_str!("../../../core/src/config/auth.rs")
);
const GATEWAY: &str = include_str!("gateway.toml");
const TARGET: &str = include_str!("target.toml");

const INTRO: &str = "\
# Configuration

Every key of the configuration file of a gateway or a target (`forebay gateway --config FILE`, `forebay target
--config FILE`). Both kinds of node read the same format, TOML; each kind ignores the keys of the other. The page
ends with a whole [gateway.toml](#a-gatewaytoml-with-every-key) and a whole
[target.toml](#a-targettoml-with-every-key). `make docs` generates it from the types that read the file.

- A value comes from the file, from an environment variable, or from a flag of the command. A variable overrides
  the file, and a flag overrides both. `forebay config show --origin` prints each value with its source.
- Without `--config`, `forebay gateway` and `forebay target` read the file that `FOREBAY_CONFIG` names, or else
  `/etc/forebay/forebay.toml`. `forebay serve` and `forebay dev` read only the file of `--config`.
- A variable is named `FOREBAY_SECTION__KEY`. Its value is read as TOML (`42`, `true`, `[\"a\", \"b\"]`), and
  as a string if it is no TOML. `FOREBAY_S3__KEYS` and `FOREBAY_ETL__COMMAND` take a whole list; `[[disk]]` and
  `[[cloud]]` have no variable.
- `FOREBAY_S3__KEYS_FILE`, `FOREBAY_AUDIT__URL_FILE`, `FOREBAY_AUTH__ISSUER_FILE`, `FOREBAY_ETL__COMMAND_FILE` and
  `FOREBAY_TRACE__ENDPOINT_FILE` name a file with the value of the variable without `_FILE`, so that no secret is in the
  environment. Both variables together are an error.
- A file with a secret must be readable by its owner only (mode 0600 or 0400), else the node exits with code 2: `cluster.secret_file`,
  `cluster.join_token_file`, `tls.key`, `auth.admin_password_file`, `secret_file` of an issuer, `trace.headers_file`, the
  files of an account of a cloud, and the files of these variables. A group may read a file that belongs to another user, as a Kubernetes secret with `fsGroup`
  (mode 0440) or a credential of systemd does. `token_file` of an issuer is not checked: Kubernetes decides its mode.
- A node reads its configuration when it starts, and again at SIGHUP (`systemctl reload`). SIGHUP applies the keys that the
  table marks with \"reload\"; of other changed keys the log has a line that they need a restart. An invalid file is logged
  and changes nothing. A node with a controlling terminal ends at SIGHUP, as its terminal does.
- An unknown key or a wrong type is an error, in the file and in a variable: the node exits with code 2 and names the
  key, the line or the variable, and the allowed values. So is a variable of a setting with one underscore after the
  section. `forebay config validate FILE` prints all errors of a file.
- A size is a string with a unit, such as `\"512KiB\"`, `\"8MiB\"`, `\"3TiB\"`, or a number of bytes. Units are
  powers of 1024; `MB` means the same as `MiB`.
- `forebay serve` and `forebay dev` set these keys themselves and ignore other values: `cluster.gateways`,
  `cluster.secret_file`, `node.id`, `node.dir`, `listen.http`, `listen.advertise` and `[[disk]]`. Their flag
  `--folder-root` adds to `folder.roots`.
- `FOREBAY_LOG` overrides `log.level`, also where `FOREBAY_LOG__LEVEL` is set. Credentials of clouds come from
  the variables of the clouds, and from `[[cloud]]` for further accounts ([clouds](clouds.md)).

";

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadBy {
    Both,
    Gateway,
    Target,
}

use ReadBy::{Both, Gateway, Target};

/// Lists of tables that are no part of a section.
const TOP_LISTS: [&str; 2] = ["disk", "cloud"];

const RESTART: &str = "restart";
/// The change applies when the node gets SIGHUP.
const LIVE: &str = "reload (SIGHUP)";
const TLS_FILE: &str = "restart; none for new content of the file";

/// For each key: the nodes that read it, how a change takes effect, and the flags that set it.
const NOTES: [(&str, ReadBy, &str, &str); 107] = [
    ("cluster.name", Both, RESTART, ""),
    ("cluster.gateways", Both, RESTART, ""),
    ("cluster.secret_file", Both, RESTART, ""),
    ("cluster.join_token_file", Target, "none for new content of the file", ""),
    ("node.id", Both, "not allowed", ""),
    ("node.dir", Both, RESTART, "serve --dir, dev --dir"),
    ("node.zone", Both, RESTART, ""),
    ("listen.http", Both, RESTART, "serve --host, serve --port, dev --port"),
    ("listen.advertise", Both, RESTART, ""),
    ("listen.hosts", Both, RESTART, ""),
    ("listen.external", Both, RESTART, ""),
    ("listen.external_hosts", Both, RESTART, ""),
    ("listen.insecure", Both, RESTART, "serve --insecure"),
    ("tls.cert", Both, TLS_FILE, "dev --tls"),
    ("tls.key", Both, TLS_FILE, "dev --tls"),
    ("tls.ca", Both, TLS_FILE, "dev --tls"),
    ("tls.client_ca", Both, TLS_FILE, ""),
    ("tls.require_client_cert", Both, RESTART, ""),
    ("tls.http", Both, RESTART, ""),
    ("http.fast_path", Both, RESTART, ""),
    ("disk", Target, "restart, or `forebay disk attach` and `detach`", ""),
    ("disk.path", Target, RESTART, "serve --dir, dev --dir, dev --disks"),
    ("disk.size", Target, RESTART, "serve --size, dev --size"),
    ("disk.mount", Target, RESTART, ""),
    ("disk.rebuild_index", Target, RESTART, "target --rebuild-index"),
    ("disks.roots", Target, RESTART, ""),
    ("cache.high", Target, RESTART, ""),
    ("cache.low", Target, RESTART, ""),
    ("cache.out_of_space", Target, RESTART, ""),
    ("cache.policy", Target, RESTART, ""),
    ("cache.unowned_s", Target, RESTART, ""),
    ("scrub.enabled", Target, RESTART, ""),
    ("scrub.bytes_per_second", Target, RESTART, ""),
    ("scrub.pause_hours", Target, RESTART, ""),
    ("folder.roots", Target, RESTART, "serve --folder-root, dev --folder-root"),
    ("promote.root", Target, RESTART, ""),
    ("cloud", Target, RESTART, ""),
    ("cloud.name", Target, RESTART, ""),
    ("cloud.provider", Target, RESTART, ""),
    ("cloud.endpoint", Target, RESTART, ""),
    ("cloud.endpoints", Target, RESTART, ""),
    ("cloud.region", Target, RESTART, ""),
    ("cloud.profile", Target, RESTART, ""),
    ("cloud.credentials_file", Target, "none for new content of the file", ""),
    ("cloud.access_key", Target, RESTART, ""),
    ("cloud.secret_key_file", Target, "none for new content of the file", ""),
    ("cloud.storage_account", Target, RESTART, ""),
    ("cloud.sas_file", Target, "none for new content of the file", ""),
    ("cloud.requester_pays", Target, RESTART, ""),
    ("s3.keys", Both, RESTART, ""),
    ("s3.keys.access", Both, RESTART, ""),
    ("s3.keys.secret", Both, RESTART, ""),
    ("s3.keys.user", Both, RESTART, ""),
    ("s3.delete_nonempty_buckets", Both, RESTART, ""),
    ("s3.root", Both, "restart, or the cluster's feature `S3-API-via-Root`", ""),
    ("s3.domains", Both, RESTART, ""),
    ("s3.min_part_size", Target, RESTART, ""),
    ("etl.parallel", Target, RESTART, ""),
    ("etl.services", Target, RESTART, ""),
    ("etl.command", Target, RESTART, ""),
    ("etl.command.name", Target, RESTART, ""),
    ("etl.command.argv", Target, RESTART, ""),
    (
        "download.allow_private",
        Target,
        "restart, or, for downloads, the cluster's feature `Dload-Allow-Private-Egress`",
        "",
    ),
    ("download.parallel", Target, RESTART, ""),
    ("egress.allow", Target, RESTART, ""),
    ("limits.batches", Target, RESTART, ""),
    ("limits.batch_memory", Target, RESTART, ""),
    ("limits.cold_gets", Target, RESTART, ""),
    ("limits.prefetch_percent", Target, RESTART, ""),
    ("limits.connections", Both, RESTART, ""),
    ("limits.client_timeout_s", Both, LIVE, ""),
    ("limits.client_min_rate", Both, LIVE, ""),
    ("limits.user_requests_per_second", Target, LIVE, ""),
    ("limits.user_bytes_per_second", Target, LIVE, ""),
    ("limits.weights", Target, LIVE, ""),
    ("log.access_share", Both, LIVE, ""),
    ("log.failures_per_s", Both, LIVE, ""),
    ("log.level", Both, LIVE, ""),
    ("log.format", Both, RESTART, ""),
    ("trace.enabled", Both, RESTART, ""),
    ("trace.endpoint", Both, RESTART, ""),
    ("trace.headers_file", Both, "none for new content of the file", ""),
    ("trace.sample", Both, LIVE, ""),
    ("trace.slow_ms", Both, LIVE, ""),
    ("audit.file", Both, RESTART, ""),
    ("audit.max_size", Both, RESTART, ""),
    ("audit.keep", Both, RESTART, ""),
    ("audit.url", Both, RESTART, ""),
    ("auth.required", Both, RESTART, ""),
    ("auth.optional", Both, RESTART, ""),
    ("auth.admin", Gateway, RESTART, ""),
    ("auth.admin_password_file", Gateway, RESTART, ""),
    ("auth.token_ttl_s", Gateway, RESTART, ""),
    ("auth.issuer", Both, RESTART, ""),
    ("auth.issuer.name", Both, RESTART, ""),
    ("auth.issuer.url", Both, RESTART, ""),
    ("auth.issuer.issuer", Both, RESTART, ""),
    ("auth.issuer.jwks_file", Both, RESTART, ""),
    ("auth.issuer.key_file", Both, RESTART, ""),
    ("auth.issuer.secret_file", Both, RESTART, ""),
    ("auth.issuer.audience", Both, RESTART, ""),
    ("auth.issuer.algorithms", Both, RESTART, ""),
    ("auth.issuer.user_claim", Both, RESTART, ""),
    ("auth.issuer.roles_claim", Both, RESTART, ""),
    ("auth.issuer.aistore_claims", Both, RESTART, ""),
    ("auth.issuer.ca_file", Both, RESTART, ""),
    ("auth.issuer.token_file", Both, RESTART, ""),
];

/// A key, or a section, as the types have it.
struct Key {
    /// `section.key`.
    path: String,
    /// Its type in Rust.
    kind: String,
    doc: String,
    /// Whether an entry of a list may leave it out.
    optional: bool,
}

/// Doc comment and fields of a struct of `SOURCE`, which rustfmt keeps in one form.
fn fields(name: &str, path: &str) -> (String, Vec<Key>) {
    let (mut doc, mut attributes, mut keys) = (String::new(), String::new(), Vec::new());
    let (mut inside, mut about) = (false, String::new());
    for line in SOURCE.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc = format!("{doc} {}", text.trim());
        } else if line.starts_with("#[") {
            attributes.push_str(line);
        } else if line == format!("pub struct {name} {{") {
            (inside, about) = (true, std::mem::take(&mut doc));
        } else if inside && line == "}" {
            return (about.trim().to_owned(), keys);
        } else {
            let field = line.strip_prefix("pub ").and_then(|field| field.split_once(": "));
            if let Some((key, kind)) = field.filter(|_| inside) {
                keys.push(Key {
                    path: if path.is_empty() { key.into() } else { format!("{path}.{key}") },
                    kind: kind.trim_end_matches(',').to_owned(),
                    doc: doc.trim().to_owned(),
                    optional: attributes.contains("default"),
                });
            }
            (doc, attributes) = (String::new(), String::new());
        }
    }
    panic!("there is no struct {name}")
}

/// The struct behind a type, and whether the key is a list of it.
fn section(kind: &str) -> Option<(&str, bool)> {
    let inner = kind.trim_start_matches("Option<").trim_end_matches('>');
    let (name, list) = match inner.strip_prefix("Vec<") {
        Some(name) => (name, true),
        None => (inner, false),
    };
    SOURCE.contains(&format!("pub struct {name} {{")).then_some((name, list))
}

/// Keys of all sections, lists of tables too.
fn all_keys() -> Vec<Key> {
    let (_, sections) = fields("NodeConfig", "");
    let mut keys = Vec::new();
    let mut open: Vec<Key> = sections.into_iter().rev().collect();
    while let Some(key) = open.pop() {
        let inner = section(&key.kind).map(|(name, list)| (fields(name, &key.path).1, list));
        let (inner, is_key) = match inner {
            Some((inner, list)) => (inner, list),
            None => (Vec::new(), true),
        };
        open.extend(inner.into_iter().rev());
        if is_key {
            keys.push(key);
        }
    }
    keys
}

fn note(path: &str) -> (ReadBy, &'static str, &'static str) {
    let found = NOTES.iter().find(|(key, ..)| *key == path);
    let (_, by, change, flags) = found.unwrap_or_else(|| panic!("NOTES has no row for {path}"));
    (*by, change, flags)
}

/// Paths of all keys in a table; of lists of tables, the list and the keys of its entries.
fn paths(table: &Table, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => paths(inner, &path, found),
            Value::Array(list) => {
                let tables = list.iter().filter_map(Value::as_table);
                tables.for_each(|inner| paths(inner, &path, found));
                found.insert(path);
            }
            _ => drop(found.insert(path)),
        }
    }
}

/// A type in words.
fn type_of(key: &Key) -> String {
    let kind = key.kind.trim_start_matches("Option<").trim_end_matches('>');
    match kind {
        "String" => "string".into(),
        "bool" => "boolean".into(),
        "u8" => "integer (percent)".into(),
        "u32" | "u64" | "usize" => "integer".into(),
        "f64" => "number".into(),
        "ByteSize" => "size".into(),
        "Vec<String" => "list of strings".into(),
        _ if section(&key.kind).is_some() => "list of tables".into(),
        // A word: the parser's own list of them.
        _ => {
            let (section, name) = key.path.split_once('.').expect("keys have a section");
            let text = format!("[{section}]\n{name} = \"?\"");
            let error = toml::from_str::<NodeConfig>(&text).expect_err("there is no such word");
            let message = error.message().to_owned();
            let (_, words) = message.split_once("expected ").expect("the parser lists the words");
            words.trim_start_matches("one of ").to_owned()
        }
    }
}

/// The default of a key, as TOML.
fn default_of(key: &Key, defaults: &Table) -> String {
    let mut value = Some(&Value::Table(defaults.clone())).cloned();
    for part in key.path.split('.') {
        value = value.and_then(|v| v.as_table().and_then(|table| table.get(part).cloned()));
    }
    let in_list = ["disk.", "cloud.", "s3.keys.", "etl.command.", "auth.issuer."];
    let in_list = in_list.iter().any(|list| key.path.starts_with(list));
    match value {
        Some(value) => format!("`{value}`"),
        None if in_list && !key.optional => "required".into(),
        None if key.kind == "bool" => "`false`".into(),
        None => "absent".into(),
    }
}

fn page() -> String {
    let defaults = Table::try_from(NodeConfig::default()).expect("the defaults are TOML");
    let keys = all_keys();
    let mut page = INTRO.to_owned();
    let (_, sections) = fields("NodeConfig", "");
    for top in &sections {
        let (name, list) = section(&top.kind).expect("every field of NodeConfig is a section");
        let (about, own) = fields(name, &top.path);
        let title = if list { format!("[[{}]]", top.path) } else { format!("[{}]", top.path) };
        heading(&mut page, 2, &title, &about);
        if list {
            let (_, change, _) = note(&top.path);
            let what = if top.path == "disk" {
                "disk; only targets have disks"
            } else {
                "account; only targets call clouds"
            };
            let _ = writeln!(page, "One table for each {what}. A change needs a {change}.\n");
        }
        table(&mut page, &own, &defaults);
        for key in own.iter().filter(|key| section(&key.kind).is_some()) {
            let (name, _) = section(&key.kind).expect("it was filtered by that");
            let (about, own) = fields(name, &key.path);
            heading(&mut page, 3, &format!("[[{}]]", key.path), &about);
            table(&mut page, &own, &defaults);
        }
    }
    assert!(keys.iter().all(|key| {
        page.contains(&format!("`{}`", key.path)) || TOP_LISTS.contains(&key.path.as_str())
    }));
    let _ = write!(
        page,
        "## A gateway.toml with every key\n\nThe file of the first of three gateways.\n\n```toml\n{GATEWAY}```\n\n\
         ## A target.toml with every key\n\nThe file of a target with two disks.\n\n```toml\n{TARGET}```\n"
    );
    page
}

fn heading(page: &mut String, level: usize, title: &str, about: &str) {
    let _ = writeln!(page, "{} `{title}`\n\n{}\n", "#".repeat(level), sentence(about));
}

fn table(page: &mut String, keys: &[Key], defaults: &Table) {
    page.push_str(
        "| key | type | default | meaning | read by | a change needs | variable and flags |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|\n");
    for key in keys {
        let (by, change, flags) = note(&key.path);
        let by = match by {
            Both => "both",
            Gateway => "gateway",
            Target => "target",
        };
        let mut others: Vec<String> = variable(&key.path).into_iter().collect();
        others.extend(flags.split(", ").filter(|flag| !flag.is_empty()).map(str::to_owned));
        let others: Vec<_> = others.iter().map(|other| format!("`{other}`")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {by} | {change} | {} |",
            key.path,
            type_of(key),
            cell(&default_of(key, defaults)),
            cell(&sentence(&key.doc)),
            others.join(", "),
        );
    }
    page.push('\n');
}

/// The environment variable of a key; entries of lists have none.
fn variable(path: &str) -> Option<String> {
    let in_list = ["disk.", "cloud.", "s3.keys.", "etl.command.", "auth.issuer."];
    let in_list = in_list.iter().any(|list| path.starts_with(list));
    (!in_list && !TOP_LISTS.contains(&path))
        .then(|| format!("FOREBAY_{}", path.to_ascii_uppercase().replace('.', "__")))
}

#[test]
fn the_page_of_the_configuration_matches_the_types() {
    check("configuration.md", &page());
}

#[test]
fn every_key_has_one_note_and_every_note_is_a_key() {
    let keys: BTreeSet<String> = all_keys().into_iter().map(|key| key.path).collect();
    let notes: Vec<_> = NOTES.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(notes.iter().cloned().collect::<BTreeSet<_>>(), keys);
    assert_eq!(notes.len(), keys.len(), "a key has two notes");
}

#[test]
fn the_keys_that_a_reload_applies_are_those_of_the_page() {
    let of_page: BTreeSet<_> =
        NOTES.iter().filter(|(_, _, change, _)| *change == LIVE).map(|(key, ..)| *key).collect();
    assert_eq!(of_page, BTreeSet::from(crate::reload::LIVE));
}

#[test]
fn every_key_that_the_parser_has_is_read_from_the_source_with_its_meaning() {
    let config: NodeConfig = toml::from_str(TARGET).expect("the example is a configuration");
    let mut serialized = BTreeSet::new();
    paths(&Table::try_from(config).expect("a configuration is TOML"), "", &mut serialized);
    let keys: BTreeSet<String> = all_keys().iter().map(|key| key.path.clone()).collect();
    let skipped = BTreeSet::from(["disk.rebuild_index".to_owned()]);
    assert_eq!(keys.difference(&serialized).cloned().collect::<BTreeSet<_>>(), skipped);
    assert!(serialized.is_subset(&keys), "{:?}", serialized.difference(&keys));
    for key in all_keys() {
        assert!(
            !key.doc.is_empty() || TOP_LISTS.contains(&key.path.as_str()),
            "{} has no doc comment",
            key.path
        );
    }
}

#[test]
fn the_examples_are_valid_and_have_every_key_of_their_node() {
    for (name, text, other) in [("gateway", GATEWAY, Target), ("target", TARGET, Gateway)] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("node.toml");
        std::fs::write(&file, text).expect("the folder can be written");
        load(Some(&file), &[]).unwrap_or_else(|e| panic!("{name}.toml: {e}"));
        let mut found = BTreeSet::new();
        paths(&text.parse().expect("it was loaded"), "", &mut found);
        let of_node = |(_, by, ..): &&(&str, ReadBy, &str, &str)| *by != other;
        let expected = NOTES.iter().filter(of_node).map(|(key, ..)| (*key).to_owned());
        assert_eq!(found, expected.collect::<BTreeSet<_>>(), "{name}.toml");
    }
}

#[test]
fn every_variable_of_the_page_sets_its_key() {
    for key in all_keys() {
        if let Some(variable) = variable(&key.path) {
            assert_eq!(env_path(&variable), Some(key.path));
        }
    }
}
