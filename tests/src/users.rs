//! A cluster with users: an administrator, and requests with tokens.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{self, Answer};
use crate::s3::User;
use crate::{Cluster, Options, wait};

/// Password of the administrator `root`. A test looks for it in files and answers.
pub const PASSWORD: &str = "planted-password-of-root";

/// A cluster with the administrator `root`.
pub struct Users {
    pub cluster: Cluster,
    /// A token of the administrator.
    pub root: String,
}

impl Users {
    /// Starts a cluster and waits until the administrator can log in.
    pub fn start(options: Options) -> Self {
        let mut env = options.env;
        env.push(("AIS_AUTHN_SU_NAME".into(), "root".into()));
        env.push(("AIS_AUTHN_SU_PASS".into(), PASSWORD.into()));
        let cluster = Cluster::start(Options { env, ..options });
        let mut root = None;
        wait::until("the administrator is created", Duration::from_secs(20), || {
            let answer = login(&cluster, "root", PASSWORD);
            root = (answer.status == 200).then(|| token_of(&answer));
            root.is_some()
        });
        Self { cluster, root: root.unwrap_or_default() }
    }

    /// A request of the administrator to `/api/v1/auth/PATH`.
    #[track_caller]
    pub fn auth(&self, method: &str, path: &str, body: &Value) -> Answer {
        let url = format!("{}/api/v1/auth/{path}", self.cluster.endpoint);
        let answer = send(method, &url, Some(&self.root), body);
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        answer
    }

    /// Adds a user with roles that hold everywhere.
    #[track_caller]
    pub fn add(&self, name: &str, roles: &[&str]) {
        self.auth("POST", "users", &json!({"name": name, "roles": roles}));
    }

    /// Binds a role to the buckets of a pattern and the objects of a prefix.
    #[track_caller]
    pub fn bind(&self, name: &str, role: &str, buckets: &str, prefix: &str) {
        let bound = json!({"role": role, "buckets": buckets, "prefix": prefix});
        self.auth("PUT", &format!("users/{name}/bindings"), &bound);
    }

    /// A token of a user that is valid for `ttl_s` seconds.
    #[track_caller]
    pub fn token(&self, name: &str, ttl_s: u64) -> String {
        token_of(&self.auth("POST", "tokens", &json!({"user": name, "ttl_s": ttl_s})))
    }

    /// A new key of the S3 API of a user.
    #[track_caller]
    pub fn key(&self, name: &str) -> User {
        let key = self.auth("POST", "keys", &json!({ "user": name })).json();
        let text =
            |name: &str| -> &'static str { key[name].as_str().unwrap_or("").to_owned().leak() };
        User { access: text("access"), secret: text("secret") }
    }
}

/// Sends a request with a token, if there is one, and with a body, if it is not null.
#[track_caller]
pub fn send(method: &str, url: &str, token: Option<&str>, body: &Value) -> Answer {
    let mut request = http::request(method, url);
    if let Some(token) = token {
        request = request.header("authorization", &format!("Bearer {token}"));
    }
    if *body == Value::Null { request.send() } else { request.json(body).send() }
}

/// Logs in with a password.
#[track_caller]
pub fn login(cluster: &Cluster, user: &str, password: &str) -> Answer {
    let url = format!("{}/v1/users/{user}", cluster.endpoint);
    send("POST", &url, None, &json!({ "password": password }))
}

/// The token in the answer to a login.
#[track_caller]
pub fn token_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["token"].as_str().map(str::to_owned).unwrap_or_default()
}
