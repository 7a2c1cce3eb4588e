"""The client for ``asyncio``: the names and arguments of the blocking one, awaited.

    client = forebay.AsyncClient()
    bucket = await client.bucket("images").create(exist_ok=True)
    await bucket.object("cat.jpg").put(b"...")
    pictures = await asyncio.gather(*(bucket.object(n).get().read_all() for n in names))

A call waits in a thread of the client's own, without the GIL, so the loop goes on meanwhile. When
its task is cancelled the request is, too: its connection is closed, and a half-sent object is
never seen.
"""

from __future__ import annotations

from forebay.aio.bucket import AsyncBucket, AsyncJob, AsyncObjectGroup
from forebay.aio.client import AsyncBatch, AsyncClient, AsyncCluster, AsyncPendingMany
from forebay.aio.object import AsyncObject, AsyncReader, AsyncShardStream, AsyncWriter
from forebay.aio.threads import Threads

__all__ = [
    "AsyncBatch",
    "AsyncBucket",
    "AsyncClient",
    "AsyncCluster",
    "AsyncJob",
    "AsyncObject",
    "AsyncObjectGroup",
    "AsyncPendingMany",
    "AsyncReader",
    "AsyncShardStream",
    "AsyncWriter",
    "Threads",
]
