"""The README of Dataflux in its earlier form, as Markdown: seven blocks of Python."""

from __future__ import annotations

import pytest
from dataflux import CHANGES, COMMANDS, Dataflux, DatafluxTests
from documents import COUNT, Block, Document, fenced
from storage import bucket_for

BLOCKS = {
    "map": Block("from dataflux_pytorch import dataflux_mapstyle_dataset", "  print(each_object)"),
    "iterable": Block(
        "from dataflux_pytorch import dataflux_iterable_dataset", "  print(each_object)"
    ),
    "map of pictures": Block(
        "# Assume that you have a bucket with image files and you want", "  print(each_object)"
    ),
    "iterable of pictures": Block(
        "iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(",
        "  print(each_object)",
        nth=1,
    ),
    "checkpoint": Block("import torch", "model.load_state_dict(read_state_dict)"),
    "lightning": Block("from lightning import Trainer", "trainer.save_checkpoint(CKPT)"),
    "no compose": Block("dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(", ")"),
}
COUNT.declare(4, BLOCKS)


@pytest.fixture(params=["native_bucket", "gs_bucket"])
def page(request: pytest.FixtureRequest) -> Dataflux:
    return Dataflux(Document(4, BLOCKS, CHANGES), bucket_for(request))


class TestEarlierReadme(DatafluxTests):
    """Tests that the document of the other release shares."""


def test_nothing_but_the_listed_changes_was_needed() -> None:
    document = Document(4, BLOCKS, CHANGES)
    assert document.unused_changes() == []
    blocks = [document.code(name) for name in BLOCKS]
    assert [code.strip() for code in fenced(document.text, "python")] == blocks
    shell = [line for code in fenced(document.text, "shell") for line in code.splitlines()]
    assert shell == list(COMMANDS)
