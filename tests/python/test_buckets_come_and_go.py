"""Buckets that are made while others are destroyed."""

from __future__ import annotations

from collections.abc import Callable

import forebay
from conftest import Cluster

ROUNDS = 150
OBJECTS = 8


def test_a_bucket_made_while_another_is_destroyed_keeps_what_was_written(
    start_cluster: Callable[..., Cluster],
) -> None:
    client = forebay.Client(start_cluster(targets=2).endpoint, timeout=20)
    lost = []
    older = [client.bucket("older-0").create(), client.bucket("older-1").create()]
    for number in range(ROUNDS):
        bucket = client.bucket(f"round-{number}").create()
        bucket.put_many((f"{i}", b"kept") for i in range(OBJECTS))
        older.append(bucket)
        older.pop(0).delete()
        for kept in older:
            names = [(kept, f"{i}") for i in range(OBJECTS if kept.name[0] == "r" else 0)]
            for (_, name), answer in zip(
                names, client.get_many(names, on_error="return"), strict=True
            ):
                if not isinstance(answer, memoryview):
                    lost.append(f"{kept.uri}/{name} in round {number}: {answer}")
    assert lost == []
