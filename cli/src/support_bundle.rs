//! `forebay support-bundle`: one archive with what a report of a problem needs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_client::Error as ClientError;
use forebay_core::date::{format_iso, format_rfc3339};
use forebay_core::size::ByteSize;
use forebay_core::state::Node;
use forebay_core::{Error, Result};
use forebay_node::clock::{unix_ns, unix_s};
use futures::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};

use crate::doctor;
use crate::failure::{Failure, exit};
use crate::output::{self, Format};
use crate::part::Part;
use crate::probe;
use crate::session::Session;
use crate::version;

/// Version of the layout of the archive.
const LAYOUT: u32 = 1;

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// File to write, or - for standard output [default: forebay-support-TIME.tar.gz]
    file: Option<PathBuf>,
}

/// The files of an archive, and what could not be read.
#[derive(Debug, Default)]
struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    /// Name of the file that is missing, and why.
    missing: Vec<(String, String)>,
}

impl Bundle {
    fn add(&mut self, name: impl Into<String>, content: Result<Vec<u8>>) {
        let name = name.into();
        match content {
            Ok(content) => self.files.push((name, content)),
            Err(e) => self.missing.push((name, e.to_string())),
        }
    }

    fn add_json<E: Into<Error>>(
        &mut self,
        name: impl Into<String>,
        content: Result<impl Serialize, E>,
    ) {
        self.add(name, content.map_err(Into::into).and_then(|value| pretty(&value)));
    }

    /// The archive: gzip over TAR, all files below one folder.
    fn packed(&self, folder: &str) -> std::io::Result<Vec<u8>> {
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(unix_s());
            tar.append_data(&mut header, format!("{folder}/{name}"), content.as_slice())?;
        }
        tar.into_inner()?.finish()
    }
}

fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(value).map_err(|e| Error::internal(e.to_string()))
}

pub(crate) async fn run(session: &Session, args: &BundleArgs) -> Result<(), Failure> {
    let is_stream = args.file.as_ref().is_some_and(|file| file.as_os_str() == "-");
    let now = unix_ns();
    let folder = format!("forebay-support-{}", format_iso(now).replace([':', '-'], ""));
    let file = args.file.clone().unwrap_or_else(|| format!("{folder}.tar.gz").into());
    let mut bundle = collect(session).await?;
    let manifest = json!({
        "layout": LAYOUT,
        "time": format_rfc3339(now),
        "endpoint": session.endpoint,
        "command": version::described(),
        "files": bundle.files.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "missing": missing_json(&bundle),
    });
    bundle.add_json("manifest.json", Ok::<_, Error>(&manifest));
    let packed = bundle.packed(&folder).map_err(|e| Failure::local("the archive", &e))?;
    if is_stream {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(&packed).and_then(|()| out.flush());
        written.map_err(|e| Failure::local("standard output", &e))?;
    } else {
        let part = Part::beside(&file);
        let written = (|| {
            // Logs name objects and users.
            let mut out =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(part.path())?;
            out.write_all(&packed)?;
            out.sync_all()?;
            std::fs::rename(part.path(), &file)
        })();
        written.map_err(|e| Failure::local(file.display(), &e))?;
        shown(session, &bundle, &file, packed.len() as u64)?;
    }
    for (name, why) in &bundle.missing {
        session.warn(format!("{name} is missing: {why}"));
    }
    match bundle.missing.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(exit::PARTIAL)),
    }
}

fn missing_json(bundle: &Bundle) -> Vec<Value> {
    bundle.missing.iter().map(|(name, why)| json!({ "file": name, "why": why })).collect()
}

fn shown(session: &Session, bundle: &Bundle, file: &Path, bytes: u64) -> Result<(), Failure> {
    let name = file.display().to_string();
    let json = json!({
        "file": name, "bytes": bytes, "files": bundle.files.len(), "missing": missing_json(bundle),
    });
    let lines = [
        ("file", name.clone()),
        ("size", ByteSize(bytes).to_string()),
        ("files", bundle.files.len().to_string()),
    ];
    output::one(session.format, &name, &lines, &json)?;
    if session.format == Format::Table {
        session.note("It has no secrets, but names of buckets, objects, users and hosts.");
    }
    Ok(())
}

/// Reads everything; only a cluster that does not answer at all is an error.
async fn collect(session: &Session) -> Result<Bundle, Failure> {
    let client = &session.client;
    let mut bundle = Bundle::default();
    let map = client.map().await?;
    bundle.add_json(
        "doctor.json",
        doctor::findings(session)
            .await
            .map(|all| all.iter().map(doctor::finding_json).collect::<Vec<_>>()),
    );
    bundle.add_json("cluster.json", client.cluster_info().await.map_err(core));
    bundle.add_json("overview.json", client.overview().await.map_err(core));
    bundle.add_json("jobs.json", client.jobs().await.map_err(core));
    bundle.add_json("buckets.json", buckets(session).await);
    let nodes: Vec<&Node> = map.state.nodes.values().collect();
    for parts in join_all(nodes.iter().map(|node| of_node(session, node))).await {
        parts.into_iter().for_each(|(name, content)| bundle.add(name, content));
    }
    Ok(bundle)
}

fn core(e: ClientError) -> Error {
    e.into()
}

/// The properties of each bucket.
async fn buckets(session: &Session) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for bucket in session.client.list_buckets(None).await? {
        let properties = session.client.head_bucket(&bucket).await?;
        all.push(json!({ "bucket": bucket.to_string(), "properties": properties }));
    }
    Ok(all)
}

/// The checks, settings, metrics and log lines of a node.
async fn of_node(session: &Session, node: &Node) -> Vec<(String, Result<Vec<u8>>)> {
    let name = |file: &str| format!("nodes/{}/{file}", node.id);
    let get = async |path: &str| {
        let answer = probe::get(&session.tls(), &node.url, path).await;
        let answer = answer.map_err(|e| Error::unavailable(format!("{}{path}: {e}", node.url)))?;
        match answer.status {
            // Also of a node that is not ready.
            200 | 503 => Ok(answer.body),
            status => Err(Error::unavailable(format!("{}{path}: status {status}", node.url))),
        }
    };
    let settings = session.client.node_settings(&node.id);
    let log = session.client.node_log(&node.id, "info", 0);
    let (ready, metrics, settings, log) =
        tokio::join!(get("/readyz?verbose=json"), get("/metrics"), settings, log);
    vec![
        (name("ready.json"), ready),
        (name("metrics.txt"), metrics),
        (name("settings.json"), settings.map_err(core).and_then(|value| pretty(&value))),
        (name("log.txt"), log.map_err(core).map(|log| log.to_vec())),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn an_archive_has_the_files_that_could_be_read_below_one_folder() {
        let mut bundle = Bundle::default();
        bundle.add("a.txt", Ok(b"text".to_vec()));
        bundle.add("b.txt", Err(Error::internal("gone")));
        let packed = bundle.packed("top").unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("top/a.txt"));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert_eq!(missing_json(&bundle)[0]["file"], "b.txt");
    }
}
