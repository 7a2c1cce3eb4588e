"""An S3 with more keys than anybody has time to write: names are made as they are listed.

It speaks as much of S3 as a lister needs, ListObjectsV2 by `start-after` or by token, and counts
those calls. Names are skewed: of a hundred 98 lie in one folder, and there the numbers in them lie
the further apart the larger they are.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

import peers

BUCKET = "generated"
PAGE = 1000
ROW = (
    "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;{:032x}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


@dataclass(frozen=True)
class KeySpace:
    """`count` names in the order of their bytes."""

    count: int

    def key(self, n: int) -> str:
        first, last = self.count // 100, self.count - self.count // 100
        if n < first:
            return f"archive/{n:010d}"
        if n < last:
            return f"datasets/train/hot/{n * n:016x}"
        return f"logs/2026/{n:010d}"

    def keys(self) -> Iterator[str]:
        return (self.key(n) for n in range(self.count))

    def size(self, n: int) -> int:
        return n % 100_000

    def first(self, above: str, *, strictly: bool) -> int:
        """The first name above a text, or the text itself."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            name = self.key(middle)
            if name < above or (strictly and name == above):
                low = middle + 1
            else:
                high = middle
        return low

    def page(self, query: dict[str, str]) -> str:
        """The answer to ListObjectsV2."""
        prefix = query.get("prefix", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", PAGE)), PAGE)
        start = self.first(prefix, strictly=False)
        if after:
            start = max(start, self.first(after, strictly=True))
        end = self.first(prefix + "\U0010ffff", strictly=False)
        until = max(min(start + most, end), start)
        rows = "".join(ROW.format(self.key(n), n, self.size(n)) for n in range(start, until))
        more = until < end
        token = f"<NextContinuationToken>{self.key(until - 1)}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><KeyCount>{until - start}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{rows}</ListBucketResult>"
        )


async def serve(port: int, space: KeySpace, delay: float, calls: object) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b" ", 2)
                url = urlsplit(target.decode())
                query = {name: value for name, value in parse_qsl(url.query, keep_blank_values=True)}
                body, status = b"", "200 OK"
                if method == b"GET" and "list-type" in query:
                    calls.value += 1  # type: ignore[attr-defined]
                    await asyncio.sleep(delay)
                    body = space.page(query).encode()
                elif unquote(url.path).strip("/") != BUCKET:
                    status = "404 Not Found"
                answer = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\n"
                writer.write(f"{answer}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class Generated(peers.Beside):
    """The server; every listing is answered so much later."""

    def __init__(self, count: int, delay: float) -> None:
        super().__init__("the generated key space")
        self.space, self.delay = KeySpace(count), delay
        self.calls = multiprocessing.Value("Q", 0)

    async def run(self) -> None:
        await serve(self.port, self.space, self.delay, self.calls)
