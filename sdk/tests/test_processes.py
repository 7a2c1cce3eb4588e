"""Forks, threads and signals around a client that is in use."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import forebay


def read_one(bucket: forebay.Bucket, name: str) -> bytes:
    return bucket.object(name).get().read_all()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_client_in_use_goes_to_other_processes(bucket: forebay.Bucket, method: Any) -> None:
    bucket.put_many((f"o{i}", str(i).encode()) for i in range(20))
    assert read_one(bucket, "o0") == b"0"
    with multiprocessing.get_context(method).Pool(3) as pool:
        got = pool.starmap(read_one, [(bucket, f"o{i}") for i in range(20)])
    assert got == [str(i).encode() for i in range(20)]
    assert read_one(bucket, "o1") == b"1"


def forked(work: Any) -> int:
    """The exit code of a forked child that does ``work`` and leaves as a worker does."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the forked child hangs")


def test_a_child_does_not_have_what_its_parent_submitted(bucket: forebay.Bucket) -> None:
    bucket.put_many((f"o{i}", b"x") for i in range(4))
    wanted = [(bucket, f"o{i}") for i in range(4)]
    pending = bucket.client.submit_many(wanted)

    def take() -> int:
        with contextlib.suppress(RuntimeError):
            pending.result()
            return 2
        return 0 if len(bucket.client.submit_many(wanted).result()) == 4 else 3

    assert forked(take) == 0
    assert [bytes(content) for content in pending.result()] == [b"x"] * 4


def test_many_forks_while_requests_are_in_flight(bucket: forebay.Bucket) -> None:
    content = os.urandom(200_000)
    bucket.put_many((f"o{i}", content) for i in range(4))
    stop = threading.Event()
    failures: list[BaseException] = []

    def load() -> None:
        while not stop.is_set():
            try:
                assert bucket.get_many([f"o{i}" for i in range(4)])[3] == content
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            assert forked(lambda: 0 if read_one(bucket, "o1") == content else 2) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_open_streams_stay_with_the_process_that_opened_them(bucket: forebay.Bucket) -> None:
    content = os.urandom(3 << 20)
    bucket.object("large").put(content)
    pieces = iter(bucket.object("large").get())
    answers = bucket.client.batch(["large", "large"], bucket).get()
    first = next(pieces)
    next(answers)

    def in_child() -> int:
        refused = 0
        for stream in (pieces, answers):
            try:
                next(stream)
            except RuntimeError:
                refused += 1
        return 0 if refused == 2 and read_one(bucket, "large") == content else 3

    assert forked(in_child) == 0
    assert bytes(first) + b"".join(pieces) == content
    assert next(answers)[1] == content


def test_a_client_is_shared_by_threads(bucket: forebay.Bucket) -> None:
    bucket.put_many((f"o{i}", str(i).encode() * 1000) for i in range(64))
    wrong: list[int] = []

    def read(first: int) -> None:
        for i in range(first, 64, 8):
            if read_one(bucket, f"o{i}") != str(i).encode() * 1000:
                wrong.append(i)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_others_run_while_a_call_waits() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        client = forebay.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=2)
        waiting = threading.Thread(target=lambda: pytest.raises(Exception, client.bucket("b").head))
        waiting.start()
        turns = 0
        while waiting.is_alive() and turns < 50:
            time.sleep(0.001)
            turns += 1
        assert turns == 50
        waiting.join(60)


@pytest.mark.parametrize("endpoint", ["silent", "refused"])
def test_ctrl_c_ends_a_call_that_waits(endpoint: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if endpoint == "silent":
            silent.listen(8)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code = (
            "import signal, sys, forebay\n"
            # A shell that started the tests in the background has it ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"o = forebay.Client({url!r}, timeout=60).bucket('b').object('o')\n"
            "print('go', flush=True)\n"
            "try: o.get().read_all()\n"
            "except KeyboardInterrupt: sys.exit(7)\n"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"go\n"
        # The call itself cannot announce that it waits; any moment from here on must do.
        time.sleep(0.3)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 7
        assert time.monotonic() - sent < 2


def test_endpoints_that_all_refuse_end_a_call_within_5_s_of_any_timeout() -> None:
    with socket.socket() as one, socket.socket() as other:
        urls = []
        for closed in (one, other):
            closed.bind(("127.0.0.1", 0))
            urls.append(f"http://127.0.0.1:{closed.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(forebay.ClusterUnavailable, match="connection refused") as caught:
            forebay.Client(",".join(urls)).bucket("b").object("o").get().read_all()
        assert 3 < time.monotonic() - started < 5
        for part in (*urls, "FOREBAY_ENDPOINT", "config.toml"):
            assert part in str(caught.value)


def has_contact(client: forebay.Client) -> bool:
    return client._native.has_contact()


def test_processes_of_a_client_that_met_its_cluster_wait_while_that_restarts(
    bucket: forebay.Bucket,
) -> None:
    fresh = forebay.Client(bucket.client.endpoint)
    assert not has_contact(fresh) and not has_contact(pickle.loads(pickle.dumps(fresh)))
    bucket.object("o").put(b"x")
    assert has_contact(bucket.client) and has_contact(pickle.loads(pickle.dumps(bucket)).client)
    assert has_contact(bucket.client.with_retry(forebay.Retry()))
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: os._exit(not has_contact(bucket.client)))
    child.start()
    child.join(20)
    assert child.exitcode == 0


def test_a_cluster_that_is_down_is_one_error_after_the_timeout() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(forebay.ClusterUnavailable, match=url) as caught:
            forebay.Client(url, timeout=1).bucket("b").object("o").get().read_all()
        assert isinstance(caught.value, ConnectionError)
        assert 0.5 < time.monotonic() - started < 5
