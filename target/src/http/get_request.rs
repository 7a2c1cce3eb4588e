//! The content that a GET over v1 requests, and the result of its look-up.

use std::sync::Arc;

use axum::http::header;
use forebay_core::bucket::Freshness;
use forebay_core::etl::EtlCall;
use forebay_core::size::RangeSpec;
use forebay_core::{Error, Result};
use forebay_store::Record;
use forebay_v1::archive::ArchiveQuery;
use forebay_v1::object::BlobArgs;

use super::object_request::ObjectRequest;

/// The kind of content that a GET requests.
pub(super) enum GetRequest {
    /// The object, or a range of it.
    Bytes(Option<RangeSpec>, Lookup),
    /// The same, once a job has fetched the object.
    Fetched(BlobArgs, Option<RangeSpec>),
    Member(ArchiveQuery),
    Transformed(EtlCall),
}

/// The result of the look-up of a fresh copy on this target. The fast path hands it to the slow
/// path, so that a request is looked up once.
#[derive(Default)]
pub(super) enum Lookup {
    /// There was no look-up yet.
    #[default]
    Pending,
    /// A fresh copy, not in memory.
    Fresh(Box<Record>),
    Miss,
}

impl GetRequest {
    /// Parses the request of a GET.
    pub(super) fn of(request: &mut ObjectRequest) -> Result<Self> {
        if request.query.flag("latest-ver") {
            Arc::make_mut(&mut request.info).freshness = Freshness::Always;
        }
        let call = forebay_v1::etl::call_of_query(&request.query)?;
        match (ArchiveQuery::parse(&request.query)?, call) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "members of shards cannot be transformed: etl_name goes without archive \
                     parameters",
                ));
            }
            (Some(asked), None) => return Ok(Self::Member(asked)),
            (None, Some(call)) => return Ok(Self::Transformed(call)),
            (None, None) => {}
        }
        let range = match request.headers.get(header::RANGE) {
            Some(value) => RangeSpec::parse(value.to_str().unwrap_or("bytes="))?,
            None => None,
        };
        Ok(match BlobArgs::from_headers(&request.headers)? {
            Some(blob) => Self::Fetched(blob, range),
            None => Self::Bytes(range, Lookup::Pending),
        })
    }
}
