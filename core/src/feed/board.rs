//! The feeds that one gateway keeps: the newest report of each, a bounded number, for a bounded time.

use std::collections::BTreeMap;

use super::Feed;

/// Most feeds that a gateway keeps; the one that was not reported for longest gives way.
pub const MAX_FEEDS: usize = 4096;
/// How long a feed is kept without a new report.
pub const FEED_EXPIRY_S: u64 = 180;

/// The feeds by id. Time is given by the caller, as unix seconds.
#[derive(Debug, Default)]
pub struct Board {
    feeds: BTreeMap<String, Feed>,
}

impl Board {
    /// Keeps a report instead of the last one of the same feed.
    pub fn put(&mut self, mut feed: Feed, now_s: u64) {
        feed.updated = now_s;
        if self.feeds.len() >= MAX_FEEDS && !self.feeds.contains_key(&feed.id) {
            self.expire(now_s);
        }
        if self.feeds.len() >= MAX_FEEDS && !self.feeds.contains_key(&feed.id) {
            let oldest = self.feeds.values().min_by_key(|feed| feed.updated);
            if let Some(id) = oldest.map(|feed| feed.id.clone()) {
                self.feeds.remove(&id);
            }
        }
        self.feeds.insert(feed.id.clone(), feed);
    }

    /// The feed of this id, if it has not expired.
    pub fn get(&self, id: &str, now_s: u64) -> Option<&Feed> {
        self.feeds.get(id).filter(|feed| !is_expired(feed, now_s))
    }

    /// All feeds that have not expired.
    pub fn all(&mut self, now_s: u64) -> Vec<Feed> {
        self.expire(now_s);
        self.feeds.values().cloned().collect()
    }

    fn expire(&mut self, now_s: u64) {
        self.feeds.retain(|_, feed| !is_expired(feed, now_s));
    }
}

fn is_expired(feed: &Feed, now_s: u64) -> bool {
    now_s.saturating_sub(feed.updated) >= FEED_EXPIRY_S
}

/// The feeds of several gateways: the newest report of each, by name, rank and id.
pub fn newest(feeds: impl IntoIterator<Item = Feed>) -> Vec<Feed> {
    let mut by_id: BTreeMap<String, Feed> = BTreeMap::new();
    for feed in feeds {
        let is_newer = |known: &Feed| (feed.updated, feed.steps) > (known.updated, known.steps);
        if by_id.get(&feed.id).is_none_or(is_newer) {
            by_id.insert(feed.id.clone(), feed);
        }
    }
    let mut feeds: Vec<Feed> = by_id.into_values().collect();
    feeds.sort_by(|a, b| (&a.name, a.rank, &a.id).cmp(&(&b.name, b.rank, &b.id)));
    feeds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(id: &str, steps: u64) -> Feed {
        Feed { id: id.to_owned(), steps, ..Feed::default() }
    }

    #[test]
    fn the_newest_report_stays_until_it_expires() {
        let mut board = Board::default();
        board.put(feed("a", 1), 100);
        board.put(feed("a", 2), 105);
        board.put(feed("b", 1), 200);
        assert_eq!(board.get("a", 200).map(|feed| (feed.steps, feed.updated)), Some((2, 105)));
        assert_eq!(board.all(105 + FEED_EXPIRY_S - 1).len(), 2);
        assert_eq!(board.get("a", 105 + FEED_EXPIRY_S), None);
        let left = board.all(105 + FEED_EXPIRY_S);
        assert_eq!(left.iter().map(|feed| feed.id.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn the_number_of_feeds_is_bounded_and_the_oldest_gives_way() {
        let mut board = Board::default();
        for number in 0..MAX_FEEDS as u64 + 10 {
            board.put(feed(&format!("f{number}"), 1), 1_000 + number / 100);
        }
        let last = 1_000 + MAX_FEEDS as u64 / 100;
        assert_eq!(board.all(last).len(), MAX_FEEDS);
        assert!(board.get(&format!("f{}", MAX_FEEDS + 9), last).is_some());
    }

    #[test]
    fn of_two_gateways_the_newer_report_counts() {
        let mut one = feed("a", 4);
        let mut two = feed("a", 3);
        (one.updated, two.updated) = (10, 12);
        let feeds = newest([two, one, feed("b", 1)]);
        assert_eq!(feeds.iter().map(|feed| feed.steps).collect::<Vec<_>>(), [3, 1]);
    }
}
