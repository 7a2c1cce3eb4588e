//! Actions on objects beside reads and writes: copy, rename, and the state of the lock.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::{ObjectName, Result};
use forebay_node::maps::Maps;
use forebay_v1::action::ActionMsg;
use forebay_v1::object::CopyArgs;

use super::object_request::{ObjectRequest, unknown_action};
use crate::etl::Etls;
use crate::object::{CopyOptions, ObjectService};

/// The services that actions on objects use.
pub(crate) struct ObjectActions {
    pub(crate) objects: ObjectService,
    pub(crate) etls: Etls,
    pub(crate) maps: Maps,
}

impl ObjectActions {
    /// A PUT that is a copy of the object in its path.
    pub(super) async fn copy(&self, request: &ObjectRequest, to: CopyArgs) -> Result<Response> {
        let target = self.maps.load().bucket(&to.bucket)?.clone();
        if !target.has_backend() {
            to.name.check_v1_native()?;
        }
        let how = CopyOptions { latest: to.latest, sync: to.sync, keep_existing: false };
        let from = (&*request.info, request.name.as_str());
        if let Some(call) = forebay_v1::etl::call_of_query(&request.query)? {
            let mut info = BucketInfo::clone(&request.info);
            if to.latest || to.sync {
                info.freshness = Freshness::Always;
            }
            let copy = (&*target, to.name.as_str());
            self.etls.copy((&info, from.1), copy, &call, None).await?;
            return Ok(Response::new(Body::empty()));
        }
        self.objects.copy(from, (&*target, to.name.as_str()), how).await?;
        Ok(Response::new(Body::empty()))
    }

    /// The actions of POST on one object.
    pub(super) async fn post(
        &self,
        request: &ObjectRequest,
        action: &ActionMsg,
    ) -> Result<Response> {
        let (info, name) = (&request.info, request.name.as_str());
        let mut response = Response::new(Body::empty());
        match action.action.as_str() {
            "check-lock" => {
                if self.objects.is_being_written(info, name) {
                    *response.status_mut() = StatusCode::LOCKED;
                }
            }
            "rename-obj" => {
                let to = ObjectName::new(&action.name)?;
                if !info.has_backend() {
                    to.check_v1_native()?;
                }
                self.objects.rename(info, name, to.as_str()).await?;
            }
            other => return Err(unknown_action(other)),
        }
        Ok(response)
    }
}
