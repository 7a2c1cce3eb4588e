"""The announcement of the S3 DataPipes: one block."""

from __future__ import annotations

from typing import Any

import pytest
from documents import COUNT, Block, Change, Document
from storage import DocumentBucket, bucket_for

BLOCKS = {
    "lines": Block(
        "from torch.utils.data import DataLoader",
        "         # forward pass, backward pass, model update",
    )
}
COUNT.declare(3, BLOCKS)
CHANGES = [
    Change(
        "from torchdata.datapipes.iter import",
        "from forebay_torch.datapipes import",
        "import line: torchdata has no DataPipes any more",
    ),
    Change('"s3://bucket/prefix/"', "URL", "endpoint: the bucket of the test"),
    Change(
        "# forward pass, backward pass, model update",
        "seen.extend(bach_data)",
        "the loop's body is left undefined, as a comment",
    ),
]


@pytest.fixture(params=["native_bucket", "s3_bucket"])
def shards(request: pytest.FixtureRequest) -> DocumentBucket:
    """A bucket with three files of 100 lines."""
    made = bucket_for(request)
    made.put_many((f"shards/{i}", b"".join(b"%d.%d\n" % (i, j) for j in range(100))) for i in range(3))
    return made


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_each_line_of_each_file_comes_once_an_epoch(shards: DocumentBucket, workers: int) -> None:
    wanted = [b"%d.%d" % (i, j) for i in range(3) for j in range(100)]
    undefined: dict[str, Any] = {"batch_size": 32, "num_workers": workers, "epochs": 2}
    url = f"s3://{shards.bucket.name}/shards/" if shards.cloud else f"fb://{shards.bucket.name}/shards/"
    for _ in shards.passes():
        scope = {**undefined, "URL": url, "seen": []}
        document = Document(3, BLOCKS, CHANGES, scope, shards.storage)
        assert sorted(document.run("lines")["seen"]) == sorted(2 * wanted)


def test_nothing_but_the_listed_changes_was_needed() -> None:
    document = Document(3, BLOCKS, CHANGES)
    assert document.unused_changes() == []
    assert document.left_out() == []
