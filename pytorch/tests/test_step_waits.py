"""The cause of a loop's waits is named: a cloud, a disk, a busy target, a decoder, a link."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from forebay_cluster import REPOSITORY, binary, wait_until
from forebay_clouds import Minio, minio
from forebay_fixture import Cluster
from slow_parts import DelayingProxy, SlowDisk
from torch.utils.data import DataLoader

import forebay
from forebay.waits import feeds
from forebay_torch import (
    IterableDataset,
    LoaderStats,
    MapDataset,
    ShardReader,
    ShardWriter,
    ThreadLoader,
    observe,
)

__all__ = ["minio"]

OBJECTS = 96
BATCH = 16


def fill(bucket: Any, size: int = 4096, count: int = OBJECTS) -> None:
    bucket.put_many((f"{number:05}", os.urandom(size)) for number in range(count))


def loaders(dataset: Any) -> Iterator[tuple[str, Any]]:
    """A loader of each kind over a dataset."""
    yield "threads", ThreadLoader(dataset, BATCH, threads=2)
    yield "one thread", ThreadLoader(dataset, BATCH, threads=0)
    yield "workers", observe(DataLoader(dataset, BATCH, num_workers=2, collate_fn=list))
    yield "no workers", observe(DataLoader(dataset, BATCH, collate_fn=list))


def run(loader: Any, passes: int = 1, least_wait_s: float = 0.0) -> LoaderStats:
    """The stats of so many passes, and of more until they waited for so long."""
    while True:
        for _ in range(passes):
            for _ in loader:
                pass
        stats = loader.stats()
        assert isinstance(stats, LoaderStats)
        if stats.wait_s >= least_wait_s:
            return stats


def check(what: str, stats: LoaderStats, cause: str, *, above: float = 0.5) -> None:
    """Nearly all of the wait has a cause, and most of it has this one."""
    table = f"{what}:\n{stats.table()}"
    assert stats.batches > 0 and stats.wait_s > 0, table
    assert stats.attributed_fraction >= 0.95, table
    # Workers that start have nothing to do with the cause.
    rest = {name: seconds for name, seconds in stats.causes.items() if name != "worker"}
    assert max(rest, key=rest.__getitem__) == cause, table
    assert rest[cause] >= above * sum(rest.values()), table


def slow_decoder(content: bytes) -> int:
    time.sleep(0.015)
    return len(content)


def test_a_slow_decoder_is_named(bucket: Any) -> None:
    fill(bucket)
    for what, loader in loaders(MapDataset(bucket, data_format_fn=slow_decoder)):
        check(what, run(loader), "decode", above=0.8)
    stream = IterableDataset(bucket, data_format_fn=slow_decoder)
    check("stream", run(ThreadLoader(stream, BATCH, threads=2)), "decode", above=0.8)
    workers = observe(DataLoader(stream, BATCH, num_workers=2, collate_fn=list))
    check("stream of workers", run(workers), "decode", above=0.8)


def slow_collate(samples: list[Any]) -> list[Any]:
    time.sleep(0.03)
    return samples


def test_a_slow_collation_is_named(bucket: Any) -> None:
    fill(bucket)
    dataset = MapDataset(bucket)
    check("threads", run(ThreadLoader(dataset, BATCH, threads=1, collate_fn=slow_collate)), "collate")
    workers = observe(DataLoader(dataset, BATCH, num_workers=1, collate_fn=slow_collate))
    check("workers", run(workers), "collate")


def test_a_cloud_of_30_ms_is_named(tmp_path: Path, minio: Minio) -> None:
    with DelayingProxy(minio.endpoint, 0.03) as proxy:
        env = {**minio.env, "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_ENDPOINT_URL_S3": proxy.endpoint}
        cluster = Cluster.start(tmp_path, targets=3, env=env)
        try:
            client = forebay.Client(cluster.endpoint)
            for kind in range(5):
                name, own = minio.new_bucket()
                for number in range(OBJECTS):
                    own.put_object(Bucket=name, Key=f"{number:05}", Body=os.urandom(4096))
                bucket = client.bucket(name, provider="s3")
                if kind < 4:
                    what, loader = list(loaders(MapDataset(bucket)))[kind]
                else:
                    what = "stream"
                    loader = ThreadLoader(IterableDataset(bucket), BATCH, threads=2)
                check(what, run(loader), "cold")
                if what == "threads":
                    # The same objects again, from the cluster: nothing is cold any more.
                    warm = run(ThreadLoader(MapDataset(bucket), BATCH, threads=2))
                    assert warm.causes["cold"] < 0.2 * warm.wait_s, warm.table()
        finally:
            cluster.stop()


def test_a_slow_disk_is_named(tmp_path: Path) -> None:
    data = tmp_path / "cluster"
    data.mkdir()
    disk = SlowDisk(tmp_path, data)
    cluster = Cluster.start(data, targets=2, env=disk.env)
    try:
        bucket = forebay.Client(cluster.endpoint).bucket("disk").create()
        fill(bucket)
        disk.begin()
        for what, loader in loaders(MapDataset(bucket)):
            check(what, run(loader), "disk")
        check("stream", run(ThreadLoader(IterableDataset(bucket), BATCH, threads=2)), "disk")
        single = ThreadLoader(Singles(bucket), BATCH, threads=1)
        check("single reads", run(single), "disk")
    finally:
        cluster.stop()


class Singles:
    """Objects that are read one by one, as a dataset of a user may do it."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket

    def __len__(self) -> int:
        return OBJECTS

    def __getitem__(self, index: int) -> int:
        return len(self._bucket.object(f"{index:05}").get().read_all())


class SlowReader:
    """A client whose batches keep the only place of a target for most of the time."""

    def __init__(self, target: str, body: bytes) -> None:
        host, port = target.removeprefix("http://").split(":")
        self._address = (host, int(port))
        fields = f"host: {host}\r\nconnection: close\r\ncontent-length: {len(body)}"
        self._request = f"POST /api/v1/batch HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over.is_set():
            # The target may end the connection in favor of a batch that waits.
            with (
                contextlib.suppress(OSError),
                socket.create_connection(self._address) as connection,
            ):
                connection.sendall(self._request)
                for _ in range(10):
                    # It reads all the time: the target ends batches of clients that do not.
                    if not connection.recv(1 << 16):
                        break
                    time.sleep(0.02)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_saturated_target_is_named(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path, targets=1, env={"FOREBAY_LIMITS__BATCHES": "1"})
    try:
        client = forebay.Client(cluster.endpoint)
        load, bucket = client.bucket("load").create(), client.bucket("mine").create()
        fill(load, 1 << 20, 64)
        fill(bucket)
        entries = [{"bucket": 0, "name": f"{number:05}"} for number in range(64)]
        request = {"buckets": [{"name": "load", "provider": "ais"}], "entries": entries, "ordered": True}
        body = json.dumps(request).encode()
        with SlowReader(cluster.targets[0]["url"], body):
            for what, loader in loaders(MapDataset(bucket)):
                # Between two requests of the other reader nothing waits.
                check(what, run(loader, passes=2, least_wait_s=0.5), "queue")
    finally:
        cluster.stop()


def test_a_throttled_link_is_named(tmp_path: Path) -> None:
    tools = [shutil.which(tool) for tool in ("unshare", "ip", "tc")]
    probe = "ip link set lo up && tc qdisc add dev lo root tbf rate 80mbit burst 128kb latency 1s"
    if None in tools or subprocess.run(["unshare", "-n", "sh", "-c", probe]).returncode:
        pytest.skip("no network namespace with a throttled link can be made here")
    script = Path(__file__).with_name("throttled_loop.py")
    path = os.pathsep.join([str(REPOSITORY / "tests/python"), str(script.parent)])
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        + [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "FOREBAY_BIN": str(binary())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_loops_of_two_threads_have_their_own_causes(bucket: Any) -> None:
    fill(bucket)
    slow = observe(DataLoader(MapDataset(bucket, data_format_fn=slow_decoder), BATCH, collate_fn=list))
    fast = observe(DataLoader(MapDataset(bucket), 1, collate_fn=list))
    is_over = threading.Event()

    def read_meanwhile() -> None:
        while not is_over.is_set():
            run(fast)

    other = threading.Thread(target=read_meanwhile)
    other.start()
    try:
        check("the slow loop", run(slow), "decode", above=0.8)
    finally:
        is_over.set()
        other.join()
    # There are no workers here.
    stats = slow.stats()
    assert stats.causes["worker"] <= 0.05 * stats.wait_s, stats.table()


def test_batches_of_an_observed_loader_are_those_of_the_loader(bucket: Any) -> None:
    fill(bucket)
    dataset = MapDataset(bucket)
    plain = [list(names) for names, _ in DataLoader(dataset, BATCH, num_workers=2)]
    loader = DataLoader(
        dataset, BATCH, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    observed = observe(loader)
    for _ in range(2):
        assert [list(names) for names, _ in observed] == plain
    # The workers go on for a loop that is not measured, and measure nothing for it.
    assert [list(names) for names, _ in loader] == plain
    assert len(observed) == len(loader) and observed.batch_size == BATCH
    assert observed.stats().batches == 2 * len(plain)
    assert observed.stats().samples == 2 * OBJECTS
    assert observed.stats().bytes >= 2 * OBJECTS * 4096
    alone = observe(DataLoader(dataset, None))
    assert [name for name, _ in alone] == [name for names in plain for name in names]
    spawned = observe(DataLoader(dataset, BATCH, num_workers=1, multiprocessing_context="spawn"))
    assert [list(names) for names, _ in spawned] == plain
    assert spawned.stats().attributed_fraction >= 0.95
    threads = ThreadLoader(dataset, BATCH)
    assert observe(threads) is threads


@pytest.mark.parametrize("workers", [0, 2])
def test_an_observed_loader_has_the_state_of_its_loader(bucket: Any, workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    fill(bucket)

    def made() -> Any:
        dataset = IterableDataset(bucket, batch_size=BATCH)
        return observe(StatefulDataLoader(dataset, BATCH, num_workers=workers))

    first, second = made(), made()
    batches = iter(first)
    names = [name for _ in range(3) for name in next(batches)[0]]
    second.load_state_dict(first.state_dict())
    names += [name for batch, _ in second for name in batch]
    assert sorted(names) == [f"{number:05}" for number in range(OBJECTS)]
    assert second.stats().attributed_fraction >= 0.95


def test_waits_for_shards_are_named_too(bucket: Any) -> None:
    with ShardWriter("s-%05d.tar", 200, bucket=bucket) as writer:
        for number in range(600):
            writer.write({"__key__": f"{number:05}", "bin": os.urandom(2000)})
    for loader in (
        ThreadLoader(ShardReader(bucket), BATCH, threads=2),
        observe(DataLoader(ShardReader(bucket), BATCH, num_workers=2)),
    ):
        stats = run(loader)
        assert stats.samples == 600 and stats.bytes >= 600 * 2000, stats.table()
        assert stats.attributed_fraction >= 0.95, stats.table()
        assert stats.causes["cold"] == 0, stats.table()


def test_the_table_and_the_trace_show_the_causes(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bucket)
    dataset = MapDataset(bucket, data_format_fn=slow_decoder)
    trace = tmp_path / "trace.json"
    loader = ThreadLoader(dataset, BATCH, threads=2, report=True, trace_file=trace)
    stats = run(loader)
    shown = capsys.readouterr().err
    assert shown.splitlines()[2].startswith("decode"), shown
    events = json.loads(trace.read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"loop: waits", "worker 0", "worker 1"} == named
    decode_us = sum(event["dur"] for event in events if event["name"] == "decode")
    assert decode_us >= OBJECTS * 5_000
    waits_us = sum(event["dur"] for event in events if event["name"] == "wait")
    assert waits_us == pytest.approx(stats.wait_s * 1e6, rel=0.01)
    monkeypatch.setenv("FOREBAY_REPORT", "1")
    run(observe(DataLoader(dataset, BATCH)))
    assert "waited for" in capsys.readouterr().err
    monkeypatch.delenv("FOREBAY_REPORT")
    run(observe(DataLoader(dataset, BATCH)))
    assert "waited for" not in capsys.readouterr().err


def test_a_loop_is_shown_by_forebay_why(cluster: Cluster, client: Any, bucket: Any) -> None:
    fill(bucket)
    job = f"job-{uuid.uuid4().hex[:8]}"
    dataset = MapDataset(bucket, data_format_fn=slow_decoder)
    loader = ThreadLoader(dataset, BATCH, threads=1, name=job)
    stats = run(loader)

    def mine() -> list[dict[str, Any]]:
        return [feed for feed in feeds(client) if feed["name"] == job]

    wait_until(lambda: bool(mine()), "the feed is at the cluster")
    (feed,) = mine()
    assert feed["steps"] == stats.steps and feed["buckets"] == [bucket.uri]
    assert feed["causes"]["decode"] == pytest.approx(stats.causes["decode"], rel=0.01)
    why = [str(binary()), "why", "--endpoint", cluster.endpoint]
    text = subprocess.run([*why, job], capture_output=True, text=True, check=True).stdout
    assert "decode" in text.splitlines()[2] and "more workers" in text, text
    document = json.loads(subprocess.check_output([*why, feed["id"], "--json"]))
    assert document["findings"][0]["cause"] == "decode" and document["loaders"] == 1
    listed = subprocess.check_output(why, text=True)
    assert job in listed
    missing = subprocess.run([*why, "no-such-job"], capture_output=True, text=True)
    assert missing.returncode == 4 and "no-such-job" in missing.stderr
    run(ThreadLoader(dataset, BATCH, name="silent", feed=False))
    assert all(feed["name"] != "silent" for feed in feeds(client))
