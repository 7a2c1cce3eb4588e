//! Secrets in settings that exclude each other, and in settings that are wrong.

use forebay_tests::hunt::{Hunt, echoing_cloud, set, text};
use forebay_tests::private_file::write_private;
use forebay_tests::{Cluster, Options, cluster, http};
use serde_json::json;

/// A closed port.
const NOWHERE: &str = "127.0.0.1:1";

/// Credentials of clouds in forms that exclude each other.
#[test]
fn credentials_of_clouds_in_every_form_stay_where_they_are() {
    let mut hunt = Hunt::default();
    let cloud = echoing_cloud();
    let host = cloud.url.replace("http://", "");
    let signature = hunt.plant("signature of Azure");
    let profile = hunt.plant("key in a profile");
    let profile = hunt.plant_file("session in a profile", |session| {
        format!(
            "[default]\naws_access_key_id = someone\naws_secret_access_key = {profile}\n\
             aws_session_token = {session}\n"
        )
    });
    let key = hunt.plant_file("private key of Google", |key| {
        json!({
            "type": "service_account", "client_email": "me@example.com", "private_key_id": "1",
            "private_key": format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"),
            "token_uri": "https://oauth2.googleapis.com/token", "project_id": "p",
        })
        .to_string()
    });
    let identity = hunt.plant_file("web identity", str::to_owned);
    let password = hunt.plant("password of an endpoint");
    let with_password = format!("http://me:{password}@{host}");
    let proxy = format!("http://me:{}@{NOWHERE}", hunt.plant("password of a proxy"));
    let client = hunt.plant("client secret of Azure");
    let connection = format!(
        "DefaultEndpointsProtocol=http;AccountName=account;AccountKey={};BlobEndpoint={}/account",
        hunt.plant("key in a connection string"),
        cloud.url
    );
    let sas = format!("sv=2024-08-04&sp=rl&sig={signature}");
    let cases = [
        vec![
            set("AWS_SHARED_CREDENTIALS_FILE", text(&profile)),
            set("AWS_ENDPOINT_URL_S3", &cloud.url),
            set("AZURE_STORAGE_ACCOUNT", "account"),
            set("AZURE_STORAGE_SAS_TOKEN", &sas),
            set("AZURE_STORAGE_ENDPOINT", &format!("{}/account", cloud.url)),
            set("GOOGLE_APPLICATION_CREDENTIALS", text(&key)),
        ],
        vec![
            set("AWS_ACCESS_KEY_ID", "someone"),
            set("AWS_SECRET_ACCESS_KEY", &hunt.plant("secret key of AWS")),
            set("AWS_ENDPOINT_URL_S3", &with_password),
            set("AZURE_STORAGE_CONNECTION_STRING", &connection),
            set("STORAGE_EMULATOR_HOST", &with_password),
        ],
        vec![
            set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/trainer"),
            set("AWS_WEB_IDENTITY_TOKEN_FILE", text(&identity)),
            set("AWS_ENDPOINT_URL_STS", &cloud.url),
            set("AZURE_STORAGE_ACCOUNT", "account"),
            set("AZURE_STORAGE_SAS_TOKEN", &sas),
            set("AZURE_TENANT_ID", "00000000-0000-0000-0000-000000000001"),
            set("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000002"),
            set("AZURE_CLIENT_SECRET", &client),
            set("HTTPS_PROXY", &proxy),
        ],
        vec![
            set("AZURE_STORAGE_ACCOUNT", "account"),
            set("AZURE_TENANT_ID", "00000000-0000-0000-0000-000000000001"),
            set("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000002"),
            set("AZURE_CLIENT_SECRET", &client),
            set("HTTPS_PROXY", &proxy),
        ],
    ];
    std::thread::scope(|scope| {
        let hunts = cases.map(|env| {
            let mut hunt = Hunt::of(&hunt.secrets);
            scope.spawn(move || {
                use_clouds(&mut hunt, env);
                hunt
            })
        });
        for done in hunts {
            let done = done.join().unwrap();
            hunt.found.extend(done.found);
            hunt.searched += done.searched;
        }
    });
    hunt.assert_nothing_found();
}

/// Starts a cluster with this environment, reads, lists and examines a bucket of each cloud, and searches.
fn use_clouds(hunt: &mut Hunt, env: Vec<(String, String)>) {
    let settings = "[log]\nlevel = \"trace\"\n[egress]\nallow = [\"127.0.0.1\"]\n";
    let cluster =
        Cluster::start(Options { targets: 1, settings, env: env.clone(), ..Options::default() });
    for uri in ["s3://planted", "gs://planted", "az://planted"] {
        let object = format!("{uri}/o");
        for args in [vec!["doctor", uri], vec!["ls", uri], vec!["get", &object, "-"]] {
            let mut command = cluster::command(&args);
            command.args(["--timeout", "2s"]).env("FOREBAY_ENDPOINT", &cluster.endpoint);
            let (text, code) = hunt.run(&format!("{args:?} with {:?}", env[0].0), &mut command);
            assert_ne!(code, 0, "{args:?}: {text}");
        }
    }
    for node in cluster.gateways.iter().chain(&cluster.targets) {
        hunt.search_answer("metrics", &http::get(&format!("{}/metrics", node.url)));
    }
    hunt.search_files(&cluster, &env);
}

#[test]
fn no_error_about_a_setting_shows_its_secret() {
    let mut hunt = Hunt::default();
    let secret = hunt.plant("a secret");
    let dir = hunt.dir.path().to_owned();
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        write_private(&path, text);
        path
    };
    // Not UTF-8, after the secret.
    let garbled = dir.join("garbled");
    write_private(&garbled, [secret.as_bytes(), b"\xff\xfe"].concat());
    let (pem, short) = (
        file("key.pem", &format!("-----BEGIN PRIVATE KEY-----\n{secret}\n")),
        file("cluster-secret", "a-secret-of-the-cluster"),
    );
    let base = format!(
        "[cluster]\nsecret_file = {short:?}\n[node]\nid = \"gateway1\"\ndir = {:?}\n\
         [listen]\nhttp = \"{NOWHERE}\"\n",
        dir.join("state")
    );
    let files = [
        format!("{base}[[s3.keys]]\naccess = \"a\"\nsecret = \"{secret}\n"),
        format!("{base}[[s3.keys]]\naccess = \"a\"\nsecret = {secret}\n"),
        format!("{base}[[s3.keys]]\naccess = \"a\"\nsecret = [\"{secret}\"]\n"),
        format!("{base}[[s3.keys]]\naccess = \"a\"\nkey = \"{secret}\"\n"),
        format!("{base}[s3]\nkeys = \"{secret}\"\n"),
        format!("{base}[audit]\nurl = \"ftp://me:{secret}@h/?t={secret}\"\n"),
        format!("{base}[audit]\nurl = \"http://me:{secret}@h:port/?t={secret}\"\n"),
        format!("{base}[audit]\nurl = {{u = \"{secret}\"}}\n"),
        format!("{base}[tls]\ncert = {pem:?}\nkey = {pem:?}\n"),
        format!("{base}[auth]\nadmin = \"root\"\nadmin_password_file = {garbled:?}\n"),
        format!(
            "{base}[[auth.issuer]]\nname = \"i\"\nsecret_file = {garbled:?}\nalgorithms = [\"no\"]\n"
        ),
        format!(
            "{base}[[auth.issuer]]\nname = \"i\"\nkey_file = {pem:?}\nalgorithms = [\"RS256\"]\n"
        ),
        format!(
            "{base}[[auth.issuer]]\nname = \"i\"\nurl = \"x://me:{secret}@h\"\nalgorithms = [\"RS256\"]\n"
        ),
        base.replace(text(&short), text(&garbled)),
    ];
    for (n, settings) in files.iter().enumerate() {
        let path = file("node.toml", settings);
        for role in ["gateway", "target"] {
            let mut command = cluster::command([role, "--config", text(&path)]);
            let (text, code) = hunt.run(&format!("{role} with file {n}"), &mut command);
            assert!(![0, -1].contains(&code), "file {n}: {text}");
        }
    }
    let path = file("node.toml", &base);
    for (name, value) in [
        ("FOREBAY_S3__KEYS", format!("[{{access = \"a\", secret = \"{secret}\"")),
        ("FOREBAY_S3__KEYS", format!("[{{\"access\": \"a\", \"secret\": \"{secret}\"}}]")),
        ("FOREBAY_S3__KEYS", secret.clone()),
        ("FOREBAY_S3_KEYS", secret.clone()),
        ("FOREBAY_AUDIT__URL", format!("[\"http://me:{secret}@h\"]")),
        (
            "FOREBAY_AUTH__ISSUER",
            format!("[{{name = \"i\", url = \"http://me:{secret}@h\", x = 1}}]"),
        ),
    ] {
        let mut command = cluster::command(["gateway", "--config", text(&path)]);
        let (text, code) = hunt.run(name, command.env(name, value));
        assert!(![0, -1].contains(&code), "{name}: {text}");
    }
    hunt.assert_nothing_found();
}
