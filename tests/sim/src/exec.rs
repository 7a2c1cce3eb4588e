//! Tasks, time and randomness of a simulated run: one thread, a clock that jumps to the next event,
//! and random numbers that follow from the seed. It uses no clock or randomness of the machine.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use forebay_core::locks::MutexExt;
use futures::future::{Either, select};

/// Microseconds since the run began.
pub type Micros = u64;
/// The process that a task belongs to; the task ends or pauses with it.
pub type Owner = usize;

pub const MS: Micros = 1_000;
pub const SECOND: Micros = 1_000 * MS;

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Runnable tasks, in the order in which they were woken.
type Ready = Arc<Mutex<VecDeque<u64>>>;

struct Woken {
    task: u64,
    ready: Ready,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.ready.locked().push_back(self.task);
    }
}

struct Timer {
    at: Micros,
    order: u64,
    waker: Waker,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The executor; cheap to clone.
#[derive(Clone)]
pub struct Exec(Rc<Inner>);

struct Inner {
    now: Arc<AtomicU64>,
    steps: Cell<u64>,
    counter: Cell<u64>,
    chance: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, (Owner, Option<Work>)>>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    ready: Ready,
    paused: RefCell<BTreeSet<Owner>>,
    held: RefCell<Vec<u64>>,
}

impl Exec {
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(Inner {
            now: Arc::default(),
            steps: Cell::new(0),
            counter: Cell::new(0),
            chance: Cell::new(seed),
            tasks: RefCell::default(),
            timers: RefCell::default(),
            ready: Ready::default(),
            paused: RefCell::default(),
            held: RefCell::default(),
        }))
    }

    pub fn now(&self) -> Micros {
        self.0.now.load(Ordering::Relaxed)
    }

    fn set_now(&self, now: Micros) {
        self.0.now.store(now, Ordering::Relaxed);
    }

    /// The time for readers in other structures.
    pub fn clock(&self) -> Arc<AtomicU64> {
        self.0.now.clone()
    }

    pub fn now_ms(&self) -> u64 {
        self.now() / MS
    }

    /// Number of times that a task was polled so far.
    pub fn steps(&self) -> u64 {
        self.0.steps.get()
    }

    /// The next number below `end` (splitmix64).
    pub fn below(&self, end: u64) -> u64 {
        let state = self.0.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.chance.set(state);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }

    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True with this probability, in percent.
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn next(&self) -> u64 {
        self.0.counter.set(self.0.counter.get() + 1);
        self.0.counter.get()
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        self.0.ready.locked()
    }

    pub fn spawn(&self, owner: Owner, work: impl Future<Output = ()> + 'static) {
        let task = self.next();
        self.0.tasks.borrow_mut().insert(task, (owner, Some(Box::pin(work))));
        self.ready().push_back(task);
    }

    /// Drops all tasks of an owner. No task of the owner may call it.
    pub fn kill(&self, owner: Owner) {
        let mut gone = Vec::new();
        self.0.tasks.borrow_mut().retain(|_, (of, work)| {
            let stays = *of != owner;
            if !stays {
                gone.extend(work.take());
            }
            stays
        });
        self.0.paused.borrow_mut().remove(&owner);
        drop(gone);
    }

    /// From now on no task of an owner runs, while the time passes.
    pub fn pause(&self, owner: Owner) {
        self.0.paused.borrow_mut().insert(owner);
    }

    pub fn resume(&self, owner: Owner) {
        self.0.paused.borrow_mut().remove(&owner);
        let held = std::mem::take(&mut *self.0.held.borrow_mut());
        self.ready().extend(held);
    }

    pub fn sleep(&self, micros: Micros) -> Sleep {
        Sleep { exec: self.clone(), at: self.now() + micros, set: false }
    }

    /// `None` if the work does not end within that time; it is dropped then.
    pub async fn within<T>(&self, limit: Micros, work: impl Future<Output = T>) -> Option<T> {
        match select(Box::pin(work), Box::pin(self.sleep(limit))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Polls one runnable task, after advancing the clock if there is none. False: no event is left
    /// before `until`.
    pub fn step(&self, until: Micros) -> bool {
        loop {
            let next = self.ready().pop_front();
            let Some(task) = next else {
                if !self.advance(until) {
                    return false;
                }
                continue;
            };
            let taken = {
                let mut tasks = self.0.tasks.borrow_mut();
                let Some((owner, work)) = tasks.get_mut(&task) else { continue };
                if self.0.paused.borrow().contains(owner) {
                    self.0.held.borrow_mut().push(task);
                    continue;
                }
                work.take()
            };
            let Some(mut work) = taken else { continue };
            self.0.steps.set(self.steps() + 1);
            let waker = Waker::from(Arc::new(Woken { task, ready: self.0.ready.clone() }));
            let done = work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let mut tasks = self.0.tasks.borrow_mut();
            if done {
                tasks.remove(&task);
            } else if let Some((_, place)) = tasks.get_mut(&task) {
                *place = Some(work);
                return true;
            }
            drop(tasks);
            return true;
        }
    }

    fn advance(&self, until: Micros) -> bool {
        let mut timers = self.0.timers.borrow_mut();
        match timers.peek() {
            Some(Reverse(timer)) if timer.at <= until => {}
            _ => {
                self.set_now(self.now().max(until));
                return false;
            }
        }
        if let Some(Reverse(timer)) = timers.pop() {
            self.set_now(self.now().max(timer.at));
            timer.waker.wake();
        }
        true
    }
}

/// A future that ends at its time.
pub struct Sleep {
    exec: Exec,
    at: Micros,
    set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.exec.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.set {
            self.set = true;
            let (at, order, waker) = (self.at, self.exec.next(), context.waker().clone());
            self.exec.0.timers.borrow_mut().push(Reverse(Timer { at, order, waker }));
        }
        Poll::Pending
    }
}

/// Wakes all tasks that wait for a change; cheap to clone.
#[derive(Clone, Default)]
pub struct Bell(Rc<(Cell<u64>, RefCell<Vec<Waker>>)>);

impl Bell {
    pub fn ring(&self) {
        self.0.0.set(self.0.0.get() + 1);
        for waker in std::mem::take(&mut *self.0.1.borrow_mut()) {
            waker.wake();
        }
    }

    /// Ends at the first ring after this call.
    pub fn rung(&self) -> impl Future<Output = ()> + use<> {
        let (bell, rings) = (self.clone(), self.0.0.get());
        std::future::poll_fn(move |context| {
            if bell.0.0.get() != rings {
                return Poll::Ready(());
            }
            bell.0.1.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
    }
}

/// One lock for each key.
pub struct Locks<K> {
    held: Rc<RefCell<BTreeSet<K>>>,
    freed: Bell,
}

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self { held: Rc::default(), freed: Bell::default() }
    }
}

impl<K> Clone for Locks<K> {
    fn clone(&self) -> Self {
        Self { held: self.held.clone(), freed: self.freed.clone() }
    }
}

impl<K: Ord + Clone> Locks<K> {
    pub async fn lock(&self, key: &K) -> Locked<K> {
        while !self.held.borrow_mut().insert(key.clone()) {
            self.freed.rung().await;
        }
        Locked { locks: self.clone(), key: key.clone() }
    }

    /// Returns when all locks that are held now have been released.
    pub async fn drain(&self) {
        let now: Vec<K> = self.held.borrow().iter().cloned().collect();
        for key in now {
            drop(self.lock(&key).await);
        }
    }
}

/// Holds a lock until it is dropped.
pub struct Locked<K: Ord + Clone> {
    locks: Locks<K>,
    key: K,
}

impl<K: Ord + Clone> Drop for Locked<K> {
    fn drop(&mut self) {
        self.locks.held.borrow_mut().remove(&self.key);
        self.locks.freed.ring();
    }
}
