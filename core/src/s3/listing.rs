//! Rows of a listing from sorted keys: delimiter, common prefixes, exact truncation.
//!
//! A [`PageBuilder`] takes keys in order, as they come from the store, and says when to stop. It
//! never needs more than one key beyond the page. Where a delimiter groups many keys into one
//! prefix, [`PageBuilder::skip_to`] says where the store may jump.

use super::answers::{ListedObject, ObjectPage};
use super::operation::ListScope;

/// What became of a key that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is on the page, or not in its scope: go on.
    More,
    /// It is in a common prefix that is on the page: go on, best from [`PageBuilder::skip_to`].
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
    /// A page of what comes after `after`: a key, or a common prefix that an earlier page ended
    /// with, in which case nothing of that prefix is listed again.
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

    /// Takes the next key, which must be greater than all before.
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
        // The page before ended with it, or this one has it.
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

    /// Takes a common prefix that the store has grouped itself; as [`Self::offer`].
    pub fn offer_prefix(&mut self, prefix: &str) -> Taken {
        self.offer(prefix, ListedObject::default)
    }

    /// After [`Taken::Grouped`]: all keys up to this text are in the same common prefix.
    pub fn skip_to(&self, key: &str) -> Option<String> {
        self.common_prefix(key).map(past)
    }

    /// How many more rows there is room for.
    pub fn room(&self) -> usize {
        self.scope.max as usize - self.rows
    }

    /// The page; `more` says whether keys are left that were not offered.
    pub fn finish(mut self, more: bool) -> ObjectPage {
        // A page of no rows is never truncated: a client would ask for ever.
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

/// The common prefix that a key is grouped into: up to and with the first delimiter behind
/// `prefix`.
pub fn common_prefix<'k>(key: &'k str, prefix: &str, delimiter: Option<&str>) -> Option<&'k str> {
    let delimiter = delimiter.filter(|d| !d.is_empty())?;
    let at = key.strip_prefix(prefix)?.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// A text that is greater than all keys with this prefix which any store can hold.
fn past(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
