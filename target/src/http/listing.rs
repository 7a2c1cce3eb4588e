//! Listings of the records of this target, for gateways.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::list_columns::Columns;
use forebay_core::list_page::Detail;
use forebay_core::{Error, history, native};
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, with_type};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::object::ObjectService;
use crate::shard::Shards;

/// The services for listings; cheap to clone.
#[derive(Clone)]
pub(crate) struct ListingApi {
    pub(crate) objects: ObjectService,
    pub(crate) shards: Shards,
    pub(crate) maps: Maps,
}

pub(crate) fn routes() -> RouteSet<Synced<ListingApi>> {
    RouteSet::new().on(&rules::LIST, Current(list))
}

/// The records on this target, in name order; with the members of shards if requested.
async fn list(
    State(api): State<ListingApi>,
    Json(request): Json<ListRequest>,
) -> Result<Response, Failure> {
    check_listing(&api, &request).await?;
    let response = listed(&api, &request).await?;
    // If this target stood still and counted as dead meanwhile, the page may have removed objects.
    check_listing(&api, &request).await?;
    Ok(response)
}

/// Returns an error if a listing would silently lack a part of the native objects, or contain
/// removed ones.
async fn check_listing(api: &ListingApi, request: &ListRequest) -> Result<(), Error> {
    let id = history::bucket_id(request.bucket_id);
    let state = api.maps.load();
    let native = |info: &&Arc<BucketInfo>| info.id == id && !info.has_backend();
    let Some(info) = state.buckets.values().find(native) else { return Ok(()) };
    if !request.in_part {
        api.objects.check_whole()?;
    }
    if request.chosen_by == 0 {
        return Ok(());
    }
    api.maps.leased().await?;
    let state = api.maps.load();
    native::check_choice(&state, request.chosen_by, api.objects.me())?;
    if api.objects.replication().may_have_lost() {
        native::check_losses(&state, info, request.chosen_by, api.objects.me())?;
    }
    Ok(())
}

async fn listed(api: &ListingApi, request: &ListRequest) -> Result<Response, Error> {
    if request.parts && !request.archive {
        let page = api.objects.listing().page_of_copies(request).await?;
        return Ok(match request.detail {
            Detail::Size => {
                let sizes = Columns::from(&page.entries[..]).encode(page.more);
                with_type(request.detail.media_type(), sizes)
            }
            Detail::All => with_type(request.detail.media_type(), page.encode(request.detail)?),
        });
    }
    if request.detail == Detail::Size && !request.archive {
        let (sizes, more) = api.objects.listing().sizes_here(request).await?;
        return Ok(with_type(request.detail.media_type(), sizes.encode(more)));
    }
    let page = if request.archive {
        let state = api.maps.load();
        let info = state.buckets.values().find(|info| info.id == request.bucket_id);
        match info {
            Some(info) => api.shards.page_here(&api.objects, info, request).await?,
            // Dropped meanwhile: none of it is served.
            None => ListPage::default(),
        }
    } else {
        api.objects.listing().page_here(request).await?
    };
    Ok(with_type(request.detail.media_type(), page.encode(request.detail)?))
}
