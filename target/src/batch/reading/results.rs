//! Keeps results until their turn, and passes them on to repetitions of their entries.

use forebay_core::Result;

use super::{Done, Reading, Slot, State};
use crate::batch::{Loaded, PIECE};

impl Reading {
    pub(super) fn has_ready(&self) -> bool {
        match self.ordered {
            true => matches!(self.slots.front(), Some(Slot { state: State::Ready(_), .. })),
            false => !self.ready.is_empty(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<(usize, Result<Loaded>)> {
        if !self.has_ready() {
            return None;
        }
        let position = if self.ordered { self.base } else { self.ready.pop_front()? };
        let slot = self.slots.get_mut(position - self.base)?;
        let state = std::mem::replace(&mut slot.state, State::Gone);
        self.held -= std::mem::take(&mut slot.cost);
        while let Some(Slot { state: State::Gone, .. }) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        match state {
            State::Ready(answer) => Some((self.wanted[position], answer)),
            State::Waiting | State::Gone => None,
        }
    }

    pub(super) fn place_all(&mut self, done: Done) {
        self.stage = done.stage;
        for (position, outcome) in done.outcomes {
            match outcome {
                Some(answer) => self.place(position, answer),
                None => drop(self.alone.insert(position)),
            }
        }
    }

    pub(super) fn place(&mut self, position: usize, answer: Result<Loaded>) {
        self.loader.count(&answer);
        let entry = &self.request.entries[self.wanted[position]];
        if let Some(Some(announced)) = self.announced.get_mut(entry.bucket as usize)
            && entry.archpath.is_empty()
        {
            announced.one_is_done();
        }
        let Some(slot) = self.slots.get_mut(position - self.base) else { return };
        let (cost, size) = match &answer {
            Ok(Loaded::Whole(bytes)) => (bytes.len(), Some(bytes.len())),
            Ok(Loaded::Stream { .. }) => (PIECE, Some(self.share.whole().max(PIECE))),
            Err(_) => (0, None),
        };
        self.largest = self.largest.max(size);
        self.held = self.held - slot.cost + cost;
        slot.cost = cost;
        if slot.again.is_empty() && !self.repeats.comes_again(position) {
            slot.state = State::Ready(answer);
            if !self.ordered {
                self.ready.push_back(position);
            }
            return;
        }
        let again = std::mem::take(&mut slot.again);
        let short = match &answer {
            Ok(Loaded::Whole(bytes)) => Some(Ok(bytes.clone())),
            Ok(Loaded::Stream { .. }) => None,
            Err(e) => Some(Err(e.clone())),
        };
        slot.state = State::Ready(answer);
        if !self.ordered {
            self.ready.push_back(position);
        }
        for position in again.iter().copied() {
            match &short {
                Some(short) => {
                    let answer = short.clone().map(Loaded::Whole);
                    self.place(position, answer);
                }
                None => drop(self.alone.insert(position)),
            }
        }
        if let Some(short) = short {
            again.iter().for_each(|_| self.repeats.answered(position));
            self.repeats.keep(position, &short, self.share.ahead() / 2);
        }
    }
}
