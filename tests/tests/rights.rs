//! A user with rights on one bucket, and requests whose sources or destinations are in another.

use std::sync::Arc;

use forebay_core::sign::GRANT_HEADER;
use forebay_tests::http::{self, Answer};
use forebay_tests::s3::{self, User};
use forebay_tests::users::send;
use forebay_tests::{Options, Shared, Users};
use serde_json::{Value, json};

static WORLD: Shared<World> = Shared::new();

/// `ann` may write `ais://mine`, and the objects of `ais://shared` under `ann/`; `ais://theirs` has
/// nothing for her.
struct World {
    users: Users,
    token: String,
    key: User,
}

const BUCKETS: [&str; 3] = ["mine", "theirs", "shared"];
const SECRET: &str = "bytes-of-another-team";

fn world() -> Arc<World> {
    WORLD.get(|| {
        let users = Users::start(Options { gateways: 1, targets: 2, ..Options::default() });
        let endpoint = &users.cluster.endpoint;
        for bucket in BUCKETS {
            let url = format!("{endpoint}/v1/buckets/{bucket}");
            let made = send("POST", &url, Some(&users.root), &json!({"action": "create-bck"}));
            assert_eq!(made.status, 200, "{}", made.text());
        }
        for object in ["mine/o", "theirs/o", "shared/ann/o", "shared/bob/o"] {
            let request = http::request("PUT", &format!("{endpoint}/v1/objects/{object}"));
            let request = request.header("authorization", &format!("Bearer {}", users.root));
            let stored = request.body(SECRET).follow();
            assert_eq!(stored.status, 200, "{object}: {}", stored.text());
        }
        users.add("ann", &[]);
        users.bind("ann", "writer", "ais://mine", "");
        users.bind("ann", "writer", "ais://shared", "ann/");
        let (token, key) = (users.token("ann", 3600), users.key("ann"));
        World { users, token, key }
    })
}

impl World {
    fn v1(&self, method: &str, path: &str, body: &Value) -> Answer {
        let url = format!("{}{path}", self.users.cluster.endpoint);
        send(method, &url, Some(&self.token), body)
    }

    /// The native objects of a bucket, as the administrator sees them.
    fn names(&self, bucket: &str) -> Vec<String> {
        let url = format!("{}/v1/buckets/{bucket}", self.users.cluster.endpoint);
        let list = json!({"action": "list", "value": {}});
        let answer = send("GET", &url, Some(&self.users.root), &list).json();
        let entries = answer["entries"].as_array().cloned().unwrap_or_default();
        entries.iter().filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect()
    }

    #[track_caller]
    fn assert_denied(&self, answer: &Answer, what: &str) {
        assert_eq!(answer.status, 403, "{what}: {}", answer.text());
        assert!(!answer.text().contains(SECRET), "{what} returns bytes");
    }
}

fn bck(name: &str) -> Value {
    json!({"name": name, "provider": "ais"})
}

fn native(name: &str) -> Value {
    json!({"name": name, "provider": "ais", "namespace": {"uuid": "", "name": ""}})
}

#[test]
fn every_entry_of_a_batch_needs_the_right_and_not_only_the_first() {
    let world = world();
    let entry =
        |bucket: &str, name: &str| json!({"objname": name, "bucket": bucket, "provider": "ais"});
    for (bucket, name) in [("theirs", "o"), ("shared", "bob/o")] {
        let entries = json!({"in": [entry("mine", "o"), entry(bucket, name)], "coer": true});
        for path in ["/v1/ml/moss", "/v1/ml/moss/mine"] {
            world.assert_denied(&world.v1("GET", path, &entries), path);
        }
        let batch = json!({
            "buckets": [native("mine"), native(bucket)],
            "entries": [{"bucket": 0, "name": "o"}, {"bucket": 1, "name": name}],
        });
        let map = world.v1("GET", "/api/v1/map", &Value::Null).json();
        for target in &world.users.cluster.targets {
            let url = format!("{}/api/v1/batch", target.url);
            world.assert_denied(&send("POST", &url, Some(&world.token), &batch), "batch, token");
            let request = http::request("POST", &url).json(&batch);
            let granted = request.header(GRANT_HEADER, map["grant"].as_str().unwrap());
            world.assert_denied(&granted.send(), "batch, grant");
        }
    }
    let own = json!({"in": [entry("mine", "o"), entry("shared", "ann/o")]});
    assert_eq!(world.v1("GET", "/v1/ml/moss", &own).status, 307);
}

#[test]
fn copies_need_the_right_on_their_source_and_on_their_destination() {
    let world = world();
    for (path, what) in [
        ("/v1/objects/theirs/o?object_to=ais/@%23/mine/x", "from theirs"),
        ("/v1/objects/mine/o?object_to=ais/@%23/theirs/x", "to theirs"),
        ("/v1/objects/mine/o?object_to=ais/@%23/shared/bob/x", "out of the prefix"),
    ] {
        world.assert_denied(&world.v1("PUT", path, &Value::Null), what);
    }
    let (copied, moved) = ("copy-bck", "move-bck");
    for (action, from, to) in [
        (copied, "theirs", "mine"),
        (copied, "mine", "theirs"),
        (moved, "mine", "theirs"),
        (moved, "theirs", "new"),
    ] {
        let path = format!("/v1/buckets/{from}?bck_to=ais/@%23/{to}/");
        world.assert_denied(&world.v1("POST", &path, &json!({"action": action})), &path);
    }
    for (from, to) in [("theirs", "mine"), ("mine", "theirs")] {
        let value = json!({"objnames": ["o"], "tobck": bck(to)});
        let body = json!({"action": "copy-listrange", "value": value});
        world.assert_denied(&world.v1("POST", &format!("/v1/buckets/{from}"), &body), from);
        let value = json!({"archname": "a.tar", "objnames": ["o"], "tobck": bck(to)});
        let body = json!({"action": "archive", "value": value});
        world.assert_denied(&world.v1("PUT", &format!("/v1/buckets/{from}"), &body), from);
        let packed = json!({"source": native(from), "destination": native(to)});
        world.assert_denied(&world.v1("POST", "/api/v1/ishard", &packed), "ishard");
        let sorted = json!({
            "input_bck": bck(from), "output_bck": bck(to), "input_extension": ".tar",
            "input_format": {"template": "in-{0..1}"}, "output_format": "out-{0..1}",
            "output_shard_size": "1MB", "algorithm": {"kind": "alphanumeric"},
        });
        world.assert_denied(&world.v1("POST", "/v1/sort", &sorted), "dsort");
    }
    let link = json!({
        "type": "single", "bucket": bck("theirs"), "link": "http://192.0.2.1/x", "object_name": "x",
    });
    world.assert_denied(&world.v1("POST", "/v1/download", &link), "download");
    assert_eq!(world.names("theirs"), ["o"]);
    assert!(world.names("shared").iter().all(|name| name != "bob/x"));
}

#[test]
fn names_and_templates_in_a_body_do_not_leave_the_prefix_of_the_user() {
    let world = world();
    for value in [
        json!({"objnames": ["ann/o", "bob/o"]}),
        json!({"template": "bob/o"}),
        json!({"template": ""}),
    ] {
        let body = json!({"action": "delete-listrange", "value": value});
        world.assert_denied(&world.v1("DELETE", "/v1/buckets/shared", &body), &body.to_string());
    }
    // A name is no path: this one begins with the prefix, and there is no such object.
    let body = json!({"action": "delete-listrange", "value": {"objnames": ["ann/../bob/o"]}});
    assert_eq!(world.v1("DELETE", "/v1/buckets/shared", &body).status, 200);
    let renamed = json!({"action": "rename-obj", "name": "bob/taken"});
    let answer = world.v1("POST", "/v1/objects/shared/ann/o", &renamed);
    world.assert_denied(&answer, "rename");
    for prefix in ["", "b", "an"] {
        let list = json!({"action": "list", "value": {"prefix": prefix}});
        let answer = world.v1("GET", "/v1/buckets/shared", &list);
        world.assert_denied(&answer, "a listing of names beside the prefix");
    }
    assert_eq!(world.names("shared"), ["ann/o", "bob/o"]);
}

#[test]
fn s3_checks_the_source_of_copies_and_parts_and_each_key_of_a_deletion() {
    let world = world();
    let endpoint = &world.users.cluster.endpoint;
    let request = |method: &str, what: &str| s3::request(method, endpoint, what);
    for source in
        ["/theirs/o", "theirs/o", "/shared/bob/o", "/mine/../theirs/o", "/mine%2F..%2Ftheirs/o"]
    {
        let copy = request("PUT", "mine/x").header("x-amz-copy-source", source);
        let answer = copy.send_as(world.key);
        assert!([403, 404].contains(&answer.status), "{source}: {}", answer.text());
    }
    let answer = request("POST", "mine/parts").query("uploads", "").send_as(world.key);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let upload = s3::texts(&answer, "InitiateMultipartUploadResult", "UploadId").remove(0);
    let part = request("PUT", "mine/parts").query("partNumber", "1").query("uploadId", &upload);
    let part = part.header("x-amz-copy-source", "/theirs/o").send_as(world.key);
    world.assert_denied(&part, "UploadPartCopy");
    let keys = "<Delete><Object><Key>ann/none</Key></Object><Object><Key>bob/o</Key></Object>\
                <Object><Key>../theirs/o</Key></Object></Delete>";
    let deletion = request("POST", "shared").query("delete", "").body(keys);
    let answer = deletion.send_as(world.key);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.text().matches("<Code>AccessDenied</Code>").count(), 2, "{}", answer.text());
    assert_eq!((world.names("theirs"), world.names("mine")), (vec!["o".into()], vec!["o".into()]));
    assert_eq!(world.names("shared"), ["ann/o", "bob/o"]);
}

#[test]
fn a_user_sees_only_the_buckets_of_its_bindings() {
    let world = world();
    let list = world.v1("GET", "/v1/buckets/", &json!({"action": "list"}));
    assert_eq!(list.status, 200, "{}", list.text());
    for text in [
        list.text(),
        world.v1("GET", "/api/v1/map", &Value::Null).text(),
        world.v1("GET", "/v1/daemon?what=bmd", &Value::Null).text(),
        s3::request("GET", &world.users.cluster.endpoint, "").send_as(world.key).text(),
    ] {
        assert!(text.contains("mine") && !text.contains("theirs"), "{text}");
    }
    // A bucket that exists and one that does not have the same answer.
    for name in ["theirs", "missing"] {
        let answer = world.v1("HEAD", &format!("/v1/buckets/{name}"), &Value::Null);
        assert_eq!(answer.status, 403, "{name}");
        let answer = s3::request("GET", &world.users.cluster.endpoint, name).send_as(world.key);
        assert_eq!((answer.status, s3::code(&answer).as_str()), (403, "AccessDenied"), "{name}");
    }
}

#[test]
fn a_key_or_a_token_never_has_more_rights_than_its_user() {
    let world = world();
    let users = &world.users;
    let endpoint = &users.cluster.endpoint;
    let made = format!("{endpoint}/v1/buckets/eves");
    let made = send("POST", &made, Some(&users.root), &json!({"action": "create-bck"}));
    assert_eq!(made.status, 200, "{}", made.text());
    users.add("eve", &[]);
    users.bind("eve", "writer", "ais://eves", "eve/");
    let token = users.token("eve", 3600);
    let auth = |method: &str, path: &str, body: Value| {
        send(method, &format!("{endpoint}/api/v1/auth/{path}"), Some(&token), &body)
    };
    for other in ["root", "ann"] {
        let key = auth("POST", "keys", json!({ "user": other }));
        assert_eq!(key.status, 403, "a key of {other}: {}", key.text());
        let signed = auth("POST", "tokens", json!({"user": other, "ttl_s": 60}));
        assert_eq!(signed.status, 403, "a token of {other}: {}", signed.text());
        let listed = auth("GET", &format!("keys?user={other}"), Value::Null);
        assert!(!listed.text().contains(world.key.access), "{}", listed.text());
    }
    let removed = auth("DELETE", &format!("keys/{}", world.key.access), Value::Null);
    assert_eq!(removed.status, 403, "{}", removed.text());
    let wider = json!({"role": "admin", "buckets": "*", "prefix": ""});
    assert_eq!(auth("PUT", "users/eve/bindings", wider).status, 403);

    let own = auth("POST", "keys", json!({"user": ""}));
    assert_eq!(own.status, 200, "{}", own.text());
    let own = own.json();
    let text = |name: &str| -> &'static str { own[name].as_str().unwrap().to_owned().leak() };
    let key = User { access: text("access"), secret: text("secret") };
    let put = |what: &str| s3::request("PUT", endpoint, what).body("x").send_as(key).status;
    assert_eq!((put("eves/eve/k"), put("eves/k"), put("theirs/eve/k")), (200, 403, 403));
    // The key and the token lose a right with their user.
    let bound = json!({"role": "writer", "buckets": "ais://eves", "prefix": "eve/"});
    users.auth("DELETE", "users/eve/bindings", &bound);
    assert_eq!(put("eves/eve/k"), 403);
    let path = format!("{endpoint}/v1/objects/eves/eve/k");
    assert_eq!(send("GET", &path, Some(&token), &Value::Null).status, 403);
    users.auth("DELETE", "users/eve", &Value::Null);
    assert_eq!(put("eves/eve/k"), 403);
    assert_eq!(send("GET", &path, Some(&token), &Value::Null).status, 401);
}
