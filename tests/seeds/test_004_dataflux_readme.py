"""The README of Dataflux in its earlier form, as Markdown: seven blocks of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from dataflux import CHANGES, COMMANDS, Dataflux
from documents import Block, Document, fenced

import forebay

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


@pytest.fixture
def page(bucket: forebay.Bucket, client: forebay.Client) -> Dataflux:
    return Dataflux(Document(4, BLOCKS, CHANGES), bucket, client)


def test_a_map_style_dataset(page: Dataflux) -> None:
    page.check_map_style()


def test_an_iterable_dataset(page: Dataflux) -> None:
    page.check_iterable()


def test_pictures_are_made_of_bytes(page: Dataflux) -> None:
    page.check_pictures()


def test_a_checkpoint_is_written_and_read(page: Dataflux) -> None:
    page.check_checkpoint()


def test_lightning_saves_a_checkpoint(
    page: Dataflux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.check_lightning(tmp_path, monkeypatch.chdir)


def test_nothing_is_composed(page: Dataflux) -> None:
    page.check_without_compose()


def test_nothing_but_the_listed_changes_was_needed() -> None:
    document = Document(4, BLOCKS, CHANGES)
    assert document.unused_changes() == []
    blocks = [document.code(name) for name in BLOCKS]
    assert [code.strip() for code in fenced(document.text, "python")] == blocks
    shell = [line for code in fenced(document.text, "shell") for line in code.splitlines()]
    assert shell == list(COMMANDS)
