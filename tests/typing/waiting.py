"""As blocking.py, for `asyncio`."""

import asyncio

import forebay
from forebay import aio


async def main() -> int:
    async with forebay.AsyncClient("http://127.0.0.1:7400", max_concurrency=4) as client:
        bucket: aio.AsyncBucket = await client.bucket("b").create(exist_ok=True)
        props: forebay.ObjectProps = await bucket.object("o").put(b"x")
        content: bytes = await bucket.object("o").get(num_workers=2).read_all()
        names: list[str] = [entry.name async for entry in bucket.list_objects()]
        async for result, view in client.batch(names, bucket).get(ordered=False):
            index: int = result.index + len(view)
        status: forebay.JobStatus = await (await bucket.evict(prefix="")).wait()
        async with bucket.object("w").get_writer() as writer:
            written: int = await writer.write(content)
        both: list[bytes] = await asyncio.gather(
            *(bucket.object(name).get().read_all() for name in names)
        )
        return props.size + status.objects + written + len(both)


total: int = asyncio.run(main())
