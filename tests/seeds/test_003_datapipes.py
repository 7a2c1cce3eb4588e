"""The announcement of the S3 DataPipes: one block."""

from __future__ import annotations

from typing import Any

import pytest
from documents import Block, Change, Document

import forebay

BLOCKS = {
    "lines": Block(
        "from torch.utils.data import DataLoader",
        "         # forward pass, backward pass, model update",
    )
}
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


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_each_line_of_each_file_comes_once_an_epoch(
    bucket: forebay.Bucket, cluster: Any, workers: int
) -> None:
    bucket.put_many((f"shards/{i}", b"".join(b"%d.%d\n" % (i, j) for j in range(100))) for i in range(3))
    undefined: dict[str, Any] = {"batch_size": 32, "num_workers": workers, "epochs": 2}
    url = f"fb://{bucket.name}/shards/"
    document = Document(3, BLOCKS, CHANGES, {**undefined, "URL": url, "seen": []})
    seen = document.run("lines")["seen"]
    wanted = [b"%d.%d" % (i, j) for i in range(3) for j in range(100)]
    assert sorted(seen) == sorted(2 * wanted)


def test_nothing_but_the_listed_changes_was_needed(cluster: Any) -> None:
    document = Document(3, BLOCKS, CHANGES)
    assert document.unused_changes() == []
    assert document.left_out() == []
