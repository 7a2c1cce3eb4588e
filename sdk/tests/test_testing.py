"""`forebay.testing`: a real server in users' unit tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from forebay_cluster import first_panic, wait_until
from forebay_fixture import binary

import forebay
from forebay.testing import Cluster


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_BIN", str(binary()))


def listens(endpoint: str) -> bool:
    host, _, port = endpoint.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_cluster_runs_for_a_block_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "window").mkdir()
    (tmp_path / "window/a").write_bytes(b"from disk")
    with Cluster(folder_roots=[tmp_path]) as one, Cluster() as other:
        bucket = one.bucket("b")
        bucket.object("o").put(b"x")
        assert bucket.object("o").get().read_all() == b"x"
        window = one.client().bucket("w").create(folder=tmp_path / "window")
        assert window.object("a").get().read_all() == b"from disk"
        with pytest.raises(forebay.NotFound):
            other.client().bucket("b").head()
        endpoints, folder = [one.endpoint, other.endpoint], one._server
    assert folder is not None and not folder.folder.exists()
    assert not any(map(listens, endpoints))
    with pytest.raises(ValueError, match="does not run"):
        one.endpoint


def test_a_users_tests_need_two_lines(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["forebay.testing.fixtures"]\n')
    (tmp_path / "test_mine.py").write_text(
        "import forebay\n"
        "def test_mine(forebay_bucket):\n"
        "    forebay_bucket.object('o').put(b'x')\n"
        ""
        "    assert [name for name, _ in forebay_bucket.list_snapshot()] == ['o']\n"
        "def test_each_test_has_its_own(forebay_bucket, forebay_client):\n"
        "    assert len(forebay_bucket.list_snapshot()) == 0\n"
        "    assert forebay.Client().endpoint == forebay_client.endpoint\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    env = {k: v for k, v in os.environ.items() if k != "FOREBAY_ENDPOINT"}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_server_ends_although_its_starter_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom forebay.testing import Cluster\n"
        "c = Cluster().start(); print(c.endpoint, flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert starter.stdout is not None
    endpoint = starter.stdout.readline().strip()
    assert listens(endpoint)
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    wait_until(lambda: not listens(endpoint), "the server ends", 30)


def test_a_server_that_panicked_fails_the_test_that_saw_nothing_of_it() -> None:
    cluster = Cluster().start()
    server = cluster._server
    assert server is not None
    with server.log.open("a") as log:
        log.write("\nthread 'worker' (7) panicked at src/lib.rs:1:2:\nwhy it did\n")
    with pytest.raises(RuntimeError, match="(?s)panicked.*why it did"):
        cluster.stop()
    assert not server.folder.exists()


def test_a_panic_in_the_log_of_any_node_is_found() -> None:
    assert first_panic("INFO target listens\n") is None
    assert first_panic("a\nthread 'x' panicked at b:\nwhy\n") == "thread 'x' panicked at b:\nwhy"
