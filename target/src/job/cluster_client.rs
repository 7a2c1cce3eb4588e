//! The client of this cluster that jobs list with, and create buckets with.

use forebay_client::{Client, ClientConfig, Contact, TokenSource};
use forebay_core::sign::GrantUser;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_s;

use crate::object::ObjectService;

/// A client that sends its requests to the living gateways, in the name of this node.
pub(super) fn cluster_client(objects: &ObjectService) -> Result<Client> {
    let (state, peer) = (objects.state(), objects.peer());
    let alive = state.gateways().filter(|n| n.alive);
    let urls: Vec<_> = alive.map(|n| peer.reached_at(&n.url).into_owned()).collect();
    if urls.is_empty() {
        return Err(Error::unavailable("no gateway of the cluster is alive"));
    }
    // Waits for gateways that restart.
    let contact = Contact::made();
    let signer = peer.signer().clone();
    let token = TokenSource::made_by(move || signer.user_grant(&GrantUser::node(), unix_s()));
    let config = ClientConfig { contact, token, ..ClientConfig::new(urls.join(",")) };
    Ok(Client::over(peer.tls().clone(), config)?)
}
