"""Upper bounds of a machine: the least work that a server of batches has to do, in the same run.

A *bare* server does one `pread` for each item and nothing else; a *ready* one sends an answer that
it has in memory. Both are processes of their own, so that their CPU time counts as a server's.
"""

from __future__ import annotations

import contextlib
import io
import random
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20

BARE = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
file, size = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
items = os.fstat(file).st_size // size
view = memoryview(bytearray((256 << 10) + size))
peer = listener.accept()[0]
while count := int(peer.recv(16) or 0):
    filled = 0
    for n in range(count):
        os.preadv(file, [view[filled : filled + size]], n * 7919 % items * size)
        filled += size
        if filled >= 256 << 10:
            peer.sendall(view[:filled])
            filled = 0
    peer.sendall(view[:filled])
"""

READY = """
import socketserver, sys
body = open(sys.argv[1], "rb").read()
head = f"HTTP/1.1 200 OK\\r\\nContent-Type: application/x-tar\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            self.rfile.read(length)
            self.request.sendall(head.encode())
            self.request.sendall(body)
server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers)
server.daemon_threads, server.handle_error = True, lambda *_: None  # a client that hangs up
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def _serving(script: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """Port and process of a script while the block runs."""
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline()), child.pid
        finally:
            child.kill()


@contextlib.contextmanager
def bare(folder: Path, count: int, size: int) -> Iterator[tuple[int, Callable[[], tuple[int, int]]]]:
    """A bare server's process, and what reads `count` items from it as `bytes` objects."""
    file = folder / "bare"
    file.write_bytes(random.Random(1).randbytes(count * size))
    with (
        _serving(BARE, str(file), str(size)) as (port, pid),
        socket.create_connection(("127.0.0.1", port)) as peer,
    ):
        memory = memoryview(bytearray(count * size))

        def read() -> tuple[int, int]:
            peer.sendall(str(count).encode())
            items: list[bytes] = []
            filled = done = 0
            while filled < len(memory):
                filled += peer.recv_into(memory[filled : filled + 256 * KIB])
                whole = filled - filled % size
                items += [bytes(memory[at : at + size]) for at in range(done, whole, size)]
                done = whole
            return len(items), sum(map(len, items))

        yield pid, read
    file.unlink()


@contextlib.contextmanager
def ready(folder: Path, names: list[str], size: int) -> Iterator[tuple[int, str]]:
    """Process and endpoint of a server that answers everything with a TAR of these members."""
    file = folder / "ready"
    content = random.Random(2).randbytes(size)
    with tarfile.open(file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(content))
    with _serving(READY, str(file)) as (port, pid):
        yield pid, f"http://127.0.0.1:{port}"
    file.unlink()


def made(count: int, size: int) -> float:
    """`bytes` objects a second that are made of bytes in memory, and kept in a list."""
    memory = memoryview(random.Random(3).randbytes(count * size))
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        items = [bytes(memory[at : at + size]) for at in range(0, count * size, size)]
        best = max(best, len(items) / (time.perf_counter() - start))
    return best


def loopback() -> float:
    """Bytes a second that two threads pass through a loopback connection, each copying once."""
    total, piece = 2 << 30, bytes(256 * KIB)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            with socket.create_connection(listener.getsockname()) as to:
                for _ in range(total // len(piece)):
                    to.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        peer, _ = listener.accept()
        buffer, got = bytearray(MIB), 0
        start = time.perf_counter()
        with peer:
            while n := peer.recv_into(buffer):
                got += n
        took = time.perf_counter() - start
        sender.join()
    return got / took
