"""Requests to the local server by sockets alone: the import of an HTTP client takes longer."""

from __future__ import annotations

import socket

__all__ = ["get", "is_ready"]


def is_ready(endpoint: str) -> bool:
    try:
        return _response(endpoint, "/readyz", 12).endswith(b" 200")
    except OSError:
        return False


def get(url: str, path: str, token: str | None = None) -> str:
    """The body of a response with the status 200 to a request with this token.

    Raises:
        OSError: The node does not answer within 5 s.
        ValueError: The response has another status.
    """
    head, _, body = _response(url, path, token=token).partition(b"\r\n\r\n")
    if head[8:12] != b" 200":
        raise ValueError(f"{url}{path}: {head[:60]!r}")
    return body.decode()


def _response(url: str, path: str, length: int = 1 << 20, token: str | None = None) -> bytes:
    """The first bytes of a response with its head; no client of HTTP, whose import takes longer.

    Raises:
        OSError: The node does not answer within 5 s.
    """
    host, _, port = url.rpartition("//")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        # In version 1.0 a body ends with its connection.
        request = f"GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n"
        if token is not None:
            request += f"Authorization: Bearer {token}\r\n"
        connection.sendall(f"{request}\r\n".encode())
        received = bytearray()
        while len(received) < length and (part := connection.recv(length - len(received))):
            received += part
        return bytes(received)
