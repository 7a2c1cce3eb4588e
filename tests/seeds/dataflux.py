"""What the documents of Dataflux's two releases share: their setting, changes, and checks."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import Change, Document

import forebay

__all__ = ["CHANGES", "COMMANDS", "Dataflux"]

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
    Change('"gcs://BUCKET_NAME/', 'OUR_BUCKET + "/', "endpoint: the bucket of the test"),
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

    def __init__(self, document: Document, bucket: forebay.Bucket, client: forebay.Client) -> None:
        np = pytest.importorskip("numpy")
        image = pytest.importorskip("PIL.Image")
        for i in range(10):
            out = io.BytesIO()
            image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(out, "PNG")
            bucket.object(f"train/{i}.png").put(out.getvalue())
        bucket.object("other").put(b"not below the prefix")
        self.bucket = bucket
        self.document = document
        self.printed: list[Any] = []
        document.scope.update(
            OUR_BUCKET=bucket.uri, PROJECT_ID="p", print=self.printed.append, storage_client=client
        )

    def run(self, *names: str) -> dict[str, Any]:
        return self.document.run(*names)

    def contents(self) -> list[bytes]:
        names = [name for name, _ in self.bucket.list_snapshot("train/")]
        return self.bucket.get_many(names, as_bytes=True)

    def check_map_style(self) -> None:
        scope = self.run("map")
        assert (scope["name"], scope["size"]) == self.bucket.list_snapshot("train/")[0]
        assert self.printed == self.contents()

    def check_iterable(self) -> None:
        self.run("map")
        self.printed.clear()
        self.run("iterable")
        assert sorted(self.printed) == sorted(self.contents())

    def check_pictures(self) -> None:
        self.run("map", "iterable")
        for block in ("map of pictures", "iterable of pictures"):
            self.printed.clear()
            self.run(block)
            assert sorted(int(picture[0, 0, 0]) for picture in self.printed) == list(range(10))
            assert {picture.shape for picture in self.printed} == {(8, 8, 3)}

    def check_without_compose(self) -> None:
        scope = self.run("map", "no compose")
        assert list(scope["dataset"]) == self.contents()
        assert len(self.bucket.list_snapshot()) == 11, "nothing is ever composed in the bucket"

    def check_checkpoint(self) -> None:
        pytest.importorskip("torchvision", reason='PYTHONPATH="$(ci/seeds.sh)" has torchvision')
        import torch

        scope = self.run("map", "checkpoint")
        saved, loaded = scope["model"].state_dict(), scope["read_state_dict"]
        assert saved.keys() == loaded.keys()
        assert all(torch.equal(saved[key], loaded[key]) for key in saved)
        assert self.bucket.object("checkpoints/epoch0.ckpt").head().size > 100_000_000

    def check_lightning(self, folder: Path, chdir: Callable[[Path], None]) -> None:
        pytest.importorskip("lightning", reason='PYTHONPATH="$(ci/seeds.sh)" has lightning')
        import torch

        # The demo downloads a text unless it is there: a generated one is.
        words = [f"word{i * i % 97}" for i in range(2000)]
        (folder / "data").mkdir()
        (folder / "data/wikitext-2.txt").write_text(
            "\n".join(" ".join(words[at : at + 20]) for at in range(0, 2000, 20))
        )
        chdir(folder)
        scope = self.run("map", "lightning")
        with self.bucket.object("checkpoints/ckpt.ckpt").get() as file:
            state = torch.load(io.BytesIO(file.read()), weights_only=False)
        assert state["global_step"] == scope["trainer"].global_step == 10
        trained = scope["model"].state_dict()
        assert all(torch.equal(state["state_dict"][key], trained[key]) for key in trained)
