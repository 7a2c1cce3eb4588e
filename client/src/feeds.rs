//! Feeds of training loops: reported to a gateway, and read from all of them.

use http::Method;

use forebay_core::Error as CoreError;
use forebay_core::feed::{FEEDS_PATH, Feed, FeedsReply};

use crate::client::{Client, ControlCall};
use crate::error::Result;

impl Client {
    /// Reports a feed, by one request that is not sent again.
    pub async fn report_feed(&self, feed: &Feed) -> Result<()> {
        let path = format!("{FEEDS_PATH}/{}", feed.id);
        let body = serde_json::to_vec(feed)
            .map_err(|e| CoreError::internal(format!("a feed cannot be written as JSON: {e}")))?;
        let call = ControlCall {
            method: Method::PUT,
            path: &path,
            body: Some(body),
            accept: None,
            node: None,
        };
        self.open_gateway(&call).await?.into_body().collect().await.map(drop)
    }

    /// Returns the feeds that were reported to any gateway within the last minutes.
    pub async fn feeds(&self) -> Result<FeedsReply> {
        self.get_json(FEEDS_PATH).await
    }
}
