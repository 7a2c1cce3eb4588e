"""The article that introduces Dataflux: one block, which a feed reader printed as data."""

from __future__ import annotations

import io
from typing import Any

import pytest
from documents import Change, quoted_code, text_of

import forebay

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

CHANGE = Change(
    "from dataflux_pytorch import",
    "from forebay_torch.compat.dataflux import",
    "import line: the package is Forebay's",
)


def test_images_are_loaded_and_batched(bucket: forebay.Bucket, cluster: Any) -> None:
    from torch.utils.data import DataLoader

    for i in range(10):
        out = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(out, "PNG")
        bucket.object(f"train/{i}.png").put(out.getvalue())
    (code,) = quoted_code(text_of(0))
    assert CHANGE.old in code
    # Names that the article leaves undefined.
    scope = {"PROJECT_NAME": "p", "BUCKET_NAME": bucket.uri, "PREFIX": "train/"}
    exec(compile(code.replace(CHANGE.old, CHANGE.new), "document 0", "exec"), scope)
    batches = list(DataLoader(scope["dataset"], batch_size=4))
    assert [tuple(batch.shape) for batch in batches] == [(4, 8, 8, 3), (4, 8, 8, 3), (2, 8, 8, 3)]
    assert batches[2][1].unique().tolist() == [9]
