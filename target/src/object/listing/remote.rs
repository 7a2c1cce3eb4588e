//! A bucket's whole listing, read page by page from the target that keeps it.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{BACKEND_LIST_PATH, BackendListRequest, ListPage, listers};
use forebay_core::list_columns::MAX_ROWS;
use forebay_core::list_page::Detail;
use forebay_core::object::ListEntry;
use futures::Stream;

use super::Listing;

impl Listing {
    /// All objects of a backend with a prefix after `after`, in order, as of `since_ns` or later.
    pub(crate) fn listed(
        &self,
        info: &Arc<BucketInfo>,
        prefix: &str,
        after: &str,
        since_ns: u64,
        detail: Detail,
    ) -> impl Stream<Item = Result<Vec<ListEntry>>> + Send + use<> {
        let request = BackendListRequest {
            info: Arc::clone(info),
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            limit: MAX_ROWS,
            whole: true,
            to_the_end: true,
            since_ns,
            detail,
        };
        futures::stream::try_unfold(
            (self.clone(), Some(request)),
            |(service, request)| async move {
                let Some(mut request) = request else { return Ok(None) };
                let page = service.listed_page(&request).await?;
                // An empty page with more to follow: the backend is slow.
                if let Some(last) = page.entries.last() {
                    request.after.clone_from(&last.name);
                }
                Ok(Some((page.entries, (service, page.more.then_some(request)))))
            },
        )
    }

    /// One page, from the target that keeps the bucket's listings, or from another one.
    async fn listed_page(&self, request: &BackendListRequest) -> Result<ListPage> {
        let state = self.state();
        for node in listers(&state, &request.info.bucket) {
            if node.id == *self.me() {
                break;
            }
            let asked = self.0.peer.post_for_bytes(&node.url, BACKEND_LIST_PATH, request).await;
            match asked.map_err(forebay_core::Error::from) {
                Ok(bytes) => return ListPage::decode(&bytes, request.detail),
                Err(e) if e.code.is_transient() => {
                    tracing::debug!(node = %node.id, error = %e, "listed by another target");
                }
                Err(e) => return Err(e),
            }
        }
        ListPage::decode(&self.backend_page(request).await?, request.detail)
    }
}
