"""The README of the GCS connector for PyTorch, in its later form: nine blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataflux import CHANGES, COMMANDS, Dataflux, DatafluxTests
from documents import COUNT, Block, Change, Document
from storage import bucket_for

BLOCKS = {
    "map": Block("from dataflux_pytorch import dataflux_mapstyle_dataset", "  print(each_object)"),
    "iterable": Block(
        "from dataflux_pytorch import dataflux_iterable_dataset", "  print(each_object)"
    ),
    "map of pictures": Block("import io", "  print(each_object)"),
    "iterable of pictures": Block(
        "iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(",
        "  print(each_object)",
        nth=1,
    ),
    "checkpoint": Block("import torch", "model.load_state_dict(read_state_dict)"),
    "lightning": Block("from lightning import Trainer", "trainer.save_checkpoint(CKPT)"),
    "async": Block("import torch.distributed as dist", "        process_group=checkpoint_group)"),
    "no compose": Block("dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(", ")"),
    "retries": Block("    from google.cloud.storage.retry import DEFAULT_RETRY", "    )"),
}
COUNT.declare(1, BLOCKS)
ALL_CHANGES = [
    *CHANGES,
    Change(
        "from dataflux_pytorch.lightning.gcs_filesystem import",
        "from forebay_torch.compat.dataflux.lightning.gcs_filesystem import",
        "import line: the package is Forebay's",
    ),
    Change("backend='nccl'", "backend='gloo'", "no GPU"),
    Change(
        "from google.cloud.storage.retry import DEFAULT_RETRY",
        "from forebay import Retry\nDEFAULT_RETRY = Retry()",
        "import line: the client of Google Cloud Storage is not needed",
    ),
]


@pytest.fixture(params=["native_bucket", "gs_bucket"])
def page(request: pytest.FixtureRequest) -> Dataflux:
    return Dataflux(Document(1, BLOCKS, ALL_CHANGES), bucket_for(request))


class TestLaterReadme(DatafluxTests):
    """Tests that the document of the other release shares."""


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[Any]:
    """A process group of this process alone, which the document takes as there."""
    dist = pytest.importorskip("torch.distributed")
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def test_a_distributed_checkpoint_is_saved_meanwhile(page: Dataflux, one_process: Any) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from forebay_torch.compat.dataflux.lightning.gcs_filesystem import GCSDistributedReader

    path = f"{page.bucket.gcs_uri}/distributed"
    wanted = torch.arange(1000.0)
    # Names that the document leaves undefined.
    page.document.scope.update(
        path=path, project="p", num_epochs=3, state_dict={"weight": wanted.clone()}
    )
    page.run("async")["checkpoint_future"].result()
    for _ in page.bucket.passes():
        loaded = {"weight": torch.zeros(1000)}
        dcp.load(loaded, storage_reader=GCSDistributedReader(path, "p"))
        assert torch.equal(loaded["weight"], wanted)


def test_retries_are_set(page: Dataflux) -> None:
    page.run("map")
    for _ in page.bucket.passes():
        assert list(page.run("retries")["dataset"]) == page.contents()


def test_nothing_but_the_listed_changes_was_needed() -> None:
    document = Document(1, BLOCKS, ALL_CHANGES)
    assert document.unused_changes() == []
    assert document.left_out(COMMANDS) == []
    assert all(command in document.text for command in COMMANDS)
