//! Buckets and listings, by any gateway.

use http::Method;
use serde_json::{Value, json};

use forebay_core::backend_access::{
    Access, BackendAccess, BucketAccess, CloudIdentity, TargetAccess,
};
use forebay_core::bill::BucketBill;
use forebay_core::bucket::BackendSpec;
use forebay_core::settings::NO_EFFECT_HEADER;
use forebay_core::size::RangeSpec;
use forebay_core::url::encode_query;
use forebay_core::warmth::WarmthReply;
use forebay_core::{Bucket, Error as CoreError, Provider};
use forebay_v1::headers::BUCKET_PROPS;
use forebay_v1::list::{ListMsg, MSGPACK, Page};
use forebay_v1::query::{bucket_query, bucket_uri};

use crate::client::{Client, ControlCall, parse};
use crate::error::{Error, Result};

/// Names among which an object to read is looked for.
const NAMES_LOOKED_AT: usize = 100;

impl Client {
    /// Creates a bucket: a native one, one with `backend`, or one that stands for a cloud bucket.
    pub async fn create_bucket(&self, bucket: &Bucket, backend: Option<BackendSpec>) -> Result<()> {
        let value = match backend {
            Some(backend) => json!({ "backend": backend }),
            None => Value::Null,
        };
        self.act(Method::POST, &bucket_uri(bucket), "create-bck", value).await?;
        self.maps_changed().await
    }

    /// Removes a bucket with all its objects.
    pub async fn destroy_bucket(&self, bucket: &Bucket) -> Result<()> {
        self.act(Method::DELETE, &bucket_uri(bucket), "destroy-bck", Value::Null).await?;
        self.maps_changed().await
    }

    /// Drops what the cluster caches of a cloud bucket and, unless `keep_bucket`, forgets the
    /// bucket. The cloud's objects stay.
    pub async fn evict_bucket(&self, bucket: &Bucket, keep_bucket: bool) -> Result<()> {
        let keep = if keep_bucket { "&keep_bck_md=true" } else { "" };
        let path = format!("{}{keep}", bucket_uri(bucket));
        self.act(Method::DELETE, &path, "evict-remote-bck", Value::Null).await?;
        self.maps_changed().await
    }

    /// The properties of a bucket, as JSON. A cloud bucket that exists becomes known by this.
    pub async fn head_bucket(&self, bucket: &Bucket) -> Result<Value> {
        let path = bucket_uri(bucket);
        let call =
            ControlCall { method: Method::HEAD, path: &path, body: None, accept: None, node: None };
        let answer = self.ask_gateway(call).await?;
        match answer.headers.get(BUCKET_PROPS) {
            Some(props) => parse(props.as_bytes()),
            None => Err(Error::Api(CoreError::internal("no bucket properties in the answer"))),
        }
    }

    /// Returns the requests by class and the bytes that the bucket's cloud bills, summed over all
    /// targets since they started.
    pub async fn bucket_bill(&self, bucket: &Bucket) -> Result<BucketBill> {
        let path = format!("/api/v1/bill/{}?{}", bucket.name, bucket_query(bucket));
        self.get_json(&path).await
    }

    /// Returns how much of the bucket is cached, and what its readers got from the cache, summed over
    /// all targets. Nothing is listed for it.
    pub async fn bucket_warmth(&self, bucket: &Bucket) -> Result<WarmthReply> {
        let path = format!("/api/v1/warmth/{}?{}", bucket.name, bucket_query(bucket));
        self.get_json(&path).await
    }

    /// Returns the warmth of all buckets, or of those of one provider.
    pub async fn warmth(&self, provider: Option<Provider>) -> Result<WarmthReply> {
        let query = provider.map(|provider| format!("?provider={provider}"));
        self.get_json(&format!("/api/v1/warmth{}", query.unwrap_or_default())).await
    }

    /// Returns the credential and the access that each target has to the backend of a bucket.
    /// Objects whose names begin with `prefix` are used for the check. A native bucket is listed
    /// and read through the cluster.
    pub async fn bucket_access(&self, bucket: &Bucket, prefix: &str) -> Result<BucketAccess> {
        let (query, begin) = (bucket_query(bucket), encode_query(prefix));
        let path = format!("/api/v1/access/{}?{query}&prefix={begin}", bucket.name);
        let mut access: BucketAccess = self.get_json(&path).await?;
        if access.native {
            access.targets.push(self.native_access(bucket, prefix).await);
        }
        Ok(access)
    }

    /// Checks a native bucket as the targets check a cloud: lists it and reads a byte of its first
    /// object.
    async fn native_access(&self, bucket: &Bucket, prefix: &str) -> TargetAccess {
        let credential = "none: the bucket is the cluster's own".to_owned();
        let identity = CloudIdentity { credential, ..CloudIdentity::default() };
        let msg = ListMsg {
            prefix: prefix.to_owned(),
            page_size: NAMES_LOOKED_AT,
            props: "name,size".into(),
            ..ListMsg::default()
        };
        let mut example = String::new();
        let (list, get) = match self.list_page(bucket, &msg).await {
            Err(e) => {
                (Access::Fail { error: e.into() }, Access::unknown("the bucket is not listed"))
            }
            Ok(page) => match page.entries.into_iter().find(|e| !e.name.ends_with('/')) {
                None => {
                    let none = "there is no object";
                    (Access::ok(none), Access::unknown(format!("{none} to try it on")))
                }
                Some(first) => {
                    example.clone_from(&first.name);
                    let range = (first.size > 0).then_some(RangeSpec::From(0, Some(0)));
                    let get = match self.get_bytes(bucket, &first.name, range).await {
                        Ok(_) => Access::ok(format!("the first byte of {:?}", first.name)),
                        Err(e) => Access::Fail { error: e.into() },
                    };
                    (Access::ok(format!("the first name is {:?}", first.name)), get)
                }
            },
        };
        let put = Access::unknown("nothing is written to find out");
        let access = BackendAccess { identity, list, get, put, example };
        TargetAccess { target: String::new(), access }
    }

    /// Changes some properties of a bucket; the others stay. Returns the names of the changed
    /// properties that have no effect on this bucket, separated by commas, if there are any.
    pub async fn set_bucket(&self, bucket: &Bucket, props: Value) -> Result<Option<String>> {
        let answer = self.act(Method::PATCH, &bucket_uri(bucket), "set-bprops", props).await?;
        self.maps_changed().await?;
        let names = answer.headers.get(NO_EFFECT_HEADER).and_then(|names| names.to_str().ok());
        Ok(names.map(str::to_owned))
    }

    /// Resets the properties of a bucket to their defaults.
    pub async fn reset_bucket(&self, bucket: &Bucket) -> Result<()> {
        self.act(Method::PATCH, &bucket_uri(bucket), "reset-bprops", Value::Null).await?;
        self.maps_changed().await
    }

    /// The buckets that the cluster knows, of one provider or all.
    pub async fn list_buckets(&self, provider: Option<Provider>) -> Result<Vec<Bucket>> {
        let provider = provider.map_or(String::new(), |p| format!("&provider={p}"));
        let path = format!("/v1/buckets?presence=2{provider}");
        let answer = self.act(Method::GET, &path, "list", Value::Null).await?;
        parse(&answer.body)
    }

    /// One page of a bucket's objects. The next one is asked for with the page's `uuid` and
    /// `token`; an empty token ends the listing.
    pub async fn list_page(&self, bucket: &Bucket, msg: &ListMsg) -> Result<Page> {
        let path = bucket_uri(bucket);
        let call = ControlCall {
            method: Method::GET,
            path: &path,
            body: Some(action("list", msg.to_value())),
            accept: Some(MSGPACK),
            node: None,
        };
        let answer = self.ask_gateway(call).await?;
        Ok(Page::from_msgpack(&answer.body)?)
    }

    /// Sends an action message to a gateway.
    pub(crate) async fn act(
        &self,
        method: Method,
        path: &str,
        name: &str,
        value: Value,
    ) -> Result<crate::client::Answer> {
        let body = Some(action(name, value));
        self.ask_gateway(ControlCall { method, path, body, accept: None, node: None }).await
    }

    /// Refreshes the map after this client changed buckets, so that its next request sees the
    /// change.
    async fn maps_changed(&self) -> Result<()> {
        self.refresh_map().await.map(drop)
    }
}

pub(crate) fn action(name: &str, value: Value) -> Vec<u8> {
    json!({ "action": name, "name": "", "value": value }).to_string().into_bytes()
}
