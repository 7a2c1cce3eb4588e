//! A registry of metrics that also lists the families which have no samples yet.

use std::sync::{Mutex, MutexGuard};

use forebay_core::locks::MutexExt;
use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::histogram::HistogramVec;

/// A family of metrics: its samples differ in the values of the labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: Vec<String>,
    pub help: String,
}

/// Every metric of a node is made and registered here.
#[derive(Debug, Default)]
pub(crate) struct Families {
    registry: Registry,
    list: Mutex<Vec<Family>>,
}

impl Families {
    /// Registers a family of counters.
    pub(crate) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        let made = IntCounterVec::new(Opts::new(name, help), labels);
        self.register("counter", made)
    }

    /// Registers a family of gauges.
    pub(crate) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register("gauge", IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// Registers a family of histograms of seconds.
    pub(crate) fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.register("histogram", HistogramVec::new(name, help, labels))
    }

    /// Registers a gauge without labels.
    pub(crate) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register("gauge", IntGauge::new(name, help))
    }

    /// Registers the metrics of the process that all Prometheus clients have.
    pub(crate) fn process(&self) {
        let process = ProcessCollector::for_self();
        // The library does not give the types of its families with their descriptions.
        let kind = |desc: &Desc| if desc.fq_name.ends_with("_total") { "counter" } else { "gauge" };
        self.list().extend(process.desc().into_iter().map(|desc| family(kind(desc), desc)));
        self.registry.register(Box::new(process)).expect("each name is registered once");
    }

    fn register<C>(&self, kind: &'static str, made: prometheus::Result<C>) -> C
    where
        C: Collector + Clone + 'static,
    {
        let metric = made.expect("names and labels are constants of the right form");
        self.list().extend(metric.desc().into_iter().map(|desc| family(kind, desc)));
        self.registry.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }

    /// All families in the order of their registration.
    pub(crate) fn all(&self) -> Vec<Family> {
        self.list().clone()
    }

    /// The families that have samples, with their samples.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Family>> {
        self.list.locked()
    }
}

fn family(kind: &'static str, desc: &Desc) -> Family {
    Family {
        name: desc.fq_name.clone(),
        kind,
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    }
}
