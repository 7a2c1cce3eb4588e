//! The description of the server for programs, and the message for people, once it is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::tls::TlsClient;
use forebay_core::config::S3Config;
use forebay_core::size::ByteSize;
use forebay_core::state::Role;
use forebay_node::service_manager::ServiceManager;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::dev::say;
use crate::node::Stopped;
use crate::owner::Owner;
use crate::probe::OwnNode;
use crate::{home, owner, probe};

/// Interval of probes of the nodes while they start.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The message when the server is ready.
pub(super) struct Greeting {
    /// URLs of both nodes, the gateway first.
    pub(super) nodes: [String; 2],
    /// Folder of the data, and the most bytes in it.
    pub(super) disk: String,
    pub(super) size: ByteSize,
    /// For programs: the endpoint, written to `description`.
    pub(super) endpoint: String,
    pub(super) description: PathBuf,
    /// Whether it makes the administrator of `--private`.
    pub(super) is_private: bool,
    /// The administrator that the settings name.
    pub(super) admin: Option<String>,
    pub(super) s3: S3Config,
    pub(super) is_required: bool,
    /// Id of the gateway, which is also the name of its folder.
    pub(super) gateway: String,
}

impl Greeting {
    /// For programs: the endpoint, the process, and the token and keys of a cluster with users.
    async fn describe(
        &self,
        tls: &TlsClient,
        own: OwnNode<'_>,
    ) -> Result<(String, Option<Owner>), Stopped> {
        let (gateway, dir) = (&self.nodes[0], self.description.parent());
        let dir = dir.unwrap_or(Path::new("."));
        let owner = match self.is_private {
            true => Some(Owner::of_private(tls, gateway, own, dir).await?),
            false => Owner::of_cluster(tls, gateway, own, dir, self.admin.as_deref()).await?,
        };
        let mut described = json!({ "endpoint": self.endpoint, "pid": std::process::id() });
        if let Some(owner) = &owner {
            owner.describe(&mut described);
        }
        if owner.is_some() || self.is_required {
            described["s3_keys"] = json!(owner::usable_keys(&self.s3, true));
        }
        Ok((described.to_string(), owner))
    }

    /// For people.
    fn welcome(&self, owner: Option<&Owner>) -> String {
        let Self { endpoint, disk, size, .. } = self;
        let token = owner.map(Owner::export).unwrap_or_default();
        format!(
            "ready at {endpoint}\n\
             \n  disk budget   {size} in {disk} (--size changes it)\n\
             \n  export FOREBAY_ENDPOINT={endpoint}\n{token}  forebay mb ais://first && forebay ls\n\
             \nCtrl-C stops it; the data stays."
        )
    }
}

/// Writes the description and prints the message once both nodes reply and the gateway has a target:
/// from then on requests work. Starts when the gateway listens.
pub(super) async fn announce(greeting: Greeting, manager: ServiceManager, stop: CancellationToken) {
    let Ok(tls) = TlsClient::unverified() else { return };
    let secret = greeting.description.with_file_name("secret");
    let dir = greeting.description.with_file_name(&greeting.gateway);
    let own = OwnNode { id: &greeting.gateway, dir: &dir, secret: &secret };
    let up = async {
        for node in &greeting.nodes {
            while !matches!(probe::get(&tls, node, "/readyz").await, Ok(answer) if answer.status == 200)
            {
                sleep(ASK_EVERY).await;
            }
        }
        let gateway = &greeting.nodes[0];
        while !probe::alive(&tls, gateway, Some(own))
            .await
            .iter()
            .any(|node| node.role == Role::Target)
        {
            sleep(ASK_EVERY).await;
        }
    };
    // The gateway makes the token while the target starts, which takes longer.
    let described = tokio::select! {
        () = stop.cancelled() => return,
        ((), described) = futures::future::join(up, greeting.describe(&tls, own)) => described,
    };
    let written = described.and_then(|(text, owner)| {
        home::write(&greeting.description, text.as_bytes(), 0o600)?;
        Ok(greeting.welcome(owner.as_ref()))
    });
    match written {
        // If the server is stopping meanwhile, the file must not say that it is ready.
        Ok(_) if stop.is_cancelled() => drop(home::remove(&greeting.description)),
        Ok(welcome) => {
            manager.ready();
            say(&welcome);
        }
        Err(stopped) => {
            stopped.report();
            stop.cancel();
        }
    }
}
