"""DataPipes over buckets: URLs, files and lines, in the graphs and loaders of PyTorch."""

from __future__ import annotations

import io
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.graph import traverse_dps
from torch.utils.data.graph_settings import apply_sharding

import forebay
from forebay_torch.datapipes import (
    AISFileLister,
    AISFileLoader,
    IterableWrapper,
    LineReader,
    S3FileLister,
    S3FileLoader,
)

FILES = {f"text/{i}.txt": [f"file {i} line {j}" for j in range(50 + i)] for i in range(6)}


@pytest.fixture
def texts(bucket: forebay.Bucket) -> str:
    """The URL of a prefix with text files below it."""
    bucket.put_many((name, "\n".join(lines).encode()) for name, lines in FILES.items())
    bucket.object("other").put(b"")
    return f"fb://{bucket.name}/text/"


ALL_LINES = Counter(line for lines in FILES.values() for line in lines)


def lines_of(loader: Iterable[Any]) -> Counter[str]:
    return Counter(line for batch in loader for line in batch)


def test_a_lister_gives_the_urls_of_objects_under_prefixes(
    texts: str, bucket: forebay.Bucket
) -> None:
    urls = [f"{texts.removesuffix('text/')}{name}" for name in FILES]
    assert list(IterableWrapper([texts]).list_files_by_s3()) == urls
    whole = IterableWrapper([f"fb://{bucket.name}", f"fb://{bucket.name}/"]).list_files_by_s3()
    assert list(whole) == 2 * [f"fb://{bucket.name}/other", *urls]
    assert list(S3FileLister(IterableWrapper([f"fb://{bucket.name}/text/3"]))) == [urls[3]]
    with pytest.raises(forebay.NotFound):
        list(IterableWrapper(["fb://no-such-bucket/"]).list_files_by_s3())


def test_a_listing_may_be_longer_than_a_page_of_s3(bucket: forebay.Bucket) -> None:
    bucket.put_many((f"many/{i:05}", b"") for i in range(2500))
    urls = list(IterableWrapper([f"fb://{bucket.name}/many"]).list_files_by_s3())
    assert urls == [f"fb://{bucket.name}/many/{i:05}" for i in range(2500)]


def test_the_length_of_a_lister_is_the_one_that_was_set(texts: str) -> None:
    with pytest.raises(TypeError, match="doesn't have valid length"):
        len(IterableWrapper([texts]).list_files_by_s3())
    assert len(S3FileLister(IterableWrapper([texts]), 6, 5000, "us-west-2")) == 6


def test_a_loader_gives_urls_and_files(texts: str) -> None:
    pipe = IterableWrapper([texts]).list_files_by_s3().load_files_by_s3()
    contents = {url: file.read() for url, file in pipe}
    assert list(contents.values()) == ["\n".join(lines).encode() for lines in FILES.values()]
    url, file = next(iter(IterableWrapper([next(iter(contents))]).load_files_by_s3()))
    with file:
        assert next(iter(file)) == b"file 0 line 0\n"
        assert file.readlines()[-1] == b"file 0 line 49"
    file.close()
    _, file = next(iter(IterableWrapper([url]).load_files_by_s3()))
    file.autoclose()
    assert file.closed


def test_a_url_of_a_prefix_stands_for_all_below(texts: str) -> None:
    pipe = IterableWrapper([texts, f"{texts}3.txt"]).load_files_by_s3()
    assert [url.removeprefix(texts) for url, _ in pipe] == [*(f"{i}.txt" for i in range(6)), "3.txt"]
    assert len(pipe) == 2
    with pytest.raises(forebay.NotFound, match="no-such"):
        list(IterableWrapper([f"{texts}no-such"]).load_files_by_s3())


def test_lines_come_with_or_without_their_paths(texts: str) -> None:
    files = IterableWrapper([f"{texts}0.txt"])
    assert list(files.load_files_by_s3().readlines(return_path=False, decode=True)) == FILES["text/0.txt"]
    first = next(iter(files.load_files_by_s3().readlines()))
    assert first == (f"{texts}0.txt", b"file 0 line 0")
    kept = files.load_files_by_s3().readlines(return_path=False, strip_newline=False, skip_lines=48)
    assert list(kept) == [b"file 0 line 48\n", b"file 0 line 49"]
    with pytest.raises(ValueError, match="skip_lines"):
        LineReader([], skip_lines=-1)
    with pytest.raises(LookupError):
        LineReader([], encoding="no-such")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
@pytest.mark.parametrize("strip", [True, False])
def test_lines_are_those_of_a_text_file(encoding: str, strip: bool) -> None:
    """Line breaks of both kinds, empty lines, lines longer than a block, with and without an end."""
    long = "ü" * 700_000
    for text in (f"a\r\n\n{long}\n{long}{long}b\n\nc", "a\nb\n", "\n", "", f"{long}\n"):
        wanted = io.StringIO(text, newline="\n").readlines()
        pipe = LineReader(
            [("p", io.BytesIO(text.encode(encoding)))], decode=True, encoding=encoding,
            strip_newline=strip, return_path=False,
        )  # fmt: skip
        assert list(pipe) == [line.rstrip("\r\n") if strip else line for line in wanted]


def test_what_is_no_text_is_left_out_or_an_error() -> None:
    content = b"a\xff\nb\n"
    assert list(LineReader([("p", io.BytesIO(content))], decode=True)) == [("p", "a"), ("p", "b")]
    with pytest.raises(UnicodeDecodeError):
        list(LineReader([("p", io.BytesIO(content))], decode=True, errors="strict"))
    assert list(LineReader([("p", ["x\n", "y"])], return_path=False)) == ["x", "y"]


@pytest.mark.parametrize("workers", [0, 4])
def test_each_line_comes_once_from_any_number_of_workers(texts: str, workers: int) -> None:
    files = IterableWrapper([texts]).list_files_by_s3().sharding_filter()
    lines = files.load_files_by_s3().readlines(return_path=False, decode=True)
    for _ in range(2):
        assert lines_of(DataLoader(lines, batch_size=16, num_workers=workers)) == ALL_LINES


def test_the_graph_is_traversed_shuffled_batched_and_pickles(texts: str) -> None:
    pipe = IterableWrapper([texts]).list_files_by_s3().shuffle().sharding_filter()
    pipe = pipe.load_files_by_s3().readlines(return_path=False, decode=True).batch(10)
    names = []
    graph = traverse_dps(pipe)
    while graph:
        ((one, graph),) = graph.values()
        names.append(type(one).__name__)
    assert names[1:3] == ["LineReader", "S3FileLoader"] and "S3FileLister" in names
    assert lines_of(pickle.loads(pickle.dumps(pipe))) == ALL_LINES
    orders = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        orders.append([b for batch in DataLoader(pipe, batch_size=None, shuffle=True) for b in batch])
    assert orders[0] == orders[1] != orders[2]
    assert Counter(orders[2]) == ALL_LINES


def counted(lines: Any, workers: int, method: str | None = None) -> Counter[str]:
    return lines_of(
        DataLoader(lines, batch_size=16, num_workers=workers, multiprocessing_context=method)
    )


@pytest.mark.parametrize("workers", [0, 3])
def test_workers_share_files_without_a_sharding_filter(texts: str, workers: int) -> None:
    start = IterableWrapper([texts])
    options = {"return_path": False, "decode": True}
    for files in (
        start.list_files_by_s3(),
        start.list_files_by_s3().shuffle(),
        start.list_files_by_s3().filter(lambda url: True),
        # A URL of a prefix stands for the files below it.
        start,
    ):
        assert counted(files.load_files_by_s3().readlines(**options), workers) == ALL_LINES


@pytest.mark.parametrize("workers", [0, 3])
def test_a_sharding_filter_anywhere_shares_instead(texts: str, workers: int) -> None:
    files = IterableWrapper([texts]).list_files_by_s3()
    options = {"return_path": False, "decode": True}
    behind = files.load_files_by_s3().readlines(**options).sharding_filter()
    between = files.shuffle().sharding_filter().load_files_by_s3().readlines(**options)
    for lines in (behind, between):
        assert counted(lines, workers) == ALL_LINES


class Around(IterableDataset[str]):
    """A dataset of the user's own around a pipe, which a loader does not see."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def __iter__(self) -> Any:
        yield from self.pipe


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_the_files_of_a_pipe_inside_a_dataset(texts: str, method: str) -> None:
    lines = IterableWrapper([texts]).list_files_by_s3().load_files_by_s3()
    around = Around(lines.readlines(return_path=False, decode=True))
    assert counted(around, 2, method) == ALL_LINES


def test_ranks_and_workers_share_files(texts: str) -> None:
    seen: Counter[str] = Counter()
    for place in range(4):
        pipe = IterableWrapper([texts]).list_files_by_s3().load_files_by_s3()
        lines = pipe.readlines(return_path=False, decode=True)
        apply_sharding(lines, 4, place)
        seen += Counter(lines)
    assert seen == ALL_LINES


def test_ranks_and_workers_are_disjoint_and_together_everything(texts: str) -> None:
    seen: Counter[str] = Counter()
    for place in range(4):
        pipe = IterableWrapper([texts]).list_files_by_s3().sharding_filter()
        pipe = pipe.load_files_by_s3().readlines(return_path=False, decode=True)
        # As a DataLoader does in the second worker of the first of two ranks.
        apply_sharding(pipe, 4, place)
        seen += Counter(pipe)
    assert seen == ALL_LINES


def test_memory_is_that_of_the_buffer_whatever_the_file(
    bucket: forebay.Bucket, cluster: Any
) -> None:
    content = bytes(range(256)) * (24 << 12)
    bucket.object("large").put(content)
    url = f"fb://{bucket.name}/large"
    for parts in (None, False, True):
        before = cluster.count("forebay_get_bytes_total")
        loader = S3FileLoader(
            IterableWrapper([url]), buffer_size=2 << 20, multi_part_download=parts, num_workers=2
        )
        ((_, file),) = iter(loader)
        assert file.read(100) == content[:100]
        time.sleep(0.2)
        read = cluster.count("forebay_get_bytes_total") - before
        assert read <= 3 << 20, "what nobody reads is not fetched"
        assert file.read() == content[100:]
    with pytest.raises(ValueError, match="buffer_size"):
        S3FileLoader([], buffer_size=0)
    with pytest.raises(ValueError, match="num_workers"):
        S3FileLoader([], num_workers=0)


def test_a_timeout_is_kept_to() -> None:
    pipe = S3FileLoader(
        ["fb://b/o"], request_timeout_ms=300, client=forebay.Client("http://127.0.0.1:9", timeout=0.3)
    )
    started = time.monotonic()
    with pytest.raises(ConnectionError):
        list(pipe)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_the_next_file_is_opened_while_one_is_read(
    texts: str, cluster: Any, ahead: int
) -> None:
    def opened() -> float:
        return cluster.count("forebay_http_requests_total", op="get")

    before = opened()
    files = iter(S3FileLoader([texts], open_ahead=ahead))
    next(files)
    deadline = time.monotonic() + 10
    while opened() - before < 1 + ahead and time.monotonic() < deadline:
        time.sleep(0.02)
    assert opened() - before == 1 + ahead
    assert len(list(files)) == 5


def test_the_second_epoch_reads_nothing_from_the_backend(
    client: forebay.Client, cluster: Any
) -> None:
    folder = cluster.folder_root / "datapipes"
    folder.mkdir()
    for i in range(5):
        (folder / f"{i}.txt").write_bytes(b"line\n" * 1000)
    bucket = client.bucket("datapipes-cold").create(folder=folder)
    try:
        lines = IterableWrapper(["fb://datapipes-cold/"]).load_files_by_s3().readlines(return_path=False)
        gets = []
        for _ in range(2):
            before = cluster.count("forebay_backend_requests_total", op="get")
            assert sum(map(len, DataLoader(lines, batch_size=512, num_workers=2))) == 5000
            gets.append(cluster.count("forebay_backend_requests_total", op="get") - before)
        assert gets[0] >= 5 and gets[1] == 0
    finally:
        bucket.delete()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_that_was_used_works_in_workers(texts: str, method: str) -> None:
    files = IterableWrapper([texts]).list_files_by_s3().sharding_filter()
    lines = files.load_files_by_s3().readlines(return_path=False, decode=True)
    assert Counter(lines) == ALL_LINES
    loader = DataLoader(lines, batch_size=16, num_workers=2, multiprocessing_context=method)
    assert lines_of(loader) == ALL_LINES


def test_the_pipes_of_aistore_are_the_same(texts: str, cluster: Any) -> None:
    prefixes = IterableWrapper([texts.replace("fb://", "ais://")])
    listed = prefixes.list_files_by_ais(url=cluster.endpoint, length=6)
    assert isinstance(listed, AISFileLister) and len(listed) == 6
    loaded = listed.load_files_by_ais(url=cluster.endpoint)
    assert isinstance(loaded, AISFileLoader) and len(loaded) == 6
    contents = {url: file.read() for url, file in loaded}
    assert list(contents) == [f"{texts.replace('fb://', 'ais://')}{i}.txt" for i in range(6)]
    assert contents[next(iter(contents))] == "\n".join(FILES["text/0.txt"]).encode()


def test_a_line_costs_no_call_of_python() -> None:
    """Lines come off lists inside the interpreter: calls grow with megabytes, not with lines."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    content = b"0123456789\n" * 400_000
    lines = iter(LineReader([("p", io.BytesIO(content))], return_path=False, decode=True))
    sys.setprofile(count)
    try:
        total = sum(1 for _ in lines)
    finally:
        sys.setprofile(None)
    # The generator expression above is a call for each line, too.
    assert total == 400_000 and calls - total < 100
