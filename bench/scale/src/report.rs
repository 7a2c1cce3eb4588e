//! The figures, as tables and as JSON, and whether the bounds of docs/scale.md hold.

use std::fmt::{Display, Formatter, Result};

use serde::Serialize;

use crate::balance::Balance;
use crate::map::MapCost;
use crate::plan::{Growth, PlanCost};

/// Largest map, in bytes.
const MAP: usize = 200_000;
/// Longest plan, in seconds of one core.
const PLAN: f64 = 5.0;
/// Largest distance of a target from the mean.
const BALANCE: f64 = 0.03;
/// Maximum share of the copies that a fifth target may take over.
const GROWTH: f64 = 0.21;

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) targets: u64,
    pub(crate) objects: u64,
    pub(crate) clock: &'static str,
    pub(crate) maps: Vec<MapCost>,
    pub(crate) plans: Vec<PlanCost>,
    pub(crate) growth: Vec<Growth>,
    pub(crate) balance: Balance,
}

fn mark(holds: bool) -> &'static str {
    if holds { "" } else { "  <- over the bound" }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "{} targets, {} objects; times are {}\n",
            self.targets, self.objects, self.clock
        )?;

        writeln!(
            f,
            "The map as JSON, less than {MAP} bytes{:>11} {:>10} {:>10}",
            "bytes", "write ms", "read ms"
        )?;
        for m in &self.maps {
            let (name, end) = (m.addresses, mark(m.bytes < MAP));
            writeln!(
                f,
                "  {name:36} {:>10} {:>10.2} {:>10.2}{end}",
                m.bytes, m.encode_ms, m.decode_ms
            )?;
        }

        writeln!(f, "\nFrom a change of the map to the plan of a target, less than {PLAN} s")?;
        let titles =
            ["copies there", "looked at", "us a copy", "map ms", "seconds", "moves %", "least %"];
        write!(f, "  {:28}", "")?;
        for title in titles {
            write!(f, " {title:>12}")?;
        }
        writeln!(f)?;
        for p in &self.plans {
            let (moved, least) = (p.moved * 100.0, p.least * 100.0);
            write!(
                f,
                "  {:28} {:>12} {:>12} {:>12.2}",
                p.change, p.copies, p.looked_at, p.us_per_copy
            )?;
            write!(f, " {:>12.2} {:>12.2} {moved:>12.3} {least:>12.3}", p.map_ms, p.seconds)?;
            writeln!(f, "{}", mark(p.seconds < PLAN))?;
        }

        writeln!(
            f,
            "\nA fifth target beside four takes at most {:.0} % of the copies",
            GROWTH * 100.0
        )?;
        for g in &self.growth {
            let (moved, end) = (g.moved * 100.0, mark(g.moved <= GROWTH));
            writeln!(f, "  {} objects of {} copies: {moved:.2} %{end}", g.objects, g.copies)?;
        }

        let b = &self.balance;
        writeln!(f, "\nBalance, within {:.0} % of the mean", BALANCE * 100.0)?;
        writeln!(f, "  placed one by one      {}, {:.2} us each", b.placed, b.us_per_object)?;
        writeln!(f, "  on a target            {} to {}", b.fewest, b.most)?;
        writeln!(
            f,
            "  farthest from the mean {:.2} %, by chance {:.2} %",
            b.worst * 100.0,
            b.worst_by_chance * 100.0
        )?;
        writeln!(
            f,
            "  spread                 {:.3} of that of chance, ± {:.3}",
            b.spread, b.spread_error
        )?;
        let how = if b.placed < self.objects { "estimated" } else { "counted" };
        let end = mark(b.worst_of_all <= BALANCE);
        writeln!(f, "  of all objects         {:.2} %, {how}{end}", b.worst_of_all * 100.0)
    }
}
