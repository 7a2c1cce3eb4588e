"""Nodes whose answers trickle, lie about their length or make no sense: an error that says so, in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from forebay_fixture import binary
from test_rows import Proxy

import forebay
from forebay.testing import Cluster

HUGE = 9_000_000_000_000_000_000
END_FRAME_BYTES = 16
Answer = tuple[int, list[tuple[str, str]], bytes]


class BadNode(Proxy):
    """A target that a test has answer for itself."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.is_bad: Callable[[str], bool] = lambda path: False
        self.bad: Callable[[Any, Answer], Answer | None] = lambda request, answer: answer

    def answer(self, request: Any, body: bytes) -> Answer | None:
        is_target = "/objects/" in request.path or request.path.startswith("/api/v1/batch")
        status, headers, content = self.forward(
            self.target if is_target else self.gateway, request, body
        )
        good = status, headers, content.replace(self.target.encode(), self.url.encode())
        return self.bad(request, good) if self.is_bad(request.path) else good


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[BadNode]:
    monkeypatch.setenv("FOREBAY_BIN", str(binary()))
    with Cluster() as cluster:
        node = BadNode(cluster)
        yield node
        node.server.shutdown()


def trickle(request: Any, answer: Answer) -> None:
    """The bytes of an answer, five in a second, without an end."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    try:
        while True:
            request.wfile.write(b" ")
            time.sleep(0.2)
    except OSError:
        pass


@pytest.mark.parametrize("what", ["object", "batch", "map"])
def test_bytes_that_trickle_do_not_hold_a_call_beyond_its_timeout(node: BadNode, what: str) -> None:
    forebay.Client(node.url).bucket("b").create().put_many((f"o{i}", b"x") for i in range(3))
    paths = {"object": "/v1/objects/b", "batch": "/api/v1/batch", "map": "/api/v1/map"}
    node.is_bad, node.bad = lambda path: path.startswith(paths[what]), trickle
    bucket = forebay.Client(node.url, timeout=2).bucket("b")
    started = time.monotonic()
    with pytest.raises(forebay.Timeout):
        if what == "batch":
            bucket.get_many(["o0", "o1", "o2"])
        else:
            bucket.object("o0").get().read_all()
    assert time.monotonic() - started < 6


def test_a_length_that_memory_cannot_hold_is_an_error_that_names_it(node: BadNode) -> None:
    def lie(request: Any, answer: Answer) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {HUGE}\r\n\r\n"
        if request.headers.get("range"):
            head = (
                "HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n"
                f"Content-Range: bytes 0-0/{HUGE}\r\n\r\n"
            )
        request.wfile.write(head.encode() + b"x")

    bucket = forebay.Client(node.url, timeout=5).bucket("b").create()
    bucket.object("o").put(b"x")
    node.is_bad, node.bad = lambda path: "/objects/b/o" in path, lie
    with pytest.raises(forebay.ForebayError, match=f"ais://b/o: no memory for the {HUGE} bytes"):
        bucket.object("o").get().read_all()


def without_end(content: bytes) -> bytes:
    return content[:-END_FRAME_BYTES]


def with_a_wrong_byte(content: bytes) -> bytes:
    at = len(content) - END_FRAME_BYTES - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage,text",
    [
        (without_end, "end frame"),
        (with_a_wrong_byte, "checksum"),
        (lambda content: b"<html>Sign in to the network</html>", "not a batch stream"),
    ],
)
def test_a_batch_stream_that_makes_no_sense_is_an_error_of_its_own_and_soon(
    node: BadNode, damage: Callable[[bytes], bytes], text: str
) -> None:
    bucket = forebay.Client(node.url).bucket("b").create()
    names = [f"o{i}" for i in range(3)]
    bucket.put_many((name, b"x" * 10) for name in names)
    assert bucket.get_many(names) == [b"x" * 10] * 3
    node.is_bad = lambda path: path.startswith("/api/v1/batch")
    node.bad = lambda request, answer: (*answer[:2], damage(answer[2]))
    started = time.monotonic()
    with pytest.raises(forebay.CorruptAnswer, match=text) as caught:
        bucket.get_many(names)
    assert caught.value.code == "corrupt_answer"
    assert time.monotonic() - started < 10
