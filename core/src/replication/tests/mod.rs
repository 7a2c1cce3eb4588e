//! Tests of operations: each drives one by hand, answers its commands, and checks which come next.

mod changes;
mod coded;
mod copies;
mod reads;
mod versions;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::bucket::BucketInfo;
use crate::erasure::Form;
use crate::error::{Error, ErrorCode};
use crate::locks::MutexExt;
use crate::name::{Bucket, Provider};
use crate::placement;
use crate::state::{self, Role};

const RETRY: Command = Command::Sleep(Duration::from_millis(100));

struct FakeView {
    state: Mutex<Arc<ClusterState>>,
    now_s: AtomicU64,
    has_lost_objects: AtomicBool,
}

impl View for FakeView {
    fn now(&self) -> Duration {
        Duration::from_secs(self.now_s.load(Ordering::SeqCst))
    }

    fn state(&self) -> Arc<ClusterState> {
        self.state.locked().clone()
    }

    fn has_lease(&self) -> bool {
        true
    }

    fn check_disks(&self) -> Result<()> {
        Ok(())
    }

    fn check_absent(&self, _: &Object) -> Result<()> {
        Ok(())
    }

    fn has_lost_objects(&self) -> bool {
        self.has_lost_objects.load(Ordering::SeqCst)
    }
}

/// The engine of the owner of an object, with two copies unless stated otherwise, in a quiescent
/// cluster of three targets.
struct Fixture {
    view: Arc<FakeView>,
    engine: Replication,
    object: Object,
    owner: NodeId,
    second: NodeId,
    third: NodeId,
}

impl Fixture {
    fn new() -> Self {
        Self::with_copies(2)
    }

    /// The owner of an object with one copy. It was away while the placement changed twice.
    fn once_and_away() -> Self {
        let fixture = Self::with_copies(1);
        let (id, new) = (fixture.owner.clone(), NodeId::new("target-03").unwrap());
        fixture.change(|state| {
            let dies = state::Command::SetAlive { id: id.clone(), alive: false, yields: false };
            apply(state, dies);
            join(state, 3);
            apply(state, state::Command::SetMaintenance { id: new, on: true });
            apply(state, state::Command::SetAlive { id, alive: true, yields: false });
        });
        fixture
    }

    fn with_copies(copies: u32) -> Self {
        let mut state = ClusterState::default();
        (0..3).for_each(|n| join(&mut state, n));
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let info = BucketInfo { copies, ..BucketInfo::requested(bucket.clone(), None) };
        apply(&mut state, state::Command::CreateBucket { info: info.into(), now_ns: 1 });
        let info = state.bucket(&bucket).unwrap().clone();
        let digest = placement::digest_in(&info.bucket, "o");
        let two = BucketInfo { copies: 2, ..(*info).clone() };
        let holders = placement::holders(&state, &two, digest);
        let [owner, second] = [0, 1].map(|rank| holders[rank].id.clone());
        let third = state.targets().find(|n| n.id != owner && n.id != second).unwrap().id.clone();
        let view = Arc::new(FakeView {
            state: Mutex::new(state.into()),
            now_s: AtomicU64::new(0),
            has_lost_objects: AtomicBool::new(false),
        });
        let engine = Replication::new(owner.clone(), view.clone());
        Self { view, engine, object: Object::new(info, "o"), owner, second, third }
    }

    fn has_pending_change(&self) -> bool {
        self.engine.pending().has(&self.object.info, &self.object.name)
    }

    fn object(&self) -> Object {
        self.object.clone()
    }

    fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        let mut state = (*self.view.state()).clone();
        change(&mut state);
        *self.view.state.locked() = state.into();
    }

    /// The owner hands its objects over, as before a stop: the second holder owns them.
    fn yield_to_second(&self) {
        let id = self.owner.clone();
        self.change(|state| {
            apply(state, state::Command::SetAlive { id, alive: true, yields: true });
        });
    }

    fn write(&self) -> Run<Result<LocalCopy>> {
        Run::of(self.engine.write(self.object(), WriteOptions::default()))
    }

    /// The first write of the object, up to its commit.
    fn committed_write(&self) -> (Run<Result<LocalCopy>>, LocalCopy) {
        let stamp = Stamp { epoch: self.view.state().version, version: 1 };
        let copy = LocalCopy { stamp, ..copy(1) };
        let write = self
            .write()
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::Prepare { replaced: None, stamp }, Answer::Done)
            .on(Command::Commit { stamp }, Answer::Copy(Some(copy)));
        (write, copy)
    }

    fn send(&self, copy: LocalCopy, written: bool) -> Command {
        Command::Send { to: self.second.clone(), copy, form: Form::Whole, written }
    }

    /// A copy that the second holder moves here.
    fn incoming(&self, copy: LocalCopy) -> IncomingCopy {
        let LocalCopy { stamp, size, .. } = copy;
        let from = Some(self.second.clone());
        IncomingCopy { stamp, form: Form::Whole, size, from, written: false }
    }

    /// Answers the looks at all other targets.
    #[track_caller]
    fn looks<T>(&self, mut run: Run<T>, answer: impl Fn(NodeId) -> Answer) -> Run<T> {
        let others = [&self.second, &self.third, &NodeId::new("target-03").unwrap()];
        for to in others.map(NodeId::clone) {
            let look = Command::Look { to: to.clone(), mode: LookMode::Final };
            run = run.on(look, answer(to));
        }
        run
    }

    fn look(&self) -> Command {
        Command::Look { to: self.second.clone(), mode: LookMode::Final }
    }

    fn remove_older(&self, stamp: Stamp, by: Option<&NodeId>, written: bool) -> Command {
        let removal = Removal { stamp, by: by.cloned(), written };
        Command::RemoveOlder { to: self.second.clone(), removal }
    }
}

fn join(state: &mut ClusterState, n: usize) {
    let id = NodeId::new(&format!("target-{n:02}")).unwrap();
    let (role, url, zone) = (Role::Target, format!("http://t{n}"), String::new());
    let (https, external) = Default::default();
    apply(
        state,
        state::Command::Join { id, role, url, weight: 1, zone, instance: 0, https, external },
    );
}

fn apply(state: &mut ClusterState, command: state::Command) {
    state.apply(state.version + 1, command).unwrap();
}

fn copy(version: u64) -> LocalCopy {
    let stamp = Stamp { epoch: 4, version };
    LocalCopy { stamp, commit: version, size: 1, damaged: false }
}

fn found(stamp: Option<Stamp>) -> Answer {
    Answer::Look(CopyLook { there: stamp, ..CopyLook::default() })
}

fn silent() -> Answer {
    Answer::Failed(Error::unavailable("no answer in time"))
}

/// An operation and the commands that it waits for.
struct Run<T> {
    operation: Operation<T>,
    open: Vec<IssuedCommand>,
    unlocks: usize,
    done: Option<T>,
}

impl<T> Run<T> {
    fn of(operation: Operation<T>) -> Self {
        let mut run = Self { operation, open: Vec::new(), unlocks: 0, done: None };
        run.step(Event::Start);
        run
    }

    fn step(&mut self, event: Event) {
        match self.operation.step(event) {
            Step::Done(done) => self.done = Some(done),
            Step::Commands(commands) => {
                for IssuedCommand { id, command } in commands {
                    match command {
                        Command::Unlock => self.unlocks += 1,
                        Command::Cancel(id) => self.open.retain(|open| open.id != id),
                        command => self.open.push(IssuedCommand { id, command }),
                    }
                }
            }
        }
    }

    /// Answers a command that the operation must have issued.
    #[track_caller]
    fn on(mut self, command: Command, answer: Answer) -> Self {
        let at = self.open.iter().position(|open| open.command == command);
        let at = at.unwrap_or_else(|| panic!("{command:?} is not among {:?}", self.open));
        let id = self.open.remove(at).id;
        self.step(Event::Answered { id, answer });
        self
    }

    #[track_caller]
    fn result(self) -> T {
        self.done.unwrap_or_else(|| panic!("it waits for {:?}", self.open))
    }
}
