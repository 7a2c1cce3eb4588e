//! Servers that issue credentials as Amazon's STS and instance metadata, Google's metadata server,
//! and Azure's managed identity do. The tokens expire after seconds, the responses are late, and
//! some requests are refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_core::date::format_iso;

use crate::web::{Received, Reply, Web};

/// Prefix of every value that must not appear in logs and errors.
pub const SECRET: &str = "hush-";
/// The key that the cloud behind the gate knows, in every session.
pub const ACCESS_KEY: &str = "forebay";
pub const SECRET_KEY: &str = "forebaysecret";
/// The web identity token that a pod sends to STS.
pub const WEB_IDENTITY: &str = "hush-web-identity";
/// Delay of every response.
const LATENCY: Duration = Duration::from_millis(30);
/// Clock skew that is accepted, as clouds do.
const LEEWAY: Duration = Duration::from_secs(1);

/// How the issuer treats requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Every second request gets an error that says to retry later.
    Strained,
    /// All requests get this status.
    Refusing(u16),
    /// No request gets a response before the client times out.
    Silent,
}

/// The issued tokens, and how requests for them are treated.
pub struct Issuer {
    life: Duration,
    state: Mutex<State>,
}

struct State {
    mood: Mood,
    asked: u64,
    refused: u64,
    /// When each token expires.
    issued: HashMap<String, Instant>,
}

struct Token {
    text: String,
    expires: SystemTime,
}

impl Issuer {
    /// Issues tokens that are valid for this many seconds; begins as [`Mood::Strained`].
    pub fn new(life_s: u64) -> Arc<Self> {
        let state = State { mood: Mood::Strained, asked: 0, refused: 0, issued: HashMap::new() };
        Arc::new(Self { life: Duration::from_secs(life_s), state: Mutex::new(state) })
    }

    pub fn treat_them(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Number of tokens issued so far.
    pub fn issued(&self) -> usize {
        self.state.lock().unwrap().issued.len()
    }

    /// Number of refused requests.
    pub fn refused(&self) -> u64 {
        self.state.lock().unwrap().refused
    }

    pub fn is_good(&self, token: &str) -> bool {
        let state = self.state.lock().unwrap();
        state.issued.get(token).is_some_and(|expires| Instant::now() < *expires + LEEWAY)
    }

    fn issue(&self) -> Result<Token, u16> {
        std::thread::sleep(LATENCY);
        let mut state = self.state.lock().unwrap();
        state.asked += 1;
        let refusal = match state.mood {
            Mood::Strained => state.asked.is_multiple_of(2).then_some(429),
            Mood::Refusing(status) => Some(status),
            Mood::Silent => {
                drop(state);
                std::thread::sleep(Duration::from_secs(120));
                return Err(500);
            }
        };
        if let Some(status) = refusal {
            state.refused += 1;
            return Err(status);
        }
        let text = format!("{SECRET}token-{}", state.issued.len());
        state.issued.insert(text.clone(), Instant::now() + self.life);
        Ok(Token { text, expires: SystemTime::now() + self.life })
    }

    /// The metadata server of Google's machines; named by `GCE_METADATA_HOST`.
    pub fn google_metadata(self: &Arc<Self>) -> Web {
        let issuer = Arc::clone(self);
        Web::start(move |asked| {
            if asked.headers.get("metadata-flavor").map(String::as_str) != Some("Google") {
                return Reply::new(403, "no Metadata-Flavor");
            }
            if !asked.target.contains("/service-accounts/default/token") {
                return Reply::new(404, "");
            }
            match issuer.issue() {
                Ok(token) => json(&serde_json::json!({
                    "access_token": token.text,
                    "expires_in": issuer.life.as_secs(),
                    "token_type": "Bearer",
                })),
                Err(status) => Reply::new(status, "come back later"),
            }
        })
    }

    /// The managed identity of Azure's App Service; named by `IDENTITY_ENDPOINT`.
    pub fn azure_identity(self: &Arc<Self>) -> Web {
        let issuer = Arc::clone(self);
        Web::start(move |asked| {
            if asked.headers.get("x-identity-header").map(String::as_str) != Some(SECRET) {
                return Reply::new(403, "no X-IDENTITY-HEADER");
            }
            match issuer.issue() {
                Ok(token) => json(&serde_json::json!({
                    "access_token": token.text,
                    "expires_on": unix(token.expires).to_string(),
                    "resource": "https://storage.azure.com",
                    "token_type": "Bearer",
                })),
                Err(status) => Reply::new(status, "come back later"),
            }
        })
    }

    /// The metadata of Amazon's machines, in its second version alone; named by
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    pub fn amazon_metadata(self: &Arc<Self>) -> Web {
        const SESSION: &str = "hush-session";
        let issuer = Arc::clone(self);
        Web::start(move |asked| {
            let path = asked.target.as_str();
            if (asked.method.as_str(), path) == ("PUT", "/latest/api/token") {
                let ttl = "x-aws-ec2-metadata-token-ttl-seconds";
                return Reply::new(200, SESSION).header(ttl, "21600");
            }
            if asked.headers.get("x-aws-ec2-metadata-token").map(String::as_str) != Some(SESSION) {
                return Reply::new(401, "");
            }
            match path.strip_prefix("/latest/meta-data/iam/security-credentials/") {
                Some("") => Reply::new(200, "trainer"),
                Some("trainer") => match issuer.issue() {
                    Ok(token) => json(&serde_json::json!({
                        "Code": "Success",
                        "Type": "AWS-HMAC",
                        "LastUpdated": rfc3339(SystemTime::now()),
                        "AccessKeyId": ACCESS_KEY,
                        "SecretAccessKey": SECRET_KEY,
                        "Token": token.text,
                        "Expiration": rfc3339(token.expires),
                    })),
                    Err(status) => Reply::new(status, "come back later"),
                },
                _ => Reply::new(404, ""),
            }
        })
    }

    /// Amazon's STS, for web identities; named by `AWS_ENDPOINT_URL_STS`.
    pub fn amazon_sts(self: &Arc<Self>) -> Web {
        let issuer = Arc::clone(self);
        Web::start(move |asked| {
            let form = String::from_utf8_lossy(&asked.body);
            let shown = form.contains("Action=AssumeRoleWithWebIdentity")
                && form.contains(&format!("WebIdentityToken={WEB_IDENTITY}"));
            if !shown {
                return sts_error(400, "InvalidIdentityToken");
            }
            match issuer.issue() {
                Ok(token) => Reply::new(200, sts_answer(&token)).header("content-type", "text/xml"),
                Err(429) => sts_error(429, "Throttling"),
                Err(403) => sts_error(403, "AccessDenied"),
                Err(status) => sts_error(status, "InternalFailure"),
            }
        })
    }
}

/// The bearer token of a request.
pub fn bearer(request: &Received) -> &str {
    let header = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
    header.strip_prefix("Bearer ").unwrap_or_default()
}

fn json(value: &serde_json::Value) -> Reply {
    Reply::new(200, value.to_string()).header("content-type", "application/json")
}

fn sts_answer(token: &Token) -> String {
    format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{ACCESS_KEY}</AccessKeyId>\
         <SecretAccessKey>{SECRET_KEY}</SecretAccessKey><SessionToken>{}</SessionToken>\
         <Expiration>{}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>",
        token.text,
        rfc3339(token.expires),
    )
}

fn sts_error(status: u16, code: &str) -> Reply {
    let text = format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
         <Type>Sender</Type><Code>{code}</Code><Message>refused</Message></Error></ErrorResponse>"
    );
    Reply::new(status, text).header("content-type", "text/xml")
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A time as Amazon writes it, in whole seconds.
fn rfc3339(time: SystemTime) -> String {
    format_iso(unix(time) * 1_000_000_000).replace(".000Z", "Z")
}
