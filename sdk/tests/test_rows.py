"""Rows of the table of features, each with what must be true in its name."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import free_ports
from forebay_fixture import binary, python

import forebay
from forebay import Listing
from forebay.testing import Cluster


class Proxy:
    """A gateway and a target in front of real ones; the target may refuse what is too much."""

    def __init__(self, cluster: Cluster) -> None:
        nodes = cluster.client().cluster().map()["nodes"]
        (self.target,) = [n["url"] for n in nodes.values() if n["role"] == "target"]
        self.gateway = cluster.endpoint
        self.url = f"http://127.0.0.1:{free_ports(1)}"
        self.most = 10**9
        self.retry_after: str | None = None
        self.times: list[float] = []
        self.statuses: list[int] = []
        self.out = 0
        self.lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                answer = proxy.answer(self, body)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do

            def log_message(self, *_: Any) -> None:
                pass

        port = int(self.url.rpartition(":")[2])
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Status, headers and content; None if the answer was sent already."""
        if "/objects/" not in request.path:
            status, headers, content = self.forward(self.gateway, request, body)
            return status, headers, content.replace(self.target.encode(), self.url.encode())
        with self.lock:
            self.times.append(time.monotonic())
            refused = self.out >= self.most
            self.out += not refused
            self.statuses.append(429 if refused else 200)
        if refused:
            wait = [("retry-after", self.retry_after)] if self.retry_after else []
            return 429, wait, b""
        try:
            time.sleep(0.02)
            return self.forward(self.target, request, body)
        finally:
            with self.lock:
                self.out -= 1

    @staticmethod
    def forward(url: str, request: Any, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        skipped = {"host", "content-length", "connection", "transfer-encoding"}
        headers = {k: v for k, v in request.headers.items() if k.lower() not in skipped}
        asked = urllib.request.Request(
            url + request.path, body or None, headers, method=request.command
        )
        try:
            reply = urllib.request.urlopen(asked, timeout=20)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            kept = [(k, v) for k, v in reply.headers.items() if k.lower() not in skipped]
            return reply.status, kept, reply.read()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setenv("FOREBAY_BIN", str(binary()))
    with Cluster() as cluster:
        proxy = Proxy(cluster)
        yield proxy
        proxy.server.shutdown()


def test_a_client_that_gets_429_slows_down_and_does_not_fail(proxy: Proxy) -> None:
    bucket = forebay.Client(proxy.url, timeout=20).bucket("b").create()
    proxy.most = 3
    count = 150
    assert bucket.put_many(((f"o{i}", b"x") for i in range(count)), concurrency=32) == count
    refused = proxy.statuses.count(429)
    assert 0 < refused, "32 at once were too many"
    late = proxy.statuses[len(proxy.statuses) // 2 :]
    assert late.count(429) < 0.4 * len(late), "once it has slowed down it is seldom refused"
    assert len(bucket.list_snapshot()) == count


def test_the_error_in_the_end_names_the_setting_to_change(proxy: Proxy) -> None:
    bucket = forebay.Client(proxy.url, timeout=1).bucket("b").create()
    proxy.most = 0
    with pytest.raises(forebay.TooManyRequests, match="concurrency") as caught:
        bucket.object("o").put(b"x")
    assert caught.value.status == 429
    assert len(proxy.times) > 1


def test_429_honours_retry_after(proxy: Proxy) -> None:
    bucket = forebay.Client(proxy.url, timeout=2).bucket("b").create()
    proxy.most, proxy.retry_after = 0, "1"
    with pytest.raises(forebay.TooManyRequests):
        bucket.object("o").put(b"x")
    pauses = [two - one for one, two in itertools.pairwise(proxy.times)]
    # The last one ends with the deadline.
    assert pauses and pauses[0] >= 1.0


def test_handles_pickle_equal_and_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-word")
    bucket = forebay.Client("http://h:1").bucket("b", "s3")
    for handle in (bucket.client, bucket, bucket.object("o"), bucket.objects(["o"])):
        assert pickle.loads(pickle.dumps(handle)) == handle
        assert b"hidden-word" not in pickle.dumps(handle)
        assert "hidden-word" not in repr(handle)


def test_sources_are_hashable_picklable_and_may_be_mixed() -> None:
    client = forebay.Client("http://h:1")
    sources = [
        client.bucket("b"),
        client.bucket("b", "s3"),
        client.bucket("b", "gs").objects(["x"]),
        client.bucket("b").objects(template="shard-{0000..0099}.tar"),
    ]
    assert pickle.loads(pickle.dumps({source: i for i, source in enumerate(sources)})) == {
        source: i for i, source in enumerate(sources)
    }


def test_a_bucket_half_cached_or_changed_behind_the_cluster_reads_through(
    client: forebay.Client, cluster: Any
) -> None:
    folder: Path = cluster.folder_root / "ai2"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_bytes(name.encode())
    bucket = client.bucket("ai2").create(folder=folder)
    try:
        assert bucket.create(exist_ok=True) is bucket
        assert bucket.object("a").get().read_all() == b"a"
        assert bucket.get_many(["a", "b", "c"]) == [b"a", b"b", b"c"], "half of it was cached"
        bucket.evict(["b"]).wait(20)
        (folder / "b").write_bytes(b"changed")
        assert bucket.get_many(["a", "b"]) == [b"a", b"changed"]
    finally:
        bucket.delete()


def private_dirty(listing_bytes: int) -> int:
    """KiB that this process has of its own, of mappings as large as a listing's buffers."""
    total, size = 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1])
        elif line.startswith("Private_Dirty:") and size * 1024 > listing_bytes // 8:
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_forked_workers_share_a_listing_of_a_million_without_copies() -> None:
    # In a fresh process: what other tests left in this one is written to by its children.
    code = "import test_rows; test_rows.fork_over_a_listing_of_a_million()"
    found = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": found}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def fork_over_a_listing_of_a_million() -> None:
    count = 1_000_000
    listing = Listing.from_pairs((f"train/{i:07}.jpg", i) for i in range(count))
    held = sum(sys.getsizeof(getattr(listing, slot)) for slot in Listing.__slots__)
    assert held <= count * (64 + len("train/0000000.jpg"))
    reader, writer = os.pipe()
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            before = private_dirty(held)
            total = sum(listing[i][1] for i in range(0, count, 3))
            assert total > 0
            os.write(writer, f"{private_dirty(held) - before}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    grown = [int(line) for line in os.read(reader, 4096).decode().split()]
    assert len(grown) == 8
    # Memory that the interpreter itself writes to is in there, too: 8 copies would be 8 times `held`.
    assert sum(grown) * 1024 < 0.5 * held, grown


def hundred_reads(bucket: forebay.Bucket) -> int:
    return sum(len(bucket.object("o").get().read_all()) for _ in range(5))


def test_a_hundred_forks_in_a_loop(bucket: forebay.Bucket) -> None:
    bucket.object("o").put(b"x")
    assert hundred_reads(bucket) == 5
    context = multiprocessing.get_context("fork")
    for _ in range(100):
        child = context.Process(target=hundred_reads, args=(bucket,))
        child.start()
        child.join(30)
        assert child.exitcode == 0
    assert hundred_reads(bucket) == 5


def test_the_endpoint_comes_from_argument_environment_and_file_in_a_worker_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "c.toml").write_text('endpoint = "http://file:1"\n')
    code = (
        "import os, multiprocessing as m, forebay\n"
        "def f(): return forebay.Client().endpoint\n"
        "with m.get_context('fork').Pool(1) as pool: print(f(), pool.apply(f))\n"
    )
    for extra, expected in [
        ("", "http://file:1"),
        ("os.environ['FOREBAY_ENDPOINT'] = 'http://env:2'\n", "http://env:2"),
    ]:
        head = (
            "import os\nfor n in ('FOREBAY_ENDPOINT', 'AIS_ENDPOINT'): os.environ.pop(n, None)\n"
            f"os.environ['FOREBAY_CONFIG'] = {str(tmp_path / 'c.toml')!r}\n{extra}"
        )
        done = python(head + code)
        assert done.stdout == f"{expected} {expected}\n", done.stderr


@pytest.mark.parametrize(
    ("system", "machine", "advice"),
    [
        ("darwin", "arm64", "install its client from the source package"),
        ("win32", "AMD64", "use it in a container"),
        ("linux", "riscv64", "use it in a container"),
    ],
)
def test_other_platforms_get_a_sentence(system: str, machine: str, advice: str) -> None:
    from forebay._platform import explain

    text = explain(ImportError("no"), system, machine)
    assert "Linux on x86-64 and aarch64" in text and f"{system} on {machine}" in text
    assert advice in text


def test_a_core_that_is_missing_on_linux_is_named() -> None:
    done = python("import sys; sys.modules['forebay._core'] = None; import forebay")
    assert "ImportError: the native core of forebay cannot be loaded" in done.stderr


def test_a_system_without_a_server_says_at_import_that_an_endpoint_is_needed() -> None:
    code = "import sys; sys.platform = 'darwin'; import forebay; print('imported')"
    without = python(f"import os; os.environ.pop('FOREBAY_ENDPOINT', None)\n{code}")
    sentence = "forebay: no server can be started on darwin: set FOREBAY_ENDPOINT to a cluster"
    assert without.stdout == "imported\n" and without.stderr.startswith(sentence), without.stderr
    for setting in ("'FOREBAY_ENDPOINT'] = 'http://c:7400'", "'FOREBAY_NOTICES'] = 'off'"):
        done = python(f"import os; os.environ[{setting}\n{code}")
        assert (done.stdout, done.stderr) == ("imported\n", "")


def test_import_of_the_package_leaves_asyncio_and_torch_alone() -> None:
    code = (
        "import sys, forebay; print({'asyncio', 'torch', 'numpy'} & set(sys.modules));"
        "print(forebay.AsyncClient.__name__, 'asyncio' in sys.modules)"
    )
    assert python(code).stdout == "set()\nAsyncClient True\n"
