"""Samples out of shards against a real cluster."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from forebay_fixture import Cluster
from shard_files import FORMATS, pack, tar
from torch.utils.data import DataLoader

import forebay
from forebay_torch import Fields, ShardReader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SHARDS = 7
PER_SHARD = 23


def parts_of(shard: int, number: int) -> dict[str, bytes]:
    """The parts of one sample; some have no label, some a mask."""
    parts = {"jpg": f"{shard}/{number}".encode() * (number % 5)}
    if number % 7:
        parts["cls"] = str(number).encode()
    if number % 3 == 0:
        parts["seg.png"] = os.urandom(30)
    return parts


SAMPLES = {
    f"s{shard}.tar": {f"d/{shard}-{i:03}": parts_of(shard, i) for i in range(PER_SHARD)}
    for shard in range(SHARDS)
}
ALL = {key: parts for samples in SAMPLES.values() for key, parts in samples.items()}


def members(samples: dict[str, dict[str, bytes]]) -> list[tuple[str, bytes]]:
    return [(f"{key}.{ext}", data) for key, parts in samples.items() for ext, data in parts.items()]


def collected(samples: Any) -> list[Any]:
    """As list(), which would ask for the length first."""
    return [sample for sample in samples]


def loaded(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(
        dataset, batch_size=None, num_workers=workers, collate_fn=lambda sample: sample, **options
    )


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((name, tar(members(samples))) for name, samples in SAMPLES.items())
    return bucket


def test_default_collation_works_at_batch_60_though_samples_differ(
    filled: forebay.Bucket
) -> None:
    filled.object("README.md").put(b"no shard")
    shard_reader = ShardReader(bucket_list=filled)
    loader = DataLoader(shard_reader, batch_size=60, num_workers=4)
    got = {}
    for basenames, content_dict in loader:
        assert set(content_dict) == {"jpg", "cls", "seg.png"}
        for i, basename in enumerate(basenames):
            assert all(len(content_dict[ext]) == len(basenames) for ext in content_dict)
            got[basename] = {ext: content_dict[ext][i] for ext in content_dict}
        assert content_dict["__key__"] == list(basenames)
        assert content_dict["absent"] == [b""] * len(basenames)
    assert got == {
        key: {ext: parts.get(ext, b"") for ext in ("jpg", "cls", "seg.png")}
        for key, parts in ALL.items()
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_exactly_once(filled: forebay.Bucket, workers: int) -> None:
    dataset = ShardReader(filled)
    for _ in range(2):
        got = collected(loaded(dataset, workers))
        assert len(got) == len(ALL)
        assert dict(got) == ALL
    if workers == 0:
        assert [key for key, _ in got] == list(ALL)


def test_a_spawned_worker_reads_too(filled: forebay.Bucket) -> None:
    dataset = ShardReader(filled, shuffle_shards=True, shuffle_buffer=5)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="spawn")
    got = [key for keys, _ in loader for key in keys]
    assert sorted(got) == sorted(ALL)


@pytest.mark.parametrize("ending", FORMATS)
def test_shards_of_all_formats_in_one_dataset(bucket: forebay.Bucket, ending: str) -> None:
    first, second = SAMPLES["s0.tar"], SAMPLES["s1.tar"]
    bucket.object(f"a{ending}").put(pack(members(first), ending))
    bucket.object("b.tar").put(tar(members(second)))
    assert collected(ShardReader(bucket)) == [*first.items(), *second.items()]


def test_only_names_of_archives_are_shards_but_a_list_may_name_any(
    filled: forebay.Bucket, client: forebay.Client
) -> None:
    filled.object("s0.idx").put(b"index")
    filled.object("plain").put(tar(members(SAMPLES["s0.tar"])))
    assert len(ShardReader(filled).objects) == SHARDS
    assert len(ShardReader(filled, {filled: ["s0", "s1."]}).objects) == 2
    assert len(ShardReader(f"{filled.uri}/s{{2..3}}.tar", client=client).objects) == 2
    named = ShardReader(filled.objects(["plain"]))
    assert dict(collected(named)) == SAMPLES["s0.tar"]
    with pytest.raises(ValueError, match="ShardReader found no shards"):
        ShardReader(filled, {filled: "plain"})


def test_ranks_and_workers_share_the_shards(filled: forebay.Bucket) -> None:
    seen: Counter[str] = Counter()
    for rank in range(3):
        dataset = ShardReader(filled, rank=rank, world_size=3, shuffle_shards=True, seed=4)
        seen.update(key for key, _ in loaded(dataset, 2))
    assert seen == Counter(list(ALL))
    with pytest.warns(UserWarning, match="7 shards for 8 ranks"):
        ShardReader(filled, rank=7, world_size=8)


def test_shuffles_are_of_the_seed_and_the_epoch(filled: forebay.Bucket) -> None:
    def order(seed: int, epoch: int, **options: Any) -> list[str]:
        dataset = ShardReader(filled, seed=seed, **options)
        dataset.set_epoch(epoch)
        keys = [key for key, _ in dataset]
        assert sorted(keys) == sorted(ALL)
        return keys

    for options in ({"shuffle_shards": True}, {"shuffle_buffer": 10}):
        assert order(1, 0, **options) == order(1, 0, **options)
        assert order(1, 0, **options) != order(1, 1, **options)
        assert order(1, 0, **options) != order(2, 0, **options)
    whole = order(1, 0, shuffle_shards=True)
    assert whole != list(ALL)
    # Shards as such stay in one piece.
    assert len([1 for a, b in zip(whole, whole[1:]) if a[2] != b[2]]) == SHARDS - 1
    assert order(1, 0, shuffle_shards=True, shuffle_buffer=1000) != whole


def test_a_resampled_reader_has_no_end(filled: forebay.Bucket) -> None:
    dataset = ShardReader(filled, resampled=True, seed=3)
    with pytest.raises(TypeError, match="no end"):
        len(dataset)
    taken = [key for (key, _), _ in zip(dataset, range(5 * len(ALL)))]
    assert max(Counter(taken).values()) > 1
    assert taken == [key for (key, _), _ in zip(dataset, range(5 * len(ALL)))]


def test_missing_parts_may_be_anything_or_an_error(filled: forebay.Bucket) -> None:
    loader = DataLoader(ShardReader(filled, fill_missing=b"-1"), batch_size=1000)
    _, contents = next(iter(loader))
    assert contents["cls"].count(b"-1") == sum("cls" not in parts for parts in ALL.values())
    loader = DataLoader(ShardReader(filled, fill_missing=None), batch_size=1000)
    with pytest.raises(KeyError, match="has no .*seg.png"):
        next(iter(loader))
    sample = Fields({"a": b"1"}, None, "k", "u")
    with pytest.raises(KeyError):
        sample["b"]
    assert (sample["__key__"], sample["__url__"], dict(sample)) == ("k", "u", {"a": b"1"})


def number(data: bytes) -> int:
    return int(data or b"-1")


def test_parts_are_decoded_by_extension_or_by_a_plain_function(filled: forebay.Bucket) -> None:
    dataset = ShardReader(filled, decode={"cls": int, "jpg": len, "seg.png": len}, fill_missing=-1)
    loader = DataLoader(dataset, batch_size=50, num_workers=2)
    labels = [label for _, contents in loader for label in contents["cls"]]
    assert all(isinstance(label, torch.Tensor) for label in labels)
    expected = [int(parts.get("cls", b"-1")) for parts in ALL.values()]
    assert sorted(int(label) for label in labels) == sorted(expected)

    whole = ShardReader(filled, decode=lambda key, fields: (key, len(fields["jpg"])))
    assert collected(whole)[1] == ("d/0-001", ("d/0-001", 3))

    with pytest.raises(ValueError, match="invalid literal") as caught:
        collected(ShardReader(filled, decode={"seg.png": int}))
    assert "'seg.png' of the sample 'd/0-000'" in caught.value.__notes__[0]


def test_basename_keys_are_those_of_aistore(bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar([("x/1.seg.png", b"m"), ("x/1.cls", b"c"), ("y/2.jpg", b"j")]))
    got = collected(ShardReader(bucket, keys="basename"))
    assert got == [("1", {"png": b"m", "cls": b"c"}), ("2", {"jpg": b"j"})]
    # What AIStore's reader would lose without a word is an error here.
    bucket.object("a.tar").put(tar([("x/1.seg.png", b"m"), ("x/1.png", b"i")]))
    with pytest.raises(forebay.InvalidArgument, match='"1" has two members'):
        collected(ShardReader(bucket, keys="basename"))
    got = collected(ShardReader(bucket))
    assert got == [("x/1", {"seg.png": b"m", "png": b"i"})]


def damaged(bucket: forebay.Bucket) -> forebay.Bucket:
    """Three shards: one cut off, one whose second sample is there twice, one that is well."""
    whole = tar([(f"a{i}.bin", b"x" * 1000) for i in range(50)])
    bucket.object("a.tar").put(whole[:40_000])
    bucket.object("b.tar").put(tar([("b1.x", b""), ("b2.x", b""), ("b2.x", b""), ("b3.x", b"")]))
    bucket.object("c.tar").put(tar([("c1.x", b"")]))
    return bucket


def test_a_damaged_shard_is_named_or_left_out_by_on_error(bucket: forebay.Bucket) -> None:
    damaged(bucket)
    with pytest.raises(forebay.InvalidArgument, match=rf"{bucket.uri}/a.tar: .*byte \d+"):
        collected(ShardReader(bucket))
    with pytest.raises(forebay.InvalidArgument, match='b.tar: sample "b2"'):
        collected(ShardReader(bucket, {bucket: ["b", "c"]}))

    with pytest.warns(UserWarning) as warned:
        keys = [key for key, _ in ShardReader(bucket, on_error="skip")]
    assert keys[-3:] == ["b1", "b3", "c1"]
    assert keys[:-3] == [f"a{i}" for i in range(len(keys) - 3)] and len(keys) > 20
    assert ["a.tar" in str(w.message) for w in warned] == [True, False]

    seen: list[tuple[str, Exception]] = []
    assert [k for k, _ in ShardReader(bucket, on_error=lambda *e: seen.append(e))] == keys
    assert [name for name, _ in seen] == [f"{bucket.uri}/a.tar", f"{bucket.uri}/b.tar"]

    handled: list[Exception] = []

    def stop(error: Exception) -> bool:
        handled.append(error)
        return False

    stopped = [key for key, _ in ShardReader(bucket, handler=stop)]
    assert stopped[-2:] == ["b1", "c1"] and len(handled) == 2


def test_a_cluster_that_is_away_is_never_skipped(bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar([("1.x", b"")]))
    dataset = ShardReader(bucket, on_error="skip")
    away = forebay.Client("http://127.0.0.1:9", timeout=0.3).bucket(bucket.name)
    dataset._index._buckets = (away,)  # type: ignore[assignment]
    with pytest.raises(forebay.ClusterUnavailable):
        collected(dataset)


def test_contradictions_are_refused(filled: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="keys"):
        ShardReader(filled, keys="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_error"):
        ShardReader(filled, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not both"):
        ShardReader(filled, on_error="skip", handler=lambda error: True)
    with pytest.raises(ValueError, match="shuffle_buffer"):
        ShardReader(filled, shuffle_buffer=-1)
    with pytest.raises(ValueError, match="ShardReader needs at least one source"):
        ShardReader([])


def test_progress_is_silent_without_a_terminal_and_right_at_the_end(
    filled: forebay.Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = ShardReader(filled, show_progress=True)
    collected(dataset)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    collected(dataset)
    lines = capsys.readouterr().err.replace("\r", "\n").split("\n")
    assert f"{filled.uri}/s6.tar: {PER_SHARD} samples" in lines


def test_len_of_a_shard_reader_is_the_number_of_samples_from_the_index(
    filled: forebay.Bucket, cluster: Cluster
) -> None:
    assert len(ShardReader(filled)) == len(ALL)
    hits = cluster.count("forebay_http_requests_total", op="get")
    batches = cluster.count("forebay_http_requests_total", op="batch")
    dataset = ShardReader(filled)
    assert len(dataset) == len(ALL)
    assert len(DataLoader(dataset, batch_size=60)) == -(-len(ALL) // 60)
    assert cluster.count("forebay_http_requests_total", op="get") == hits
    assert cluster.count("forebay_http_requests_total", op="batch") == batches
    ranks = [ShardReader(filled, rank=r, world_size=2, shuffle_shards=True) for r in range(2)]
    for epoch in range(3):
        for dataset in ranks:
            dataset.set_epoch(epoch)
            assert len(dataset) == len(collected(dataset))
        assert sum(map(len, ranks)) == len(ALL)


def test_the_length_under_errors(bucket: forebay.Bucket) -> None:
    damaged(bucket)
    with pytest.raises(forebay.ForebayError, match="a.tar"):
        len(ShardReader(bucket))
    with pytest.warns(UserWarning, match="a.tar"):
        # b1, b3 and c1; what can be read of a damaged shard is not known before.
        assert len(ShardReader(bucket, on_error="skip")) == 3
    assert len(ShardReader(bucket, handler=lambda error: True)) == 3


def test_names_of_members_are_taken_as_webdataset_takes_them(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    webdataset = pytest.importorskip("webdataset")
    samples = [
        {"__key__": f"n/{i:04}", "cls": i, "txt": f"text {i}", "bin": os.urandom(100)}
        for i in range(40)
    ]
    with webdataset.TarWriter(str(tmp_path / "w.tar")) as sink:
        for sample in samples:
            sink.write(sample)
    bucket.object("w.tar").put(tmp_path / "w.tar")
    with tarfile.open(tmp_path / "t.tgz", "w:gz") as archive:
        for name in ("x.jpg", "x.txt"):
            (tmp_path / name).write_bytes(name.encode())
            archive.add(tmp_path / name, name)
    bucket.object("t.tgz").put(tmp_path / "t.tgz")
    got = dict(collected(ShardReader(bucket)))
    assert got["x"] == {"jpg": b"x.jpg", "txt": b"x.txt"}
    for sample in samples:
        parts = got[sample["__key__"]]
        assert (int(parts["cls"]), parts["txt"].decode()) == (sample["cls"], sample["txt"])
        assert parts["bin"] == sample["bin"]


WEBDATASET = """
import sys, webdataset
url = sys.argv[1] + "/v1/objects/" + sys.argv[2] + "/s{0..6}.tar"
dataset = webdataset.WebDataset("pipe:curl -s -f -L '%s'" % url, shardshuffle=False)
for sample in dataset: print(sample["__key__"], len(sample["jpg"]))
"""


def test_webdataset_reads_our_shards_over_http(filled: forebay.Bucket, cluster: Cluster) -> None:
    pytest.importorskip("webdataset")
    done = subprocess.run(
        [sys.executable, "-c", WEBDATASET, cluster.endpoint, filled.name],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = dict(line.split() for line in done.stdout.splitlines())
    assert got == {key: str(len(parts["jpg"])) for key, parts in ALL.items()}


def test_a_packed_shard_of_a_few_hundred_bytes_has_all_its_samples(bucket: forebay.Bucket) -> None:
    packed = gzip.compress(tar([("a.txt", b"1"), ("b.txt", b"2")]))
    assert len(packed) < 512
    bucket.object("s.tar.gz").put(packed)
    assert [key for key, _ in ShardReader(bucket)] == ["a", "b"]
