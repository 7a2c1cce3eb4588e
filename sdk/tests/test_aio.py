"""The client for asyncio: the surface of the blocking one, cancelled with its tasks."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from shard_files import tar

import forebay
from forebay import aio

T = TypeVar("T")
PAIRS = [
    (forebay.Client, aio.AsyncClient, set()),
    (forebay.Cluster, aio.AsyncCluster, set()),
    (forebay.Bucket, aio.AsyncBucket, {"client"}),
    (forebay.ObjectGroup, aio.AsyncObjectGroup, {"bucket"}),
    (forebay.Object, aio.AsyncObject, {"bucket"}),
    (forebay.Batch, aio.AsyncBatch, set()),
    (forebay.PendingMany, aio.AsyncPendingMany, set()),
    (forebay.Job, aio.AsyncJob, set()),
    (forebay.ShardStream, aio.AsyncShardStream, set()),
]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


@pytest.fixture
def own(bucket: forebay.Bucket) -> aio.AsyncBucket:
    return forebay.AsyncClient(bucket.client.endpoint, timeout=20).bucket(bucket.name)


@pytest.mark.parametrize("blocking,waiting,apart", PAIRS, ids=lambda v: getattr(v, "__name__", ""))
def test_the_async_surface_is_identical(blocking: type, waiting: type, apart: set[str]) -> None:
    names = {name for name in dir(blocking) if not name.startswith("_")} - apart
    assert names <= set(dir(waiting))
    for name in names:
        one, two = getattr(blocking, name), getattr(waiting, name)
        if callable(one):
            given = [list(inspect.signature(f).parameters) for f in (one, two)]
            assert given[0] == given[1], name


def test_objects_go_in_and_out_concurrently(own: aio.AsyncBucket) -> None:
    async def work() -> None:
        names = [f"o{i:02}" for i in range(40)]
        await asyncio.gather(*(own.object(name).put(name.encode()) for name in names))
        got = await asyncio.gather(*(own.object(name).get().read_all() for name in names))
        assert got == [name.encode() for name in names]
        assert [entry.name async for entry in own.list_objects(page_size=7)] == names
        assert len(await own.list_snapshot()) == 40
        assert await own.get_many(names[:3]) == [b"o00", b"o01", b"o02"]
        client = forebay.AsyncClient(own._sync.client.endpoint)
        pending = client.submit_many([(own, name) for name in names[:2]])
        assert await pending.result() == [b"o00", b"o01"]
        batch = client.batch
        answers = [(r.obj_name, bytes(d)) async for r, d in batch(names[:2], own).get()]
        assert answers == [("o00", b"o00"), ("o01", b"o01")]
        assert await own.put_many([("p", b"1")]) == 1
        assert (await own.object("p").head()).size == 1
        assert b"".join([bytes(piece) async for piece in own.object("p").get()]) == b"1"
        with pytest.raises(forebay.NotFound):
            await own.object("none").head()
        await own.object("p").delete()

    run(work())


def test_samples_of_a_shard_come_together(own: aio.AsyncBucket) -> None:
    async def work() -> None:
        shard = own.object("s.tar")
        await shard.put(tar([(f"{n}.txt", str(n).encode()) for n in range(9)]))
        stream, got = shard.samples(), []
        while run := await stream.next_run():
            got += run
        assert got == [(str(n), {"txt": str(n).encode()}) for n in range(9)]

    run(work())


def test_large_objects_readers_and_writers(own: aio.AsyncBucket) -> None:
    content = os.urandom(20 << 20)

    async def work() -> None:
        async with own.object("w").get_writer() as writer:
            for start in range(0, len(content), 3 << 20):
                await writer.write(content[start : start + (3 << 20)])
        into = bytearray(len(content))
        assert await own.object("w").get(num_workers=4).read_into(into) == len(content)
        assert into == content
        with pytest.raises(KeyError):
            async with own.object("w").get_writer() as writer:
                await writer.write(content)
                raise KeyError
        assert (await own.object("w").head()).size == len(content)

    run(work())


def test_a_cancelled_task_cancels_its_request() -> None:
    async def work(endpoint: str, listener: socket.socket) -> None:
        bucket = forebay.AsyncClient(endpoint, timeout=60, max_concurrency=1).bucket("b")
        task = asyncio.create_task(bucket.head())
        connection, _ = await asyncio.to_thread(listener.accept)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        connection.settimeout(5)

        def until_closed() -> bytes:
            while received := connection.recv(4096):
                assert received
            return received

        assert await asyncio.to_thread(until_closed) == b"", "the connection is closed"
        started = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(bucket.head(), 0.5)
        assert time.monotonic() - started < 5, "the only thread is free again"

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        run(work(f"http://127.0.0.1:{listener.getsockname()[1]}", listener))


def test_the_loop_goes_on_while_a_call_waits() -> None:
    async def work(endpoint: str) -> int:
        bucket = forebay.AsyncClient(endpoint, timeout=1).bucket("b")
        task = asyncio.create_task(bucket.head())
        turns = 0
        while not task.done():
            await asyncio.sleep(0.005)
            turns += 1
        assert isinstance(task.exception(), forebay.ForebayError)
        return turns

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        assert run(work(f"http://127.0.0.1:{silent.getsockname()[1]}")) > 20


def test_async_handles_compare_hash_and_pickle() -> None:
    client = forebay.AsyncClient("http://h:1", timeout=5)
    bucket = client.bucket("b")
    for handle in [client, bucket, bucket.object("o"), bucket.objects(["x"])]:
        back = pickle.loads(pickle.dumps(handle))
        assert back == handle and hash(back) == hash(handle)
        assert repr(back).startswith("Async") or "ObjectGroup" in repr(back)
    with pytest.raises(ValueError, match="max_concurrency"):
        forebay.AsyncClient("http://h:1", max_concurrency=0)
