"""A proxy that adds a delay to every request, as a distant cloud does."""

from __future__ import annotations

import asyncio
import multiprocessing

import peers

DELAY_S = 0.030
READ_CHUNK_BYTES = 256 << 10


async def pass_on(
    source: asyncio.StreamReader, to: asyncio.StreamWriter, delay: float, passed: object
) -> None:
    """Sends what comes on, each piece so much later; pieces do not wait for each other."""
    loop = asyncio.get_running_loop()
    try:
        while data := await source.read(READ_CHUNK_BYTES):
            if delay:
                loop.call_later(delay, to.write, data)
            else:
                passed.value += len(data)  # type: ignore[attr-defined]
                to.write(data)
                await to.drain()
    except ConnectionError:
        pass
    loop.call_later(delay, to.close)


async def serve(port: int, to: int, passed: object) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            pass_on(reader, up_writer, DELAY_S, passed), pass_on(up_reader, writer, 0, passed)
        )

    server = await asyncio.start_server(client, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class DelayProxy(peers.Beside):
    """A proxy before a server; requests arrive there 30 ms later."""

    def __init__(self, to: int) -> None:
        super().__init__("the delaying proxy")
        self.to, self.passed = to, multiprocessing.Value("Q", 0)

    async def run(self) -> None:
        await serve(self.port, self.to, self.passed)
