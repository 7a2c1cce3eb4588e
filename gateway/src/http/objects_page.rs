//! Pages of objects as JSON, by a request without a body: for pages in a browser and plain HTTP clients.

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use forebay_core::access::Scope;
use forebay_core::object_page::{DEFAULT_PAGE_OBJECTS, MAX_PAGE_OBJECTS, ObjectsPage, PageObject};
use forebay_core::request::RequestContext;
use forebay_core::{Error, Result};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{Grant, On, native};
use forebay_v1::list::ListMsg;
use forebay_v1::query::Query;
use serde_json::json;

use super::answered;
use crate::listing::{self, Want};
use crate::route::Route;
use crate::targets::Targets;

/// The services for pages of objects.
#[derive(Clone)]
pub(crate) struct ObjectPages {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: ObjectPages) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<ObjectPages> {
    RouteSet::new().on(&native::OBJECTS, page)
}

async fn page(
    State(state): State<ObjectPages>,
    Extension(about): Extension<RequestContext>,
    Path(bucket): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let grant = native::OBJECTS.row().of(about.access());
    let result = state.page(&grant, &bucket, &Query::parse(query.as_deref())).await;
    answered("objects", result.map(|page| json(&page)))
}

impl ObjectPages {
    async fn page(&self, grant: &Grant<'_>, bucket: &str, query: &Query) -> Result<ObjectsPage> {
        let want = want(query)?;
        let bucket = query.bucket(bucket)?;
        grant.require(On::Selected, Scope::Prefix(&bucket, &want.prefix))?;
        let found = self.route.bucket(&bucket).await?;
        let part = listing::sizes(&self.targets, &found, &want).await?;
        let next = part.more.then(|| part.rows.last_name().unwrap_or_default().to_owned());
        let mut page = ObjectsPage { next, ..ObjectsPage::default() };
        for row in part.rows.rows() {
            if want.one_level && row.name.ends_with('/') && !row.present && row.mtime_ns == 0 {
                page.folders.push(row.name.to_owned());
                continue;
            }
            page.objects.push(PageObject {
                name: row.name.to_owned(),
                size: row.size,
                mtime_ns: row.mtime_ns,
                cached: row.present || !found.info.has_backend(),
            });
        }
        Ok(page)
    }
}

/// The listing that a query requests, checked as a list request of v1 is.
fn want(query: &Query) -> Result<Want> {
    let text = |key: &str| query.get(key).unwrap_or_default();
    let limit = match query.get("limit") {
        Some(text) => text.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(|| {
            Error::invalid(format!("limit \"{text}\" is no number of objects"))
                .hint(format!("1 to {MAX_PAGE_OBJECTS}; a larger number counts as that"))
        })?,
        None => DEFAULT_PAGE_OBJECTS,
    };
    let checked = ListMsg::from_value(
        &json!({ "prefix": text("prefix"), "continuation_token": text("after") }),
    )?;
    Ok(Want {
        prefix: checked.prefix,
        after: checked.token,
        limit: limit.min(MAX_PAGE_OBJECTS),
        one_level: query.flag("folders"),
        cached_only: query.flag("cached"),
        ..Want::default()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<Want> {
        want(&Query::parse(Some(query)))
    }

    #[test]
    fn a_page_is_bounded_and_its_names_are_checked() {
        let page = of("prefix=a/&after=a%2Fb&folders=true&cached=1&limit=9").unwrap();
        assert_eq!((page.prefix.as_str(), page.after.as_str(), page.limit), ("a/", "a/b", 9));
        assert!(page.one_level && page.cached_only);
        assert_eq!(of("").unwrap().limit, DEFAULT_PAGE_OBJECTS);
        assert_eq!(of("limit=1000000").unwrap().limit, MAX_PAGE_OBJECTS);
        assert!(["limit=0", "limit=many", "limit=-1"].iter().all(|query| of(query).is_err()));
        assert!(of("prefix=../x").is_err() && of("after=a%00b").is_err());
    }
}
