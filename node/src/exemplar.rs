//! Exemplars: traces of requests that buckets of histograms count.

use std::collections::BTreeMap;

use forebay_core::trace::TraceId;

/// The trace of a request that a bucket of a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceId,
    pub(crate) seconds: f64,
    pub(crate) unix_s: f64,
}

/// Exemplars by the series of their bucket, as the text has it: `name_bucket{labels,le="…"}`.
pub(crate) type Exemplars = BTreeMap<String, Exemplar>;
