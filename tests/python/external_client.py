"""A client outside of the cluster's network, in a network namespace of its own: only the external
addresses exist there. `external_client.py FORWARDS` reads lines of Python and answers with JSON; the
variable `result` of each is the answer. Run by test_external_urls.py.

FORWARDS are `address:port=socket`: a forwarder at the address leads to a Unix socket, behind which the
test has the node.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import traceback


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copies until the source ends."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def couple(one: socket.socket, other: socket.socket) -> None:
    """Joins two connections."""
    for pair in ((one, other), (other, one)):
        threading.Thread(target=pump, args=pair, daemon=True).start()


def forward(listener: socket.socket, connect) -> None:  # type: ignore[no-untyped-def]
    """Accepts connections, and couples each with a new one of `connect`."""

    def accept() -> None:
        while True:
            accepted, _ = listener.accept()
            try:
                couple(accepted, connect())
            except OSError:
                accepted.close()

    threading.Thread(target=accept, daemon=True).start()


def to_unix(path: str):  # type: ignore[no-untyped-def]
    """Connects to a Unix socket."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    return connect


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for entry in sys.argv[1:]:
        address, path = entry.split("=")
        host, port = address.rsplit(":", 1)
        forward(socket.create_server((host, int(port)), backlog=128), to_unix(path))
    print(json.dumps("ready"), flush=True)
    known: dict[str, object] = {}
    for line in sys.stdin:
        known.pop("result", None)
        try:
            exec(json.loads(line), known)
            answer = {"result": known.get("result")}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    # Clients have threads.
    os._exit(0)


if __name__ == "__main__":
    main()
