//! Tests of redirects that a gateway made for the request of a user.

use forebay_core::access::{Access, AccessChange, User};
use forebay_core::config::AuthConfig;
use forebay_core::sign::GrantUser;

use super::*;

const PATH: &str = "/v1/objects/b/o";
const HOST: (&str, &str) = ("host", "127.0.0.1:7400");

/// The edge of a node of a cluster with the users `root` and `ann`. The node has no lease.
fn edge_with_users() -> Edge {
    let edge = edge();
    for (name, role) in [("root", "admin"), ("ann", "writer")] {
        let user = Box::new(User { roles: vec![role.into()], ..User::default() });
        change(&edge, AccessChange::AddUser { name: name.into(), user });
    }
    let (auth, s3) = (AuthConfig::default(), S3Config::default());
    let users = Authenticator::new(&auth, &s3, &identity(), &edge.maps).unwrap();
    edge.with_users(users)
}

fn edge_with_lease() -> Edge {
    let edge = edge_with_users();
    edge.maps.lease_for_good();
    edge
}

fn change(edge: &Edge, change: AccessChange) {
    let mut state = ClusterState::clone(&edge.maps.load());
    let command = Command::Access { change: Box::new(change), now_ns: unix_ns() };
    state.apply(state.version + 1, command).unwrap();
    assert!(edge.maps.offer(state));
}

/// A user and its token, accepted with the present users.
fn accepted(edge: &Edge, user: &str, token: &str) -> GrantUser {
    let epoch = edge.maps.load().access.epoch;
    GrantUser { user: user.into(), token: token.into(), epoch }
}

/// The path and query of a redirect to this node.
fn redirected(user: Option<&GrantUser>) -> String {
    let (me, uri) = (identity(), format!("{PATH}?provider=ais").parse().unwrap());
    let location = redirect_location(&me, 2, user, &Method::GET, &uri, &me.url).unwrap();
    location.strip_prefix(&me.url).unwrap().to_owned()
}

fn admit(edge: &Edge, target: &str) -> Result<RequestContext> {
    edge.admit(ID, &mut request("GET", target, &[HOST], ""), &LastSender::default())
}

/// The context of a request, which both servers of the node make alike.
fn context(edge: &Edge, target: &str) -> RequestContext {
    let slow = admit(edge, target).unwrap();
    let fast = quick(edge, target, &[HOST]).unwrap();
    assert_eq!(RequestContext { id: slow.id, ..fast }, slow, "{target}");
    slow
}

fn is_served(edge: &Edge, target: &str) -> bool {
    let about = context(edge, target);
    assert_eq!(about.caller(), Caller::Redirected, "{target}");
    match about.access() {
        Access::Open => true,
        Access::Anonymous => false,
        Access::User(_) => panic!("the gateway has checked the rights"),
    }
}

#[test]
fn a_redirect_ends_with_its_token_and_with_its_user() {
    let edge = edge_with_lease();
    let made = |user, token| redirected(Some(&accepted(&edge, user, token)));
    let (first, second, of_root) = (made("ann", "t1"), made("ann", "t2"), made("root", "t3"));
    let spelled = first.replace("fbu=", "%66bu=");
    let served = || [&first, &spelled, &second, &of_root].map(|target| is_served(&edge, target));
    assert_eq!(served(), [true; 4]);
    assert_eq!(context(&edge, &first).user(), Some("ann"));
    change(&edge, AccessChange::RevokeToken { id: "t1".into(), expires_s: u64::MAX });
    assert_eq!(served(), [false, false, true, true]);
    change(&edge, AccessChange::RevokeUser { name: "ann".into() });
    assert_eq!(served(), [false, false, false, true]);
    let later = made("ann", "t4");
    assert!(is_served(&edge, &later));
    change(&edge, AccessChange::DeleteUser { name: "ann".into() });
    assert!(!is_served(&edge, &later) && is_served(&edge, &of_root));
}

#[test]
fn a_redirect_without_its_user_or_with_another_one_proves_nothing() {
    let edge = edge_with_lease();
    let [ann, root] = ["ann", "root"].map(|user| accepted(&edge, user, "t1").query_value());
    let target = redirected(Some(&accepted(&edge, "ann", "t1")));
    assert!(is_served(&edge, &target));
    let (me, query) = (identity(), "fbv=2&fbu=u9.of-a-later-version");
    let proof = me.signer.redirect("GET", PATH, query, &me.url, unix_s()).unwrap();
    for altered in [
        target.replace(&format!("&fbu={ann}"), ""),
        target.replace(&ann, ""),
        target.replace(&ann, &root),
        target.replace('?', &format!("?fbu={root}&")),
        format!("{target}&fbu={root}"),
        format!("{PATH}?{query}&{proof}"),
    ] {
        assert_ne!(altered, target);
        let about = context(&edge, &altered);
        let sender = (about.caller(), about.access());
        assert_eq!(sender, (Caller::Anonymous, &Access::Anonymous), "{altered}");
    }
}

#[test]
fn a_node_without_a_lease_serves_no_redirect_of_a_user() {
    let edge = edge_with_users();
    let of_ann = redirected(Some(&accepted(&edge, "ann", "t1")));
    assert_eq!(admit(&edge, &of_ann).unwrap_err().code, ErrorCode::Unavailable);
    assert_eq!(quick(&edge, &of_ann, &[HOST]), None);
    assert!(is_served(&edge, &redirected(None)), "it ends with no token");
}

#[test]
fn a_redirect_is_served_whose_user_only_the_gateway_knows() {
    let edge = edge_with_lease();
    let mut later = accepted(&edge, "of-a-later-state", "t1");
    later.epoch += 1;
    assert!(is_served(&edge, &redirected(Some(&later))));
    let foreign = redirected(Some(&accepted(&edge, "k8s:job", "sha256:00")));
    assert!(is_served(&edge, &foreign));
    change(&edge, AccessChange::RevokeToken { id: "sha256:00".into(), expires_s: u64::MAX });
    assert!(!is_served(&edge, &foreign));
}

#[test]
fn a_sender_with_a_grant_is_known_with_its_token() {
    let edge = edge_with_lease();
    let ann = accepted(&edge, "ann", "t1");
    let grant = signer().user_grant(&ann, unix_s());
    change(&edge, AccessChange::RevokeToken { id: "t2".into(), expires_s: u64::MAX });
    let headers = [HOST, (GRANT_HEADER, grant.as_str())];
    let mut sent = request("GET", PATH, &headers, "");
    let slow = edge.admit(ID, &mut sent, &LastSender::default()).unwrap();
    assert_eq!(slow.principal.user.as_deref(), Some(&accepted(&edge, "ann", "t1")));
    let fast = quick(&edge, PATH, &headers).unwrap();
    assert_eq!(RequestContext { id: slow.id, ..fast }, slow);
}
