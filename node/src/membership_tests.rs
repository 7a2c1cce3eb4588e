//! Tests of the membership of a node.

use forebay_core::NodeId;
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::state::{ClusterState, Command};

use super::*;

#[test]
fn a_node_turns_to_gateways_that_came_after_its_configuration() {
    let maps = Maps::default();
    let door = Gateways {
        peer: PeerClient::new(Signer::new(
            ClusterSecret::new("0123456789abcdef").unwrap(),
            NodeId::new("target-1").unwrap(),
            1,
        )),
        configured: vec!["http://a:1/".into()],
        maps: maps.clone(),
        at: AtomicUsize::new(0),
    };
    door.failed();
    assert_eq!(door.url(), "http://a:1/");
    let mut state = ClusterState::default();
    for (index, (id, url)) in
        [("gateway-1", "http://a:1"), ("gateway-2", "http://b:1")].iter().enumerate()
    {
        let (id, role) = (NodeId::new(id).unwrap(), Role::Gateway);
        let (url, zone) = ((*url).to_owned(), String::new());
        state
            .apply(
                index as u64 + 1,
                Command::Join {
                    id,
                    role,
                    url,
                    weight: 1,
                    zone,
                    instance: 0,
                    https: String::new(),
                    external: String::new(),
                },
            )
            .unwrap();
    }
    maps.offer(state);
    assert_eq!(door.url(), "http://a:1/");
    door.failed();
    assert_eq!(door.url(), "http://b:1");
    door.failed();
    assert_eq!(door.url(), "http://a:1/");
}
