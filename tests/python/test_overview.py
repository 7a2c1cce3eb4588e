"""The overview of a cluster, live requests, and the commands that show them, over real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conftest import Cluster, UsersCluster, wait_until

# The lease of a node is 5.5 s; then comes a collection, on a busy machine.
DEAD_WITHIN_S = 7.5


def overview(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/api/v1/overview", timeout=15) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def send(url: str, body: bytes | None = None, method: str | None = None) -> tuple[bytes, Any]:
    request = urllib.request.Request(url, data=body, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read(), answer.headers


def put(url: str, body: bytes) -> None:
    """A PUT that follows the redirect to the owner, which urllib does not."""

    class Kept(urllib.request.HTTPRedirectHandler):
        def redirect_request(  # type: ignore[override]
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> urllib.request.Request:
            return urllib.request.Request(newurl, data=req.data, method=req.get_method())

    request = urllib.request.Request(url, data=body, method="PUT")
    urllib.request.build_opener(Kept).open(request, timeout=20).read()


def make_bucket(cluster: Cluster, name: str) -> None:
    send(
        f"{cluster.endpoint}/v1/buckets/{name}",
        json.dumps({"action": "create-bck"}).encode(),
        "POST",
    )


@contextlib.contextmanager
def events(url: str) -> Iterator[Callable[[], list[tuple[str, Any]]]]:
    """Reads server-sent events in a thread; the function returns those so far."""
    seen: list[tuple[str, Any]] = []
    answer = urllib.request.urlopen(url, timeout=30)
    assert answer.headers["content-type"] == "text/event-stream"

    def read() -> None:
        name = ""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for raw in answer:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    seen.append((name, json.loads(line.removeprefix("data: "))))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield lambda: list(seen)
    finally:
        # Unblocks the thread.
        answer.fp.raw._sock.shutdown(2)
        thread.join(5)


def test_figures_of_a_known_load_are_exact(cluster: Cluster) -> None:
    make_bucket(cluster, "known")
    body = b"x" * 1000
    for n in range(8):
        put(f"{cluster.endpoint}/v1/objects/known/o{n}", body)
    time.sleep(7)
    assert overview(cluster.endpoint)["cluster"]["hit_rate"] is None
    reads, writes = 60, 5
    for n in range(reads):
        send(f"{cluster.endpoint}/v1/objects/known/o{n % 8}")
    for n in range(writes):
        put(f"{cluster.endpoint}/v1/objects/known/o{n}", body)

    def counts(rates: dict[str, Any]) -> tuple[int, ...]:
        # The window is 5 s but for the jitter of its samples, far less than one request.
        per_s = ("requests_per_s", "read_bytes_per_s", "written_bytes_per_s", "hits_per_s")
        found = [rates[name] * shown["interval_s"] for name in per_s]
        return (round(found[0]), round(found[1] / 1000), round(found[2] / 1000), round(found[3]))

    expected = (reads + writes, reads, writes, reads)
    shown: dict[str, Any] = {}

    def is_shown() -> bool:
        nonlocal shown
        shown = overview(cluster.endpoint)
        return counts(shown["cluster"]) == expected

    wait_until(is_shown, f"{expected} in the overview", 5)
    (bucket,) = (b for b in shown["buckets"] if b["name"] == "known")
    assert (bucket["provider"], bucket["uri"]) == ("ais", "ais://known")
    assert counts(bucket) == expected
    (client,) = (c for c in shown["clients"] if c["client"] == "127.0.0.1")
    assert counts(client)[:3] == (reads + writes, reads, writes)
    assert shown["cluster"]["hit_rate"] == 1.0
    assert 0 < shown["cluster"]["p50_s"] <= shown["cluster"]["p99_s"] < 5
    assert len(shown["nodes"]) == 4 and all(node["answered"] for node in shown["nodes"])
    assert sum(node["leads"] for node in shown["nodes"]) == 1
    assert all(len(node["disks"]) >= 1 for node in shown["nodes"] if node["role"] == "target")
    assert shown["alerts"] == []


def test_the_live_overview_comes_every_second(cluster: Cluster) -> None:
    with events(f"{cluster.endpoint}/api/v1/overview/live") as seen:
        start = time.monotonic()
        wait_until(lambda: len(seen()) >= 4, "four overviews", 12)
        assert time.monotonic() - start > 1.5
        assert {name for name, _ in seen()} == {"overview"}
        first = seen()[0][1]
        assert set(first) == set(overview(cluster.endpoint))


def test_a_live_request_has_the_id_of_the_answer(cluster: Cluster) -> None:
    make_bucket(cluster, "seen")
    put(f"{cluster.endpoint}/v1/objects/seen/a/b", b"hello")
    with events(f"{cluster.endpoint}/api/v1/requests/live?bucket=seen&min_ms=0") as seen:
        # The streams of the other nodes begin within a second.
        ids: set[str] = set()

        def shown() -> list[Any]:
            body, headers = send(f"{cluster.endpoint}/v1/objects/seen/a/b?token=secret")
            assert body == b"hello"
            ids.add(headers["forebay-request-id"])
            requests = [data for name, data in seen() if name == "request"]
            return [r for r in requests if r["request_id"] in ids and r["status"] == 200]

        wait_until(lambda: bool(shown()), "the request in the stream", 10)
        request = shown()[0]
        assert (request["bucket"], request["object"]) == ("ais://seen", "a/b")
        assert (request["api"], request["operation"]) == ("v1", "get")
        assert (request["client"], request["bytes"]) == ("127.0.0.1", 5)
        assert request["node"] in {target["id"] for target in cluster.targets}
        assert 0 < request["duration_s"] < 10
        assert "secret" not in json.dumps(seen())
    with events(f"{cluster.endpoint}/api/v1/requests/live?failed=true") as seen:

        def failed() -> list[Any]:
            with contextlib.suppress(urllib.error.HTTPError):
                send(f"{cluster.endpoint}/v1/objects/seen/missing")
            return [data for name, data in seen() if name == "request"]

        wait_until(lambda: bool(failed()), "the failed request in the stream", 10)
        assert {request["status"] for request in failed()} == {404}


def test_only_an_admin_watches_requests(users_without_tls: UsersCluster) -> None:
    for name, expected in [("root", 200), ("writer", 403), ("reader", 403), ("stranger", 403)]:
        url = f"{users_without_tls.endpoint}/api/v1/requests/live"
        token = users_without_tls.token_of(name)
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.status == expected, name
        except urllib.error.HTTPError as e:
            assert e.code == expected, name


def run(binary: Path, cluster: Cluster, *args: str) -> str:
    command = [str(binary), "--endpoint", cluster.endpoint, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_top_prints_tables_and_json(cluster: Cluster, forebay_bin: Path) -> None:
    text = run(forebay_bin, cluster, "top", "--once")
    assert text.startswith("4 of 4 nodes answer   ")
    for target in cluster.targets:
        assert re.search(rf"(?m)^{target['id']} +target +alive ", text), text
    assert "\x1b" not in text
    # Without a terminal it prints once, too.
    assert run(forebay_bin, cluster, "top").startswith("4 of 4 nodes answer   ")
    document = json.loads(run(forebay_bin, cluster, "top", "--json"))
    assert {node["id"] for node in document["nodes"]} >= {t["id"] for t in cluster.targets}


def test_trace_prints_requests(cluster: Cluster, forebay_bin: Path) -> None:
    make_bucket(cluster, "traced")
    put(f"{cluster.endpoint}/v1/objects/traced/o", b"hello")
    command = [str(forebay_bin), "--endpoint", cluster.endpoint, "trace", "--bucket", "traced"]
    command += ["--count", "2", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < end:
            send(f"{cluster.endpoint}/v1/objects/traced/o")
            time.sleep(0.05)
        out, _ = process.communicate(timeout=5)
    finally:
        process.kill()
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 2 and {line["bucket"] for line in lines} == {"ais://traced"}


def test_watch_lists_again(cluster: Cluster, forebay_bin: Path) -> None:
    command = [str(forebay_bin), "--endpoint", cluster.endpoint, "disk", "ls", "--watch=0.3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        titles = 0
        while titles < 3:
            line = process.stdout.readline()
            assert line, "the command ended"
            titles += line.startswith("TARGET") or line.startswith("NODE")
    finally:
        process.kill()
        process.communicate()


def at_terminal(
    command: list[str], keys: list[tuple[str, bytes]], deadline_s: float = 30
) -> tuple[int, str]:
    """Runs a command at a terminal of 100 x 30; sends each key once its text is on the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    seen, waiting, since = "", list(keys), 0
    end = time.monotonic() + deadline_s
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    chunk = os.read(terminal, 1 << 16)
                except OSError:
                    break
                if not chunk:
                    break
                seen += chunk.decode(errors="replace")
            if waiting and waiting[0][0] in seen[since:]:
                since = len(seen)
                os.write(terminal, waiting.pop(0)[1])
        assert not waiting, f"{waiting[0][0]!r} did not appear in {seen!r}"
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), seen
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(terminal)


def test_top_fills_a_terminal_until_q(cluster: Cluster, forebay_bin: Path) -> None:
    command = [str(forebay_bin), "--endpoint", cluster.endpoint, "top", "--interval", "0.3"]
    keys = [(cluster.targets[0]["id"], b"d"), ("DISK", b"?"), ("Any key returns", b"q")]
    code, seen = at_terminal(command, keys)
    assert code == 0
    # The screen of before comes back, with its cursor.
    assert "\x1b[?1049h" in seen and "\x1b[?1049l" in seen


def test_a_killed_target_is_silent_immediately_and_then_dead(
    start_cluster: Callable[..., Cluster],
) -> None:
    running = start_cluster(targets=3)
    wait_until(
        lambda: all(node["answered"] for node in overview(running.endpoint)["nodes"]),
        "answers of all nodes",
    )
    victim = running.targets[1]
    os.kill(victim["pid"], signal.SIGKILL)
    killed = time.monotonic()

    def row() -> tuple[dict[str, Any], list[str]]:
        shown = overview(running.endpoint)
        (node,) = (node for node in shown["nodes"] if node["id"] == victim["id"])
        return node, [alert["name"] for alert in shown["alerts"]]

    wait_until(lambda: not row()[0]["answered"], "the killed target as silent", 3)
    assert len(overview(running.endpoint)["nodes"]) == 4
    wait_until(lambda: row()[0]["state"] == "down", "the killed target as down", DEAD_WITHIN_S)
    assert time.monotonic() - killed < DEAD_WITHIN_S
    wait_until(lambda: "ForebayTargetDead" in row()[1], "the alert", 3)
