"""How sources become one list of objects, over buckets that need no cluster."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import forebay
from forebay import Client, Listing
from forebay_torch.source import parts_of, snapshot

CLIENT = Client("http://h:1")
NAMES = {"ais://b": ["a/1", "a/2", "ab/1", "b/1", "b/2"], "s3://c": ["a/1", "x", "x1"]}


@pytest.fixture(autouse=True)
def listings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Buckets that list NAMES; what was listed, by bucket and prefix."""
    asked: list[tuple[str, str]] = []

    def list_snapshot(self: forebay.Bucket, prefix: str = "") -> Listing:
        asked.append((self.uri, prefix))
        names = NAMES[self.uri]
        return Listing.from_pairs((n, i) for i, n in enumerate(names) if n.startswith(prefix))

    monkeypatch.setattr(forebay.Bucket, "list_snapshot", list_snapshot)
    return asked


B = CLIENT.bucket("b")
C = CLIENT.bucket("c", "s3")


def names(sources: Any, prefix_map: Any = None) -> list[str]:
    index = snapshot(parts_of("Dataset", sources, prefix_map, CLIENT))
    return [index.object(i).uri for i in range(len(index.listing))]


def uris(bucket: str, *objects: str) -> list[str]:
    return [f"{bucket}/{name}" for name in objects]


def test_sources_are_buckets_groups_uris_templates_and_lists_of_them() -> None:
    whole = uris("ais://b", *NAMES["ais://b"])
    cloud = uris("s3://c", *NAMES["s3://c"])
    assert names(B) == names([B]) == names("ais://b") == names("b/") == whole
    assert names([C, B]) == cloud + whole
    assert names(B.objects(["b/2", "a/1"])) == uris("ais://b", "b/2", "a/1")
    assert names("b/a/") == uris("ais://b", "a/1", "a/2")
    assert names("b/a/{1..2}") == uris("ais://b", "a/1", "a/2")
    mixed = uris("s3://c", "x", "x1") + uris("ais://b", "b/1")
    assert names(["s3://c/x", B.objects(["b/1"])]) == mixed


def test_prefix_map_selects_and_a_source_that_is_absent_is_whole() -> None:
    assert names(B, {B: "a"}) == uris("ais://b", "a/1", "a/2", "ab/1")
    assert names([B, C], {B: ["b/", "a/"]}) == uris("ais://b", "b/1", "b/2", "a/1", "a/2") + uris(
        "s3://c", *NAMES["s3://c"]
    )
    assert names(B, {B: None}) == names(B)
    group = B.objects(["b/2", "a/1", "b/1"])
    assert names(group, {group: "b"}) == uris("ais://b", "b/2", "b/1")
    assert names("b/a", {"b/a": ["/", "b/"]}) == uris("ais://b", "a/1", "a/2", "ab/1")


def test_an_object_that_two_prefixes_match_appears_once() -> None:
    assert names(C, {C: ["x", "x1", "x"]}) == uris("s3://c", "x", "x1")
    assert names(C, {C: ["x1", "x"]}) == uris("s3://c", "x", "x1")
    assert names([B, B.objects(["a/1"]), "ais://b/b/"]) == uris("ais://b", *NAMES["ais://b"])
    assert names([B.objects(["b/1", "a/1"]), "b/a/"]) == uris("ais://b", "b/1", "a/1", "a/2")


def test_each_part_is_listed_once(listings: list[tuple[str, str]]) -> None:
    names([B, C], {B: ["a", "a/", "b/"]})
    assert listings == [("ais://b", "a"), ("ais://b", "b/"), ("s3://c", "")]


@pytest.mark.parametrize("nothing", [None, [], (), "", [""]])
def test_an_empty_list_of_sources_is_refused_by_the_classs_name(nothing: Any) -> None:
    with pytest.raises(ValueError, match="Dataset needs at least one source"):
        parts_of("Dataset", nothing)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(TypeError, match="not 5"):
        parts_of("Dataset", [5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="not among the sources"):
        parts_of("Dataset", B, {C: "x"})
    with pytest.raises(ValueError, match="in one cluster"):
        names([B, Client("http://elsewhere:1").bucket("b")])
    with pytest.raises(ValueError, match="leaves nothing"):
        names(B, {B: []})


def test_a_listing_is_retried_after_a_transient_failure_and_the_last_error_is_raised(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def flaky(self: forebay.Bucket, prefix: str = "") -> Listing:
        calls.append(prefix)
        raise forebay.ClusterUnavailable("away") if len(calls) < 3 else forebay.NotFound("gone")

    monkeypatch.setattr(forebay.Bucket, "list_snapshot", flaky)
    with pytest.raises(forebay.NotFound):
        snapshot(parts_of("Dataset", B), retries=3)
    calls.clear()
    with pytest.raises(forebay.ClusterUnavailable):
        snapshot(parts_of("Dataset", B), retries=1)
    assert len(calls) == 2


def test_an_index_pickles() -> None:
    index = snapshot(parts_of("Dataset", [B, C]))
    back = pickle.loads(pickle.dumps(index))
    assert [back.object(i) for i in range(8)] == [index.object(i) for i in range(8)]
