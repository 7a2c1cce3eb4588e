"""Settings of nodes: sources, errors, reload while a node runs, and notifications of its states."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay_cluster import Cluster, free_ports, wait_until

BAD_CONFIG = 2
CONFLICT = 6
NOT_FOUND = 4
START_DEADLINE_S = 60


def run(program: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command of the program, without the settings of the caller."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("FOREBAY_")}
    return subprocess.run(
        [str(program), *args], env={**clean, **env}, capture_output=True, text=True, timeout=60
    )


def settings_of(answer: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    """The settings that `config show -o json` printed, by key."""
    assert answer.returncode == 0, answer.stderr
    return {setting["key"]: setting for setting in json.loads(answer.stdout)}


def test_all_errors_of_a_file_are_printed_with_key_line_and_allowed_values(
    forebay_bin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[cache]\nhigh = "80%"\n[limits]\nbatches = 0\nbatchs = 3\n[log]\nformat = "jsno"\n'
    )
    refused = run(forebay_bin, "config", "validate", str(file))
    assert refused.returncode == BAD_CONFIG
    for expected in (
        f'{file}:2: cache.high: invalid type: string "80%", expected a whole number from 0 to 255',
        f"{file}:5: limits.batchs: unknown field",
        "did you mean `batches`?",
        f"{file}:7: log.format: unknown variant `jsno`",
        "did you mean `json`?",
        f"{file}:4: limits.batches and limits.cold_gets must be at least 1",
    ):
        assert expected in refused.stderr, refused.stderr
    as_json = run(forebay_bin, "config", "validate", str(file), "-o", "json")
    assert as_json.returncode == BAD_CONFIG and len(json.loads(as_json.stdout)["problems"]) == 4
    file.write_text("[cache]\nhigh = 80\nlow = 70\n")
    assert run(forebay_bin, "config", "validate", str(file)).returncode == 0


def test_an_error_in_a_variable_names_it(forebay_bin: Path) -> None:
    refused = run(forebay_bin, "config", "show", FOREBAY_LIMITS__BATCHES="many")
    assert refused.returncode == BAD_CONFIG
    assert "environment FOREBAY_LIMITS__BATCHES: limits.batches: invalid type" in refused.stderr
    assert "expected a whole number" in refused.stderr


def test_show_names_the_source_of_each_value_and_masks_secrets(
    forebay_bin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[log]\nlevel = "debug"\n[[s3.keys]]\naccess = "me"\nsecret = "planted"\n')
    env = {"FOREBAY_CONFIG": str(file), "FOREBAY_LIMITS__BATCHES": "7"}
    shown = settings_of(run(forebay_bin, "config", "show", "-o", "json", **env))
    assert shown["log.level"] == {"key": "log.level", "value": "debug", "origin": f"{file}:2"}
    assert shown["limits.batches"]["origin"] == "environment FOREBAY_LIMITS__BATCHES"
    assert shown["cache.high"]["origin"] == "default"
    assert shown["s3.keys[0].secret"]["value"] == "***"
    table = run(forebay_bin, "config", "show", "--config", str(file), "--origin").stdout
    assert f"{file}:2" in table and "planted" not in table


def test_diff_shows_what_is_no_default_and_what_two_files_have_otherwise(
    forebay_bin: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text("[cache]\nhigh = 80\nlow = 70\n")
    other.write_text("[cache]\nhigh = 80\nlow = 60\n")
    rows = json.loads(run(forebay_bin, "config", "diff", str(one), "-o", "json").stdout)
    assert {row["key"] for row in rows} == {"cache.high", "cache.low"}
    rows = json.loads(run(forebay_bin, "config", "diff", str(one), str(other), "-o", "json").stdout)
    assert rows == [{"key": "cache.low", "first": 70, "second": 60}]


def test_a_secret_comes_from_a_file_that_only_its_owner_can_read(
    forebay_bin: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text('[{access = "me", secret = "planted"}]\n')
    file.chmod(0o600)
    env = {"FOREBAY_S3__KEYS_FILE": str(file)}
    shown = settings_of(run(forebay_bin, "config", "show", "-o", "json", **env))
    assert shown["s3.keys[0].access"]["origin"] == "environment FOREBAY_S3__KEYS_FILE"
    both = run(forebay_bin, "config", "show", FOREBAY_S3__KEYS="[]", **env)
    assert both.returncode == BAD_CONFIG and "are both set" in both.stderr
    file.chmod(0o644)
    refused = run(forebay_bin, "config", "show", **env)
    assert refused.returncode == BAD_CONFIG
    assert f"hint: chmod 600 {file}" in refused.stderr and "planted" not in refused.stderr


@contextmanager
def server(program: Path, folder: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """`forebay serve` without a terminal, ready; its log is in `log`, its settings in `node.toml`."""
    words = ["serve", "--dir", str(folder / "data"), "--port", str(free_ports(2))]
    config = folder / "node.toml"
    config.touch()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *words, "--size", "1GiB", "--config", str(config)],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            described = folder / "data/serve.json"
            wait_until(described.exists, f"the server is ready; log in {log.name}", START_DEADLINE_S)
            yield process
        finally:
            process.terminate()
            process.wait(30)


def test_a_reload_applies_what_is_safe_and_an_invalid_file_changes_nothing(
    forebay_bin: Path, tmp_path: Path
) -> None:
    config, log = tmp_path / "node.toml", tmp_path / "log"

    def reload(text: str, expected: str) -> None:
        config.write_text(text)
        begin = log.stat().st_size
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: expected in log.read_text()[begin:], f"{expected} in {log}", 20)

    with server(forebay_bin, tmp_path) as process:
        reload(
            '[log]\nlevel = "debug"\n[limits]\nbatches = 7\n',
            "the configuration was read again applied=\"log.level\" restart=1",
        )
        assert "needs a restart: it is not applied key=\"limits.batches\"" in log.read_text()
        reload('[log]\nlevel = "loud"\n', "the configuration is invalid")
        reload("[log]\nlevel =\n", f"{config}:2")
        reload('[log]\nlevel = "info"\n', "applied=\"log.level\" restart=0")
        assert process.poll() is None


def test_the_manager_of_services_gets_each_state_and_signs_of_life(
    forebay_bin: Path, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = tmp_path / "notify"
        manager.bind(str(path))
        manager.settimeout(30)

        def until(state: bytes) -> None:
            while not manager.recv(1000).startswith(state):
                pass

        env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"}
        with server(forebay_bin, tmp_path, **env) as process:
            until(b"READY=1\n")
            until(b"WATCHDOG=1\n")
            until(b"WATCHDOG=1\n")
            process.send_signal(signal.SIGHUP)
            until(b"RELOADING=1\nMONOTONIC_USEC=")
            until(b"READY=1\n")
            # A process that makes no progress gives no sign of life.
            process.send_signal(signal.SIGSTOP)
            manager.settimeout(1)
            try:
                while manager.recv(1000):
                    pass
            except TimeoutError:
                pass
            process.send_signal(signal.SIGCONT)
            manager.settimeout(30)
            process.terminate()
            until(b"STOPPING=1\n")


def test_a_node_is_checked_before_it_is_stopped(forebay_bin: Path, cluster: Cluster) -> None:
    env = {"FOREBAY_ENDPOINT": cluster.endpoint}

    def safe(node: str) -> subprocess.CompletedProcess[str]:
        return run(forebay_bin, "cluster", "safe-to-stop", node, **env)

    only = safe("gateway1")
    assert only.returncode == CONFLICT and "only gateway" in only.stderr, only
    assert safe("nobody-here").returncode == NOT_FOUND
    assert run(forebay_bin, "mb", "ais://kept", **env).returncode == 0
    assert run(forebay_bin, "put", str(Path(__file__)), "ais://kept/o", **env).returncode == 0
    targets = [safe(node["id"]) for node in cluster.info["targets"]]
    refused = [answer for answer in targets if answer.returncode == CONFLICT]
    assert refused and all("bucket ais://kept has one copy" in answer.stderr for answer in refused)


def test_nodes_show_their_version_their_checks_and_their_log(
    forebay_bin: Path, cluster: Cluster
) -> None:
    env = {"FOREBAY_ENDPOINT": cluster.endpoint}
    version = json.loads(run(forebay_bin, "version", "-o", "json").stdout)["version"]
    # A node reports its version with its first heartbeat.
    deadline = time.monotonic() + 20
    while True:
        nodes = json.loads(run(forebay_bin, "cluster", "versions", "-o", "json", **env).stdout)
        if all(node["version"] for node in nodes) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert len(nodes) == 4 and {node["version"] for node in nodes} == {version}, nodes
    target = cluster.info["targets"][0]
    shown = json.loads(run(forebay_bin, "node", "get", target["id"], "-o", "json", **env).stdout)
    assert shown["id"] == target["id"] and shown["usage"]["version"] == version
    lines = run(forebay_bin, "node", "logs", target["id"], "-n", "3", **env)
    assert lines.returncode == 0 and 1 <= len(lines.stdout.splitlines()) <= 3, lines


def test_a_node_shows_its_checks_line_by_line_or_as_json(cluster: Cluster) -> None:
    for node in [*cluster.info["gateways"], *cluster.info["targets"]]:
        with urllib.request.urlopen(f"{node['url']}/readyz?verbose", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        assert lines[-1] == "ready" and all(line.startswith("[+] ") for line in lines[:-1]), lines
        with urllib.request.urlopen(f"{node['url']}/readyz?verbose=json", timeout=10) as answer:
            assert json.load(answer)["ready"] is True
