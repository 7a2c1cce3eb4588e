//! Tests of tokens with real signatures.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use aws_lc_rs::{hmac, rsa};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use forebay_core::ErrorCode;
use forebay_core::access::{AccessChange, Claims, Right, User};
use forebay_core::config::IssuerConfig;
use forebay_core::state::Command;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::clock::unix_ns;
use crate::identity::tests::identity;

const CLUSTER: &str = "c1";

fn maps_with(changes: Vec<AccessChange>) -> Maps {
    let mut state = ClusterState::default();
    let (now_ns, cluster_id) = (unix_ns() - 10_000_000_000, CLUSTER.to_owned());
    state.apply(1, Command::Init { cluster_id, now_ns }).unwrap();
    for change in changes {
        let change = Box::new(change);
        state.apply(state.version + 1, Command::Access { change, now_ns }).unwrap();
    }
    let maps = Maps::default();
    maps.offer(state);
    maps.lease_for_good();
    maps
}

fn add_user(name: &str, role: &str) -> AccessChange {
    let user = Box::new(User { roles: vec![role.into()], ..User::default() });
    AccessChange::AddUser { name: name.into(), user }
}

fn authenticator(issuers: Vec<IssuerConfig>, maps: &Maps) -> Arc<Authenticator> {
    let auth = AuthConfig { issuer: issuers, ..AuthConfig::default() };
    Authenticator::new(&auth, &S3Config::default(), &identity(), maps).unwrap()
}

/// A cluster with the administrator `root` and a signing key.
fn cluster() -> (Maps, Arc<Authenticator>) {
    let sealer = identity().sealer;
    let key = AccessChange::AddSigningKey { key: new_signing_key(&sealer).unwrap() };
    let maps = maps_with(vec![key, add_user("root", "admin")]);
    let users = authenticator(Vec::new(), &maps);
    (maps, users)
}

fn claims() -> Claims {
    let now = unix_s();
    Claims {
        iss: CLUSTER.into(),
        aud: CLUSTER.into(),
        sub: "root".into(),
        iat: now - 1,
        exp: now + 100,
        jti: "t1".into(),
        ..Claims::default()
    }
}

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

fn refused(users: &Authenticator, maps: &Maps, token: &str) -> bool {
    match users.token(token, &maps.load()) {
        Ok(_) => false,
        Err(e) => {
            assert_eq!(e, unauthenticated(), "one text for all reasons");
            true
        }
    }
}

#[test]
fn a_token_of_the_cluster_names_its_user_and_an_altered_one_nobody() {
    let (maps, users) = cluster();
    let state = maps.load();
    let token = NewToken::sign(claims(), &state.access, users.sealer()).unwrap().text;
    let known = users.token(&token, &state).unwrap();
    assert!(known.access.everywhere.has(Right::Admin));
    assert_eq!(users.known_token(token.as_bytes(), &state).unwrap(), known);
    let parts: Vec<_> = token.split('.').collect();
    let header = |json: Value| format!("{}.{}.{}", part(&json), parts[1], parts[2]);
    let kid = state.access.signing_keys[0].id.clone();
    for (what, wrong) in [
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("alg none", format!("{}.{}.", part(&json!({"alg": "none", "kid": kid})), parts[1])),
        ("alg NONE", header(json!({"alg": "NONE", "kid": kid}))),
        ("another algorithm", header(json!({"alg": "HS256", "kid": kid}))),
        ("no key", header(json!({"alg": "EdDSA"}))),
        ("injected key", header(json!({"alg": "EdDSA", "kid": "../../dev/null"}))),
        ("key of another type", header(json!({"alg": "EdDSA", "kid": {"a": 1}}))),
        ("critical header", header(json!({"alg": "EdDSA", "kid": kid, "crit": ["x"]}))),
        ("other claims", format!("{}.{}.{}", parts[0], part(&json!({"sub": "eve"})), parts[2])),
        ("not a token", "abc".into()),
        ("too long", format!("{token}{}", "A".repeat(MAX_TOKEN_BYTES))),
    ] {
        assert!(refused(&users, &maps, &wrong), "{what}");
    }
}

#[test]
fn a_secret_hmac_with_the_public_key_is_no_signature() {
    let (maps, users) = cluster();
    let record = maps.load().access.signing_keys[0].clone();
    let signed = format!(
        "{}.{}",
        part(&json!({"alg": "HS256", "kid": record.id})),
        part(&serde_json::to_value(claims()).unwrap())
    );
    let public = URL_SAFE_NO_PAD.decode(&record.public).unwrap();
    for key in [public, record.public.into_bytes()] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
        assert!(refused(&users, &maps, &token));
    }
}

#[test]
fn a_checked_token_is_checked_again_after_users_changed() {
    let (maps, users) = cluster();
    let token = NewToken::sign(claims(), &maps.load().access, users.sealer()).unwrap().text;
    users.token(&token, &maps.load()).unwrap();
    let mut state = maps.load().as_ref().clone();
    let change = AccessChange::RevokeToken { id: "t1".into(), expires_s: unix_s() + 100 };
    let command = Command::Access { change: Box::new(change), now_ns: unix_ns() };
    state.apply(state.version + 1, command).unwrap();
    maps.offer(state);
    assert!(refused(&users, &maps, &token), "revoked");
    assert!(users.known_token(token.as_bytes(), &maps.load()).is_none());
}

#[test]
fn a_node_without_a_lease_answers_503_to_every_token_and_grant() {
    let (full, users) = cluster();
    let state = full.load();
    let token = NewToken::sign(claims(), &state.access, users.sealer()).unwrap().text;
    users.token(&token, &state).unwrap();
    let stale = Maps::default();
    stale.offer(state.as_ref().clone());
    let users = authenticator(Vec::new(), &stale);
    let code = |r: Result<()>| r.unwrap_err().code;
    assert_eq!(code(users.token(&token, &state).map(drop)), ErrorCode::Unavailable);
    assert_eq!(
        code(users.granted(b"text", &named("root", "t1", 1), &state).map(drop)),
        ErrorCode::Unavailable
    );
    assert!(users.known_token(token.as_bytes(), &state).is_none());
}

fn named(user: &str, token: &str, epoch: u64) -> GrantUser {
    GrantUser { user: user.into(), token: token.into(), epoch }
}

#[test]
fn a_grant_that_was_accepted_is_known_until_users_change() {
    let (maps, users) = cluster();
    let state = maps.load();
    assert!(users.known_grant(b"text", &state).is_none(), "not checked yet");
    let epoch = state.access.epoch;
    users.granted(b"text", &named("root", "t1", epoch), &state).unwrap().unwrap();
    assert!(users.known_grant(b"text", &state).is_some());
    assert!(users.known_token(b"text", &state).is_none(), "a grant is no token");
    let mut state = state.as_ref().clone();
    let change = AccessChange::RevokeToken { id: "t1".into(), expires_s: u64::MAX };
    let command = Command::Access { change: Box::new(change), now_ns: unix_ns() };
    state.apply(state.version + 1, command).unwrap();
    assert!(users.known_grant(b"text", &state).is_none());
}

#[test]
fn a_grant_ends_with_its_token_and_with_the_tokens_of_its_user() {
    let (maps, users) = cluster();
    let state = maps.load();
    let epoch = state.access.epoch;
    assert!(users.granted(b"text", &named("root", "t1", epoch), &state).unwrap().is_some());
    assert!(users.granted(b"text", &named("nobody", "t1", epoch), &state).unwrap().is_none());
    let later = users.granted(b"text", &named("root", "t1", epoch + 1), &state).unwrap_err();
    assert_eq!(later.code, ErrorCode::Unavailable, "this node is behind");
    let mut state = state.as_ref().clone();
    for change in [
        AccessChange::RevokeToken { id: "t1".into(), expires_s: u64::MAX },
        AccessChange::RevokeUser { name: "root".into() },
    ] {
        let command = Command::Access { change: Box::new(change), now_ns: unix_ns() };
        state.apply(state.version + 1, command).unwrap();
        assert!(users.granted(b"text", &named("root", "t1", epoch), &state).unwrap().is_none());
    }
    assert!(
        users.granted(b"text", &named("root", "t2", epoch), &state).unwrap().is_none(),
        "of the user"
    );
    assert!(
        users.granted(b"text", &named("root", "t2", state.access.epoch), &state).unwrap().is_some()
    );
}

/// A foreign issuer with an RSA, an EC and a secret key, each in a file.
struct Foreign {
    folder: tempfile::TempDir,
    rsa: rsa::KeyPair,
    ec: EcdsaKeyPair,
}

const SECRET: &str = "a-shared-secret-of-aistore";

impl Foreign {
    fn new() -> Self {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let document = document.unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref());
        let rsa = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        let this = Self { folder: tempfile::tempdir().unwrap(), rsa, ec: ec.unwrap() };
        let spki = AsDer::<aws_lc_rs::encoding::PublicKeyX509Der>::as_der(this.rsa.public_key());
        this.write("rsa.pem", &this.pem(spki.unwrap().as_ref()));
        let point = this.ec.public_key().as_ref();
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let set = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "e1", "alg": "ES256",
            "x": b64(&point[1..33]), "y": b64(&point[33..])},
            {"kty": "oct", "kid": "s1", "k": b64(SECRET.as_bytes())}]});
        this.write("jwks.json", &set.to_string());
        this.write("secret", SECRET);
        this
    }

    fn pem(&self, der: &[u8]) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn config(&self, name: &str, algorithm: &str) -> IssuerConfig {
        IssuerConfig {
            name: name.into(),
            url: String::new(),
            issuer: format!("https://{name}"),
            jwks_file: String::new(),
            key_file: String::new(),
            secret_file: String::new(),
            audience: "forebay".into(),
            algorithms: vec![algorithm.into()],
            user_claim: "sub".into(),
            roles_claim: "roles".into(),
            aistore_claims: false,
            ca_file: String::new(),
            token_file: String::new(),
        }
    }

    fn issuers(&self) -> Vec<IssuerConfig> {
        vec![
            IssuerConfig { key_file: self.path("rsa.pem"), ..self.config("rsa", "RS256") },
            IssuerConfig { jwks_file: self.path("jwks.json"), ..self.config("ec", "ES256") },
            IssuerConfig { secret_file: self.path("secret"), ..self.config("hs", "HS256") },
        ]
    }

    fn claims(&self, issuer: &str) -> Value {
        json!({"iss": format!("https://{issuer}"), "aud": "forebay", "sub": "ann",
            "exp": unix_s() + 100, "roles": ["reader"]})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let signature = match header["alg"].as_str().unwrap() {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                let message = signed.as_bytes();
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            "ES256" => self.ec.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            _ => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
                hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[test]
fn tokens_of_foreign_issuers_count_with_the_algorithm_of_their_issuer_alone() {
    let foreign = Foreign::new();
    let maps = maps_with(vec![add_user("root", "admin")]);
    let users = authenticator(foreign.issuers(), &maps);
    let state = maps.load();
    for (issuer, algorithm, kid) in
        [("rsa", "RS256", "r1"), ("ec", "ES256", "e1"), ("hs", "HS256", "")]
    {
        let header = match kid {
            "" => json!({"alg": algorithm}),
            kid => json!({"alg": algorithm, "kid": kid}),
        };
        let token = foreign.sign(&header, &foreign.claims(issuer));
        let known = users.token(&token, &state).unwrap();
        assert_eq!(known.access.name, format!("{issuer}:ann"));
        assert!(known.access.everywhere.has(Right::GetObject));
        for other in ["rsa", "ec", "hs"].into_iter().filter(|other| *other != issuer) {
            let token = foreign.sign(&header, &foreign.claims(other));
            assert!(refused(&users, &maps, &token), "{algorithm} for {other}");
        }
        let mut expired = foreign.claims(issuer);
        expired["exp"] = json!(unix_s() - 120);
        assert!(refused(&users, &maps, &foreign.sign(&header, &expired)));
    }
    let injected = json!({"alg": "ES256", "kid": "e2", "jwk": {"kty": "EC"}});
    assert!(refused(&users, &maps, &foreign.sign(&injected, &foreign.claims("ec"))));
    for extension in ["crit", "b64"] {
        let header = json!({"alg": "RS256", extension: ["exp"], "exp": 0});
        assert!(refused(&users, &maps, &foreign.sign(&header, &foreign.claims("rsa"))), "{header}");
    }
    let secret_of_set = json!({"alg": "HS256", "kid": "s1"});
    assert!(refused(&users, &maps, &foreign.sign(&secret_of_set, &foreign.claims("ec"))));
    let own = json!({"alg": "RS256"});
    let mut ours = foreign.claims("rsa");
    ours["iss"] = json!(CLUSTER);
    assert!(refused(&users, &maps, &foreign.sign(&own, &ours)), "not a token of this cluster");
}

#[test]
fn a_secret_needs_hs_algorithms_and_a_public_key_refuses_them() {
    let foreign = Foreign::new();
    let load = |config: IssuerConfig| {
        let auth = AuthConfig { issuer: vec![config], ..AuthConfig::default() };
        Authenticator::new(&auth, &S3Config::default(), &identity(), &Maps::default()).map(drop)
    };
    let pem = IssuerConfig { key_file: foreign.path("rsa.pem"), ..foreign.config("a", "HS256") };
    assert!(load(pem).is_err(), "the public key would be the secret");
    let hs = IssuerConfig { secret_file: foreign.path("secret"), ..foreign.config("a", "RS256") };
    assert!(load(hs).is_err());
    let unknown = IssuerConfig { key_file: foreign.path("rsa.pem"), ..foreign.config("a", "none") };
    assert!(load(unknown).is_err());
}

#[test]
fn a_key_of_the_cluster_opens_for_its_access_key_alone() {
    let sealer = identity().sealer;
    let key = |access: &str| AccessChange::AddKey {
        access: access.into(),
        key: forebay_core::access::S3KeyRecord {
            user: "root".into(),
            secret: sealer.seal(Place::S3Key("AK1"), b"planted").unwrap(),
            created_ns: 0,
        },
    };
    let maps = maps_with(vec![add_user("root", "admin"), key("AK1"), key("AK2")]);
    let users = authenticator(Vec::new(), &maps);
    assert_eq!(users.secret("AK1"), Some(SecretKey::new("planted")));
    assert_eq!(users.secret("AK2"), None, "moved to another access key");
    assert_eq!(users.s3_user_of("AK1").as_deref(), Some("root"));
    assert!(matches!(users.s3_user("root", &maps.load()), Access::User(_)));
    assert_eq!(users.s3_user("nobody", &maps.load()), Access::Anonymous);
    let json = serde_json::to_string(maps.load().as_ref()).unwrap();
    assert!(!json.contains("planted"));
}

#[test]
fn the_scheme_of_a_bearer_token_is_not_case_sensitive() {
    for (text, token) in [
        ("Bearer a.b.c", Some("a.b.c")),
        ("bearer  a", Some("a")),
        ("Basic a", None),
        ("Bearer ", None),
        ("Bearer", None),
    ] {
        assert_eq!(bearer(text.as_bytes()), token, "{text}");
    }
}

#[test]
fn published_keys_count_only_while_the_cluster_has_no_users() {
    let mut s3 = S3Config::default();
    s3.with_trial_keys();
    let of = |changes| {
        let maps = maps_with(changes);
        let users = Authenticator::new(&AuthConfig::default(), &s3, &identity(), &maps).unwrap();
        (users.secret("forebay").is_some(), users.s3_user_of("forebay"))
    };
    assert_eq!(of(Vec::new()), (true, Some("forebay".to_owned())));
    assert_eq!(of(vec![add_user("root", "admin")]), (false, None));
}
