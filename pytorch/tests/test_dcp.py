"""torch.distributed.checkpoint through the cluster: whole or the old one, in any number of ranks."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from rank_jobs import run_ranks
from torch.distributed.checkpoint.api import CheckpointException

import forebay
from forebay_torch import Checkpoint
from forebay_torch.checkpoint.ranges import coalesced
from forebay_torch.dcp import (
    BinaryPrefixStrategy,
    DefaultPrefixStrategy,
    FileSystem,
    HexPrefixStrategy,
    NumericPrefixStrategy,
    RoundRobinPrefixStrategy,
    StorageReader,
    StorageWriter,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*process group is not initialized"),
    pytest.mark.filterwarnings("ignore:.*unavailable or uninitialized"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]


def state(factor: float = 1, tensors: int = 8) -> dict[str, Any]:
    weights = {str(i): torch.full((1000 + i,), i * factor) for i in range(tensors)}
    return {"model": weights, "step": int(7 * factor)}


def save(uri: str, client: forebay.Client, content: dict[str, Any], **options: Any) -> None:
    dcp.save(content, storage_writer=StorageWriter(uri, "project", client, **options))


def load(uri: Any, client: forebay.Client, into: dict[str, Any]) -> dict[str, Any]:
    dcp.load(into, storage_reader=StorageReader(uri, "project", client))
    return into


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    same = all(torch.equal(one["model"][i], other["model"][i]) for i in other["model"])
    return same and one["step"] == other["step"]


def names(bucket: forebay.Bucket) -> list[str]:
    return list(bucket.list_snapshot().names())


def test_one_process_saves_and_loads_by_uri_and_by_path(bucket: forebay.Bucket) -> None:
    uri = f"{bucket.uri}/run/step=1"
    save(uri, bucket.client, state(), thread_count=3)
    assert is_same(load(uri, bucket.client, state(0)), state())
    assert is_same(load(Path(uri), bucket.client, state(0)), state())
    assert Checkpoint(storage_client=bucket.client).latest(f"{bucket.uri}/run/") == uri
    assert "run/step=1/.metadata" in names(bucket)
    assert not any(name.endswith(".tmp") for name in names(bucket))


def test_ranks_of_another_number_load_what_four_saved(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    uri = f"{bucket.uri}/four"
    run_ranks("save", 4, tmp_path, bucket.client.endpoint, uri)
    ranks = {name.split("__")[1][0] for name in names(bucket) if name.endswith(".distcp")}
    assert ranks == {"0", "1", "2", "3"}
    run_ranks("load", 2, tmp_path, bucket.client.endpoint, uri)


def test_metadata_comes_last_and_the_old_files_go_after_it(
    bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{bucket.uri}/c"
    save(uri, bucket.client, state())
    old = [name for name in names(bucket) if name.endswith(".distcp")]
    done: list[str] = []
    write, delete = Checkpoint.writer, forebay.Object.delete

    def writing(self: Checkpoint, path: Any) -> forebay.Writer:
        done.append(f"write {str(path).rpartition('/')[2]}")
        return write(self, path)

    def deleting(self: forebay.Object, missing_ok: bool = False) -> None:
        done.append(f"delete {self.name}")
        delete(self, missing_ok)

    monkeypatch.setattr(Checkpoint, "writer", writing)
    monkeypatch.setattr(forebay.Object, "delete", deleting)
    save(uri, bucket.client, state(2))
    at = done.index("write .metadata")
    assert all(".distcp" in step and step.startswith("write") for step in done[:at])
    assert done[at + 1 :] == [f"delete {name}" for name in old]
    assert is_same(load(uri, bucket.client, state(0)), state(2))
    assert not set(old) & set(names(bucket))


class Refusing(dcp.DefaultSavePlanner):
    """Fails at one tensor."""

    def resolve_data(self, write_item: Any) -> Any:
        if write_item.index.fqn == "model.5":
            raise KeyError("mine")
        return super().resolve_data(write_item)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_save_that_fails_in_any_thread_leaves_the_old_checkpoint(
    bucket: forebay.Bucket, threads: int
) -> None:
    uri = f"{bucket.uri}/c"
    save(uri, bucket.client, state())
    with pytest.raises(CheckpointException, match="mine|not written"):
        writer = StorageWriter(uri, None, bucket.client, thread_count=threads)
        dcp.save(state(2), storage_writer=writer, planner=Refusing())
    with pytest.raises(CheckpointException, match="mine|not written"):
        writer = StorageWriter(f"{bucket.uri}/new", None, bucket.client, thread_count=threads)
        dcp.save(state(2), storage_writer=writer, planner=Refusing())
    assert is_same(load(uri, bucket.client, state(0)), state())
    checkpoint = Checkpoint(bucket_name=bucket.uri, storage_client=bucket.client)
    assert checkpoint.latest() == "c"
    with pytest.raises(CheckpointException):
        load(f"{bucket.uri}/new", bucket.client, state(0))
    with pytest.raises(CheckpointException, match="overwrite=False"):
        save(uri, bucket.client, state(), overwrite=False)


def test_saves_in_the_background_of_two_ranks_wait_and_raise(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    run_ranks("background", 2, tmp_path, bucket.client.endpoint, f"{bucket.uri}/c")
    assert sum(name.endswith(".distcp") for name in names(bucket)) == 2


def test_saves_in_the_background_do_not_take_the_messages_of_the_training(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    run_ranks("meanwhile", 2, tmp_path, bucket.client.endpoint, f"{bucket.uri}/c")


def test_the_file_system_does_what_torch_asks_of_one(bucket: forebay.Bucket) -> None:
    files = FileSystem(Checkpoint(storage_client=bucket.client))
    one = files.concat_path(Path(f"{bucket.uri}/a"), "one")
    assert one == f"{bucket.uri}/a/one" and not files.exists(one)
    with files.create_stream(one, "wb") as stream:
        stream.write(b"content")
    with pytest.raises(KeyError), files.create_stream(one, "wb") as stream:
        stream.write(b"other")
        raise KeyError
    assert isinstance(files.take_failure(), KeyError) and files.take_failure() is None
    files.rename(one, f"{bucket.uri}/a/two")
    assert files.ls(f"{bucket.uri}/a") == [f"{bucket.uri}/a/two"]
    with files.create_stream(f"{bucket.uri}/a/two", "rb") as stream:
        assert stream.read() == b"content"
    with pytest.raises(ValueError, match="rb or wb"), files.create_stream(one, "ab"):
        pass
    files.rm_file(f"{bucket.uri}/a/two")
    assert files.ls(bucket.uri) == []
    assert StorageWriter.validate_checkpoint_id("s3://b/c")
    assert StorageReader.validate_checkpoint_id(Path("gcs://b/c"))
    assert not FileSystem.validate_checkpoint_id("file://b/c")
    assert not FileSystem.validate_checkpoint_id("checkpoints/c")


@pytest.mark.filterwarnings("ignore:fsync not supported")
def test_torchs_own_writer_and_reader_for_fsspec_go_through_the_file_system(
    bucket: forebay.Bucket,
) -> None:
    pytest.importorskip("fsspec")
    from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter

    uri = f"fb://{bucket.name}/run/step=1"
    for factor in (1, 2):
        dcp.save(state(factor), storage_writer=FsspecWriter(uri, endpoint=bucket.client.endpoint))
    into = state(0)
    dcp.load(into, storage_reader=FsspecReader(uri, endpoint=bucket.client.endpoint))
    assert is_same(into, state(2))
    # Our reader loads its files, and reads the ranges of the plan.
    assert is_same(load(uri, bucket.client, state(0)), state(2))
    assert not any(name.endswith(".tmp") for name in names(bucket))


def test_strategies_spread_the_ranks_over_prefixes() -> None:
    assert DefaultPrefixStrategy()(3) == "__3_"
    rounds = RoundRobinPrefixStrategy(["a", "b/"], epoch_num=2)
    assert [rounds(rank) for rank in range(3)] == [
        "a/epoch_2/__0_", "b/epoch_2/__1_", "a/epoch_2/__2_",
    ]  # fmt: skip
    binary = BinaryPrefixStrategy(min_prefix_length=3, prefix_count=4)
    assert [binary(rank) for rank in range(5)] == [
        "000/__0_", "100/__1_", "010/__2_", "110/__3_", "000/__4_",
    ]  # fmt: skip
    assert HexPrefixStrategy(1, 2, 300)(256) == "001/epoch_1/__256_"
    assert HexPrefixStrategy(1, 2, 300)(31) == "f10/epoch_1/__31_"
    assert NumericPrefixStrategy(10, min_prefix_length=1, prefix_count=1)(7) == "0/__7_"
    assert BinaryPrefixStrategy()(0) == "0000000000/__0_"
    for wrong in ({"base": 1}, {"base": 2, "prefix_count": 0}, {"base": 2, "min_prefix_length": 0}):
        with pytest.raises(ValueError, match="not [01]"):
            NumericPrefixStrategy(**wrong)
    with pytest.raises(ValueError, match="user_prefixes"):
        RoundRobinPrefixStrategy([])


def test_a_checkpoint_with_prefixes_loads_and_says_which_they_were(
    bucket: forebay.Bucket,
) -> None:
    uri = f"{bucket.uri}/c"
    for factor in (1, 2):
        strategy = HexPrefixStrategy(epoch_num=factor, min_prefix_length=2)
        save(uri, bucket.client, state(factor), prefix_strategy=strategy)
    assert is_same(load(uri, bucket.client, state(0)), state(2))
    prefixes = json.loads(bucket.object("c/prefix_map.json").get().read_all())
    assert list(prefixes) == ["0"] and prefixes["0"].startswith("00/epoch_2/__0_")
    parts = [name for name in names(bucket) if name.endswith(".distcp")]
    assert [name.startswith("c/00/epoch_2/__0_") for name in parts] == [True]


def test_what_is_wanted_comes_in_few_ranges_with_little_beside() -> None:
    assert coalesced([]) == []
    assert coalesced([(100, 50), (0, 100), (150, 0), (120, 20)]) == [(0, 150)]
    assert coalesced([(0, 100), (105, 100), (1000, 100)], waste=0.1) == [(0, 205), (1000, 1100)]
    assert coalesced([(0, 10), (10, 10), (20, 10)], max_range=20) == [(0, 20), (20, 30)]
    choose = random.Random(3)
    for _ in range(200):
        spans = [
            (choose.randrange(10_000), choose.randrange(1, 200))
            for _ in range(choose.randrange(1, 40))
        ]
        ranges = coalesced(spans, max_range=choose.choice([300, 1 << 20]))
        assert all(before[1] <= after[0] for before, after in zip(ranges, ranges[1:], strict=False))
        for start, length in spans:
            assert any(a <= start and start + length <= b for a, b in ranges)
        wanted = len({byte for start, length in spans for byte in range(start, start + length)})
        assert sum(b - a for a, b in ranges) <= 1.08 * wanted


@pytest.mark.parametrize("size", ["as long", "shorter"])
@pytest.mark.parametrize("when", ["the plan", "the first tensor"])
def test_a_file_that_is_replaced_while_it_is_loaded_is_an_error_and_never_mixed(
    bucket: forebay.Bucket, size: str, when: str
) -> None:
    uri = f"{bucket.uri}/c"
    # 10 tensors of 8 MiB: more than is fetched ahead.
    model = {str(i): torch.full((2 << 20,), 1.0) for i in range(10)}
    save(uri, bucket.client, {"model": model, "step": 1})
    (name,) = [name for name in names(bucket) if name.endswith(".distcp")]
    file = bucket.object(name)
    other = bytes(file.head().size if size == "as long" else 100)

    class Replacing(dcp.DefaultLoadPlanner):
        def finish_plan(self, plan: Any) -> Any:
            if when == "the plan":
                file.put(other)
            return super().finish_plan(plan)

        def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
            if when == "the first tensor":
                file.put(other)

    with pytest.raises(CheckpointException, match="ObjectChanged|changed since") as raised:
        reader = StorageReader(uri, "project", bucket.client)
        into = {"model": {name: torch.zeros(2 << 20) for name in model}, "step": 0}
        dcp.load(into, storage_reader=reader, planner=Replacing())
    assert any(isinstance(error[0], forebay.ObjectChanged) for error in raised.value.failures.values())


def test_a_file_that_is_shorter_than_it_was_saved_is_refused_before_it_is_read(
    bucket: forebay.Bucket,
) -> None:
    save(f"{bucket.uri}/c", bucket.client, state())
    (name,) = [name for name in names(bucket) if name.endswith(".distcp")]
    bucket.object(name).put(b"short")
    with pytest.raises(CheckpointException, match="has 5 bytes, and had"):
        load(f"{bucket.uri}/c", bucket.client, state(0))


@pytest.mark.parametrize("half", ["every other tensor", "the second half"])
def test_half_a_model_costs_less_than_a_tenth_more_than_its_bytes(
    bucket: forebay.Bucket, cluster: Any, half: str
) -> None:
    uri = f"{bucket.uri}/c"
    sizes = [200_000 + 977 * i for i in range(40)]
    model = {f"{i:02}": torch.full((size,), float(i)) for i, size in enumerate(sizes)}
    save(uri, bucket.client, {"model": model, "step": 1})
    rows = range(0, 40, 2) if half == "every other tensor" else range(20, 40)
    wanted = {f"{i:02}": torch.zeros(sizes[i]) for i in rows}
    before = cluster.count("forebay_get_bytes_total"), cluster.count("forebay_http_requests_total")
    load(uri, bucket.client, {"model": wanted})
    after = cluster.count("forebay_get_bytes_total"), cluster.count("forebay_http_requests_total")
    assert all(torch.equal(tensor, model[name]) for name, tensor in wanted.items())
    useful = sum(tensor.nbytes for tensor in wanted.values())
    assert useful < after[0] - before[0] < 1.1 * useful
    # Not three requests for each tensor, but one, or fewer; and some for the metadata.
    assert 0 < after[1] - before[1] < len(wanted) + 10


class Runs:
    """An object that runs a function when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def test_metadata_run_nothing_when_a_checkpoint_is_loaded_or_replaced(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    uri, client = f"{bucket.uri}/run", bucket.client
    state = {"weight": torch.ones(3), "half": torch.ones(2, dtype=torch.bfloat16), "step": 3}
    state["nested"] = {"a": [torch.zeros(1), {"b": 2}]}
    dcp.save(state, storage_writer=StorageWriter(uri, None, client), no_dist=True)
    whole = bucket.object("run/.metadata").get().read_all()
    flag = tmp_path / "ran"
    planted = [
        Runs(os.mkdir, str(flag)),
        Runs(exec, f"import os; os.mkdir({str(flag)!r})"),
        Runs(getattr, "text", "upper"),
        Runs(torch.load, str(tmp_path / "x")),
        {"state": Runs(os.system, f"mkdir {flag}")},
    ]
    for value in planted:
        bucket.object("run/.metadata").put(pickle.dumps(value))
        with pytest.raises(CheckpointException, match="which is no part of metadata"):
            dcp.load(
                {"weight": torch.zeros(3)},
                storage_reader=StorageReader(uri, None, client),
                no_dist=True,
            )
        with pytest.warns(UserWarning, match="which is no part of metadata"):
            dcp.save(state, storage_writer=StorageWriter(uri, None, client), no_dist=True)
        assert not flag.exists()
    for damaged in (b"", whole[:50], b"not a pickle", pickle.dumps({"a": 1})):
        bucket.object("run/.metadata").put(damaged)
        with pytest.raises(Exception, match="is no metadata of a checkpoint"):
            StorageReader(uri, None, client).read_metadata()
