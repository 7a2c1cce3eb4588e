"""The article that introduces Dataflux: one block, which a feed reader printed as data."""

from __future__ import annotations

import io

import pytest
from documents import COUNT, Change, quoted_code, text_of
from storage import DocumentBucket, bucket_for

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

CHANGE = Change(
    "from dataflux_pytorch import",
    "from forebay_torch.compat.dataflux import",
    "import line: the package is Forebay's",
)
COUNT.declare(0, ["images"])


@pytest.fixture(params=["native_bucket", "gs_bucket"])
def pictures(request: pytest.FixtureRequest) -> DocumentBucket:
    """A bucket with ten pictures of 8 x 8 pixels."""
    made = bucket_for(request)
    for i in range(10):
        out = io.BytesIO()
        Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(out, "PNG")
        made.put_many([(f"train/{i}.png", out.getvalue())])
    return made


def test_images_are_loaded_and_batched(pictures: DocumentBucket) -> None:
    from torch.utils.data import DataLoader

    (code,) = quoted_code(text_of(0))
    assert CHANGE.old in code
    for _ in pictures.passes():
        # Names that the article leaves undefined.
        scope = {"PROJECT_NAME": "p", "BUCKET_NAME": pictures.gs_name, "PREFIX": "train/"}
        exec(compile(code.replace(CHANGE.old, CHANGE.new), "document 0", "exec"), scope)
        batches = list(DataLoader(scope["dataset"], batch_size=4))
        assert [tuple(batch.shape) for batch in batches] == [(4, 8, 8, 3), (4, 8, 8, 3), (2, 8, 8, 3)]
        assert batches[2][1].unique().tolist() == [9]
    COUNT.ran[pictures.storage].add((0, "images"))
