"""Shards that `forebay ishard` writes are what readers of shards expect."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cluster

SAMPLES = 60


def image(n: int) -> bytes:
    return hashlib.shake_128(f"image {n}".encode()).digest(1000 + n)


@pytest.fixture(scope="module")
def shards(
    start_cluster: Callable[..., Cluster], forebay_bin: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """A data set of images beside their labels, as shards of some samples each."""
    cluster = start_cluster()
    folder = tmp_path_factory.mktemp("dataset")
    for n in range(SAMPLES):
        for kind, name, content in (
            ("images", f"{n:04}.jpg", image(n)),
            ("masks", f"{n:04}.seg.png", b"mask %d" % n),
            ("labels", f"{n:04}.json", json.dumps({"label": n}).encode()),
        ):
            path = folder / "in" / kind / f"class-{n % 3}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def forebay(*words: str) -> None:
        command = [str(forebay_bin), "--endpoint", cluster.endpoint, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    forebay("mb", "ais://raw")
    forebay("put", "-r", str(folder / "in"), "ais://raw")
    options = ("--size=16", "--sort=shuffle:3", "--create", "--wait")
    forebay("ishard", "ais://raw", "ais://shards", *options)
    forebay("get", "-r", "ais://shards", str(folder / "out"))
    found = sorted((folder / "out").rglob("*.tar"))
    lines = (folder / "out").rglob("manifest.jsonl").__next__().read_text().splitlines()
    assert [json.loads(line)["shard"] for line in lines] == [path.name for path in found]
    return found


def test_tarfile_finds_whole_samples(shards: list[Path]) -> None:
    seen = set()
    for path in shards:
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            assert len(members) % 3 == 0
            for first, second, third in zip(*[iter(members)] * 3, strict=True):
                key = first.name.split(".")[0]
                names = [m.name for m in (first, second, third)]
                assert names == [f"{key}.jpg", f"{key}.json", f"{key}.seg.png"]
                data = tar.extractfile(first)
                assert data is not None and data.read() == image(int(key))
                seen.add(key)
    assert len(seen) == SAMPLES
    assert len(shards) == -(-SAMPLES // 16)


def test_webdataset_reads_whole_samples(shards: list[Path]) -> None:
    webdataset = pytest.importorskip("webdataset")
    urls = [str(path) for path in shards]
    read = {}
    for sample in webdataset.WebDataset(urls, shardshuffle=False, empty_check=False):
        assert {"jpg", "json", "seg.png"} <= set(sample)
        read[sample["__key__"]] = sample
    assert len(read) == SAMPLES
    for key, sample in read.items():
        assert sample["jpg"] == image(int(key))
        assert json.load(io.BytesIO(sample["json"])) == {"label": int(key)}
        assert sample["seg.png"] == b"mask %d" % int(key)
