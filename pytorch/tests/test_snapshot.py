"""A dataset that reads only what it listed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from torch.utils.data import DataLoader

import forebay
from forebay_torch import IterableDataset, MapDataset


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many((f"{i}", b"a" * 10) for i in range(8))
    return bucket


@pytest.mark.parametrize("kind", [MapDataset, IterableDataset])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_snapshot_reads_what_it_listed(filled: Any, kind: Any, workers: int) -> None:
    dataset = kind(filled, snapshot=True)
    loader = DataLoader(dataset, batch_size=3, num_workers=workers)
    names = [name for batch, _ in loader for name in batch]
    assert sorted(names) == [str(i) for i in range(8)]


@pytest.mark.parametrize("kind", [MapDataset, IterableDataset])
def test_an_object_changed_in_mid_epoch_is_ObjectChanged_and_never_mixed_bytes(
    filled: forebay.Bucket, kind: Any
) -> None:
    dataset = pickle.loads(pickle.dumps(kind(filled, snapshot=True)))
    # The same size: only its version differs.
    filled.object("5").put(b"b" * 10)
    with pytest.raises(forebay.ObjectChanged, match="5 changed since it was listed"):
        list(DataLoader(dataset, batch_size=4))
    answered = kind(filled, snapshot=True, on_error=lambda name, error: (name, b"gone"))
    filled.object("2").delete()
    contents = dict(answered[i] for i in range(8)) if kind is MapDataset else dict(answered)
    assert contents["2"] == b"gone" and contents["5"] == b"b" * 10


def test_groups_and_prefixes_are_pinned_too(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled.objects(["3", "1"]), snapshot=True)
    assert [name for name, _ in dataset] == ["3", "1"]
    prefixed = MapDataset([filled], {filled: ["1", "2"]}, snapshot=True)
    filled.object("1").put(b"c" * 10)
    with pytest.raises(forebay.ObjectChanged, match="/1 changed"):
        prefixed[0]
    assert prefixed[1] == ("2", b"a" * 10)
    with pytest.raises(forebay.NotFound, match="nobody"):
        MapDataset(filled.objects(["nobody"]), snapshot=True)


def test_without_a_snapshot_the_object_of_the_moment_is_read(filled: forebay.Bucket) -> None:
    dataset = MapDataset(filled)
    filled.object("5").put(b"another")
    assert dataset[5] == ("5", b"another")


def test_a_folder_is_pinned_by_its_files(client: forebay.Client, cluster: Any) -> None:
    root = cluster.folder_root / "pinned"
    root.mkdir()
    for i in range(4):
        (root / f"{i}").write_bytes(b"x" * 5)
    folder = client.bucket("pinned-folder").create(folder=root)
    try:
        dataset = MapDataset(folder, snapshot=True)
        assert dataset[1] == ("1", b"x" * 5) and len(dataset) == 4
        (root / "2").write_bytes(b"y" * 5)
        with pytest.raises(forebay.ObjectChanged, match="2 changed"):
            dataset[2]
    finally:
        folder.delete()
