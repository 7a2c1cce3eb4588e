//! Rows of a listing from sorted keys: delimiter, common prefixes, exact truncation.
//!
//! A [`PageBuilder`] takes keys in order, as they come from the store, and reports when the page is
//! full. It never needs more than one key beyond the page. If a delimiter groups many keys into one
//! prefix, [`PageBuilder::skip_to`] returns where the store may continue.

use super::answers::{ListedObject, ObjectPage};
use super::operation::ListScope;

/// The result of offering a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is on the page, or not in its scope: continue.
    More,
    /// It is in a common prefix that is on the page: continue, best from [`PageBuilder::skip_to`].
    Grouped,
    /// The page was full before it: the listing is truncated here.
    Full,
}

/// Builds one page of a listing.
#[derive(Debug)]
pub struct PageBuilder<'a> {
    scope: &'a ListScope,
    after: &'a str,
    page: ObjectPage,
    rows: usize,
}

impl<'a> PageBuilder<'a> {
    /// A page of the rows after `after`: a key, or a common prefix that ended an earlier page;
    /// nothing of that prefix is listed again.
    pub fn new(scope: &'a ListScope, after: &'a str) -> Self {
        Self { scope, after, page: ObjectPage::default(), rows: 0 }
    }

    /// Where to start reading keys: those strictly greater than this text.
    pub fn start(&self) -> String {
        match self.common_prefix(self.after) {
            Some(prefix) if prefix == self.after => past(prefix),
            _ => self.after.to_owned(),
        }
    }

    /// Offers the next key, which must be greater than all before.
    pub fn offer(&mut self, key: &str, object: impl FnOnce() -> ListedObject) -> Taken {
        if !key.starts_with(self.scope.prefix.as_str()) || key <= self.after {
            return Taken::More;
        }
        let Some(prefix) = self.common_prefix(key) else {
            if self.is_full() {
                return self.full();
            }
            self.page.last = key.to_owned();
            self.page.objects.push(object());
            self.rows += 1;
            return Taken::More;
        };
        // The previous page ended with this prefix, or this page has it.
        if prefix == self.after {
            return Taken::Grouped;
        }
        if self.page.common_prefixes.last().is_some_and(|p| p == prefix) {
            return Taken::Grouped;
        }
        if self.is_full() {
            return self.full();
        }
        let prefix = prefix.to_owned();
        self.page.last.clone_from(&prefix);
        self.page.common_prefixes.push(prefix);
        self.rows += 1;
        Taken::Grouped
    }

    /// Offers a common prefix that the store has grouped itself; like [`Self::offer`].
    pub fn offer_prefix(&mut self, prefix: &str) -> Taken {
        self.offer(prefix, ListedObject::default)
    }

    /// After [`Taken::Grouped`]: all keys up to this text are in the same common prefix.
    pub fn skip_to(&self, key: &str) -> Option<String> {
        self.common_prefix(key).map(past)
    }

    /// Number of rows that still fit.
    pub fn room(&self) -> usize {
        self.scope.max as usize - self.rows
    }

    /// Returns the page; `more` says whether keys remain that were not offered.
    pub fn finish(mut self, more: bool) -> ObjectPage {
        // A page without rows is never truncated: a client would ask forever.
        self.page.truncated = (self.page.truncated || more) && self.scope.max > 0;
        self.page
    }

    fn is_full(&self) -> bool {
        self.rows >= self.scope.max as usize
    }

    fn full(&mut self) -> Taken {
        self.page.truncated = true;
        Taken::Full
    }

    fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        common_prefix(key, &self.scope.prefix, self.scope.delimiter.as_deref())
    }
}

/// The common prefix that a key is grouped into: up to and including the first delimiter after
/// `prefix`.
pub fn common_prefix<'k>(key: &'k str, prefix: &str, delimiter: Option<&str>) -> Option<&'k str> {
    let delimiter = delimiter.filter(|d| !d.is_empty())?;
    let at = key.strip_prefix(prefix)?.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// A text that is greater than all possible keys with this prefix.
fn past(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
