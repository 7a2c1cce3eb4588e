//! Users, roles, keys and tokens, by any gateway.

use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use forebay_core::Error as CoreError;
use forebay_core::access::AccessState;

use crate::client::{Client, ControlCall, parse};
use crate::error::{Error, Result};

/// Prefix of the paths of the API.
const ROOT: &str = "/api/v1/auth";

impl Client {
    /// Sends a GET to `/api/v1/auth/PATH` and reads its answer.
    pub async fn auth_get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let call = ControlCall {
            method: Method::GET,
            path: &format!("{ROOT}/{path}"),
            body: None,
            accept: None,
            node: None,
        };
        parse(&self.ask_gateway(call).await?.body)
    }

    /// Sends a message to `/api/v1/auth/PATH` and reads its answer.
    pub async fn auth_send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
    ) -> Result<T> {
        parse(&self.auth_call(method, path, message).await?)
    }

    /// Sends a message to `/api/v1/auth/PATH` whose answer has no content.
    pub async fn auth_do(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
    ) -> Result<()> {
        self.auth_call(method, path, message).await.map(drop)
    }

    async fn auth_call(
        &self,
        method: Method,
        path: &str,
        message: &impl Serialize,
    ) -> Result<bytes::Bytes> {
        let body = serde_json::to_vec(message)
            .map_err(|e| Error::Api(CoreError::internal(format!("message: {e}"))))?;
        let path = format!("{ROOT}/{path}");
        let call = ControlCall { method, path: &path, body: Some(body), accept: None, node: None };
        Ok(self.ask_gateway(call).await?.body)
    }

    /// The cluster's section of users, with sealed secrets, for a backup. Empty from gateways of an
    /// earlier version, which have none.
    pub async fn access_section(&self) -> Result<AccessState> {
        match self.auth_get("section").await {
            Err(Error::Api(e)) if matches!(e.code.status(), 400 | 404 | 405) => {
                Ok(AccessState::default())
            }
            other => other,
        }
    }
}
