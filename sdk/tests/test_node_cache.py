"""One node, many processes: each object is fetched once."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import NodeCache

# The same in every process.
SHARD = random.Random(5).randbytes(3 << 20)


def served(cluster: Any) -> float:
    """Bytes of objects that the targets sent so far."""
    return float(cluster.count("forebay_get_bytes_total"))


def use(cache: NodeCache, item: forebay.Object) -> bool:
    return cache.get(item) == SHARD


def test_n_workers_of_a_node_fetch_each_shard_once(
    bucket: forebay.Bucket, cluster: Any, tmp_path: Path
) -> None:
    shards = [bucket.object(f"s{i}.tar") for i in range(3)]
    bucket.put_many((shard.name, SHARD) for shard in shards)
    cache = NodeCache(tmp_path / "cache")
    before = served(cluster)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert all(pool.starmap(use, [(cache, shard) for shard in shards * 4]))
    threads = [threading.Thread(target=use, args=(cache, shards[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served(cluster) - before == 3 * len(SHARD)


def test_the_least_lately_used_goes_when_the_limit_is_reached(
    bucket: forebay.Bucket, cluster: Any, tmp_path: Path
) -> None:
    cache = NodeCache(tmp_path, limit=2 * len(SHARD) + 1000)
    items = [bucket.object(name) for name in "abc"]
    bucket.put_many((item.name, SHARD) for item in items)
    held = cache.get(items[0])
    cache.get(items[1])
    cache.get(items[0])
    cache.get(items[2])
    assert cache.size() <= cache.limit
    before = served(cluster)
    assert use(cache, items[0]) and use(cache, items[2])
    assert served(cluster) == before
    cache.get(items[1])
    assert served(cluster) - before == len(SHARD)
    assert held == SHARD, "a view stays readable after its file went"


def test_a_crash_needs_no_cleaning_up(bucket: forebay.Bucket, tmp_path: Path) -> None:
    bucket.object("s").put(SHARD)
    code = (
        "import os, signal, sys, forebay\n"
        "from forebay.object import Reader\n"
        "def dying(self):\n"
        "    yield b'half'; os.kill(os.getpid(), signal.SIGKILL)\n"
        "Reader.__iter__ = dying\n"
        "b = forebay.Client(sys.argv[1]).bucket(sys.argv[2])\n"
        "forebay.NodeCache(sys.argv[3]).get(b.object('s'))\n"
    )
    arguments = [bucket.client.endpoint, bucket.name, str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("*.part")), "it died while it wrote"
    assert use(NodeCache(tmp_path), bucket.object("s"))
    assert not list(tmp_path.glob("*.part"))


def test_a_changed_object_is_fetched_anew(bucket: forebay.Bucket, tmp_path: Path) -> None:
    item = bucket.object("o")
    item.put(b"old")
    cache, careless = NodeCache(tmp_path), NodeCache(tmp_path, check=False)
    old = cache.get(item)
    item.put(b"newer")
    assert careless.get(item) == b"old"
    assert cache.get(item) == b"newer"
    assert old == b"old"
    assert len(list(tmp_path.glob("*.data"))) == 1
    item.put(b"")
    assert cache.get(item) == b""
    item.delete()
    with pytest.raises(forebay.NotFound):
        cache.get(item)


def test_a_cache_pickles_as_its_settings(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, limit=5, check=False)
    back = pickle.loads(pickle.dumps(cache))
    assert back == cache and hash(back) == hash(cache)
    with pytest.raises(ValueError, match="limit"):
        NodeCache(tmp_path, limit=0)
