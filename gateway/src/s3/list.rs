//! Listings: of objects in both forms, of versions, of multipart uploads.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::object::ListEntry;
use forebay_core::upload::{Upload, UploadsPage, UploadsRequest};
use forebay_node::s3;
use forebay_s3::access::OWNER;
use forebay_s3::answers::{ListedObject, ListedUpload, ObjectPage, Owner, UploadPage};
use forebay_s3::listing::{PageBuilder, Taken, common_prefix};
use forebay_s3::operation::{ListMultipartUploads, ListObjects, ListObjectsV2, ListScope};
use forebay_s3::{S3Result, token};

use super::{Call, S3};
use crate::listing::{self, Want};
use crate::route::Found;
use crate::targets;

/// Keys requested at once if most of them may fold into common prefixes.
const FOLDED_STEP: usize = 1_000;
const UPLOADS: &str = "/internal/v1/uploads";

impl S3 {
    pub(super) async fn list_objects(
        &self,
        call: &Call,
        asked: &ListObjects,
    ) -> S3Result<Response> {
        let found = self.found(&call.request.bucket)?;
        let page = self.page(&found, &asked.scope, &asked.marker).await?;
        let xml = page.to_xml_v1(&call.request.bucket, asked, &s3::owner_of(&found.info))?;
        Ok(s3::xml(StatusCode::OK, xml))
    }

    pub(super) async fn list_objects_v2(
        &self,
        call: &Call,
        asked: &ListObjectsV2,
    ) -> S3Result<Response> {
        let after = match &asked.continuation_token {
            Some(token) if !token.is_empty() => token::decode(token)?,
            _ => asked.start_after.clone().unwrap_or_default(),
        };
        let found = self.found(&call.request.bucket)?;
        let page = self.page(&found, &asked.scope, &after).await?;
        let next = page.truncated.then(|| token::encode(&page.last));
        let owner = s3::owner_of(&found.info);
        let xml = page.to_xml_v2(&call.request.bucket, asked, &owner, next.as_deref())?;
        Ok(s3::xml(StatusCode::OK, xml))
    }

    async fn page(&self, found: &Found, scope: &ListScope, after: &str) -> S3Result<ObjectPage> {
        let mut builder = PageBuilder::new(scope, after);
        if scope.max == 0 {
            return Ok(builder.finish(false));
        }
        let mut at = builder.start();
        loop {
            // One more than fits, to see whether the page is complete.
            let room = builder.room() + 1;
            let limit = if scope.delimiter.is_some() { room.max(FOLDED_STEP) } else { room };
            let want =
                Want { prefix: scope.prefix.clone(), after: at.clone(), limit, ..Want::default() };
            let part = listing::page(&self.targets, found, &want).await?;
            let more = part.more;
            let mut rows = part.rows.into_iter().map(|row| row.entry).peekable();
            while let Some(entry) = rows.next() {
                match builder.offer(&entry.name, || listed(&entry)) {
                    Taken::Full => return Ok(builder.finish(true)),
                    Taken::More => at = entry.name,
                    Taken::Grouped => {
                        at = builder.skip_to(&entry.name).unwrap_or(entry.name);
                        while rows.next_if(|row| row.name <= at).is_some() {}
                    }
                }
            }
            if !more {
                return Ok(builder.finish(false));
            }
        }
    }

    pub(super) async fn list_uploads(
        &self,
        call: &Call,
        asked: &ListMultipartUploads,
    ) -> S3Result<Response> {
        let found = self.found(&call.request.bucket)?;
        let page = self.uploads(&found, asked).await?;
        let xml = page.to_xml(&call.request.bucket, asked, &s3::owner_of(&found.info))?;
        Ok(s3::xml(StatusCode::OK, xml))
    }

    /// One page of all targets' uploads. Uploads are few: if a delimiter folds many of them, the
    /// targets are asked again.
    async fn uploads(&self, found: &Found, asked: &ListMultipartUploads) -> S3Result<UploadPage> {
        let (scope, max) = (&asked.scope, asked.scope.max as usize);
        let mut page = UploadPage::default();
        if max == 0 {
            return Ok(page);
        }
        let mut seen = BTreeSet::new();
        let mut request = UploadsRequest {
            info: found.info.clone(),
            prefix: scope.prefix.clone(),
            after: asked.key_marker.clone(),
            after_id: asked.upload_id_marker.clone(),
            limit: max + 1,
        };
        loop {
            let (uploads, more) = self.gather(found, &request).await?;
            for upload in uploads {
                request.after.clone_from(&upload.name);
                request.after_id = Some(upload.id.clone());
                let prefix = common_prefix(&upload.name, &scope.prefix, scope.delimiter.as_deref());
                if prefix.is_some_and(|p| seen.contains(p) || p == asked.key_marker) {
                    continue;
                }
                if page.uploads.len() + seen.len() == max {
                    page.truncated = true;
                    page.common_prefixes = seen.into_iter().collect();
                    return Ok(page);
                }
                match prefix {
                    Some(prefix) => {
                        page.next_key_marker = prefix.to_owned();
                        page.next_upload_id_marker.clear();
                        seen.insert(prefix.to_owned());
                    }
                    None => {
                        page.next_key_marker.clone_from(&upload.name);
                        page.next_upload_id_marker.clone_from(&upload.id);
                        page.uploads.push(ListedUpload {
                            key: upload.name,
                            upload_id: upload.id,
                            initiated_ns: upload.started_ns,
                            checksum: None,
                            owner: upload.custom.as_ref().and_then(owner_in),
                        });
                    }
                }
            }
            if !more {
                page.common_prefixes = seen.into_iter().collect();
                return Ok(page);
            }
        }
    }

    /// Merges the rows of all targets in order, as far as every target's answer reaches.
    async fn gather(
        &self,
        found: &Found,
        request: &UploadsRequest,
    ) -> S3Result<(Vec<Upload>, bool)> {
        let nodes = targets::alive(&found.state)?;
        let answers = self.targets.post_all::<_, UploadsPage>(nodes, UPLOADS, request).await;
        let mut all = Vec::new();
        let mut horizon: Option<(String, String)> = None;
        for (_, answer) in answers {
            let page = answer?;
            if page.more
                && let Some(last) = page.uploads.last()
            {
                let last = (last.name.clone(), last.id.clone());
                horizon = Some(horizon.map_or(last.clone(), |h| h.min(last)));
            }
            all.extend(page.uploads);
        }
        all.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        if let Some((name, id)) = &horizon {
            all.retain(|u| (&u.name, &u.id) <= (name, id));
        }
        Ok((all, horizon.is_some()))
    }
}

pub(super) fn listed(entry: &ListEntry) -> ListedObject {
    let meta = &entry.meta;
    ListedObject {
        key: entry.name.clone(),
        mtime_ns: meta.mtime_ns,
        etag: meta.s3_etag(),
        size: meta.size,
        checksum: None,
        owner: owner_in(&meta.custom),
    }
}

/// The user that wrote an object, if that was not the owner of the bucket.
fn owner_in(custom: &BTreeMap<String, String>) -> Option<Owner> {
    custom.get(OWNER).map(|owner| Owner::user(owner))
}
