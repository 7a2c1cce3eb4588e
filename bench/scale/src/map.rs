//! The map: its size, and the cost to serialize and to parse it.

use std::error::Error;

use forebay_core::state::ClusterState;
use serde::Serialize;

use crate::cluster::{Addresses, Shape};
use crate::cost;

/// The map of one cluster as JSON, in which nodes send it to each other and to clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MapCost {
    pub(crate) addresses: &'static str,
    pub(crate) bytes: usize,
    pub(crate) encode_ms: f64,
    pub(crate) decode_ms: f64,
}

/// Measures the maps of clusters that differ in the names of their nodes.
pub(crate) fn measure(targets: u64) -> Result<Vec<MapCost>, Box<dyn Error>> {
    let plain = Shape::plain(targets);
    let chart = Shape { addresses: Addresses::Chart, ..plain };
    let shapes = [
        ("IP addresses", plain),
        ("IP addresses, 20 zones", Shape { zones: true, ..plain }),
        ("pods of the Helm chart", chart),
        ("pods of the Helm chart, 20 zones", Shape { zones: true, ..chart }),
    ];
    let mut costs = Vec::new();
    for (addresses, shape) in shapes {
        let state = shape.build()?;
        let json = serde_json::to_vec(&state)?;
        if serde_json::from_slice::<ClusterState>(&json)? != state {
            return Err("the map is not read as it was written".into());
        }
        costs.push(MapCost {
            addresses,
            bytes: json.len(),
            encode_ms: cost::each(|| serde_json::to_vec(&state))? * 1e3,
            decode_ms: cost::each(|| serde_json::from_slice::<ClusterState>(&json))? * 1e3,
        });
    }
    Ok(costs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_map_of_a_thousand_targets_takes_less_than_200_kb() {
        let ip = Shape::plain(1_000);
        let chart = Shape { addresses: Addresses::Chart, ..ip };
        // Full names of pods and zones together are larger: docs/scale.md.
        for shape in [ip, Shape { zones: true, ..ip }, chart] {
            let state = shape.build().unwrap();
            let json = serde_json::to_vec(&state).unwrap();
            assert!(json.len() < 200_000, "{shape:?}: {}", json.len());
            assert_eq!(serde_json::from_slice::<ClusterState>(&json).unwrap(), state);
        }
    }
}
