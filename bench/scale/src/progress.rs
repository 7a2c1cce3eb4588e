//! Prints the progress of long work on standard error.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;

/// Progress of one piece of work; shared by its threads.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    of: u64,
    quiet: bool,
    done: Mutex<Done>,
    begin: Instant,
}

#[derive(Debug)]
struct Done {
    steps: u64,
    printed: Instant,
}

/// Creates the progress of a piece of work with this many steps.
pub(crate) type Make<'a> = &'a dyn Fn(&str, u64) -> Progress;

impl Progress {
    pub(crate) fn new(what: &str, of: u64, quiet: bool) -> Self {
        let begin = Instant::now();
        let done = Mutex::new(Done { steps: 0, printed: begin });
        Self { what: what.to_owned(), of: of.max(1), quiet, done, begin }
    }

    /// Adds finished steps.
    pub(crate) fn add(&self, steps: u64) {
        // A number from a thread that panicked is as good as any other.
        let mut done = self.done.locked();
        done.steps += steps;
        let terminal = stderr().is_terminal();
        let pause = Duration::from_secs(if terminal { 1 } else { 20 });
        let over = done.steps >= self.of;
        if self.quiet || (done.printed.elapsed() < pause && !(over && terminal)) {
            return;
        }
        done.printed = Instant::now();
        let share = done.steps as f64 / self.of as f64;
        let left = self.begin.elapsed().as_secs_f64() * (1.0 - share) / share;
        let text = format!("{}: {:3.0} %, {left:.0} s left", self.what, share * 100.0);
        match (terminal, over) {
            (true, true) => eprint!("\r{:70}\r", ""),
            (true, false) => eprint!("\r{text:70}"),
            (false, _) => eprintln!("{text}"),
        }
    }
}
