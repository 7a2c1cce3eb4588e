//! Redirects end with the token and with the user that they were made for.

use std::time::Duration;

use forebay_tests::users::send;
use forebay_tests::{Options, Users, http, wait};
use serde_json::{Value, json};

const REVOKED_WITHIN: Duration = Duration::from_secs(2);

/// A redirect as a client follows it: method, URL and body.
type Redirect = (&'static str, String, Value);

/// A cluster with the users `ann` and `bob`, and an object `o` in the bucket `b`.
fn cluster() -> Users {
    let users = Users::start(Options { gateways: 1, targets: 2, ..Options::default() });
    let endpoint = users.cluster.endpoint.as_str();
    let (bucket, make) = (format!("{endpoint}/v1/buckets/b"), json!({"action": "create-bck"}));
    assert_eq!(send("POST", &bucket, Some(&users.root), &make).status, 200);
    let put = http::request("PUT", &format!("{endpoint}/v1/objects/b/o"));
    let put = put.header("authorization", &format!("Bearer {}", users.root)).body("content");
    assert_eq!(put.follow().status, 200);
    for name in ["ann", "bob"] {
        users.add(name, &["writer"]);
    }
    users
}

/// Redirects of all kinds for a token.
fn redirects(users: &Users, token: &str) -> Vec<Redirect> {
    let endpoint = users.cluster.endpoint.as_str();
    let batch = json!({"in": [{"objname": "o"}], "mime": ".tar", "strm": false});
    let targets = users.cluster.targets.iter().map(|target| target.url.as_str());
    let mut sent = vec![
        ("PUT", format!("{endpoint}/v1/objects/b/written"), Value::Null),
        ("HEAD", format!("{endpoint}/v1/objects/b/o"), Value::Null),
        ("GET", format!("{endpoint}/v1/ml/moss/b?provider=ais"), batch),
    ];
    for node in targets.chain([endpoint]) {
        sent.push(("GET", format!("{node}/v1/objects/b/o"), Value::Null));
    }
    let redirected = sent.into_iter().filter_map(|(method, url, body)| {
        let answer = send(method, &url, Some(token), &body);
        match answer.status {
            301 | 307 => Some((method, answer.header("location").unwrap().to_owned(), body)),
            // The target that has the object.
            200 => None,
            _ => panic!("{method} {url}: {}", answer.text()),
        }
    });
    let redirected: Vec<_> = redirected.collect();
    assert_eq!(redirected.len(), 5, "{redirected:?}");
    redirected
}

/// The statuses of the redirects, followed without a token.
fn statuses(redirects: &[Redirect]) -> Vec<u16> {
    redirects.iter().map(|(method, url, body)| send(method, url, None, body).status).collect()
}

#[test]
fn a_redirect_is_refused_within_two_seconds_after_its_token_or_user_ended() {
    let users = cluster();
    let (first, second) = (users.token("ann", 600), users.token("ann", 600));
    let bob = users.token("bob", 600);
    let [of_first, of_second, of_bob] =
        [&first, &second, &bob].map(|token| redirects(&users, token));
    for redirects in [&of_first, &of_second, &of_bob] {
        assert_eq!(statuses(redirects), [200; 5]);
    }
    let tokens = format!("{}/v1/tokens", users.cluster.endpoint);
    let revoked = send("DELETE", &tokens, Some(&users.root), &json!({"token": first}));
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    wait::until("the redirects of the revoked token are refused", REVOKED_WITHIN, || {
        statuses(&of_first) == [401; 5]
    });
    assert_eq!((statuses(&of_second), statuses(&of_bob)), (vec![200; 5], vec![200; 5]));
    users.auth("DELETE", "users/ann", &Value::Null);
    wait::until("the redirects of the deleted user are refused", REVOKED_WITHIN, || {
        statuses(&of_second) == [401; 5]
    });
    assert_eq!(statuses(&of_bob), [200; 5]);
}

#[test]
fn a_redirect_is_refused_without_its_user_and_with_another_one() {
    let users = cluster();
    let [of_ann, of_bob] = ["ann", "bob"].map(|name| redirects(&users, &users.token(name, 600)));
    for ((method, url, body), (_, of_bob, _)) in of_ann.iter().zip(&of_bob) {
        let (ann, bob) = (user_of(url), user_of(of_bob));
        assert_ne!(ann, bob);
        for altered in [url.replace(ann, ""), url.replace(ann, bob)] {
            let refused = send(method, &altered, None, body);
            let expected = if *method == "PUT" { 400 } else { 401 };
            assert_eq!(refused.status, expected, "{method} {altered}: {}", refused.text());
        }
    }
    assert_eq!(statuses(&of_ann), [200; 5]);
}

/// The parameter of a redirect that has its user.
fn user_of(url: &str) -> &str {
    let start = url.find("&fbu=").unwrap();
    let end = url[start + 1..].find('&').unwrap();
    &url[start..=start + end]
}
