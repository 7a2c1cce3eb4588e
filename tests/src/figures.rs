//! Measurements of a load during a fault: success rate, latencies and gaps. If `FOREBAY_FIGURES`
//! names a folder, each row of faults writes a file there; `bench/faults.py` makes a table of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use crate::ledger::{Kind, Micros};
use crate::load::Sample;

/// The figures of one row.
#[derive(Clone, Debug)]
pub struct Figures {
    row: &'static str,
    values: BTreeMap<String, Value>,
}

impl Figures {
    /// `row` is its number in the list of faults and what breaks.
    pub fn of(row: &'static str) -> Self {
        Self { row, values: BTreeMap::new() }
    }

    pub fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Seconds with two digits.
    pub fn add_seconds(&mut self, name: &str, micros: Micros) {
        self.add(name, (micros as f64 / 1e4).round() / 100.0);
    }

    /// Success in percent, and the 99th percentile in milliseconds, of requests that began in this
    /// time.
    pub fn add_service(&mut self, name: &str, samples: &[Sample], within: &Range<Micros>) {
        self.add(&format!("{name} ok %"), success(samples, within));
        self.add(&format!("{name} p99 ms"), percentile(samples, within, 0.99) as f64 / 1e3);
    }

    /// Prints the figures, and writes them into the folder that `FOREBAY_FIGURES` names.
    pub fn write(&self) {
        eprintln!("{}: {}", self.row, json!(self.values));
        let Some(folder) = std::env::var_os("FOREBAY_FIGURES").filter(|v| !v.is_empty()) else {
            return;
        };
        std::fs::create_dir_all(&folder).unwrap();
        let file: String =
            self.row.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let text = json!({"row": self.row, "figures": self.values}).to_string();
        std::fs::write(Path::new(&folder).join(format!("{file}.json")), text).unwrap();
    }
}

fn began_in<'a>(
    samples: &'a [Sample],
    within: &'a Range<Micros>,
) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(|sample| within.contains(&sample.begin))
}

/// Percent of the requests that succeeded; 100 if there were none.
pub fn success(samples: &[Sample], within: &Range<Micros>) -> f64 {
    let all = began_in(samples, within).count();
    let ok = began_in(samples, within).filter(|sample| sample.is_ok()).count();
    if all == 0 { 100.0 } else { (ok as f64 * 1e5 / all as f64).round() / 1e3 }
}

/// Returns this percentile (`part`) of the durations of requests, failed ones included.
pub fn percentile(samples: &[Sample], within: &Range<Micros>, part: f64) -> Micros {
    let mut times: Vec<Micros> = began_in(samples, within).map(|s| s.end - s.begin).collect();
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or(0)
}

/// The longest time in which no read (`reads`) or no write succeeded.
pub fn longest_gap<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    within: &Range<Micros>,
    reads: bool,
) -> Micros {
    let mut ends: Vec<Micros> = samples
        .filter(|sample| sample.is_ok() && (sample.kind == Kind::Get) == reads)
        .map(|sample| sample.end)
        .filter(|end| within.contains(end))
        .collect();
    ends.extend([within.start, within.end]);
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kind: Kind, end: Micros, status: u16) -> Sample {
        let (key, by) = ("k".to_owned(), String::new());
        let said = String::new();
        Sample { key, kind, via: 0, begin: end - 1, end, status, by, retry_after: false, said }
    }

    #[test]
    fn a_gap_is_the_longest_time_without_a_success_of_its_kind() {
        let samples = [
            sample(Kind::Get, 10, 200),
            sample(Kind::Get, 20, 503),
            sample(Kind::Get, 50, 404),
            sample(Kind::Put(1), 30, 200),
        ];
        assert_eq!(longest_gap(samples.iter(), &(0..60), true), 40);
        assert_eq!(longest_gap(samples.iter(), &(0..60), false), 30);
        assert_eq!(success(&samples, &(0..60)), 75.0);
    }
}
