//! Carries out the steps of a command, several at once, and reports each.

use clap::Args;
use forebay_core::Error;
use forebay_core::size::ByteSize;
use futures::{StreamExt, stream};

use super::copy::perform;
use super::step::{Action, COLUMNS, Step};
use crate::failure::{Failure, exit};
use crate::output::{Format, Rows};
use crate::progress;
use crate::session::Session;

/// How a command carries out its steps.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct RunArgs {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Number of objects at once, 1 to 256
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
}

impl RunArgs {
    /// Number of objects at once.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.into()
    }
}

/// The steps of a command, before it does them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Messages about sources that cannot be used.
    pub(super) problems: Vec<String>,
    /// Steps that are done only if nothing has failed before.
    pub(super) removals: Vec<Step>,
    /// Objects or files that are equal on both sides.
    pub(super) unchanged: usize,
}

/// Carries out a plan, or shows it.
pub(super) async fn carry_out(session: &Session, plan: Plan, args: RunArgs) -> Result<(), Failure> {
    for problem in &plan.problems {
        session.warn(format!("error: {problem}"));
    }
    if args.dry_run {
        return show(session, &plan);
    }
    let mut report = Report::new(session, plan.problems.len());
    let only = plan.steps.len() == 1 && plan.problems.is_empty() && plan.removals.is_empty();
    let total = plan.steps.len() + plan.problems.len();
    let word = plan.steps.first().map_or(Action::Copy, |step| step.action).done();
    let mut stopped = perform_all(session, plan.steps, args.jobs(), only, &mut report).await?;
    let copied = report.done;
    let mut note = format!("{word} {copied} of {total} objects, {}", ByteSize(report.bytes));
    if plan.unchanged > 0 {
        note.push_str(&format!("; {} were there already", plan.unchanged));
    }
    if !plan.removals.is_empty() {
        let all = plan.removals.len();
        if stopped.is_none() && report.failed == 0 {
            stopped = perform_all(session, plan.removals, args.jobs(), false, &mut report).await?;
            note.push_str(&format!("; removed {} of {all}", report.done - copied));
        } else {
            session.warn(format!("nothing was removed, because of the errors; {all} are left"));
        }
    }
    report.rows.finish()?;
    if !only || stopped.is_none() {
        session.note(note);
    }
    match stopped {
        Some(failure) => Err(failure),
        None if report.failed == 0 => Ok(()),
        None => Err(Failure::silent(exit::PARTIAL)),
    }
}

/// Counts and rows of the steps that are over.
struct Report {
    rows: Rows,
    is_table: bool,
    done: usize,
    bytes: u64,
    failed: usize,
}

impl Report {
    fn new(session: &Session, failed: usize) -> Self {
        let rows = Rows::new(session.format, &COLUMNS);
        Self { rows, is_table: session.format == Format::Table, done: 0, bytes: 0, failed }
    }

    /// For people the steps are no result, and the errors are on standard error.
    fn add(&mut self, step: &Step, error: Option<&Error>) -> Result<(), Failure> {
        match self.is_table {
            true => Ok(()),
            false => self.rows.push(step.row(false, error)),
        }
    }
}

/// Carries out steps; returns the failure that every other step would meet, or that of the only
/// step.
async fn perform_all(
    session: &Session,
    steps: Vec<Step>,
    jobs: usize,
    only: bool,
    report: &mut Report,
) -> Result<Option<Failure>, Failure> {
    let total = steps.iter().map(|step| step.size).sum();
    let bar = progress::bytes(progress::wanted(session.quiet), Some(total));
    let mut running = stream::iter(steps)
        .map(|step| {
            let bar = &bar;
            async move { (perform(session, &step, bar).await, step) }
        })
        .buffer_unordered(jobs);
    let mut stopped = None;
    while let Some((result, step)) = running.next().await {
        match result {
            Ok(size) => {
                (report.done, report.bytes) = (report.done + 1, report.bytes + size);
                report.add(&step, None)?;
            }
            Err(e) => {
                let is_last = only || e.will_repeat();
                let failure = e.into_failure();
                report.failed += 1;
                report.add(&step, failure.error.as_ref())?;
                if is_last {
                    stopped = Some(failure);
                    break;
                }
                let text = failure.error.map_or_else(String::new, |e| e.to_string());
                bar.suspend(|| session.warn(format!("error: {}: {text}", step.from)));
            }
        }
    }
    // Cancels copies in progress: they leave nothing.
    drop(running);
    bar.finish_and_clear();
    Ok(stopped)
}

/// Shows what a plan would do.
fn show(session: &Session, plan: &Plan) -> Result<(), Failure> {
    let mut rows = Rows::new(session.format, &COLUMNS);
    for step in plan.steps.iter().chain(&plan.removals) {
        rows.push(step.row(true, None))?;
    }
    rows.finish()?;
    let bytes = ByteSize(plan.steps.iter().map(|step| step.size).sum());
    let (steps, removals) = (plan.steps.len(), plan.removals.len());
    let mut note = format!("dry run: {steps} objects to copy, {bytes}");
    if removals > 0 {
        note.push_str(&format!("; {removals} to remove"));
    }
    if plan.unchanged > 0 {
        note.push_str(&format!("; {} are there already", plan.unchanged));
    }
    session.note(note);
    match plan.problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(exit::PARTIAL)),
    }
}
