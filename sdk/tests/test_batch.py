"""Batches: order, failures, several buckets, and one request per owning target."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest

import forebay

CONTENTS = {f"o/{i:03}": os.urandom(i * 37 % 3000) for i in range(200)}


@pytest.fixture
def filled(bucket: forebay.Bucket) -> forebay.Bucket:
    bucket.put_many(CONTENTS.items())
    return bucket


def test_answers_have_the_order_of_the_request(client: forebay.Client, filled: forebay.Bucket) -> None:
    names = sorted(CONTENTS, key=lambda name: CONTENTS[name])
    names += names[:3]
    for answers in (
        client.batch(names, bucket=filled).get_all(),
        list(client.batch(map(filled.object, names)).get()),
    ):
        assert [result.obj_name for result, _ in answers] == names
        assert [result.index for result, _ in answers] == list(range(len(names)))
        for result, content in answers:
            assert result.ok
            assert content == CONTENTS[result.obj_name]
            assert (result.size, result.bucket) == (len(content), filled.uri)
    contents = [CONTENTS[name] for name in names]
    assert [bytes(c) for c in filled.get_many(names)] == contents


def test_contents_come_as_bytes_where_that_is_asked_for(
    client: forebay.Client, filled: forebay.Bucket
) -> None:
    names = sorted(CONTENTS)
    contents = [CONTENTS[name] for name in names]
    pairs = [(filled, name) for name in names]
    for answers in (
        filled.get_many(names, as_bytes=True),
        filled.get_many(iter(names), as_bytes=True),
        client.get_many(pairs, as_bytes=True),
    ):
        assert answers == contents
        assert {type(answer) for answer in answers} == {bytes}
    assert filled.get_many([], as_bytes=True) == []
    mixed = client.get_many([*pairs[:2], (filled, "absent")], on_error="return", as_bytes=True)
    assert mixed[:2] == contents[:2]
    assert isinstance(mixed[2], forebay.NotFound)
    with pytest.raises(forebay.NotFound, match="absent"):
        filled.get_many(["absent"], as_bytes=True)


def test_what_was_submitted_comes_while_its_reader_does_something_else(
    client: forebay.Client, filled: forebay.Bucket
) -> None:
    wanted = [(filled, name) for name in [*sorted(CONTENTS), "absent"]]
    pending = [client.submit_many(wanted, as_bytes=as_bytes) for as_bytes in (False, True)]
    # Others use the client meanwhile, and what nobody takes does not stay.
    client.submit_many(wanted)
    assert filled.object(wanted[5][1]).get().read_all() == CONTENTS[wanted[5][1]]
    for kind, answers in zip((memoryview, bytes), (one.result() for one in pending), strict=True):
        assert [bytes(a) for a in answers[:-1]] == [CONTENTS[name] for _, name in wanted[:-1]]
        assert {type(answer) for answer in answers[:-1]} == {kind}
        assert isinstance(answers[-1], forebay.NotFound)
    assert client.submit_many([]).result() == []
    with pytest.raises(RuntimeError, match="taken before"):
        pending[0].result()


def test_answers_in_any_order_say_which_entry_they_are_of(
    client: forebay.Client, filled: forebay.Bucket
) -> None:
    names = sorted(CONTENTS, key=lambda name: CONTENTS[name])
    batch = client.batch([*names, "absent", *names[:3]], bucket=filled, on_error="return")
    answers = {result.index: (result, content) for result, content in batch.get(ordered=False)}
    assert sorted(answers) == list(range(len(batch)))
    for index, name in enumerate([*names, None, *names[:3]]):
        result, content = answers[index]
        if name is None:
            assert isinstance(result.error, forebay.NotFound)
        else:
            assert (result.obj_name, content) == (name, CONTENTS[name])


def test_a_failure_is_raised_or_returned_and_never_an_empty_object(
    client: forebay.Client, filled: forebay.Bucket
) -> None:
    names = ["o/000", "absent", "o/001"]
    for run in (
        lambda: client.batch(names, filled).get_all(),
        lambda: list(client.batch(names, filled).get()),
        lambda: filled.get_many(names),
    ):
        with pytest.raises(forebay.NotFound, match="absent"):
            run()
    batch = client.batch(names, filled, on_error="return")
    assert len(batch) == 3
    for answers in (batch.get_all(), list(batch.get())):
        results = [result for result, _ in answers]
        assert [result.ok for result in results] == [True, False, True]
        assert isinstance(results[1].error, forebay.NotFound)
        assert answers[2][1] == CONTENTS["o/001"]
    with pytest.raises(ValueError, match="on_error"):
        client.batch(on_error="skip")  # type: ignore[arg-type]


def test_a_batch_spans_buckets(client: forebay.Client, filled: forebay.Bucket) -> None:
    other = client.bucket(f"o-{uuid.uuid4().hex[:8]}").create()
    try:
        other.object("o/000").put(b"other")
        batch = client.batch().add(other.object("o/000")).add(filled.object("o/001"))
        contents = [bytes(content) for _, content in batch.get_all()]
        assert contents == [b"other", CONTENTS["o/001"]]
    finally:
        other.delete()


def test_an_empty_batch_asks_nothing(client: forebay.Client, filled: forebay.Bucket) -> None:
    assert client.batch().get_all() == []
    assert list(client.batch().get()) == []
    assert filled.get_many([]) == []


def test_a_large_object_goes_through_a_batch(bucket: forebay.Bucket) -> None:
    large = os.urandom(9 << 20)
    bucket.object("large").put(large)
    bucket.object("small").put(b"s")
    names = ["small", "large", "small"]
    streamed = [content for _, content in bucket.client.batch(names, bucket).get()]
    for contents in (bucket.get_many(names), streamed):
        assert [len(content) for content in contents] == [1, len(large), 1]
        assert contents[1] == large


def test_a_batch_is_one_request_per_owning_target(
    client: forebay.Client, cluster: Any, filled: forebay.Bucket
) -> None:
    filled.get_many(["o/000"])
    requests = cluster.count("forebay_http_requests_total", op="batch")
    entries = cluster.count("forebay_batch_entries_total")
    filled.get_many(list(CONTENTS))
    assert cluster.count("forebay_http_requests_total", op="batch") - requests == 3
    assert cluster.count("forebay_batch_entries_total") - entries == len(CONTENTS)
