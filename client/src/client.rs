//! The client and its two ways to send a request: directly to an object's owner, or to any gateway.

mod config;
mod gateway_calls;
mod hedge_limit;
mod object_call;
mod owner_calls;

use std::sync::Arc;

use http::Method;

use forebay_core::intra::MapReply;
use forebay_core::{Bucket, Error as CoreError, ErrorCode, program_version};
use forebay_v1::query::bucket_uri;

use crate::error::{Error, Result};
use crate::map::MapCache;
use crate::pace::Pace;
use crate::retry::Attempts;
use crate::tls::TlsClient;
use crate::transport::Transport;
use hedge_limit::HedgeLimit;

pub use config::{ClientConfig, DEFAULT_ENDPOINT};
pub(crate) use gateway_calls::{Answer, ControlCall, parse};
pub(crate) use object_call::{ObjectCall, Route};

/// A client of one cluster. Cheap to clone; clones share connections and the map.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ClientConfig,
    /// As configured, at least one; the first names the cluster in errors.
    endpoints: Arc<[String]>,
    transport: Transport,
    maps: Arc<MapCache>,
    pace: Pace,
    hedge_limit: HedgeLimit,
}

impl Client {
    /// A client for the cluster that `config` names. Nothing is sent before the first request.
    pub fn new(config: ClientConfig) -> Result<Self> {
        let tls = config.tls(&config.endpoints()?)?;
        Self::over(tls, config)
    }

    /// A client that has this TLS in place of the one that `config` names: that of a node.
    pub fn over(tls: TlsClient, config: ClientConfig) -> Result<Self> {
        let endpoints: Arc<[String]> = config.endpoints()?.into();
        let transport = Transport::over(tls, config.connect_timeout, config.idle_timeout)
            .with_limit(config.deadline)
            .of_client(config.contact.clone(), config.token.clone())
            .with_cloud_retry(config.cloud_retry.as_deref())?;
        let within = config.idle_timeout.min(config.deadline);
        let maps = Arc::new(MapCache::new(&transport, within, endpoints.clone()));
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                endpoints,
                transport,
                maps,
                pace: Pace::default(),
                hedge_limit: HedgeLimit::default(),
            }),
        })
    }

    /// The URL that names the cluster: the first of those configured.
    pub fn endpoint(&self) -> &str {
        // `new` refuses a configuration without any.
        self.inner.endpoints.first().map_or("", String::as_str)
    }

    /// The endpoints, if all of them have refused every connection of this client so far.
    pub fn refusing_endpoints(&self) -> Option<&[String]> {
        let Inner { config, endpoints, .. } = &*self.inner;
        config.contact.is_refused_by_all(endpoints).then_some(&**endpoints)
    }

    /// The map of the cluster as this client knows it now.
    pub async fn map(&self) -> Result<Arc<MapReply>> {
        let mut tries = self.attempts();
        loop {
            match self.maps().get().await {
                Ok(map) => return Ok(map),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    /// A warning if the versions of this program and of the cluster do not fit; `None` if they do, or if no
    /// gateway has sent its version yet.
    pub fn version_warning(&self) -> Option<String> {
        let map = self.maps().known()?;
        let cluster = map.version.as_deref()?;
        program_version::warning(env!("CARGO_PKG_VERSION"), cluster, map.oldest_client.as_deref())
    }

    /// Fetches the current map.
    pub async fn refresh_map(&self) -> Result<Arc<MapReply>> {
        let mut tries = self.attempts();
        loop {
            let known = self.maps().get().await;
            let fresh = match known {
                Ok(known) => self.maps().replace(Some(&known)).await,
                Err(e) => Err(e),
            };
            match fresh {
                Ok(map) => return Ok(map),
                Err(e) => tries.again(e).await?,
            }
        }
    }

    pub(crate) fn attempts(&self) -> Attempts {
        let Inner { config, endpoints, .. } = &*self.inner;
        Attempts::new(self.endpoint(), config.deadline).of_cluster(&config.contact, endpoints)
    }

    pub(crate) fn maps(&self) -> &Arc<MapCache> {
        &self.inner.maps
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.inner.transport
    }

    pub(crate) fn hedge_limit(&self) -> &HedgeLimit {
        &self.inner.hedge_limit
    }

    /// Returns a map that contains the bucket; an unknown cloud bucket is registered by a request
    /// to a gateway.
    pub(crate) async fn map_with(&self, bucket: &Bucket) -> Result<Arc<MapReply>> {
        let map = self.maps().get().await?;
        if map.state.bucket(bucket).is_ok() {
            return Ok(map);
        }
        let map = self.maps().replace(Some(&map)).await?;
        if map.state.bucket(bucket).is_ok() {
            return Ok(map);
        }
        let call = ControlCall {
            method: Method::HEAD,
            path: &bucket_uri(bucket),
            body: None,
            accept: None,
            node: None,
        };
        self.ask_gateway_once(&call).await?;
        let map = self.maps().replace(Some(&map)).await?;
        match map.state.bucket(bucket) {
            Ok(_) => Ok(map),
            Err(e) => Err(Error::Api(CoreError::new(ErrorCode::Unavailable, e.message))),
        }
    }
}
