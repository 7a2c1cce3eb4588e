"""Tests that need no cluster: listings, errors, settings, pickles, imports."""

from __future__ import annotations

import operator
import pickle
import sys
from typing import Any

import pytest
from forebay_fixture import python

import forebay
from forebay import Client, Listing, ObjectRange

ROWS = [("a", 1), ("b/ü", 22), ("c", 0)]


def test_listing_is_a_sequence_of_pairs() -> None:
    listing = Listing.from_pairs(ROWS)
    assert list(listing) == ROWS
    assert listing[-1] == ("c", 0)
    assert listing[0:2] == ROWS[:2]
    assert listing[::-1] == ROWS[::-1]
    assert len(listing) == 3
    assert ("a", 1) in listing
    assert listing.total_size == 23
    with pytest.raises(IndexError):
        listing[3]
    with pytest.raises(IndexError):
        listing[-4]


@pytest.mark.parametrize("rows", [range(3), range(1, 3), range(0, 3, 2), [2, 0], range(1, 1)])
def test_listing_has_the_names_of_rows(rows: range | list[int]) -> None:
    listing = Listing.from_pairs(ROWS)
    assert listing.names_at(rows) == [ROWS[row][0] for row in rows]


@pytest.mark.parametrize("rows", [range(2, 4), [3], range(0, 5, 3)])
def test_listing_has_no_name_of_a_row_that_is_not_there(rows: range | list[int]) -> None:
    with pytest.raises(IndexError):
        Listing.from_pairs(ROWS).names_at(rows)


def test_listing_joins_and_pickles() -> None:
    both = Listing.concat([Listing.from_pairs(rows) for rows in (ROWS, [], ROWS)])
    assert list(both) == ROWS + ROWS
    assert pickle.loads(pickle.dumps(both)) == both
    assert both != Listing.from_pairs(ROWS)


def test_listing_needs_at_most_64_bytes_and_the_name_per_object() -> None:
    count = 10_000
    names = [f"train/{i:08}.jpg" for i in range(count)]
    listing = Listing.from_pairs((name, i) for i, name in enumerate(names))
    parts = [getattr(listing, slot) for slot in Listing.__slots__]
    held = sum(sys.getsizeof(part) for part in parts)
    assert held <= count * 64 + sum(map(len, names))


@pytest.mark.parametrize("bad", [(b"ab", "Q", 1), (b"a", "Q", 2)])
def test_listing_refuses_buffers_that_do_not_fit(bad: Any) -> None:
    from array import array

    names, kind, count = bad
    with pytest.raises(ValueError, match="do not fit"):
        Listing(names, array(kind, [0, 1]), array(kind, [1] * count))


ERRORS = [
    (forebay.NotFound, FileNotFoundError, 404),
    (forebay.AlreadyExists, FileExistsError, 409),
    (forebay.AccessDenied, PermissionError, 403),
    (forebay.InvalidArgument, ValueError, 400),
    (forebay.ObjectChanged, Exception, 412),
    (forebay.ChecksumMismatch, Exception, 400),
    (forebay.CorruptAnswer, Exception, 502),
    (forebay.TooManyRequests, Exception, 429),
    (forebay.Timeout, TimeoutError, 504),
    (forebay.ClusterUnavailable, ConnectionError, 503),
]


@pytest.mark.parametrize("cls,python_class,status", ERRORS)
def test_errors_are_made_from_one_string_and_pickle(
    cls: type[forebay.ForebayError], python_class: type[Exception], status: int
) -> None:
    error = cls("what happened")
    assert isinstance(error, forebay.ForebayError)
    assert isinstance(error, python_class)
    assert (str(error), error.status) == ("what happened", status)
    back = pickle.loads(pickle.dumps(cls("x", code="special", status=499)))
    assert (type(back), str(back), back.code, back.status) == (cls, "x", "special", 499)


def test_handles_compare_hash_and_pickle() -> None:
    client = Client("http://h:1", timeout=5)
    for handle in [
        client,
        client.bucket("b", "s3"),
        client.bucket("b").object("o"),
        client.bucket("b").objects(["x", "y"]),
    ]:
        back = pickle.loads(pickle.dumps(handle))
        assert back == handle
        assert hash(back) == hash(handle)
    assert pickle.loads(pickle.dumps(client)).timeout == 5
    assert client.bucket("b") != client.bucket("b", "s3")
    assert client.bucket("b") == Client("http://h:1").bucket("b")


@pytest.mark.parametrize(
    "alias,uri",
    [("ais", "ais://b"), ("fb", "ais://b"), ("aws", "s3://b"), ("s3", "s3://b"),
     ("gcp", "gs://b"), ("gs", "gs://b"), ("azure", "az://b"), ("az", "az://b"), ("ht", "ht://b")],
)  # fmt: skip
def test_providers_have_the_names_of_v1(alias: str, uri: str) -> None:
    assert Client("http://h:1").bucket("b", alias).uri == uri


def test_bad_arguments_are_named() -> None:
    client = Client("http://h:1")
    with pytest.raises(ValueError, match="unknown provider 'nix'"):
        client.bucket("b", "nix")
    with pytest.raises(ValueError, match="timeout"):
        Client("http://h:1", timeout=0)
    with pytest.raises(ValueError, match="endpoint|invalid"):
        Client("no url").bucket("b").head()
    bucket = client.bucket("b")
    with pytest.raises(ValueError, match="exactly one"):
        bucket.objects()
    with pytest.raises(TypeError, match="list of names"):
        bucket.objects("abc")
    with pytest.raises(ValueError, match="exactly one"):
        bucket.evict()
    with pytest.raises(ValueError, match="invalid bucket name"):
        client.bucket("a b").head()
    with pytest.raises(TypeError, match="not int"):
        bucket.object("o").put(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="byte_range"):
        bucket.object("o").get(byte_range=(0, 0))
    with pytest.raises(ValueError, match="which bucket"):
        client.batch(["o"])
    elsewhere = Client("http://elsewhere:1").bucket("b")
    with pytest.raises(ValueError, match="elsewhere"):
        client.batch(["o"], bucket=elsewhere)
    with pytest.raises(ValueError, match="elsewhere"):
        client.get_many([(elsewhere, "o")])


def test_groups_are_made_of_names_ranges_and_templates() -> None:
    bucket = Client("http://h:1").bucket("b")
    names = bucket.objects(template="s-{08..10}.tar").names
    assert list(names) == ["s-08.tar", "s-09.tar", "s-10.tar"]
    group = bucket.objects(range=ObjectRange("s-", 8, 12, pad_width=3, step=2, suffix=".tar"))
    assert [item.name for item in group] == ["s-008.tar", "s-010.tar", "s-012.tar"]
    assert len(group) == 3
    with pytest.raises(ValueError, match="no range"):
        bucket.objects(template="plain")
    with pytest.raises(ValueError, match="invalid range"):
        bucket.objects(template="{3..1}")


def test_uris_are_taken_apart() -> None:
    client = Client("http://h:1")
    for uri, bucket, path in [
        ("s3://b/p/q", "s3://b", "p/q"),
        ("ais://b", "ais://b", ""),
        ("b/p", "ais://b", "p"),
    ]:
        found, rest = client.bucket_of(uri)
        assert (found.uri, rest) == (bucket, path)
    assert operator.eq(*[client.bucket_of("fb://b")[0], client.bucket("b")])


def test_the_core_has_the_version_of_the_package() -> None:
    assert forebay._core.__version__ == forebay.__version__
    code = (
        "import sys, types; core = types.ModuleType('forebay._core'); core.__version__ = '9.9';"
        "sys.modules['forebay._core'] = core; import forebay"
    )
    done = python(code)
    assert done.returncode != 0
    assert "native core of version 9.9" in done.stderr


def test_import_is_light() -> None:
    code = (
        "import sys, time; t = time.process_time(); import forebay;"
        "print(time.process_time() - t);"
        "sys.exit(sorted({'torch', 'numpy', 'lightning', 'requests'} & set(sys.modules)) or 0)"
    )
    runs = [python(code) for _ in range(3)]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    # Of the processor's time: what other processes take is not the package's.
    assert min(float(run.stdout) for run in runs) < 0.15


def test_names_of_members_that_are_not_utf_8_stay_distinct_and_come_back() -> None:
    names = [
        "für/一.txt".encode(),
        b"caf\xe9.txt",
        b"caf\xe8.txt",
        b"\xc4\xe3.jpg",
        b"a\xe4\xb8",
        "caf\uefe9.txt".encode(),
        bytes(range(1, 256)),
    ]
    texts = [forebay.member_text(name) for name in names]
    assert texts[:3] == ["für/一.txt", "caf\uefe9.txt", "caf\uefe8.txt"]
    assert len(set(texts)) == len(names)
    assert [forebay.member_bytes(text) for text in texts] == names
    assert [text.encode().decode() for text in texts] == texts


def warmth_reply(**changed: Any) -> dict[str, Any]:
    window = {"seconds": 60, "hit_objects": 2, "coalesced_objects": 1, "miss_objects": 1}
    warmth = {
        "bucket": {"provider": "aws", "name": "b"},
        "backed": True,
        "pinned": False,
        "objects": 3,
        "bytes": 300,
        "partial_objects": 1,
        "partial_bytes": 100,
        "no_access_before_ns": 2_500_000_000,
        "hour": window,
        "day": {"seconds": 0},
        "egress_saved_hour_bytes": 7,
        "egress_saved_day_bytes": 8,
        "listing": {"objects": 4, "bytes": 500, "taken_ns": 1_000_000_000},
    }
    return {"buckets": [warmth | changed], "targets": 2, "away": ["target03"]}


def test_warmth_has_shares_rates_and_the_targets_that_are_missing() -> None:
    warmth = forebay.BucketWarmth.from_reply(warmth_reply())
    assert (warmth.object_share, warmth.byte_share) == (0.75, 0.8)
    assert (warmth.listed_at, warmth.no_access_before) == (1.0, 2.5)
    assert not warmth.exact and forebay.BucketWarmth.from_reply(warmth_reply(exact=True)).exact
    assert (warmth.hour.hit_rate, warmth.day.hit_rate) == (0.75, None)
    assert (warmth.targets, warmth.away) == (2, ("target03",))
    assert pickle.loads(pickle.dumps(warmth)) == warmth


def test_warmth_without_a_listing_has_no_share() -> None:
    reply = warmth_reply(listing=None, no_access_before_ns=0)
    warmth = forebay.BucketWarmth.from_reply(reply)
    assert (warmth.listed_objects, warmth.object_share, warmth.byte_share) == (None, None, None)
    assert warmth.no_access_before is None
    removed = {"objects": 2, "bytes": 10, "taken_ns": 0}
    gone = forebay.BucketWarmth.from_reply(warmth_reply(listing=removed))
    assert (gone.object_share, gone.byte_share) == (1.0, 1.0)


def test_a_plan_of_a_prefetch_has_a_cost_and_a_text() -> None:
    plan = forebay.PrefetchPlan(3, 3_000_000_000, 1, 1_000_000_000, 2, 2_000_000_000, 4)
    assert plan.cost(0.09) == pytest.approx(0.18)
    assert str(plan) == (
        "3 objects, 2.79 GiB: 1 cached, 954 MiB; 2 to fetch, 1.86 GiB, by 4 requests"
    )
    assert pickle.loads(pickle.dumps(plan)) == plan
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="price_per_gb"):
            plan.cost(bad)
