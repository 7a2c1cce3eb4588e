"""Services and their names: addresses of this machine whose connections go to pods that are ready, and DNS.

A connection is forwarded by this program, where Kubernetes rewrites addresses. As there, it goes to a random pod
that is ready, stays with it, and is refused if there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

# Places to which connections go: pairs of an address and a port.
Endpoints = Callable[[], list[tuple[str, int]]]
CHUNK_BYTES = 256 << 10
CONNECT_TIMEOUT_S = 3.0
TTL_S = 5
TYPE_A, CLASS_IN, NAME_ERROR = 1, 1, 3


class Forwarder:
    """Listens on addresses of this machine and forwards connections, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: dict[tuple[str, int], asyncio.Server] = {}

    def listen(self, address: str, port: int, endpoints: Endpoints) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _forward(reader, writer, endpoints())

        start = asyncio.start_server(serve, address, port, limit=CHUNK_BYTES)
        self._servers[address, port] = self._call(start)

    def stop(self, address: str, port: int) -> None:
        server = self._servers.pop((address, port))
        self._loop.call_soon_threadsafe(server.close)

    def close(self) -> None:
        for address, port in list(self._servers):
            self.stop(address, port)

        async def end_connections() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._call(end_connections())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoints: list[tuple[str, int]]
) -> None:
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        if not endpoints:
            _reset(writer)
            return
        connect = asyncio.open_connection(*random.choice(endpoints), limit=CHUNK_BYTES)
        try:
            far_reader, far_writer = await asyncio.wait_for(connect, CONNECT_TIMEOUT_S)
        except (OSError, asyncio.TimeoutError):
            _reset(writer)
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies one direction of a connection, with its end."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection so that its client gets an error at once."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


class Names:
    """A DNS server for the names of Services and pods; other names do not exist.

    Args:
        addresses: Returns the IPv4 addresses of a name, or None if there is no such name.
    """

    def __init__(self, address: str, addresses: Callable[[str], list[str] | None]) -> None:
        self._addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(2)

    def _run(self) -> None:
        while True:
            try:
                query, client = self._socket.recvfrom(1500)
            except OSError:
                return
            if not query:
                return
            with contextlib.suppress(OSError, IndexError, struct.error):
                self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", "replace"))
            at += 1 + query[at]
        question = query[12 : at + 5]
        (kind,) = struct.unpack(">H", query[at + 1 : at + 3])
        found = self._addresses(".".join(labels).lower())
        addresses = (found or []) if kind == TYPE_A else []
        random.shuffle(addresses)
        status = 0x8580 | (NAME_ERROR if found is None else 0)
        head = query[:2] + struct.pack(">HHHHH", status, 1, len(addresses), 0, 0)
        fields = struct.pack(">HHHIH", 0xC00C, TYPE_A, CLASS_IN, TTL_S, 4)
        return head + question + b"".join(fields + socket.inet_aton(a) for a in addresses)
