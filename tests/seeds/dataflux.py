"""Base of the documents of Dataflux's two releases: their setting, changes, and tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from documents import Change, Document
from storage import DocumentBucket

__all__ = ["CHANGES", "COMMANDS", "Dataflux", "DatafluxTests"]

CHANGES = [
    Change(
        "from dataflux_pytorch import",
        "from forebay_torch.compat.dataflux import",
        "import line: the package is Forebay's",
    ),
    Change(
        "from dataflux_pytorch.lightning import",
        "from forebay_torch.compat.dataflux.lightning import",
        "import line: the package is Forebay's",
    ),
    Change('"<BUCKET_NAME>"', "OUR_BUCKET", "endpoint: to be filled in, says the document"),
    Change('"<PREFIX>"', '"train/"', "to be filled in, says the document"),
    Change('"gcs://BUCKET_NAME/', 'OUR_GCS_URI + "/', "endpoint: the bucket of the test"),
    Change("in dataset:", "in iterable_dataset:", "`dataset` is left undefined"),
]
# Not code of Python, and of no meaning here: how the original is installed and its account set up, and
# how the objects are removed that it may leave behind, which Forebay never makes.
COMMANDS = (
    "pip install gcs-torch-dataflux",
    "gcloud auth application-default login",
    "gcloud storage rm --recursive gs://<my-bucket>/dataflux-composed-objects/",
)


class Dataflux:
    """A document of Dataflux over a bucket with ten pictures, of which it reads."""

    def __init__(self, document: Document, bucket: DocumentBucket) -> None:
        np = pytest.importorskip("numpy")
        image = pytest.importorskip("PIL.Image")
        self.pictures: dict[str, bytes] = {}
        for i in range(10):
            out = io.BytesIO()
            image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(out, "PNG")
            self.pictures[f"train/{i}.png"] = out.getvalue()
        bucket.put_many([*self.pictures.items(), ("other", b"not below the prefix")])
        self.bucket = bucket
        self.document = document
        document.storage = bucket.storage
        self.printed: list[Any] = []
        document.scope.update(
            OUR_BUCKET=bucket.gs_name,
            OUR_GCS_URI=bucket.gcs_uri,
            PROJECT_ID="p",
            print=self.printed.append,
            storage_client=bucket.bucket.client,
        )

    def run(self, *names: str) -> dict[str, Any]:
        return self.document.run(*names)

    def contents(self) -> list[bytes]:
        """The pictures in the order of their names."""
        return list(self.pictures.values())


class DatafluxTests:
    """The tests of either document, for a class that has the fixture `page`."""

    def test_a_map_style_dataset(self, page: Dataflux) -> None:
        for _ in page.bucket.passes():
            page.printed.clear()
            scope = page.run("map")
            assert (scope["name"], scope["size"]) == ("train/0.png", len(page.contents()[0]))
            assert page.printed == page.contents()

    def test_an_iterable_dataset(self, page: Dataflux) -> None:
        page.run("map")
        for _ in page.bucket.passes():
            page.printed.clear()
            page.run("iterable")
            assert sorted(page.printed) == sorted(page.contents())

    @pytest.mark.parametrize("kind", ["map", "iterable"])
    def test_pictures_are_made_of_bytes(self, page: Dataflux, kind: str) -> None:
        page.run("map", "iterable", "map of pictures")
        for _ in page.bucket.passes():
            page.printed.clear()
            page.run(f"{kind} of pictures")
            assert sorted(int(picture[0, 0, 0]) for picture in page.printed) == list(range(10))
            assert {picture.shape for picture in page.printed} == {(8, 8, 3)}

    def test_nothing_is_composed(self, page: Dataflux) -> None:
        page.run("map")
        for _ in page.bucket.passes():
            assert list(page.run("no compose")["dataset"]) == page.contents()
        names = list(page.bucket.bucket.list_snapshot().names())
        assert names == ["other", *page.pictures], "nothing is ever composed in the bucket"

    def test_a_checkpoint_is_written_and_read(self, page: Dataflux) -> None:
        pytest.importorskip("torchvision", reason='PYTHONPATH="$(ci/torchvision.sh)" has torchvision')
        import torch

        scope = page.run("map", "checkpoint")
        saved = scope["model"].state_dict()
        loaded = scope["read_state_dict"]
        assert saved.keys() == loaded.keys()
        assert all(torch.equal(saved[key], loaded[key]) for key in saved)
        for _ in page.bucket.passes():
            with scope["ckpt"].reader(scope["CKPT_PATH"]) as reader:
                again = torch.load(reader)
            assert all(torch.equal(saved[key], again[key]) for key in saved)
        stored = page.bucket.bucket.object("checkpoints/epoch0.ckpt").head().size
        assert stored > 100_000_000

    def test_lightning_saves_a_checkpoint(
        self, page: Dataflux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("lightning", reason='PYTHONPATH="$(ci/lightning.sh)" has lightning')
        import torch

        # The demo downloads a text unless it is there: a generated one is.
        words = [f"word{i * i % 97}" for i in range(2000)]
        (tmp_path / "data").mkdir()
        (tmp_path / "data/wikitext-2.txt").write_text(
            "\n".join(" ".join(words[at : at + 20]) for at in range(0, 2000, 20))
        )
        monkeypatch.chdir(tmp_path)
        scope = page.run("map", "lightning")
        trained = scope["model"].state_dict()
        for _ in page.bucket.passes():
            with page.bucket.bucket.object("checkpoints/ckpt.ckpt").get() as file:
                state = torch.load(io.BytesIO(file.read()), weights_only=False)
            assert state["global_step"] == scope["trainer"].global_step == 10
            assert all(torch.equal(state["state_dict"][key], trained[key]) for key in trained)
