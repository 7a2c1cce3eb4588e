//! Whether a client has ever reached its cluster.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};

/// Contact with a cluster: made as soon as any node does more than refuse connections.
///
/// If contact was made, the client waits for the cluster while it restarts; it does not wait for an
/// address at which nothing ever listened. Clones share their state, also across `fork`.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<ContactState>);

#[derive(Debug, Default)]
struct ContactState {
    is_made: AtomicBool,
    /// Nodes that refused a connection. Only locked with `try_lock`: a forked child may have copied
    /// the lock in its locked state.
    refusing: Mutex<BTreeSet<String>>,
}

impl Contact {
    /// Contact with a cluster that is known to exist.
    pub fn made() -> Self {
        let contact = Self::default();
        contact.0.is_made.store(true, Ordering::Relaxed);
        contact
    }

    /// Whether any connection did more than be refused.
    pub fn is_made(&self) -> bool {
        self.0.is_made.load(Ordering::Relaxed)
    }

    /// Records the outcome of a request to the node at `base`.
    pub(crate) fn note<T>(&self, base: &str, outcome: &Result<T>) {
        if self.is_made() {
            return;
        }
        if !matches!(outcome, Err(Error::Connect { is_refused: true, .. })) {
            self.0.is_made.store(true, Ordering::Relaxed);
        } else if let Ok(mut refusing) = self.0.refusing.try_lock()
            && !refusing.contains(base)
        {
            refusing.insert(base.to_owned());
        }
    }

    /// Whether each of these nodes only ever refused connections.
    pub(crate) fn is_refused_by_all(&self, endpoints: &[String]) -> bool {
        !self.is_made()
            && self
                .0
                .refusing
                .try_lock()
                .is_ok_and(|refusing| endpoints.iter().all(|endpoint| refusing.contains(endpoint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    fn connect(endpoint: &str, is_refused: bool) -> Result<()> {
        let source = Reason(String::new());
        Err(Error::Connect { endpoint: endpoint.to_owned(), is_refused, source })
    }

    #[test]
    fn only_refusals_by_every_endpoint_count_and_an_answer_ends_that_for_good() {
        let (a, b) = ("http://a:1".to_owned(), "http://b:2".to_owned());
        let both = [a.clone(), b.clone()];
        let contact = Contact::default();
        contact.note(&a, &connect(&a, true));
        assert!(!contact.is_refused_by_all(&both), "the second was not tried");
        contact.note(&b, &connect(&b, true));
        assert!(contact.is_refused_by_all(&both));
        let other = contact.clone();
        other.note(&b, &Ok(()));
        assert!(contact.is_made() && !contact.is_refused_by_all(&both));
        contact.note(&b, &connect(&b, true));
        assert!(!contact.is_refused_by_all(&both), "it was there before");
    }

    #[test]
    fn a_connection_that_times_out_is_no_refusal() {
        let a = ["http://a:1".to_owned()];
        let contact = Contact::default();
        contact.note(&a[0], &connect(&a[0], false));
        contact.note(&a[0], &connect(&a[0], true));
        assert!(!contact.is_refused_by_all(&a));
        assert!(Contact::made().is_made());
    }
}
