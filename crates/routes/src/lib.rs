//! The table of routes: every request that a node serves, who may send it, and which rights it
//! needs. No I/O.
//!
//! Routers are built from the rows of this table, so a route without a rule does not compile.
//! Requests are checked in two places: [`Rule::admit`] checks what method, path and query decide,
//! before the handler runs; the handler checks each bucket and object that the body names, with
//! [`Row::require`].

mod admit;
pub mod auth;
pub mod internal;
pub mod native;
mod openapi;
pub mod operations;
pub mod s3;
pub mod v1_buckets;
pub mod v1_cluster;
pub mod v1_jobs;
pub mod v1_objects;

#[cfg(test)]
mod matrix_tests;

use forebay_core::access::Right;

pub use self::admit::{Grant, Row};
pub use self::openapi::document;

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Patch,
    Options,
    /// Every method.
    Any,
}

impl Verb {
    /// The name in HTTP; `*` for every method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Patch => "PATCH",
            Self::Options => "OPTIONS",
            Self::Any => "*",
        }
    }
}

/// The nodes that serve a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedBy {
    Gateways,
    Targets,
    Both,
}

/// The senders that a route accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody, also without a token: health, logins and public keys only.
    Anyone,
    /// A user with the rights of the row.
    User,
    /// A user with the right `admin` on the cluster.
    Operator,
    /// A node of this cluster, by its proof.
    Node,
}

/// The subject on which a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Cluster,
    /// The bucket in the path.
    Bucket,
    /// The object in the path.
    Object,
    /// The objects of the bucket in the path that the request selects.
    Selected,
    /// The objects that are read and written elsewhere.
    Source,
    /// The bucket or object that is written.
    Destination,
    /// The missing bucket that the request creates for its results.
    Created,
    /// The bucket of a cloud, or another cluster, that a new bucket stands for.
    Backend,
    /// The bucket in the path, if the request changes its access mask.
    AccessMask,
    /// Each object of a batch.
    Entry,
    /// The buckets of a job.
    Job,
}

/// One of some rights on something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// One of these is enough.
    pub any_of: &'static [Right],
    pub on: On,
}

/// The part of a request that selects one of the cases of a method and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `action` in the body.
    Action(&'static str),
    /// `what` in the query.
    What(&'static str),
    /// A parameter of this name in the query.
    Query(&'static str),
    /// A header of this name.
    Header(&'static str),
}

/// One of several kinds of requests that have the same method and path.
#[derive(Debug)]
pub struct Case {
    pub by: By,
    pub operation: &'static str,
    pub who: Who,
    pub needs: &'static [Need],
    /// Types of the body of the request and of the answer; empty: none.
    pub request: &'static str,
    pub answer: &'static str,
}

/// One route: method, paths, and the rule for its requests.
#[derive(Debug)]
pub struct Rule {
    pub verb: Verb,
    /// Patterns, in the form of `axum`; the first one is the usual one.
    pub paths: &'static [&'static str],
    /// Name in metrics and in the API description; empty if all requests are those of `cases`.
    pub operation: &'static str,
    pub served_by: ServedBy,
    pub who: Who,
    pub needs: &'static [Need],
    pub cases: &'static [Case],
    /// Parameters of the query, where the API description names them.
    pub query: &'static [&'static str],
    /// Types of the body of the request and of the answer; empty: none.
    pub request: &'static str,
    pub answer: &'static str,
    pub summary: &'static str,
}

/// One of `any_of` on `on`.
const fn need(any_of: &'static [Right], on: On) -> Need {
    Need { any_of, on }
}

impl Rule {
    const fn new(
        verb: Verb,
        paths: &'static [&'static str],
        operation: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            verb,
            paths,
            operation,
            served_by: ServedBy::Gateways,
            who: Who::User,
            needs: &[],
            cases: &[],
            query: &[],
            request: "",
            answer: "",
            summary,
        }
    }

    const fn on(self, served_by: ServedBy) -> Self {
        Self { served_by, ..self }
    }

    const fn who(self, who: Who) -> Self {
        Self { who, ..self }
    }

    const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn cases(self, cases: &'static [Case]) -> Self {
        Self { cases, ..self }
    }

    const fn types(self, request: &'static str, answer: &'static str) -> Self {
        Self { request, answer, ..self }
    }

    /// Whether gateways serve the route.
    pub fn is_of_gateways(&self) -> bool {
        self.served_by != ServedBy::Targets
    }

    /// Whether targets serve the route.
    pub fn is_of_targets(&self) -> bool {
        self.served_by != ServedBy::Gateways
    }

    /// Whether this is a group of operations of S3, which no router serves.
    pub fn is_of_s3(&self) -> bool {
        self.paths[0].starts_with("/s3")
    }

    /// All rows of this route: its own, and those of its cases.
    pub fn rows(&'static self) -> impl Iterator<Item = Row> {
        let own = (!self.operation.is_empty()).then_some(Row { rule: self, case: None });
        own.into_iter()
            .chain(self.cases.iter().map(move |case| Row { rule: self, case: Some(case) }))
    }
}

impl Case {
    const fn new(by: By, operation: &'static str, needs: &'static [Need]) -> Self {
        Self { by, operation, who: Who::User, needs, request: "", answer: "" }
    }

    /// A case of an action of v1 in the body, whose name is also that of its operation.
    const fn action(name: &'static str, needs: &'static [Need]) -> Self {
        Self { request: "ActionMsg", ..Self::new(By::Action(name), name, needs) }
    }

    const fn who(self, who: Who) -> Self {
        Self { who, ..self }
    }

    const fn types(self, request: &'static str, answer: &'static str) -> Self {
        Self { request, answer, ..self }
    }
}

/// The routes of all protocols.
pub fn table() -> impl Iterator<Item = &'static Rule> {
    [
        v1_objects::TABLE,
        v1_buckets::TABLE,
        v1_cluster::TABLE,
        v1_jobs::TABLE,
        native::TABLE,
        auth::TABLE,
        operations::TABLE,
        internal::TABLE,
        s3::TABLE,
    ]
    .into_iter()
    .flatten()
    .copied()
}
