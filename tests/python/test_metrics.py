"""Metrics that nodes of every role export at /metrics, read by a strict parser of the format."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cluster, free_ports, wait_until
from forebay_cluster import START_DEADLINE_S
from forebay_exposition import Family, parse
from forebay_promtool import has_promtool, promtool
from forebay_s3 import client

GOOD = """# HELP a_total Things
# TYPE a_total counter
a_total{x="1",y="a \\"b\\" \\\\ \\n"} 1
a_total{x="2",y=""} 2e3
# HELP b_bytes Size
# TYPE b_bytes gauge
b_bytes 3
# HELP c_seconds Times
# TYPE c_seconds histogram
c_seconds_bucket{op="get",le="0.5"} 2
c_seconds_bucket{op="get",le="+Inf"} 3
c_seconds_sum{op="get"} 7.5
c_seconds_count{op="get"} 3
"""
# Families of both roles.
OF_ALL_NODES = {
    "forebay_build_info",
    "forebay_http_first_byte_seconds",
    "forebay_http_request_seconds",
    "forebay_http_requests_in_flight",
    "forebay_http_requests_total",
    "forebay_trace_dropped_marks_total",
    "forebay_trace_spans_total",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b_bytes Size", "a_total Size"),
        ("# TYPE b_bytes gauge\n", ""),
        ('x="2",y=""', 'y="a \\"b\\" \\\\ \\n",x="1"'),
        ("b_bytes", "b_total"),
        ("a_total", "a_count"),
        ("b_bytes", "b_ms"),
        ("2e3", "many"),
        ('y=""', 'y="\\t"'),
        ("b_bytes 3\n", "b_bytes 3"),
        ("b_bytes 3\n", "b_bytes 3\na_total 1\n"),
        ("b_bytes 3\n", ""),
        ('c_seconds_sum{op="get"} 7.5\n', ""),
        ('c_seconds_count{op="get"} 3', 'c_seconds_count{op="get"} 4'),
        ('le="0.5"} 2', 'le="0.5"} 9'),
        ('le="0.5"} 2', 'le="+Inf"} 2'),
        ('c_seconds_bucket{op="get",le="+Inf"} 3\n', ""),
        (',le="0.5"', ""),
        ("c_seconds_sum", "c_seconds_total"),
    ],
)
def test_the_parser_finds_what_breaks_the_format(old: str, new: str) -> None:
    assert set(parse(GOOD)) == {"a_total", "b_bytes", "c_seconds"}
    with pytest.raises(ValueError):
        parse(GOOD.replace(old, new))


def page(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def checked(url: str) -> dict[str, Family]:
    """The families of a node, which promtool takes as well where there is one."""
    text = page(url)
    if has_promtool():
        done = promtool("check", "metrics", text=text)
        assert done.returncode == 0, done.stdout + done.stderr
    return parse(text)


def total(families: dict[str, Family], name: str, **labels: str) -> float:
    found = families[name].samples.items() if name in families else ()
    return sum(value for has, value in found if labels.items() <= dict(has).items())


def traffic(endpoint: str) -> None:
    """A little of everything that is counted."""
    s3 = client(f"{endpoint}/s3")
    s3.create_bucket(Bucket="counted")
    for number in range(8):
        s3.put_object(Bucket="counted", Key=f"k{number}", Body=b"x" * 1000)
        s3.get_object(Bucket="counted", Key=f"k{number}")["Body"].read()
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="counted", Key="none")
    urllib.request.urlopen(f"{endpoint}/v1/objects/counted/k1", timeout=10).read()


def test_every_metric_of_a_cluster_has_one_meaning_and_is_counted_once(cluster: Cluster) -> None:
    traffic(cluster.endpoint)
    targets = [checked(node["url"]) for node in cluster.targets]
    gateway = checked(cluster.endpoint)
    # Sums have names of their own, so that a sum over all nodes counts nothing twice.
    of_targets = set().union(*targets)
    shared = of_targets & set(gateway)
    assert shared == OF_ALL_NODES
    assert all(name.startswith("forebay_cluster_") for name in set(gateway) - shared)
    assert not any(name.startswith("forebay_cluster_") for name in of_targets)
    for name in ("get_bytes_total", "disks"):
        for result in ({"result": "hit"}, {"state": "in_use"}):
            summed = sum(total(target, f"forebay_{name}", **result) for target in targets)
            assert total(gateway, f"forebay_cluster_{name}", **result) == summed, name
    assert total(gateway, "forebay_cluster_get_bytes_total", result="hit") >= 9000
    assert total(gateway, "forebay_cluster_nodes", role="target", state="alive") == len(targets)
    assert total(gateway, "forebay_cluster_has_leader") == 1
    for target in targets:
        assert total(target, "forebay_store_budget_bytes") > 0
        assert total(target, "forebay_disk_size_bytes") > total(target, "forebay_disk_free_bytes") > 0
    objects = sum(total(target, "forebay_store_objects") for target in targets)
    assert objects == 8


@pytest.fixture
def serve(forebay_bin: Path, tmp_path: Path) -> Iterator[str]:
    """A running `forebay serve`: its endpoint."""
    port = free_ports(2)
    command = [str(forebay_bin), "serve", "--dir", str(tmp_path / "data"), "--port", str(port)]
    with (tmp_path / "log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        ready = tmp_path / "data/serve.json"
        wait_until(
            lambda: ready.exists() or process.poll() is not None, "serve is ready", START_DEADLINE_S
        )
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield str(json.loads(ready.read_text())["endpoint"])
    finally:
        process.terminate()
        process.wait(30)


def test_a_server_of_one_process_exports_both_roles_apart(serve: str) -> None:
    traffic(serve)
    with urllib.request.urlopen(f"{serve}/api/v1/map", timeout=10) as answer:
        nodes = json.load(answer)["state"]["nodes"].values()
    (target,) = [checked(node["url"]) for node in nodes if node["role"] == "target"]
    gateway = checked(serve)
    assert set(gateway) & set(target) == OF_ALL_NODES
    assert total(target, "forebay_store_objects") == 8
