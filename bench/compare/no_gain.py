"""The page about loads that Forebay does not make faster: its cases, with the figures of one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compare import results
from compare.row import Json, lead, of_name, ratio
from compare.table import amount, markdown, times

PAGE = Path("docs/where-it-does-not-help.md")


@dataclass(frozen=True)
class Figure:
    """Two contenders of a row; without `ours`, the one that the row compares is the first.

    A name that ends in `…` is the beginning of the contender's name.
    """

    row: str
    other: str
    ours: str = ""


@dataclass(frozen=True)
class Case:
    """A load, why Forebay gains nothing there, what to use instead, and figures that show it."""

    title: str
    text: str
    figures: tuple[Figure, ...]


MINIO = "s3torchconnector on MinIO"
CASES = (
    Case(
        "Steps that compute for longer than their batch takes to read",
        "Any loader that reads ahead hides its reads behind such steps, so that the rate is that of the"
        " model. `forebay why` shows whether steps wait at all: measure before you install a cache.",
        (
            Figure("feeding/train-resnet", "boto3"),
            Figure("feeding/train-resnet", "batches in memory"),
            Figure("feeding/train-bert", "boto3"),
            Figure("feeding/train-bert", "batches in memory"),
        ),
    ),
    Case(
        "Python that decodes or transforms on all cores",
        "The cluster delivers more than the decoder takes. Faster decoders, fewer transforms or more cores"
        " help; another store does not.",
        (Figure("feeding/jpeg", "decoding alone, 2 workers"),),
    ),
    Case(
        "Data that fits on a disk of each machine",
        "A copy of the data on the local disk, or in memory, needs no network and no second process. A"
        " cluster pays off when the data is larger than that, changes, or is shared by many machines.",
        (
            Figure("batches/1k", "a pread each, to bytes"),
            Figure("batches/members", "a pread each, to bytes"),
            Figure("feeding/100k-map", "loopback copies"),
            Figure("feeding/1k-iterable", "DataLoader, ready bytes"),
        ),
    ),
    Case(
        "Data that is read once",
        "The first read of an object comes from its cloud, goes through a target and is written to its disk."
        " That costs CPU time beside a direct read, and no later read earns it back. Where the store is"
        " as near as the cluster, a direct read is also faster.",
        (
            Figure("mlperf/unet3d-cold-cpu", MINIO),
            Figure("mlperf/retinanet-cold-cpu", MINIO),
            Figure("mlperf/unet3d-cold", MINIO),
            Figure("mlperf/retinanet-cold", MINIO),
            Figure("clouds/first-byte", "the cloud"),
        ),
    ),
    Case(
        "Checkpoints that must be in the cloud when `save` returns",
        "A write that goes through to the cloud is as slow as the cloud, and passes a target on its way."
        " Save to a native bucket and copy from there, or write to the cloud directly.",
        (
            Figure("checkpoints/save-76", "s3torchconnector…", "Forebay, through to MinIO"),
            Figure("checkpoints/save-298", "s3torchconnector…", "Forebay, through to MinIO"),
        ),
    ),
    Case(
        "Large objects for clients that know no cluster",
        "S3 clients that send all requests to a gateway have every byte copied once more. Large objects"
        " cross a plain file server with as little work. Our own clients read from the owner directly.",
        (
            Figure("store/s3-8m-gateway", "MinIO"),
            Figure("store/get-64m", "nginx"),
            Figure("store/get-1k", "bare axum"),
        ),
    ),
    Case(
        "Small objects composed at Google",
        "Composing saves requests that cost money, not time: it is off by default."
        " `bench/compare/composed.py gs://BUCKET` measures your bucket.",
        (Figure("clouds/composed", "Forebay, one by one", "Forebay, composed"),),
    ),
)
WITHOUT_FIGURES = """
## Other uses that it was not made for

- Files that are changed in place, appended to by several writers, or locked: objects are written whole.
- A file system below programs that know no objects: there is no mount.
- Databases and other loads of small writes that wait for each other.
- A cluster across regions: all members are to be within a few milliseconds of each other."""


def page(document: Json, generated: str, conditions: str) -> str:
    """The page; `generated` is its first line after the title, `conditions` names the run."""
    return "\n".join(lines(document, generated, conditions)) + "\n"


def lines(document: Json, generated: str, conditions: str) -> Iterator[str]:
    yield from ("# Where Forebay does not help", "", generated, "", conditions)
    yield "A ratio is Forebay's speed over that of the other; below 1, the other is faster."
    rows = {row["id"]: row for row in results.rows(document)}
    for case in CASES:
        yield from ("", f"## {case.title}", "", case.text, "")
        made = (cells(rows.get(figure.row), figure) for figure in case.figures)
        yield from markdown(["measured", "Forebay", "beside it", "ratio"], made)
    yield WITHOUT_FIGURES


def cells(row: Json | None, figure: Figure) -> tuple[str, str, str, str]:
    """The row's title, both figures and their ratio, or why there are none."""
    if row is None:
        return f"`{figure.row}`", "not measured", "", ""
    ours = of_name(row, figure.ours) if figure.ours else lead(row)
    other = of_name(row, figure.other)
    if ours is None or other is None:
        reasons = "; ".join(dict.fromkeys(row["skipped"].values()))
        missing = figure.other.removesuffix("…") if ours else "Forebay"
        return row["title"], f"not measured: {reasons or missing}", "", ""
    of = ratio(row, other, ours)
    return row["title"], amount(row, ours), f"{other['name']}: {amount(row, other)}", times(of)
