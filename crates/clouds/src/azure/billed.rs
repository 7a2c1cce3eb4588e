//! Adds each request to the bucket's bill, grouped as Azure does.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Method, Request};
use forebay_core::bill::RequestClass;
use forebay_node::bill::Bill;

use super::pass_on;

/// Called for every attempt.
#[derive(Debug)]
pub(super) struct Billed(pub(super) Arc<Bill>);

#[async_trait]
impl Policy for Billed {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let lists = request.url().query_pairs().any(|(k, v)| k == "comp" && v == "list");
        self.0.request(class(request.method(), lists));
        pass_on(ctx, request, next).await
    }
}

fn class(method: Method, lists: bool) -> RequestClass {
    match method {
        Method::Get if lists => RequestClass::List,
        Method::Get => RequestClass::Read,
        Method::Put | Method::Post => RequestClass::Write,
        Method::Delete => RequestClass::Free,
        _ => RequestClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_grouped_as_azure_prices_them() {
        for (method, lists, expected) in [
            (Method::Get, true, RequestClass::List),
            (Method::Get, false, RequestClass::Read),
            (Method::Head, false, RequestClass::Other),
            (Method::Put, false, RequestClass::Write),
            (Method::Delete, false, RequestClass::Free),
        ] {
            assert_eq!(class(method, lists), expected, "{method:?}");
        }
    }
}
