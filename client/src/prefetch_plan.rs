//! The plan of a prefetch: its objects, bytes and requests, summed over the objects that match.
//!
//! Pure: rows of a listing in, numbers out.

use std::iter::Peekable;

use forebay_core::bucket::{BackendKind, BackendSpec, FetchRanges, Freshness};
use forebay_core::cache_rules::{Admission, CacheRules};
use forebay_core::cloud_rules::CloudRules;
use forebay_core::{Bucket, Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Names that a backend lists by one request.
pub(crate) const LISTING_PAGE_OBJECTS: u64 = 1_000;
/// The gigabyte of prices.
const GB: f64 = 1e9;

/// The objects that match a prefetch, those that it has to fetch, and the requests that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchPlan {
    /// Objects that are cached whole.
    pub cached_objects: u64,
    /// Bytes of these objects.
    pub cached_bytes: u64,
    /// Objects that are not cached, or only in part.
    pub fetch_objects: u64,
    /// Bytes of these objects. Parts that are cached already are included.
    pub fetch_bytes: u64,
    /// GETs of these objects. A large object of a prefix has one for each of its ranges.
    pub gets: u64,
    /// Pages of 1,000 names that the job lists; none if the objects are given by name.
    pub listing_pages: u64,
}

impl PrefetchPlan {
    /// Returns the number of objects that match.
    pub fn objects(&self) -> u64 {
        self.cached_objects + self.fetch_objects
    }

    /// Returns the bytes of the objects that match.
    pub fn bytes(&self) -> u64 {
        self.cached_bytes + self.fetch_bytes
    }

    /// Returns the number of requests to the backend: GETs of objects, and pages of the listing.
    pub fn requests(&self) -> u64 {
        self.gets + self.listing_pages
    }

    /// Returns the price of the bytes to fetch, at a price per 10^9 bytes.
    pub fn cost(&self, price_per_gb: f64) -> f64 {
        self.fetch_bytes as f64 / GB * price_per_gb
    }

    /// Returns all numbers as one JSON object, the sums included.
    pub fn to_json(&self) -> Value {
        json!({
            "objects": self.objects(), "bytes": self.bytes(),
            "cached_objects": self.cached_objects, "cached_bytes": self.cached_bytes,
            "fetch_objects": self.fetch_objects, "fetch_bytes": self.fetch_bytes,
            "gets": self.gets, "listing_pages": self.listing_pages, "requests": self.requests(),
        })
    }

    /// Counts an object that matches; `gets` requests read it if it is not cached.
    pub(crate) fn add(&mut self, size: u64, is_cached: bool, gets: u64) {
        if is_cached {
            self.cached_objects += 1;
            self.cached_bytes += size;
        } else {
            self.fetch_objects += 1;
            self.fetch_bytes += size;
            self.gets += gets;
        }
    }

    /// Sets the pages of a listing that has all objects of the plan. An empty listing has a page.
    pub(crate) fn set_listing_pages(&mut self) {
        self.listing_pages = self.objects().div_ceil(LISTING_PAGE_OBJECTS).max(1);
    }
}

/// The properties of a bucket that decide what a prefetch fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanRules {
    pub(crate) ranges: FetchRanges,
    /// Whether each cached copy is compared with the backend.
    pub(crate) compares: bool,
}

impl PlanRules {
    /// Reads the properties of a bucket. Fails as the prefetch itself does if nothing can be fetched,
    /// or nothing of it is kept.
    pub(crate) fn of(bucket: &Bucket, props: &Value) -> Result<Self> {
        let Some(backend) = property::<Option<BackendSpec>>(props, "backend")? else {
            return Err(Error::invalid(format!(
                "cannot prefetch objects of \"{bucket}\": it has no backend"
            ))
            .hint("objects of native buckets are in the cluster already"));
        };
        if property::<CacheRules>(props, "cache")?.admission == Admission::Never {
            return Err(Error::invalid(format!(
                "bucket \"{bucket}\" has cache.admission never: nothing of it is kept"
            )));
        }
        let kind: Option<BackendKind> = Some(backend.kind);
        let cloud: CloudRules = property(props, "cloud")?;
        let freshness: Freshness = property(props, "freshness")?;
        let compares = freshness == Freshness::Always;
        Ok(Self { ranges: FetchRanges::of(kind, &cloud), compares })
    }
}

/// A property of a bucket; its default if the gateway does not send it.
fn property<T: DeserializeOwned + Default>(props: &Value, name: &str) -> Result<T> {
    match props.get(name) {
        None => Ok(T::default()),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|e| Error::internal(format!("unreadable bucket property \"{name}\": {e}"))),
    }
}

/// Names in order, each once, that are matched with the rows of a listing.
#[derive(Debug, Default)]
pub(crate) struct SortedNames {
    /// In reverse order: the next name is the last one.
    names: Vec<String>,
    /// The first name that the listing does not have.
    missing: Option<String>,
}

impl SortedNames {
    pub(crate) fn of(mut names: Vec<String>) -> Self {
        names.sort_unstable_by(|a, b| b.cmp(a));
        names.dedup();
        Self { names, missing: None }
    }

    /// Number of names that are not matched yet.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The longest prefix that all names have.
    pub(crate) fn common_prefix(&self) -> &str {
        let (Some(last), Some(first)) = (self.names.first(), self.names.last()) else { return "" };
        let same = last.char_indices().zip(first.chars()).take_while(|((_, a), b)| a == b);
        &last[..same.last().map_or(0, |((at, c), _)| at + c.len_utf8())]
    }

    /// Whether the next row of the listing is one of the names. Names before it are missing.
    pub(crate) fn matches(&mut self, row: &str) -> bool {
        while let Some(name) = self.names.pop_if(|name| name.as_str() <= row) {
            if name == row {
                return true;
            }
            self.missing.get_or_insert(name);
        }
        false
    }

    /// The listing has no more rows: the other names are missing.
    pub(crate) fn end_listing(&mut self) {
        if let Some(next) = self.names.pop() {
            self.missing.get_or_insert(next);
        }
        self.names.clear();
    }

    /// The first name that the listing does not have.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Takes the names that no row was compared with.
    pub(crate) fn take_rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.names)
    }
}

/// The next at most `size` names; `None` at the end.
pub(crate) fn next_window(
    names: &mut Peekable<impl Iterator<Item = String>>,
    size: usize,
) -> Option<SortedNames> {
    names.peek()?;
    Some(SortedNames::of(names.by_ref().take(size).collect()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::Provider;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn bucket() -> Bucket {
        Bucket::new(Provider::Aws, "data").unwrap()
    }

    fn props(freshness: Value) -> Value {
        json!({
            "backend": { "type": "s3", "bucket": "data" }, "freshness": freshness,
            "cache": CacheRules::default(), "cloud": { "ranges_above": MIB },
        })
    }

    fn sorted(names: &[&str]) -> SortedNames {
        SortedNames::of(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn sums_are_of_cached_and_other_objects_apart() {
        let mut plan = PrefetchPlan::default();
        plan.add(10, true, 1);
        plan.add(500_000_000, false, 3);
        plan.add(1_000_000_000, false, 1);
        plan.set_listing_pages();
        assert_eq!((plan.objects(), plan.bytes()), (3, 1_500_000_010));
        assert_eq!((plan.fetch_objects, plan.fetch_bytes), (2, 1_500_000_000));
        assert_eq!((plan.gets, plan.listing_pages, plan.requests()), (4, 1, 5));
        assert!((plan.cost(0.09) - 0.135).abs() < 1e-12);
        let json = plan.to_json();
        assert_eq!((&json["requests"], &json["cached_bytes"]), (&json!(5), &json!(10)));
    }

    #[test]
    fn a_listing_has_a_page_for_each_thousand_names_and_one_if_it_is_empty() {
        let pages = |objects| {
            let mut plan = PrefetchPlan { cached_objects: objects, ..PrefetchPlan::default() };
            plan.set_listing_pages();
            plan.listing_pages
        };
        assert_eq!([0, 1, 1_000, 1_001, 1_000_000].map(pages), [1, 1, 1, 2, 1_000]);
    }

    #[test]
    fn rules_come_from_the_properties_that_a_gateway_shows() {
        let rules = PlanRules::of(&bucket(), &props(json!({ "age": 600 }))).unwrap();
        assert_eq!((rules.compares, rules.ranges.requests(3 * MIB)), (false, 3));
        assert!(PlanRules::of(&bucket(), &props(json!("always"))).unwrap().compares);
        let e = PlanRules::of(&bucket(), &props(json!("sometimes"))).unwrap_err();
        assert!(e.message.contains("\"freshness\""), "{e}");
    }

    #[test]
    fn where_a_prefetch_is_refused_so_is_its_plan() {
        let e = PlanRules::of(&bucket(), &json!({ "freshness": "never" })).unwrap_err();
        assert!(e.message.contains("has no backend"), "{e}");
        let mut never = props(json!("never"));
        never["cache"]["admission"] = json!("never");
        let e = PlanRules::of(&bucket(), &never).unwrap_err();
        assert!(e.message.contains("nothing of it is kept"), "{e}");
    }

    #[test]
    fn names_are_found_among_the_rows_of_a_listing() {
        let mut names = sorted(&["b", "d", "a", "b", "f", "g"]);
        assert_eq!(names.len(), 5);
        let found: Vec<_> = ["a", "b", "c", "d"].map(|row| names.matches(row)).into();
        assert_eq!((found, names.missing()), (vec![true, true, false, true], None));
        assert!(!names.matches("fa"));
        assert_eq!((names.missing(), names.len()), (Some("f"), 1));
        names.end_listing();
        assert_eq!((names.missing(), names.len()), (Some("f"), 0));
    }

    #[test]
    fn names_after_the_last_row_are_missing_or_taken_as_the_rest() {
        let mut names = sorted(&["x", "y"]);
        names.end_listing();
        assert_eq!(names.missing(), Some("x"));
        let mut rest = sorted(&["x", "y"]).take_rest();
        rest.sort();
        assert_eq!(rest, ["x", "y"]);
    }

    #[test]
    fn the_common_prefix_ends_between_characters() {
        assert_eq!(sorted(&[]).common_prefix(), "");
        assert_eq!(sorted(&["p/é1", "p/è2", "p/é3"]).common_prefix(), "p/");
        assert_eq!(sorted(&["train/001", "train/010"]).common_prefix(), "train/0");
        assert_eq!(sorted(&["é"]).common_prefix(), "é");
        assert_eq!(sorted(&["ab", "abc"]).common_prefix(), "ab");
    }

    #[test]
    fn many_names_are_taken_in_windows() {
        let mut names = (0..5).map(|n| n.to_string()).peekable();
        let mut sizes = Vec::new();
        while let Some(window) = next_window(&mut names, 2) {
            sizes.push(window.len());
        }
        assert_eq!(sizes, [2, 2, 1]);
    }
}
