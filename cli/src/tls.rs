//! `forebay tls`: the certificates of the nodes as a client sees them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use forebay_client::Error;
use forebay_client::tls::{TlsClient, TlsProblem};
use forebay_core::certificate::CertificateInfo;
use forebay_core::date::format_utc;
use forebay_core::state::Node;
use futures::future::join_all;
use serde_json::json;

use crate::failure::{Failure, exit};
use crate::output::{Column, Row, Rows};
use crate::probe;
use crate::session::Session;

/// Timeout for a connection to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Show the certificate of every node: names, issuer, and how long it is valid
    #[command(after_help = "Examples:
  forebay tls show --endpoint https://10.0.0.7:7400
  forebay tls show -o json                 with the whole chain of each node

Exit code 1 if a certificate has expired, is not trusted, or a node does not
answer.")]
    Show,
}

/// The certificate of a node, as this client sees it.
struct NodeCertificate {
    chain: Vec<CertificateInfo>,
    protocol: String,
    /// Why this client does not accept the connection.
    problem: Option<String>,
}

pub(crate) async fn run(session: &Session, command: &TlsCommand) -> Result<(), Failure> {
    let TlsCommand::Show = command;
    let columns = [
        Column("NODE", false),
        Column("ROLE", false),
        Column("SUBJECT", false),
        Column("NAMES", false),
        Column("ISSUER", false),
        Column("VALID UNTIL", false),
        Column("DAYS", true),
        Column("PROTOCOL", false),
        Column("STATUS", false),
    ];
    let nodes = nodes(session).await?;
    let found = join_all(nodes.iter().map(|node| async move { (node, look(session, node).await) }));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut rows = Rows::new(session.format, &columns);
    let mut is_good = true;
    for (node, found) in found.await {
        is_good &= found.problem.is_none();
        rows.push(row(node, &found, now_s.cast_signed()))?;
    }
    rows.finish()?;
    if is_good { Ok(()) } else { Err(Failure::silent(exit::FAILED)) }
}

/// The nodes of the map. If the gateway's own certificate is not accepted, the nodes that it reports
/// without verification: only their certificates are shown.
async fn nodes(session: &Session) -> Result<Vec<Node>, Failure> {
    match session.client.refresh_map().await {
        Ok(map) => Ok(map.state.nodes.values().cloned().collect()),
        Err(e @ Error::Tls(_)) => {
            // No token goes to a gateway that is not verified.
            let nodes = probe::alive(&TlsClient::unverified()?, &session.endpoint, None).await;
            if nodes.is_empty() { Err(e.into()) } else { Ok(nodes) }
        }
        Err(e) => Err(e.into()),
    }
}

/// Connects to a node twice: for its certificate, whatever it is, and as clients do.
async fn look(session: &Session, node: &Node) -> NodeCertificate {
    let none = |problem: String| NodeCertificate {
        chain: Vec::new(),
        protocol: "-".into(),
        problem: Some(problem),
    };
    let url = if node.https.is_empty() { &node.url } else { &node.https };
    if !url.starts_with("https://") {
        return none("serves no HTTPS".into());
    }
    let problem = |e: std::io::Error| match TlsProblem::of(url, &e) {
        Some(problem) => problem.text,
        None => e.to_string(),
    };
    let any = match TlsClient::unverified() {
        Ok(tls) => tls.connect(url, CONNECT_TIMEOUT).await,
        Err(e) => return none(e.message),
    };
    let stream = match any {
        Ok((stream, _)) => stream,
        Err(e) => return none(problem(e)),
    };
    let verified = session.tls().connect(url, CONNECT_TIMEOUT).await;
    NodeCertificate {
        chain: stream
            .peer_certificates()
            .iter()
            .filter_map(|der| CertificateInfo::read(der))
            .collect(),
        protocol: stream.protocol().unwrap_or_default(),
        problem: verified.err().map(problem),
    }
}

fn row(node: &Node, found: &NodeCertificate, now_s: i64) -> Row {
    let until = |s: i64| format_utc(u64::try_from(s).unwrap_or_default() * 1_000_000_000);
    let of = |text: &dyn Fn(&CertificateInfo) -> String| {
        found.chain.first().map_or_else(|| "-".to_owned(), text)
    };
    let status = found.problem.clone().unwrap_or_else(|| "trusted".into());
    let cells = vec![
        node.id.to_string(),
        node.role.name().to_owned(),
        of(&|c| c.subject.clone()),
        of(&|c| c.names.join(",")),
        of(&|c| c.issuer.clone()),
        of(&|c| until(c.not_after_s)),
        of(&|c| c.days_left(now_s).to_string()),
        found.protocol.clone(),
        status,
    ];
    let chain: Vec<_> = found
        .chain
        .iter()
        .map(|c| {
            json!({
                "subject": c.subject, "issuer": c.issuer, "names": c.names,
                "not_before": c.not_before_s, "not_after": c.not_after_s,
                "days_left": c.days_left(now_s),
            })
        })
        .collect();
    let json = json!({
        "node": node.id, "role": node.role, "url": node.url, "https": node.https,
        "protocol": found.protocol, "trusted": found.problem.is_none(), "problem": found.problem,
        "chain": chain,
    });
    Row { name: node.id.to_string(), cells, json }
}
