//! The URLs of nodes as an answer shows them: those by which its receiver reaches the nodes.

use super::{ClusterState, Node};

/// The kind of URLs of nodes in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownUrls {
    /// [`Node::url`].
    Own,
    /// [`Node::https`] of the nodes that have it, for clients over HTTPS.
    Https,
    /// [`Node::external`], for clients outside of the cluster's network. The base URL by which the
    /// client reached the answering node stands for nodes that have none: the answering node relays
    /// their data.
    External { here: String },
}

impl ShownUrls {
    /// The URL of a node in the answer.
    pub fn of<'a>(&'a self, node: &'a Node) -> &'a str {
        match self {
            Self::Https if !node.https.is_empty() => &node.https,
            Self::Own | Self::Https => &node.url,
            Self::External { .. } if !node.external.is_empty() => &node.external,
            Self::External { here } => here,
        }
    }

    /// The same state with these URLs.
    #[must_use]
    pub fn in_state(&self, mut state: ClusterState) -> ClusterState {
        if *self == Self::Own {
            return state;
        }
        for node in state.nodes.values_mut() {
            node.url = self.of(node).to_owned();
            if matches!(self, Self::External { .. }) {
                let is_https = node.url.starts_with("https://");
                node.https = if is_https { node.url.clone() } else { String::new() };
            }
        }
        state
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::NodeId;
    use crate::state::{Command, Role};

    #[test]
    fn a_client_from_outside_gets_no_url_of_the_inside() {
        let mut state = ClusterState::default();
        for (n, external) in [(1, "https://t1.example.com"), (2, "")] {
            let join = Command::Join {
                id: NodeId::new(format!("target-{n}").as_str()).unwrap(),
                role: Role::Target,
                url: format!("http://10.0.0.{n}:1"),
                weight: 1,
                zone: String::new(),
                instance: 0,
                https: format!("https://10.0.0.{n}:1"),
                external: external.into(),
            };
            state.apply(n, join).unwrap();
        }
        let urls = |shown: &ShownUrls| {
            let state = shown.in_state(state.clone());
            state.nodes.values().map(|node| node.url.clone()).collect::<Vec<_>>()
        };
        assert_eq!(urls(&ShownUrls::Own), ["http://10.0.0.1:1", "http://10.0.0.2:1"]);
        assert_eq!(urls(&ShownUrls::Https), ["https://10.0.0.1:1", "https://10.0.0.2:1"]);
        let outside = ShownUrls::External { here: "http://gw.example.com".into() };
        assert_eq!(urls(&outside), ["https://t1.example.com", "http://gw.example.com"]);
        let shown = outside.in_state(state.clone());
        let text = serde_json::to_string(&shown.nodes).unwrap();
        assert!(!text.contains("10.0.0"), "{text}");
    }
}
