"""A loop over a throttled link; runs in a network namespace of its own, with the cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from forebay_fixture import Cluster
from test_step_waits import check, fill, loaders, run

import forebay
from forebay_torch import MapDataset

THROTTLE = "tc qdisc add dev lo root tbf rate 80mbit burst 128kb latency 1s"


def main(folder: Path) -> None:
    cluster = Cluster.start(folder, targets=2)
    try:
        bucket = forebay.Client(cluster.endpoint).bucket("link").create()
        fill(bucket, 64 << 10)
        subprocess.run(THROTTLE.split(), check=True)
        for what, loader in loaders(MapDataset(bucket)):
            check(what, run(loader), "network")
    finally:
        cluster.stop()


main(Path(sys.argv[1]))
