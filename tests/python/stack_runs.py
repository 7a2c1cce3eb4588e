"""Runs programs of data stacks that are not in the test environment, each in processes of its own with
packages of its own: the packages of some contradict those of others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from conftest import REPOSITORY, Cluster, free_ports
from forebay_cluster import binary
from forebay_s3 import environment
from test_readme import PORT_IN_README, blocks

JOBS = Path(__file__).parent
DEADLINE_S = 400.0
CA_IN_PAGES = "/etc/forebay/ca.pem"


def packages(*scripts: str) -> str:
    """PYTHONPATH with the folders that these scripts of ci/ print."""
    folders = []
    for script in scripts:
        done = subprocess.run(
            [REPOSITORY / "ci" / f"{script}.sh"], stdout=subprocess.PIPE, text=True, check=True
        )
        folders.append(done.stdout.strip())
    return os.pathsep.join([*folders, str(JOBS)])


@contextmanager
def settings(cluster: Cluster, path: str) -> Iterator[dict[str, str]]:
    """Environment of a user of the cluster with an empty home folder, which is removed at the end."""
    # Ray puts Unix sockets there: their paths must be short.
    home = tempfile.mkdtemp(prefix="fb-")
    ca = cluster.info.get("ca")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FOREBAY_", "AIS_", "AWS_"))}
    env |= environment(f"{cluster.endpoint}/s3")
    env |= {"AWS_CA_BUNDLE": ca, "SSL_CERT_FILE": ca} if ca else {}
    env |= {
        "PYTHONPATH": path,
        "HOME": home,
        "TMPDIR": home,
        "S3_ENDPOINT_URL": f"{cluster.endpoint}/s3",
        "AIS_ENDPOINT": cluster.endpoint,
        "RAY_TMPDIR": home,
        "RAY_USAGE_STATS_ENABLED": "0",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    try:
        yield env
    finally:
        shutil.rmtree(home, ignore_errors=True)


def job(
    cluster: Cluster,
    path: str,
    name: str,
    *arguments: str,
    ranks: int = 1,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Runs `NAME_job.py` and returns the JSON values that its processes print."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(free_ports(1))]
    command += [str(JOBS / f"{name}_job.py"), *arguments]
    with settings(cluster, path) as own:
        said = succeed(command, {**own, **(env or {})}, Path(own["HOME"]))
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def page(cluster: Cluster, path: str, name: str) -> str:
    """Runs all code of docs/stacks/NAME.md, top to bottom, as in one terminal; returns its output.

    YAML is the content of the file `msc.yaml`."""
    session = []
    with settings(cluster, path) as env:
        home = Path(env["HOME"])
        for block in blocks(REPOSITORY / f"docs/stacks/{name}.md"):
            code = block.code.replace(PORT_IN_README, cluster.endpoint.rpartition(":")[2])
            code = code.replace(CA_IN_PAGES, cluster.info.get("ca", ""))
            if block.language == "yaml":
                (home / "msc.yaml").write_text(code)
            elif block.language == "python":
                (home / f"line{block.line}.py").write_text(code)
                session.append(f"{sys.executable} line{block.line}.py")
            else:
                assert block.language == "bash", f"line {block.line} is run by nobody"
                session.append(code)
        # The variables that the page sets are its own. Its commands are those of the program under test.
        env = {k: v for k, v in env.items() if not k.startswith(("AWS_A", "AWS_S", "AWS_E", "S3_"))}
        env["PATH"] = os.pathsep.join([str(binary().parent), os.environ["PATH"]])
        return succeed(["bash", "-euo", "pipefail", "-c", "\n".join(session)], env, home)


def succeed(command: list[str], env: Mapping[str, str], folder: Path) -> str:
    """Standard output of a command; fails the test with all that it printed if it fails.

    None of the processes that it starts is left behind."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        running = subprocess.Popen(
            command, env=env, cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
        code: int | str
        try:
            code = running.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = f"nothing within {DEADLINE_S:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        out.seek(0)
        err.seek(0)
        said = out.read()
        assert code == 0, f"ended with {code}:\n{said[-4000:]}\n{err.read()[-4000:]}"
    return said
