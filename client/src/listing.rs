//! Whole listings: one stream of blocks from a gateway, resumed where it broke.

use futures::StreamExt as _;
use http::Method;

use forebay_core::list_columns::{BlockReader, Columns, MEDIA_TYPE};
use forebay_core::{Bucket, Error as CoreError};
use forebay_v1::list::{ListMsg, flags};
use forebay_v1::query::bucket_uri;

use crate::buckets::action;
use crate::client::{Client, ControlCall};
use crate::error::{Error, Result};
use crate::transport::Download;

impl Client {
    /// Names and sizes of all objects that start with `prefix`, in name order.
    pub async fn list_all(&self, bucket: &Bucket, prefix: &str) -> Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        let keep = |name: &str, size| {
            all.push((name.to_owned(), size));
            Ok(())
        };
        self.list_each(bucket, prefix, keep).await?;
        Ok(all)
    }

    /// Shows name and size of every object that starts with `prefix`, in name order. An error of
    /// `show` ends the listing.
    pub async fn list_each(
        &self,
        bucket: &Bucket,
        prefix: &str,
        mut show: impl FnMut(&str, u64) -> Result<(), CoreError>,
    ) -> Result<()> {
        let each = |rows: Columns| rows.rows().try_for_each(|row| show(row.name, row.size));
        self.list_blocks(bucket, prefix, each).await
    }

    /// Shows the rows of all objects that start with `prefix`, in name order, a block in memory at
    /// a time. An error of `show` ends the listing.
    pub async fn list_blocks(
        &self,
        bucket: &Bucket,
        prefix: &str,
        mut show: impl FnMut(Columns) -> Result<(), CoreError>,
    ) -> Result<()> {
        let mut last = String::new();
        let mut tries = self.attempts();
        loop {
            let before = last.clone();
            match self.list_rest(bucket, prefix, &mut last, &mut show).await {
                Ok(()) => return Ok(()),
                Err(Failure::Show(e)) => return Err(Error::Api(e)),
                Err(Failure::Stream(e)) => {
                    if last != before {
                        tries.progressed();
                    }
                    tries.again(e).await?;
                }
            }
        }
    }

    /// Shows the rows after `last`, and updates `last` to the last name that was shown.
    async fn list_rest(
        &self,
        bucket: &Bucket,
        prefix: &str,
        last: &mut String,
        show: &mut impl FnMut(Columns) -> Result<(), CoreError>,
    ) -> Result<(), Failure> {
        let wanted = ListMsg {
            prefix: prefix.to_owned(),
            token: last.clone(),
            props: "name,size".into(),
            flags: flags::NAME_SIZE,
            ..ListMsg::default()
        };
        let path = bucket_uri(bucket);
        let call = ControlCall {
            method: Method::GET,
            path: &path,
            body: Some(action("list", wanted.to_value())),
            accept: Some(MEDIA_TYPE),
            node: None,
        };
        let mut body: Download = self.open_gateway(&call).await?.into_body();
        let mut blocks = BlockReader::default();
        while let Some(bytes) = body.next().await {
            blocks.feed(&bytes?);
            while let Some(rows) = blocks.next_block().map_err(|e| garbled(&body, e.message))? {
                body.progressed();
                if let Some(name) = rows.last_name() {
                    last.clear();
                    last.push_str(name);
                }
                show(rows).map_err(Failure::Show)?;
            }
        }
        if !blocks.is_complete() {
            return Err(garbled(&body, "the listing ends without its last block").into());
        }
        Ok(())
    }
}

fn garbled(body: &Download, what: impl Into<String>) -> Error {
    Error::garbled(body.endpoint(), what)
}

/// Why a stream was not shown to its end.
enum Failure {
    Stream(Error),
    Show(CoreError),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Stream(e)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use forebay_core::list_columns::ColumnRow;
    use forebay_core::object::RowKind;
    use serde_json::Value;

    use super::*;
    use crate::scripted_server::{Seen, Server, broken, bucket, client, reply};

    const LONG_TIMEOUT: Duration = Duration::from_secs(20);

    fn block(names: &[&str], more: bool) -> Vec<u8> {
        let mut rows = Columns::default();
        for name in names {
            let kind = RowKind::Object;
            rows.push(ColumnRow { name, size: 7, mtime_ns: 1, kind, present: true });
        }
        rows.encode(more)
    }

    /// The token at which the requested listing starts.
    fn token(seen: &Seen) -> String {
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        asked["value"]["continuation_token"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_listing_that_breaks_goes_on_behind_the_last_name_that_came() {
        let server = Server::start(|seen| match token(seen).as_str() {
            "" => {
                let mut bytes = block(&["a", "b"], true);
                bytes.extend_from_slice(&block(&["c"], true)[..9]);
                broken(200, &[], 1000, Bytes::from(bytes))
            }
            "b" => reply(200, &[], [block(&["c"], true), block(&["d"], false)].concat()),
            other => reply(500, &[], format!("behind {other}?")),
        })
        .await;
        let listed = client(&server.url, LONG_TIMEOUT).list_all(&bucket(), "").await.unwrap();
        assert_eq!(listed, ["a", "b", "c", "d"].map(|name| (name.to_owned(), 7)));
    }

    #[tokio::test]
    async fn a_stream_without_a_last_block_is_no_whole_listing() {
        let server = Server::start(|seen| match token(seen).as_str() {
            "" => reply(200, &[], block(&["a"], true)),
            _ => reply(200, &[], block(&[], false)),
        })
        .await;
        let listed = client(&server.url, LONG_TIMEOUT).list_all(&bucket(), "").await.unwrap();
        assert_eq!((listed.len(), server.count("/v1/buckets/b")), (1, 2));
    }

    #[tokio::test]
    async fn an_error_of_the_reader_ends_the_listing() {
        let server = Server::start(|_| reply(200, &[], block(&["a", "b"], false))).await;
        let refuse = |_: &str, _| Err(CoreError::invalid("enough"));
        let e =
            client(&server.url, LONG_TIMEOUT).list_each(&bucket(), "", refuse).await.unwrap_err();
        assert!(e.to_string().contains("enough"), "{e}");
        assert_eq!(server.count("/"), 1);
    }
}
