"""No cluster at hand: one server per user and machine, found or started."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay_cluster import metrics_of, wait_until
from forebay_fixture import binary

import forebay
from forebay import local
from forebay.config import LocalSettings, find_ca_file, find_endpoint, local_settings, notices_enabled
from forebay.notices import format_size

JOIN = "import forebay; print(forebay.Client().endpoint)"
UNSET = ("FOREBAY_ENDPOINT", "AIS_ENDPOINT", "FOREBAY_LOCAL", "FOREBAY_NOTICES", "XDG_CONFIG_HOME")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache and no settings, in this process and in those that it starts."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FOREBAY_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("FOREBAY_BIN", str(binary()))
    monkeypatch.setenv("FOREBAY_LOCAL_SIZE", "1GiB")
    yield tmp_path
    server = local.LocalServer(local.default_folder())
    server.leave()
    server.stop()


def run(code: str = JOIN) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


def server() -> local.LocalServer:
    return local.LocalServer(local.default_folder())


def test_an_endpoint_is_looked_for_in_the_documented_order(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_endpoint() is None
    (home / "config.toml").write_text('endpoint = "http://file:1/"\n[local]\nsize = "5GiB"\n')
    assert find_endpoint() == "http://file:1"
    monkeypatch.setenv("AIS_ENDPOINT", "http://ais:2/")
    assert find_endpoint() == "http://ais:2"
    monkeypatch.setenv("FOREBAY_ENDPOINT", "http://env:3")
    assert find_endpoint() == "http://env:3"
    assert find_endpoint("http://argument:4") == "http://argument:4"
    assert forebay.Client("http://argument:4").endpoint == "http://argument:4"
    monkeypatch.delenv("FOREBAY_LOCAL_SIZE")
    assert local_settings() == LocalSettings(size="5GiB")
    monkeypatch.setenv("FOREBAY_LOCAL_SIZE", "7GiB")
    assert local_settings().size == "7GiB"


def test_a_profile_has_an_endpoint_and_cas_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text(
        'endpoint = "http://file:1"\nca_file = "/all.pem"\n'
        '[profile.lab]\nendpoint = "https://lab:2/"\n'
        '[profile.prod]\nendpoint = "https://prod:3"\nca_file = "/prod.pem"\n[profile.none]\n'
    )
    monkeypatch.setenv("FOREBAY_PROFILE", "lab")
    assert (find_endpoint(), find_ca_file()) == ("https://lab:2", "/all.pem")
    monkeypatch.setenv("FOREBAY_PROFILE", "prod")
    assert (find_endpoint(), find_ca_file()) == ("https://prod:3", "/prod.pem")
    # An endpoint that is named is not that of the profile, nor are the CAs.
    assert find_ca_file(endpoint="http://argument:4") == "/all.pem"
    monkeypatch.setenv("FOREBAY_ENDPOINT", "http://env:5")
    assert (find_endpoint(), find_ca_file()) == ("http://env:5", "/all.pem")
    monkeypatch.delenv("FOREBAY_ENDPOINT")
    monkeypatch.setenv("FOREBAY_PROFILE", "none")
    with pytest.raises(ValueError, match="profile.none has no endpoint"):
        find_endpoint()
    monkeypatch.setenv("FOREBAY_PROFILE", "lba")
    with pytest.raises(ValueError, match="the profiles are lab, prod, none"):
        find_endpoint()


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, 1),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, 1),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, 2),
        ({"SLURM_PROCID": "0", "SLURM_JOB_NUM_NODES": "3"}, 3),
        # In an allocation, but not a rank of a job.
        ({"SLURM_JOB_NUM_NODES": "3"}, 1),
        ({"WORLD_SIZE": "many", "LOCAL_WORLD_SIZE": "1"}, 1),
    ],
)
def test_the_hosts_of_a_job_are_known_by_its_launcher(
    environment: dict[str, str], hosts: int
) -> None:
    assert local.hosts_of_job(environment) == hosts


def test_a_job_of_several_hosts_without_an_endpoint_is_warned(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="every host would read everything from the cloud by itself"):
        forebay.Client()


@pytest.mark.parametrize("bad", ["endpoint = 5", "[local]\nsiez = '1'", "local = 1", "a =", "notices = 'no'"])
def test_a_configuration_that_makes_no_sense_is_named(home: Path, bad: str) -> None:
    (home / "config.toml").write_text(bad)
    with pytest.raises(ValueError, match="config.toml"):
        find_endpoint()
        local_settings()
        notices_enabled()


def test_client_without_an_endpoint_starts_one_server_and_uses_it(home: Path) -> None:
    client = forebay.Client()
    bucket = client.bucket("b").create()
    bucket.object("o").put(b"here")
    assert forebay.Client() == client
    other = run(
        "import forebay; c = forebay.Client();"
        "print(c.endpoint, c.bucket('b').object('o').get().read_all())"
    )
    out, err = other.communicate(timeout=60)
    assert out == f"{client.endpoint} b'here'\n", err
    folder = local.default_folder()
    assert folder.parent == home / "forebay"
    assert server().running() == local.Running(
        client.endpoint, json.loads((folder / "serve.json").read_text())["pid"]
    )
    assert (folder / "log").stat().st_size > 0
    (target,) = [n for n in client.cluster().info()["nodes"] if n["role"] == "target"]
    running = server().running()
    assert running is not None
    figures = metrics_of(target["url"], running.token)
    budget = [v for n, has, v in figures if n == "forebay_store_budget_bytes"]
    assert budget == [1 << 30], "the folder is limited in size"


def test_concurrent_starts_of_many_processes_make_one_server(home: Path) -> None:
    starts = [run() for _ in range(6)]
    outcomes = [start.communicate(timeout=120) for start in starts]
    assert len({out for out, _ in outcomes}) == 1, outcomes
    assert outcomes[0][0].startswith("http://127.0.0.1:"), outcomes


def test_after_kill_9_the_next_client_starts_it_again_with_its_data(home: Path) -> None:
    bucket = forebay.Client().bucket("b").create()
    bucket.object("o").put(b"kept")
    before = server().running()
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    wait_until(lambda: server().running() is None, "it is gone", 20)
    again = forebay.Client()
    after = server().running()
    assert after is not None and after.pid != before.pid
    assert again.bucket("b").object("o").get().read_all() == b"kept"


def test_a_starter_that_is_killed_leaves_nothing_that_blocks_others(home: Path) -> None:
    folder = local.default_folder()
    folder.mkdir(parents=True)
    stuck = run(
        "import time; from forebay import file_lock, local\n"
        "with file_lock.exclusive(local.default_folder() / 'start', time.monotonic() + 9):\n"
        "    print('in', flush=True); time.sleep(600)"
    )
    assert stuck.stdout is not None and stuck.stdout.readline() == "in\n"
    stuck.kill()
    stuck.communicate()
    assert forebay.Client().endpoint


def test_it_stops_by_itself_when_nobody_uses_it_and_not_before(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_LOCAL_IDLE_STOP", "1s")
    user = run(
        "import forebay, time; print(forebay.Client().endpoint, flush=True); time.sleep(600)"
    )
    assert user.stdout is not None
    endpoint = user.stdout.readline().strip()
    time.sleep(2.5)
    running = server().running()
    assert running is not None and running.endpoint == endpoint, "its user only thinks"
    user.kill()
    user.communicate()
    wait_until(lambda: server().running() is None, "it stops", 20)
    assert not (local.default_folder() / "serve.json").exists()
    assert forebay.Client().bucket("b").create(exist_ok=True)


def test_a_forked_child_uses_the_server_as_its_parent_did(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_LOCAL_IDLE_STOP", "1s")
    code = """
import os, sys, time, forebay
bucket = forebay.Client().bucket("b").create()
bucket.object("o").put(b"x")
if os.fork():
    os._exit(0)                      # the child outlives its parent, and the idle time
time.sleep(3)
print(bucket.object("o").get().read_all(), forebay.Client() == bucket.client)
"""
    out, err = run(code).communicate(timeout=60)
    assert out == "b'x' True\n", err


def test_a_client_of_the_local_server_pickles_as_such(home: Path) -> None:
    code = (
        "import multiprocessing as m, forebay\n"
        "def main():\n"
        "    b = forebay.Client().bucket('b').create(); b.object('o').put(b'x')\n"
        "    with m.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(forebay.Object.head, [b.object('o')]).size)\n"
        "if __name__ == '__main__': main()\n"
    )
    script = home / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n", done.stderr


def test_a_missing_program_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_BIN", str(home / "nothing"))
    with pytest.raises(FileNotFoundError, match="FOREBAY_BIN=.*nothing"):
        forebay.Client()
    monkeypatch.delenv("FOREBAY_BIN")
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(home))
    monkeypatch.setattr("sys.executable", str(home / "python"))
    with pytest.raises(FileNotFoundError, match="set FOREBAY_ENDPOINT"):
        forebay.Client()


def test_a_server_of_ones_own_can_be_forbidden(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_LOCAL", "off")
    with pytest.raises(forebay.ClusterUnavailable, match="FOREBAY_ENDPOINT"):
        forebay.Client()
    assert not local.default_folder().exists()


def test_a_server_that_does_not_start_says_why(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_LOCAL_IDLE_STOP", "soon")
    with pytest.raises(forebay.ClusterUnavailable, match='invalid duration "soon"|soon'):
        forebay.Client()


def test_other_cloud_settings_than_the_servers_are_warned_of(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forebay.Client()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.warns(RuntimeWarning, match="other cloud settings"):
        forebay.Client()
    assert "somebody" not in (local.default_folder() / "clouds").read_text()


def test_the_command_starts_shows_and_stops_it(home: Path) -> None:
    def command(*arguments: str) -> str:
        line = [sys.executable, "-m", "forebay.local", *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=60).stdout

    endpoint = command().strip()
    assert endpoint.startswith("http://127.0.0.1:")
    assert command("status").startswith(f"{endpoint} (process ")
    assert (command("stop"), command("status")) == ("stopped\n", "there is none\n")


MISSING = """
import forebay
c = forebay.Client()
try: c.bucket("none").list_snapshot()
except forebay.NotFound as error: print(c.endpoint, error)
"""


def test_a_server_of_ones_own_is_named_on_stderr_and_where_a_bucket_is_missing(home: Path) -> None:
    first, second = (run(MISSING).communicate(timeout=60) for _ in range(2))
    for (out, err), how in ((first, "started"), (second, "using")):
        endpoint, _, message = out.partition(" ")
        (line,) = err.splitlines()
        assert line.startswith(f"forebay: no endpoint is set: {how} a server of your own at {endpoint}")
        assert f"with at most 1 GiB of data in {local.default_folder()};" in line
        assert "set FOREBAY_ENDPOINT to use a cluster" in line
        assert "none" in message and f"cluster at {endpoint}, a server of your own" in message
    other = MISSING.replace("Client()", f"Client({endpoint!r})")
    out, err = run(other).communicate(timeout=60)
    assert "none" in out and "of your own" not in out and err == ""


def test_the_notice_about_a_server_of_ones_own_is_hidden_by_argument_environment_and_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def notice(arguments: str) -> str:
        return run(f"import forebay; forebay.Client({arguments})").communicate(timeout=60)[1]

    assert notice("notices=False") == ""
    assert "using a server of your own" in notice("")
    (home / "config.toml").write_text("notices = false\n")
    assert notice("") == ""
    monkeypatch.setenv("FOREBAY_NOTICES", "on")
    assert "using a server of your own" in notice("")
    monkeypatch.setenv("FOREBAY_NOTICES", "off")
    assert notice("") == ""
    assert "using a server of your own" in notice("notices=True")


def test_a_copy_of_a_client_hides_notices_as_the_client_does(home: Path) -> None:
    code = "import forebay, pickle; pickle.loads({pickled!r}).with_retry(forebay.Retry())"
    pickled = pickle.dumps(forebay.Client(notices=False).with_retry(forebay.Retry()))
    assert run(code.format(pickled=pickled)).communicate(timeout=60)[1] == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(20 << 30, "20 GiB"), (1 << 40, "1 TiB"), (1536 << 20, "1.5 GiB"), (10_000_000, "9.54 MiB"), (1023 << 20, "1023 MiB"), (2048, "2 KiB"), (9, "9 bytes")],
)
def test_sizes_have_a_unit_that_people_read(size: int, text: str) -> None:
    assert format_size(size) == text
