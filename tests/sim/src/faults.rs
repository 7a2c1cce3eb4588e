//! Faults, as the seed decides: processes die and restart, immediately or much later, pause, leave
//! and come back; disks fail; links are cut, slow or lossy; operators drain targets and add
//! some.

use forebay_core::state::Command;

use crate::exec::{MS, SECOND};
use crate::world::{At, NEMESIS, W, World};

impl World {
    /// Injects faults until the safety phase ends.
    pub(crate) async fn break_things(self: W) {
        // The cluster forms first.
        self.exec.sleep(3 * SECOND).await;
        while self.exec.now() < self.plan.safety {
            let pause = self.exec.between(self.plan.fault_every / 4, self.plan.fault_every * 2);
            self.exec.sleep(pause).await;
            self.faults.set(self.faults.get() + 1);
            // Versions move only when the places of objects change.
            let moves = self.plan.versions && self.exec.percent(30);
            match if moves { 9 + self.exec.below(2) } else { self.exec.below(12) } {
                0 | 1 => self.kill_target(self.exec.between(SECOND, 15 * SECOND)),
                2 | 3 => self.kill_target(self.exec.between(50 * MS, 1_500 * MS)),
                4 => self.kill_gateway(),
                5 => self.pause_some(),
                6 => self.cut_some(),
                7 => self.break_disk(),
                8 => self.restart_cleanly(),
                9 => self.add_target(),
                10 => self.drain_or_give_back(),
                _ => self.slow_down(),
            }
        }
    }

    pub(crate) fn any_target(&self) -> Option<At> {
        let there: Vec<At> =
            self.targets.iter().filter(|t| t.up.get() && !t.leaving.get()).map(|t| t.at).collect();
        let n = self.exec.below(there.len() as u64) as usize;
        there.get(n).copied()
    }

    /// Kills a process.
    pub(crate) fn kill(&self, at: At) {
        self.exec.kill(at);
        match self.is_gateway(at) {
            true => self.gateways[at].up.set(false),
            false => self.target(at).up.set(false),
        }
    }

    fn kill_target(self: &W, away: u64) {
        let Some(at) = self.any_target() else { return };
        self.note(|| format!("target {at} is killed for {} ms", away / MS));
        self.kill(at);
        self.start_later(at, away);
    }

    fn start_later(self: &W, at: At, away: u64) {
        let world = self.clone();
        self.exec.spawn(NEMESIS, async move {
            world.exec.sleep(away).await;
            if !world.is_up(at) {
                world.note(|| format!("node {at} starts"));
                world.start(at);
            }
        });
    }

    /// Starts a node's process.
    pub(crate) fn start(self: &W, at: At) {
        if !self.is_gateway(at) {
            return self.start_target(at);
        }
        let gateway = &self.gateways[at];
        gateway.up.set(true);
        gateway.restart(self.exec.now());
        self.exec.spawn(at, self.clone().follow(at));
    }

    fn kill_gateway(self: &W) {
        let at = self.exec.below(self.gateways.len() as u64) as At;
        if self.is_up(at) {
            self.note(|| format!("gateway {at} is killed"));
            self.kill(at);
            self.start_later(at, self.exec.between(100 * MS, 8 * SECOND));
        }
    }

    fn pause_some(self: &W) {
        let gateways = self.exec.percent(30);
        let at = match gateways {
            true => Some(self.exec.below(self.gateways.len() as u64) as At),
            false => self.any_target(),
        };
        let Some(at) = at.filter(|at| self.is_up(*at)) else { return };
        let still = self.exec.between(200 * MS, 9 * SECOND);
        self.note(|| format!("node {at} stands still for {} ms", still / MS));
        self.exec.pause(at);
        let world = self.clone();
        self.exec.spawn(NEMESIS, async move {
            world.exec.sleep(still).await;
            world.note(|| format!("node {at} goes on"));
            world.exec.resume(at);
        });
    }

    /// Cuts one node off from all other nodes, or a link.
    fn cut_some(self: &W) {
        let all = self.gateways.len() + self.targets.len();
        let one = self.exec.below(all as u64) as At;
        let others: Vec<At> = match self.exec.percent(50) {
            true => (0..all).filter(|at| *at != one).collect(),
            false => vec![self.exec.below(all as u64) as At],
        };
        self.note(|| format!("node {one} does not reach {others:?}"));
        others.iter().for_each(|other| self.net.cut(one, *other));
        self.heal_later();
    }

    fn slow_down(self: &W) {
        self.net.lossy.set(self.exec.between(5, 40));
        self.net.delay.set(self.exec.between(5 * MS, 400 * MS));
        self.note(|| "the network is slow".to_owned());
        self.heal_later();
    }

    fn heal_later(self: &W) {
        let world = self.clone();
        self.exec.spawn(NEMESIS, async move {
            world.exec.sleep(world.exec.between(300 * MS, 9 * SECOND)).await;
            world.note(|| "the network is whole".to_owned());
            world.net.heal();
        });
    }

    fn restart_cleanly(self: &W) {
        let Some(at) = self.any_target() else { return };
        self.note(|| format!("target {at} is asked to stop"));
        self.target(at).leaving.set(true);
        let world = self.clone();
        self.exec.spawn(at, self.clone().leave(at));
        self.exec.spawn(NEMESIS, async move {
            world.exec.sleep(8 * SECOND).await;
            if world.is_up(at) && world.target(at).leaving.get() {
                world.note(|| format!("target {at} has stopped"));
                world.kill(at);
                world.start_later(at, world.exec.between(100 * MS, 5 * SECOND));
            }
        });
    }

    fn add_target(self: &W) {
        let known = self.group.newest();
        let next = self.targets.iter().find(|t| !t.up.get() && known.node(&t.id).is_none());
        if let Some(at) = next.map(|target| target.at) {
            self.note(|| format!("target {at} is added"));
            self.start(at);
        }
    }

    fn drain_or_give_back(self: &W) {
        let Some(at) = self.any_target() else { return };
        let id = self.target(at).id.clone();
        let state = self.group.newest();
        let Some(on) = state.node(&id).map(|node| !node.maintenance) else { return };
        self.operate(Command::SetMaintenance { id, on });
    }

    /// Proposes an operator's command to the leader, if there is one.
    pub(crate) fn operate(self: &W, command: Command) {
        let leader =
            self.gateways().find(|at| self.gateways[*at].up.get() && self.leads_still(*at));
        if let Some(at) = leader {
            let world = self.clone();
            self.exec.spawn(at, async move { drop(world.propose(at, command).await) });
        }
    }

    /// Ends all faults.
    pub(crate) fn heal_all(self: &W) {
        self.note(|| "all faults end".to_owned());
        self.exec.kill(NEMESIS);
        self.net.heal();
        let known = self.group.newest();
        for target in &self.targets {
            self.bring_disk_back(target.at);
        }
        for at in 0..self.gateways.len() + self.targets.len() {
            self.exec.resume(at);
            let member = self.is_gateway(at)
                || known.node(&self.target(at).id).is_some()
                || at < self.gateways.len() + self.plan.targets;
            if !self.is_gateway(at) && self.is_up(at) && self.target(at).leaving.get() {
                // Kills it and restarts it later, when its last message has arrived.
                self.kill(at);
                self.start_later(at, SECOND);
            } else if member && !self.is_up(at) {
                self.start(at);
            }
        }
    }
}
