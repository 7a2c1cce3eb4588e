//! The ids of failed requests: each answer has one, and the log of the node that answered has it too.
//!
//! The HTTP client of the tests notes every failed answer; a cluster checks those of its nodes when it
//! ends.

use std::path::Path;
use std::sync::Mutex;

use forebay_core::intra::MAP_HEADER;
use forebay_core::locks::MutexExt;

use crate::cluster::NodeHandle;
use crate::http::{self, Answer};

/// A failed answer that was not looked for yet.
struct Failed {
    /// `host:port` of the node.
    address: String,
    request: String,
    status: u16,
    id: Option<String>,
}

static FAILED: Mutex<Vec<Failed>> = Mutex::new(Vec::new());

/// The id in an answer of a node.
pub fn id_of(answer: &Answer) -> Option<&str> {
    answer.header("forebay-request-id").or_else(|| answer.header("x-amz-request-id"))
}

/// Notes the answer if it is a failure.
pub(crate) fn note(address: &str, request: String, answer: &Answer) {
    // `hyper` refuses a head that it cannot parse without any of our headers.
    let is_ours = answer.header(MAP_HEADER).is_some() || id_of(answer).is_some();
    if answer.status >= 400 && is_ours {
        let (address, id) = (address.to_owned(), id_of(answer).map(str::to_owned));
        FAILED.locked().push(Failed { address, request, status: answer.status, id });
    }
}

/// Forgets the answers of earlier nodes with the addresses of these.
pub(crate) fn forget<'a>(nodes: impl Iterator<Item = &'a NodeHandle>) {
    for node in nodes {
        let address = http::address_of(&node.url);
        FAILED.locked().retain(|failed| failed.address != address);
    }
}

/// Fails the test if a failed answer of one of these nodes has no id, or an id that the log of the node
/// in `dir` does not have.
pub(crate) fn fail_on_missing<'a>(dir: &Path, nodes: impl Iterator<Item = &'a NodeHandle>) {
    for node in nodes {
        let log = dir.join(&node.id).join("log");
        // A cluster that was started again has taken its folder along.
        if !log.exists() {
            continue;
        }
        let address = http::address_of(&node.url);
        let mut failed = FAILED.locked();
        let here: Vec<_> = failed.extract_if(.., |failed| failed.address == address).collect();
        drop(failed);
        if here.is_empty() {
            continue;
        }
        let log = std::fs::read(log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        for Failed { request, status, id, .. } in here {
            match id {
                Some(id) if log.contains(&id) => {}
                Some(id) => {
                    panic!("{request}: {status} with the id {id}, which {} did not log", node.id)
                }
                None => panic!("{request}: {status} of {} without the id of the request", node.id),
            }
        }
    }
}
