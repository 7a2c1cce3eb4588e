"""ShardReader makes as many batches on every rank, however uneven its shards are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay_torch import ShardReader, ShardWriter
from forebay_torch.shard_plan import Item, batches_of_ranks
from rank_jobs import run_ranks

WORLD = 3
PER_SHARD = (20, 7, 1, 33, 12, 5, 18, 2, 9, 40)
KEYS = [f"{shard}-{i}" for shard, count in enumerate(PER_SHARD) for i in range(count)]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:Length of")


@pytest.fixture
def shards(bucket: forebay.Bucket) -> forebay.Bucket:
    for shard, count in enumerate(PER_SHARD):
        with ShardWriter(f"s{shard}-%d.tar", bucket=bucket) as writer:
            for i in range(count):
                writer.write({"__key__": f"{shard}-{i}", "cls": i})
    return bucket


def readers(bucket: forebay.Bucket, **options: Any) -> list[ShardReader]:
    return [ShardReader(bucket, rank=rank, world_size=WORLD, **options) for rank in range(WORLD)]


def batches_of(reader: ShardReader, workers: int) -> list[list[str]]:
    return [list(keys) for keys, _ in DataLoader(reader, batch_size=8, num_workers=workers)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffer", [0, 10])
def test_ranks_drop_to_or_repeat_up_to_the_same_number_of_batches(
    shards: forebay.Bucket, workers: int, buffer: int
) -> None:
    options = {"shuffle_shards": True, "shuffle_buffer": buffer, "batch_size": 8}
    for epoch in range(2):
        plain = readers(shards, **options)
        for reader in plain:
            reader.set_epoch(epoch)
        lengths = [len(batches_of(reader, workers)) for reader in plain]
        for mode, steps in (("drop", min(lengths)), ("wrap", max(lengths))):
            found = []
            for reader in readers(shards, equal_length=mode, **options):
                reader.set_epoch(epoch)
                found.append(batches_of(reader, workers))
                if workers == 0:
                    assert len(reader) == sum(map(len, found[-1]))
            assert len({len(of_rank) for of_rank in found}) == 1, mode
            keys = [key for of_rank in found for batch in of_rank for key in batch]
            if mode == "drop":
                assert steps - 2 <= len(found[0]) <= steps
                assert all(len(batch) == 8 for of_rank in found for batch in of_rank)
                assert len(keys) == len(set(keys))
            else:
                assert len(found[0]) == steps
                assert set(keys) == set(KEYS)


def test_a_rank_without_shards_repeats_those_of_others(shards: forebay.Bucket) -> None:
    two = shards.objects(names=["s0-0.tar", "s1-0.tar"])
    found = [batches_of(reader, 0) for reader in readers(two, batch_size=8, equal_length="wrap")]
    assert [len(of_rank) for of_rank in found] == [3, 3, 3]
    with pytest.raises(ValueError, match="2 shards for 3 ranks"):
        readers(two, batch_size=8, equal_length="drop")


def test_a_stateful_loader_resumes_at_the_same_steps(shards: forebay.Bucket) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        reader = readers(shards, batch_size=8, equal_length="drop")[1]
        return torchdata.StatefulDataLoader(reader, batch_size=8, num_workers=2)

    whole = [list(keys) for keys, _ in loader()]
    got: list[list[str]] = []
    state = None
    for steps in (3, 1, 100):
        own = loader()
        if state is not None:
            own.load_state_dict(state)
        for step, (keys, _) in enumerate(own, 1):
            got.append(list(keys))
            state = own.state_dict()
            if step == steps:
                break
    assert got == whole


def test_what_equal_lengths_do_not_go_with_is_refused(shards: forebay.Bucket) -> None:
    with pytest.raises(ValueError, match="equal_length"):
        ShardReader(shards, equal_length="pad")  # type: ignore[arg-type]
    for options in ({"resampled": True}, {"nodesplitter": list}, {"workersplitter": list}):
        with pytest.raises(ValueError, match="equal_length"):
            ShardReader(shards, equal_length="drop", **options)  # type: ignore[arg-type]
    reader = ShardReader(shards, equal_length="drop")
    with pytest.raises(TypeError, match="equal_length"):
        reader.state_dict(num_samples=1)


def test_a_model_that_waits_for_all_ranks_gets_equal_steps_or_an_error_before_the_first(
    bucket: forebay.Bucket, tmp_path: Path
) -> None:
    names = [f"o/{i}" for i in range(9)]
    bucket.put_many((name, b"x") for name in names)
    keys = []
    for shard, count in enumerate((2, 3, 4)):
        with ShardWriter(f"s/{shard}-%d.tar", bucket=bucket) as writer:
            for i in range(count):
                writer.write({"__key__": f"{shard}{i}", "cls": i})
                keys.append(f"{shard}{i}")
    texts = {"t/a": ["0"], "t/b": ["1", "2"], "t/c": ["3", "4", "5", "6"]}
    bucket.put_many((name, "\n".join(text).encode()) for name, text in texts.items())
    outputs = run_ranks("steps", 2, tmp_path, bucket.client.endpoint, bucket.uri)
    first, second = (
        {case: seen for line in output.splitlines() for case, seen in json.loads(line).items()}
        for output in outputs
    )
    for case in ("objects", "objects of workers", "objects of spawned workers", "objects of threads", "mixed"):
        read = first[case] + second[case]
        assert (len(first[case]), len(second[case])) == (5, 5), case
        assert sorted(set(read)) == names, case
    lines = [line for text in texts.values() for line in text]
    for case in ("lines", "lines of workers"):
        assert (len(first[case]), len(second[case])) == (4, 4), case
        assert sorted({*first[case], *second[case]}) == lines, case
    assert (len(first["files"]), len(second["files"])) == (2, 2)
    assert {*first["files"], *second["files"]} == {f"{bucket.uri}/{name}" for name in texts}
    assert sorted(first["evaluated lines"] + second["evaluated lines"]) == lines
    for case in ("shards", "shards of workers", "shards of spawned workers", "shards of threads"):
        for message in (first[case], second[case]):
            assert "make 3, 2 batches" in message and 'equal_length="drop" or "wrap"' in message, (case, message)
    assert "make 3, 1 batches" in first["shards without rests"]
    assert len(first["dropped shards"]) == len(second["dropped shards"]) == 2
    assert sorted(first["evaluated objects"] + second["evaluated objects"]) == names
    for case in ("evaluated shards", "free shards", "joined shards"):
        assert sorted(first[case] + second[case]) == keys, case


def test_batches_of_a_rank_are_those_of_its_workers() -> None:
    counts = [5, 3, 4, 2]
    items = [Item(row) for row in range(4)]
    for workers, drop_last, batches in (
        (1, False, [5, 3]),
        (2, False, [5, 3]),
        (1, True, [4, 2]),
        (2, True, [4, 2]),
    ):
        found = batches_of_ranks(items, 2, workers, 2, drop_last, counts.__getitem__)
        assert found == batches, (workers, drop_last)
