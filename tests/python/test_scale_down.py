"""`forebay node prestop`: a target is drained when its StatefulSet has no place for it, and keeps its
data at every other stop. Real nodes; the Kubernetes API is a server for one object. The cases beside the main one
run by `make test-long`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import Cluster, wait_until
from forebay_kubernetes import StandIn, environment, of_replicas, stand_in
from forebay_skips import long
from forebay_users import UsersCluster, configuration

OBJECTS = 60
SET = "target"
LAST = 3
UNAVAILABLE = 7
CONFLICT = 6


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandIn]:
    """The API of Kubernetes, without StatefulSets."""
    with stand_in(tmp_path) as running:
        yield running


def four(start_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of four targets with objects in a bucket of one copy and in one of two."""
    cluster = start_cluster(targets=4)
    command(cluster, "mb", "ais://once")
    command(cluster, "mb", "ais://twice")
    command(cluster, "bucket", "set", "ais://twice", "copies=2")
    for bucket in ("once", "twice"):
        for n in range(OBJECTS):
            put(cluster, bucket, n)
    return cluster


def command(cluster: Cluster, *words: str) -> str:
    """The output of a command, which succeeds."""
    env = {**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint}
    program = shlex.split((folder_of(cluster, LAST) / "cmd").read_text())[0]
    done = subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def url_of(cluster: Cluster, bucket: str, n: int) -> str:
    return f"{cluster.endpoint}/v1/objects/{bucket}/o{n}"


def put(cluster: Cluster, bucket: str, n: int) -> None:
    """Writes an object as a client does that follows redirects."""
    url = url_of(cluster, bucket, n)
    for _ in range(2):
        request = urllib.request.Request(url, data=content(n), method="PUT")
        try:
            urllib.request.urlopen(request, timeout=10).close()
            return
        except urllib.error.HTTPError as redirect:
            assert redirect.code == 307, redirect.read()
            url = redirect.headers["Location"]
    pytest.fail("two redirects")


def content(n: int) -> bytes:
    return f"object {n} ".encode() * 100


def check_all(cluster: Cluster) -> None:
    """All objects are readable with their content."""
    for bucket in ("once", "twice"):
        for n in range(OBJECTS):
            with urllib.request.urlopen(url_of(cluster, bucket, n), timeout=10) as answer:
                assert answer.read() == content(n), (bucket, n)


def folder_of(cluster: Cluster, ordinal: int) -> Path:
    return cluster.folder / str(cluster.targets[ordinal]["id"])


def log_of(cluster: Cluster, ordinal: int) -> str:
    return (folder_of(cluster, ordinal) / "log").read_text(errors="replace")


def prestop(
    cluster: Cluster, api: StandIn, ordinal: int, *options: str, config: Path | None = None, name: str = SET
) -> subprocess.CompletedProcess[str]:
    """Runs the command as in the pod of this ordinal."""
    folder = folder_of(cluster, ordinal)
    words = [shlex.split((folder / "cmd").read_text())[0], "node", "prestop"]
    words += ["--config", str(config or folder / "forebay.toml"), "--statefulset", name]
    words += ["--kubernetes-dir", str(api.folder), "--delay", "100ms", *options]
    env = {**os.environ, **environment(api), "HOSTNAME": f"{SET}-{ordinal}"}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)


def nodes(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The nodes in the map, by id."""
    with urllib.request.urlopen(f"{cluster.endpoint}/api/v1/map", timeout=10) as answer:
        found: dict[str, dict[str, Any]] = json.load(answer)["state"]["nodes"]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def restarted(cluster: Cluster, ordinal: int) -> Iterator[None]:
    """The process of a target that ended runs again, until the block ends."""
    folder = folder_of(cluster, ordinal)
    words = shlex.split((folder / "cmd").read_text())
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_a_target_without_a_place_moves_its_objects_away_and_leaves_and_may_come_back(
    start_cluster: Callable[..., Cluster], api: StandIn
) -> None:
    cluster = four(start_cluster)
    target = cluster.targets[LAST]
    api.apply(SET, of_replicas(LAST))
    done = prestop(cluster, api, LAST)
    assert done.returncode == 0, done.stderr
    assert "prestop: scale-down: the StatefulSet has the ordinals 0 to 2, without 3" in done.stderr
    assert "all native objects are moved" in done.stderr
    # The kubelet ends what still runs.
    if is_running(target["pid"]):
        os.kill(target["pid"], signal.SIGKILL)
    wait_until(lambda: target["id"] not in nodes(cluster), "the target has left the cluster", 30)
    check_all(cluster)
    log = log_of(cluster, LAST)
    assert "prestop: scale-down: the StatefulSet has the ordinals 0 to 2, without 3" in log
    assert "prestop: all native objects are moved" in log

    # The StatefulSet grows again, with the same disk.
    with restarted(cluster, LAST):
        alive = lambda: nodes(cluster).get(target["id"], {}).get("alive", False)  # noqa: E731
        wait_until(alive, "the target is a member again", 30)
        back = nodes(cluster)[target["id"]]
        assert not back.get("maintenance") and "leaving" not in back
        check_all(cluster)


@long
def test_a_restart_moves_nothing(start_cluster: Callable[..., Cluster], api: StandIn) -> None:
    cluster = four(start_cluster)
    target = cluster.targets[LAST]
    before = nodes(cluster)
    for replicas in (of_replicas(LAST + 1), of_replicas(2, ordinals={"start": 2}), of_replicas(0), None):
        api.apply(SET, replicas)
        started = time.monotonic()
        done = prestop(cluster, api, LAST)
        assert done.returncode == 0 and "prestop: the data stays: " in done.stderr, done.stderr
        assert time.monotonic() - started >= 0.1, "it waits for the delay"
    deleted = of_replicas(LAST)
    deleted["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
    api.apply(SET, deleted)
    assert "the StatefulSet is being deleted" in prestop(cluster, api, LAST).stderr
    assert nodes(cluster) == before, "nothing changes"
    os.kill(target["pid"], signal.SIGTERM)
    wait_until(lambda: not is_running(target["pid"]), "the target ends", 30)
    assert target["id"] in nodes(cluster)
    assert "prestop: the data stays: the StatefulSet has the ordinals 0 to 3" in log_of(cluster, LAST)
    with restarted(cluster, LAST):
        wait_until(lambda: nodes(cluster)[target["id"]]["alive"], "the target is alive again", 30)
        check_all(cluster)


def test_without_an_answer_of_kubernetes_the_data_stays(
    start_cluster: Callable[..., Cluster], api: StandIn, tmp_path: Path
) -> None:
    cluster = start_cluster(targets=2)
    api.apply(SET, of_replicas(1))
    before = nodes(cluster)

    def check(*expected: str, name: str = SET) -> None:
        done = prestop(cluster, api, 1, name=name)
        assert done.returncode == 0, done.stderr
        for text in ("the data stays: whether it is a scale-down is unknown", *expected):
            assert text in done.stderr, done.stderr
        assert nodes(cluster) == before

    api.allows = False
    check("with 403: statefulsets.apps is forbidden", "the verb get on statefulsets")
    check("none of the names", name="other")
    api.folder, folder = tmp_path / "none", api.folder
    check("cannot read")
    api.folder = folder
    api.port, port = 1, api.port
    check("the Kubernetes API at https://127.0.0.1:1 cannot be reached")
    api.port, api.allows = port, True
    (api.folder / "token").write_text("another")
    check("with 401: Unauthorized")


def test_the_last_target_keeps_its_data_and_the_command_fails(
    start_cluster: Callable[..., Cluster], api: StandIn
) -> None:
    cluster = start_cluster(targets=1)
    api.apply(SET, of_replicas(1, ordinals={"start": 1}))
    done = prestop(cluster, api, 0)
    assert done.returncode == CONFLICT, done.stderr
    assert "the only target in use" in done.stderr
    assert not nodes(cluster)[cluster.targets[0]["id"]].get("maintenance")


@long
def test_a_drain_that_was_cut_off_ends_when_the_target_comes_back_but_not_that_of_an_operator(
    start_cluster: Callable[..., Cluster], api: StandIn
) -> None:
    cluster = four(start_cluster)
    target = cluster.targets[LAST]
    other = cluster.targets[0]
    # Objects of a target that is away cannot move, so the drain does not end.
    os.kill(other["pid"], signal.SIGSTOP)
    try:
        api.apply(SET, of_replicas(LAST))
        done = prestop(cluster, api, LAST, "--drain-timeout", "0s")
        assert done.returncode == UNAVAILABLE, done.stderr
        assert "not all objects are moved after 0 s; the data stays" in done.stderr
        assert nodes(cluster)[target["id"]]["leaving"] == "remove"
        os.kill(target["pid"], signal.SIGKILL)
        wait_until(lambda: not is_running(target["pid"]), "the target ends")
    finally:
        os.kill(other["pid"], signal.SIGCONT)
    with restarted(cluster, LAST):
        in_use = lambda: not nodes(cluster)[target["id"]].get("maintenance")  # noqa: E731
        wait_until(in_use, "the target is in use again", 30)
        wait_until(lambda: nodes(cluster)[target["id"]]["alive"], "the target is alive", 30)
        check_all(cluster)
        command(cluster, "node", "drain", str(target["id"]))
    with restarted(cluster, LAST):
        wait_until(lambda: nodes(cluster)[target["id"]]["alive"], "the target is alive again", 30)
        assert nodes(cluster)[target["id"]]["maintenance"], "an operator drained it"


@long
def test_in_a_cluster_with_users_the_key_of_the_target_is_enough_and_counts_for_itself_alone(
    start_cluster: Callable[..., Cluster], api: StandIn, tmp_path: Path
) -> None:
    options = ["--tls", "--config", str(configuration(tmp_path))]
    cluster = start_cluster(targets=3, options=options)
    users = UsersCluster(cluster, tmp_path)
    users.as_admin("mb", "ais://once")
    users.as_admin("put", "-", "ais://once/o", text="the object")
    api.apply(SET, of_replicas(2))
    # The key of one target does not stop another one.
    foreign = cluster.folder / "foreign.toml"
    own = (folder_of(cluster, 2) / "forebay.toml").read_text()
    port = lambda n: str(cluster.targets[n]["url"]).rsplit(":", 1)[1]  # noqa: E731
    foreign.write_text(own.replace(port(2), port(1)))
    refused = prestop(cluster, api, 2, config=foreign)
    assert refused.returncode != 0 and "refused" in refused.stderr, refused.stderr
    done = prestop(cluster, api, 2)
    assert done.returncode == 0, done.stderr
    gone = cluster.targets[2]["id"]
    left = lambda: gone not in users.as_admin("cluster", "info", "-o", "json")  # noqa: E731
    wait_until(left, "the target has left", 30)
    assert users.as_admin("cat", "ais://once/o") == "the object"
