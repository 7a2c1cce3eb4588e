"""Shards sorted into other shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shard_files import pack

import forebay

RECORDS = [
    (f"{n * 7 % 20:02}", {"jpg": bytes([n]) * (100 + n), "cls": str(n).encode()})
    for n in range(20)
]
MEMBERS = [(f"{key}.{ext}", data) for key, parts in RECORDS for ext, data in parts.items()]


@pytest.fixture
def shards(bucket: forebay.Bucket) -> forebay.Bucket:
    """A bucket with two shards of 20 members each: ``in-0.tar`` and ``in-1.tar``."""
    for half in range(2):
        part = MEMBERS[20 * half : 20 * half + 20]
        bucket.object(f"in-{half}.tar").put(pack(part, ".tar"))
    return bucket


def keys(bucket: forebay.Bucket, *names: str) -> list[str]:
    return [key for name in names for key, _ in bucket.object(name).samples()]


def test_records_are_sorted_into_shards_of_a_size(
    client: forebay.Client, shards: forebay.Bucket
) -> None:
    job = client.dsort(shards, shards, "by-name-{0..9}", shard_size=1100)
    status = job.wait(60)
    assert (status.kind, status.state, status.objects) == ("dsort", "done", 40)
    names = [name for name, _ in shards.list_snapshot(prefix="by-name-")]
    assert len(names) == 2
    assert keys(shards, *names) == sorted(key for key, _ in RECORDS)


def test_an_order_by_content_and_one_by_chance(
    client: forebay.Client, shards: forebay.Bucket
) -> None:
    source = f"{shards.uri}/in-{{0..1}}.tar"
    options = {"algorithm": "content", "key_ext": ".cls", "key_type": "int", "decreasing": True}
    client.dsort(source, shards, "content-%d", **options).wait(60)
    assert keys(shards, "content-0.tar") == [key for key, _ in RECORDS[::-1]]
    seeded = [
        client.dsort(source, shards, f"s{run}-%d", algorithm="shuffle", seed=5) for run in range(2)
    ]
    for job in seeded:
        job.wait(60)
    assert shards.object("s0-0.tar").get().read_all() == shards.object("s1-0.tar").get().read_all()
    assert sorted(keys(shards, "s0-0.tar")) == sorted(key for key, _ in RECORDS)


def test_a_key_map_is_a_mapping_or_a_file(
    client: forebay.Client, shards: forebay.Bucket, tmp_path: Path
) -> None:
    rules = {"low-%d": ["^0"], "high-%d": "^1"}
    file = tmp_path / "map.json"
    file.write_text(json.dumps(rules))
    source = f"{shards.uri}/in-"
    for ekm in (rules, file):
        client.dsort(source, shards, ekm=ekm, overwrite=True).wait(60)
        assert all(key.startswith("0") for key in keys(shards, "low-0.tar"))
        assert len(keys(shards, "high-0.tar")) == 10


def test_what_makes_no_sense_is_refused(client: forebay.Client, shards: forebay.Bucket) -> None:
    with pytest.raises(forebay.InvalidArgument, match="no place for a number"):
        client.dsort(shards, shards, "shard")
    with pytest.raises(forebay.InvalidArgument, match="1 names, 20 shards"):
        client.dsort(shards, shards, "s-{0..0}", shard_size=1)
    with pytest.raises(forebay.NotFound, match="no records"):
        client.dsort(f"{shards.uri}/none-", shards)
    with pytest.raises(TypeError, match="no option 'shardsize'"):
        client.dsort(shards, shards, shardsize=1)  # type: ignore[call-arg]
    with pytest.raises(forebay.ForebayError, match="one of the input shards"):
        client.dsort(shards, shards, "in-%d")
    assert not len(shards.list_snapshot(prefix="shard-"))
