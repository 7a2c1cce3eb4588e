"""Files that fetch what is read of them, and nothing else."""

from __future__ import annotations

import io
import os
import pickle
import random
import tracemalloc
from typing import Any

import pytest

import forebay
from forebay import RangeReader, pinned_file, range_reader

CONTENT = b"".join(i.to_bytes(4, "big") for i in range(3 << 20))


@pytest.fixture
def item(bucket: forebay.Bucket) -> forebay.Object:
    made = bucket.object("large")
    made.put(CONTENT)
    return made


def test_nothing_is_sent_before_the_first_read(client: forebay.Client) -> None:
    reader = RangeReader("fb://no-such-bucket/name", client=client)
    assert reader.readable() and reader.seekable() and not reader.writable()
    assert reader.seek(5) == reader.tell() == 5
    with pytest.raises(FileNotFoundError):
        reader.read(1)
    with pytest.raises(ValueError, match="names a bucket"):
        RangeReader("fb://bucket", client=client)


def test_it_seeks_and_reads_as_a_file_in_memory_does(
    item: forebay.Object, client: forebay.Client
) -> None:
    reader, memory = RangeReader(f"fb://{item.bucket.name}/large", client=client), io.BytesIO(CONTENT)
    steps: list[tuple[str, tuple[int, ...]]] = [
        ("read", (10,)), ("seek", (-8, io.SEEK_END)), ("read", (100,)), ("read", (1,)),
        ("seek", (5_000_000,)), ("read", (70_000,)), ("read", (2_000_000,)), ("seek", (-9, io.SEEK_CUR)),
        ("read", (9,)), ("seek", (len(CONTENT) + 5,)), ("read", (3,)), ("seek", (0,)), ("read", ()),
    ]  # fmt: skip
    for method, arguments in steps:
        assert getattr(reader, method)(*arguments) == getattr(memory, method)(*arguments)
        assert reader.tell() == memory.tell()
    target = bytearray(5_000_000)
    reader.seek(1000)
    assert reader.readinto(target) == len(target) and target == CONTENT[1000:5_001_000]
    with pytest.raises(ValueError, match="negative"):
        reader.seek(-1)
    assert reader.size == len(CONTENT)


def test_any_order_of_reads_gives_the_bytes_that_a_file_gives(bucket: forebay.Bucket) -> None:
    content = os.urandom(1000) * 100 + b"tail"
    bucket.object("o").put(content)
    choose, window = random.Random(7), 4096
    reader = bucket.object("o").get_range_reader(window=window, num_workers=3)
    with reader as file:
        model = io.BytesIO(content)
        for _ in range(300):
            whence = choose.choice([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END, None, None])
            if whence is not None:
                step = choose.randrange(-window, len(content) + window)
                base = {io.SEEK_SET: 0, io.SEEK_CUR: model.tell(), io.SEEK_END: len(content)}
                place = max(0, step if whence == io.SEEK_SET else base[whence] - step)
                assert file.seek(place - base[whence], whence) == place
                model.seek(place)
            if choose.random() < 0.5:
                size = choose.choice([0, 1, 30, window - 1, window, 5 * window + 7, -1])
                assert file.read(size) == model.read(size)
            else:
                mine = bytearray(choose.randrange(3 * window))
                theirs = bytearray(len(mine))
                assert file.readinto(mine) == model.readinto(theirs)
                assert mine == theirs
            assert file.tell() == model.tell()


class Asked:
    """Records the requested ranges, as (first, end): of windows, and of reads into their own memory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.windows: list[tuple[int, int]] = []
        self.received: list[tuple[int, int]] = []
        get, receive = range_reader.get_pinned, range_reader._Windows._receive

        def noting_get(
            item: Any, pin: Any, start: int, length: int, workers: int, memory: bytearray | None
        ) -> memoryview:
            self.windows.append((start, start + length))
            return get(item, pin, start, length, workers, memory)

        def noting_receive(windows: Any, target: memoryview) -> int:
            start = windows.tell()
            self.received.append((start, start + len(target)))
            return receive(windows, target)

        patch.setattr(range_reader, "get_pinned", noting_get)
        patch.setattr(range_reader._Windows, "_receive", noting_receive)

    def follow_each_other(self) -> bool:
        """Whether nothing was asked for twice, and nothing left out."""
        ranges = sorted(self.windows + self.received)
        return all(a[1] == b[0] for a, b in zip(ranges, ranges[1:], strict=False))


def test_who_reads_on_finds_the_next_window_there(
    item: forebay.Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, window = Asked(monkeypatch), 1 << 20
    with item.get_range_reader(window=window, num_workers=4) as file:
        assert file.size == len(CONTENT) and not asked.windows
        read = 0
        while read < 5 * window:
            read += len(file.read(10_000))
            file._file._ahead._coming.result(10)  # type: ignore[attr-defined]
            ends = [end for _, end in asked.windows]
            assert read < max(ends) <= read + 2 * window, "ahead, by two windows at most"
        assert asked.follow_each_other() and len(asked.windows) < 12


def test_a_skip_into_what_is_on_its_way_costs_nothing(
    item: forebay.Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    with item.get_range_reader(window=1 << 20) as file:
        file.read(10)
        file.seek(-4, io.SEEK_END)
        assert file.read() == CONTENT[-4:]
        file.seek(70_000)
        assert file.read(4) == CONTENT[70_000:70_004]
    assert len([1 for start, _ in asked.windows if start < 100_000]) == 2


def test_a_large_read_goes_into_its_own_memory_as_one(
    item: forebay.Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    with item.get_range_reader() as file:
        file.seek(3_000_000)
        assert file.read(30) == CONTENT[3_000_000:3_000_030]
        memory = bytearray(6 << 20)
        assert file.readinto(memory) == len(memory)
        assert memory == CONTENT[3_000_030:][: 6 << 20]
    assert asked.follow_each_other()
    assert asked.received == [(3_000_000 + (64 << 10), 3_000_030 + (6 << 20))]


def test_a_large_read_continues_where_the_prefetched_bytes_end(
    item: forebay.Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    with item.get_range_reader() as file:
        assert file.read(30) == CONTENT[:30]
        memory = bytearray(10 << 20)
        assert file.readinto(memory) == len(memory) and memory == CONTENT[30:][: 10 << 20]
    assert asked.follow_each_other()
    # Of what comes behind it, a little is there when it is asked for.
    behind = 30 + (10 << 20)
    assert asked.windows == [(0, 64 << 10), (64 << 10, 320 << 10), (behind, behind + (64 << 10))]
    assert asked.received == [(320 << 10, 30 + (10 << 20))]


@pytest.mark.parametrize("start", [0, 1000])
def test_the_rest_of_a_file_takes_its_own_memory_alone(item: forebay.Object, start: int) -> None:
    with item.get_range_reader() as file:
        assert file.read(start) == CONTENT[:start]
        # The buffer and the first windows are here.
        file.peek(1)
        tracemalloc.start()
        try:
            rest = file.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert type(rest) is bytes and rest == CONTENT[start:]
        assert peak < len(rest) + (1 << 20)
        assert (file.tell(), file.read()) == (len(CONTENT), b"")
        assert file.seek(5) == 5 and file.read(10) == CONTENT[5:15]


def test_a_short_rest_is_what_was_fetched_already(
    item: forebay.Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    with item.get_range_reader(window=1 << 20) as file:
        assert file.seek(-2_000_000, io.SEEK_END) and file.read(900_000) and file.read(70_000)
        assert file.read() == CONTENT[-1_030_000:]
    assert asked.follow_each_other()


@pytest.mark.parametrize(
    ("length", "num_workers", "size"),
    [(100, 4, 2 << 20), (16 << 20, 4, 4 << 20), (16 << 20, 8, 2 << 20), (1 << 30, 8, 8 << 20)],
)
def test_ranges_are_of_two_to_eight_mib(length: int, num_workers: int, size: int) -> None:
    assert pinned_file.range_bytes(length, num_workers) == size


@pytest.mark.parametrize("window", [1, 1000, 1 << 20])
def test_pieces_of_any_size_make_the_whole(bucket: forebay.Bucket, window: int) -> None:
    content = CONTENT[:20_000] if window == 1 else CONTENT[:3_000_000]
    bucket.object("o").put(content)
    with RangeReader(bucket.object("o"), window=window, num_workers=2) as reader:
        pieces = iter(lambda: reader.read(7_919), b"")
        assert b"".join(pieces) == content


def test_lines_are_read_as_of_any_file(bucket: forebay.Bucket) -> None:
    lines = [f"{'ü' * (i % 50)} line {i}\n" for i in range(50_000)]
    bucket.object("text").put("".join(lines).encode())
    with io.TextIOWrapper(RangeReader(bucket.object("text")), encoding="utf-8") as text:
        assert list(text) == lines


def test_an_empty_and_a_missing_object(bucket: forebay.Bucket) -> None:
    bucket.object("empty").put(b"")
    with bucket.object("empty").get_range_reader() as empty:
        assert (empty.read(), empty.size, empty.seek(0, io.SEEK_END)) == (b"", 0, 0)
    missing = bucket.object("none").get_range_reader()
    with pytest.raises(forebay.NotFound):
        missing.read(1)
    missing.close()
    with pytest.raises(ValueError, match="closed"):
        missing.read(1)


def test_what_is_read_here_and_there_is_fetched_as_it_is_asked_for(
    item: forebay.Object, cluster: Any
) -> None:
    before = cluster.count("forebay_get_bytes_total")
    reader = RangeReader(item)
    for position in (11_000_000, 3_000_000, 8_000_000):
        reader.seek(position)
        assert reader.read(4) == CONTENT[position : position + 4]
    assert cluster.count("forebay_get_bytes_total") - before <= 3 * (64 << 10)


def test_it_pickles_with_its_position(item: forebay.Object) -> None:
    reader = RangeReader(item)
    reader.seek(1_000_000)
    assert reader.read(4) == CONTENT[1_000_000:1_000_004]
    again = pickle.loads(pickle.dumps(reader))
    assert again.tell() == 1_000_004 and again.read(8) == CONTENT[1_000_004:1_000_012]
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(reader)


def test_contents_of_two_versions_are_never_mixed(item: forebay.Object) -> None:
    reader = RangeReader(item, window=1 << 20)
    assert reader.read(100) == CONTENT[:100]
    item.put(bytes(len(CONTENT)))
    with pytest.raises(forebay.ObjectChanged, match="large"):
        reader.read()
    assert RangeReader(item).read() == bytes(len(CONTENT))


def test_an_object_that_became_shorter_or_was_deleted_fails_the_read_that_needs_it(
    item: forebay.Object,
) -> None:
    for large in (False, True):
        item.put(CONTENT)
        with item.get_range_reader() as file:
            file.read(10)
            item.put(b"shorter")
            file.seek(6 << 20)
            with pytest.raises(forebay.ObjectChanged, match="large"):
                file.read(5 << 20 if large else 10)
    with item.get_range_reader() as file:
        assert file.read(1) == b"s"
        item.delete()
        assert file.read() == b"horter", "is here already"
    with pytest.raises(forebay.NotFound), item.get_range_reader() as file:
        file.read(1)


def test_the_end_of_the_block_raises_nothing_of_its_own(item: forebay.Object) -> None:
    with pytest.raises(KeyError), item.get_range_reader() as file:
        file.read(1)
        item.put(b"another")
        raise KeyError("of the block")
    with item.get_range_reader() as file:
        whole = file.read()
        item.put(CONTENT)
    assert whole == b"another" and file.closed


def test_a_failure_is_raised_again_for_who_looks_read_up_for_it(item: forebay.Object) -> None:
    file: Any = item.get_range_reader()
    file.read(10)
    item.put(b"shorter")
    file.seek(6 << 20)
    with pytest.raises(forebay.ObjectChanged):
        file.readinto(bytearray(10))
    # What CPython calls when the name was not found.
    with pytest.raises(forebay.ObjectChanged):
        file.__getattr__("read")
    with pytest.raises(AttributeError, match="'RangeReader' object has no attribute 'wings'"):
        _ = file.wings


def test_it_is_read_on_after_a_fork_in_both_processes(item: forebay.Object) -> None:
    reader = RangeReader(item, window=1 << 20)
    assert reader.read(300_000) == CONTENT[:300_000]
    child = os.fork()
    if child == 0:
        os._exit(0 if reader.read() == CONTENT[300_000:] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.read() == CONTENT[300_000:]


def test_wrong_settings_are_refused(item: forebay.Object) -> None:
    with pytest.raises(ValueError, match="window"):
        RangeReader(item, window=0)
    with pytest.raises(ValueError, match="num_workers"):
        item.get_range_reader(num_workers=0)


PLAN = [(100, 70_000), (70_000, 70_010), (5_000_000, 9_000_000), (9_000_001, len(CONTENT))]


def test_of_planned_ranges_any_read_gives_the_bytes_that_a_file_gives(item: forebay.Object) -> None:
    choose, model = random.Random(3), io.BytesIO(CONTENT)
    with item.get_range_reader(ranges=PLAN, window=1 << 20) as file:
        for _ in range(100):
            place = choose.choice([bound for pair in PLAN for bound in pair]) + choose.randrange(-50, 50)
            size = choose.choice([0, 1, 60, 9_000, 300_000, 5_000_000])
            assert file.seek(place) == model.seek(place)
            assert file.read(size) == model.read(size) and file.tell() == model.tell()
        assert file.seek(-3, io.SEEK_END) and file.read() == CONTENT[-3:]
        again = pickle.loads(pickle.dumps(file))
        assert again.seek(101) and again.read(8) == CONTENT[101:109]


def test_planned_ranges_cost_one_request_each_and_no_byte_beside(
    item: forebay.Object, cluster: Any
) -> None:
    plan = [(start, start + 1000) for start in range(0, 12_000_000, 400_000)]
    before = cluster.count("forebay_get_bytes_total")
    with item.get_range_reader(ranges=plan) as file:
        for start, end in plan:
            file.seek(start)
            assert file.read(400) + file.read(600) == CONTENT[start:end]
    assert cluster.count("forebay_get_bytes_total") - before == 1000 * len(plan)


@pytest.mark.parametrize("content", [bytes(len(CONTENT)), b"shorter"])
def test_an_object_that_was_replaced_after_its_ranges_were_planned_is_an_error(
    item: forebay.Object, content: bytes
) -> None:
    props = item.head()
    with item.get_range_reader(ranges=PLAN, props=props) as file:
        item.put(content)
        for place in (0, 500, 6_000_000):
            file.seek(place)
            with pytest.raises(forebay.ObjectChanged, match="large"):
                file.read(10)


def test_planned_ranges_are_read_on_after_a_fork(item: forebay.Object) -> None:
    file = item.get_range_reader(ranges=PLAN, window=1 << 20)
    file.seek(5_000_000)
    assert file.read(10) == CONTENT[5_000_000:5_000_010]
    child = os.fork()
    if child == 0:
        os._exit(0 if file.read(1_000_000) == CONTENT[5_000_010:6_000_010] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert file.read(1_000_000) == CONTENT[5_000_010:6_000_010]


def test_ranges_that_are_not_in_order_are_refused(item: forebay.Object) -> None:
    for wrong in ([(5, 4)], [(0, 4), (3, 6)], [(9, 10), (0, 1)], [(-1, 3)]):
        with pytest.raises(ValueError, match="in order"):
            RangeReader(item, ranges=wrong)
