"""The article on AIStore and PyTorch: six blocks, in the order of its sections."""

from __future__ import annotations

import ast
import io
import pickle
import tarfile
from typing import Any

import pytest
from documents import COUNT, Block, Change, Document, text_of
from storage import DocumentBucket, bucket_for

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("aistore")

ELIDED = "the loop's body is left out, as a comment"
BLOCKS = {
    "iterable": Block("import os", "    # Process data"),
    "loader": Block("from torch.utils.data import DataLoader", "    # Process data (e.g training loop)"),
    "custom": Block(
        "class CIFAR10Dataset(AISBaseIterDataset):",
        '            yield from iter(zip(image_tensors, cifar_dict[b"labels"]))',
    ),
    "train": Block("train_dataset = CIFAR10Dataset(", ")"),
    "test": Block("test_dataset = CIFAR10Dataset(", ")"),
    "shards": Block(
        "from aistore.pytorch import AISShardReader", "    # Process data (e.g training loop)"
    ),
    "dynamic": Block("from aistore.pytorch import AISMapDataset, DynamicBatchSampler", ")"),
}
COUNT.declare(2, BLOCKS)
CHANGES = [
    Change(
        "from aistore.pytorch import",
        "from forebay_torch.compat.aistore import",
        "import line: AIStore's own datasets read object by object",
    ),
    Change('"http://hostname:51080"', "ENDPOINT", "endpoint: the cluster of the test"),
    Change("# Process data (e.g training loop)", "process()", ELIDED),
    Change("# Process data", "process()", ELIDED),
    Change(
        "    # in init, call super for AISBaseIterDataset and initialize args",
        "    def __init__(self, cifar_ais_source, prefix_map, transform):\n"
        "        super().__init__(cifar_ais_source, prefix_map)\n"
        "        self._transform = transform",
        "the constructor is left out, as a comment",
    ),
]


@pytest.fixture(params=["article_bucket", "article_bucket_behind_s3"])
def bucket(request: pytest.FixtureRequest) -> DocumentBucket:
    """An empty bucket of the name that the article uses."""
    return bucket_for(request)


@pytest.fixture
def document(bucket: DocumentBucket) -> Document:
    """The article."""
    scope = {"ENDPOINT": bucket.bucket.client.endpoint}
    return Document(2, BLOCKS, CHANGES, scope, bucket.storage)


def values(document: Document, block: str, *names: str) -> list[tuple[Any, ...]]:
    """Returns the values of these names in each round of the loop of a block."""
    seen: list[tuple[Any, ...]] = []
    scope = document.scope
    scope["process"] = lambda: seen.append(tuple(scope[name] for name in names))
    document.run(block)
    return seen


def test_a_bucket_is_iterated(document: Document, bucket: DocumentBucket) -> None:
    items = {f"o{i:02}": bytes([i]) for i in range(10)}
    bucket.put_many(items.items())
    for _ in bucket.passes():
        assert dict(values(document, "iterable", "name", "data")) == items


def test_a_loader_gives_batches_from_two_workers(
    document: Document, bucket: DocumentBucket
) -> None:
    items = {f"o{i:02}": bytes([i]) for i in range(10)}
    bucket.put_many(items.items())
    values(document, "iterable")
    for _ in bucket.passes():
        seen = values(document, "loader", "names", "data")
        pairs = [pair for names, data in seen for pair in zip(names, data, strict=True)]
        assert sorted(pairs) == sorted(items.items())


class Pictures:
    """An array of pictures, pickled as the call that makes it: those of the article are 30 MB."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return np.full, ((10000, 3 * 32 * 32), self.value, "uint8")


def test_pickled_pictures_are_read_by_a_dataset_of_ones_own(
    document: Document, bucket: DocumentBucket
) -> None:
    folder = "cifar-10-batches-py"
    items = {f"{folder}/batches.meta": b"no pickle", f"{folder}/readme.html": b"<html>"}
    for value in range(1, 6):
        batch = {b"data": Pictures(value), b"labels": [value] * 10000}
        items[f"{folder}/data_batch_{value}"] = pickle.dumps(batch)
    batch = {b"data": Pictures(9), b"labels": list(range(10000))}
    items[f"{folder}/test_batch"] = pickle.dumps(batch)
    bucket.put_many(items.items())
    from forebay_torch.compat.aistore import AISBaseIterDataset

    # Names that the article imports in a notebook that it refers to, or not at all.
    document.scope.update(
        pickle=pickle, BytesIO=io.BytesIO, Image=Image, AISBaseIterDataset=AISBaseIterDataset
    )
    document.scope["transform"] = lambda image: (image.size, image.getpixel((0, 0))[0])
    document.scope["bucket"] = bucket.bucket
    for _ in bucket.passes():
        scope = document.run("custom", "train", "test")
        assert list(scope["test_dataset"]) == [(((32, 32), 9), label) for label in range(10000)]
        objects = [name for name, _ in scope["train_dataset"].objects]
        assert objects == [f"{folder}/data_batch_{value}" for value in range(1, 6)]
        first = next(iter(scope["train_dataset"]))
        assert first == (((32, 32), 1), 1)


def test_a_shard_reader_gives_basenames_and_contents(document: Document, bucket: DocumentBucket) -> None:
    members = {"shard_0000.tar": [1, 2, 3], "shard_0001.tar": [4, 5]}
    for shard, numbers in members.items():
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for number in numbers:
                for ending in ("png", "cls"):
                    content = f"{number}.{ending}".encode()
                    info = tarfile.TarInfo(f"sample_{number}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        bucket.put_many([(shard, out.getvalue())])
    values(document, "iterable")
    values(document, "loader")
    for _ in bucket.passes():
        found = {}
        for names, contents in values(document, "shards", "basenames", "content_dict"):
            for at, name in enumerate(names):
                found[name] = {ending: parts[at] for ending, parts in contents.items()}
        assert found == {
            f"sample_{n}": {"png": f"{n}.png".encode(), "cls": f"{n}.cls".encode()}
            for n in range(1, 6)
        }


def listed_batches() -> list[list[tuple[str, ...]]]:
    """The batches that the article says come out, for 4 MB and for 3 MB."""
    groups: list[list[tuple[str, ...]]] = [[]]
    for line in text_of(2).splitlines():
        if line.startswith("('object-"):
            groups[-1].append(ast.literal_eval(line))
        elif groups[-1] and line.startswith("Changing"):
            groups.append([])
    return groups


def test_batches_are_as_large_as_the_article_says(document: Document, bucket: DocumentBucket) -> None:
    from forebay_torch.compat.aistore import DynamicBatchSampler

    bucket.put_many((f"object-{i}", bytes(1_000_000)) for i in range(10))
    values(document, "iterable")
    values(document, "loader")
    for _ in bucket.passes():
        loader = document.run("dynamic")["loader"]
        sizes = [len(names) for names, _ in loader]
        assert sorted(sizes, reverse=True) == [4, 4, 2]
    for size, wanted in zip((4_000_000, 3_000_000), listed_batches(), strict=True):
        dataset = document.scope["dataset"]
        batches = DynamicBatchSampler(data_source=dataset, max_batch_size=size)
        assert [tuple(dataset.objects[i][0] for i in batch) for batch in batches] == wanted


def test_nothing_but_the_listed_changes_was_needed() -> None:
    document = Document(2, BLOCKS, CHANGES)
    assert document.unused_changes() == []
    assert document.left_out() == []
