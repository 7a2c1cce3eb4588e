"""Jobs of 8 ranks with 4 workers each, and jobs of two hosts, see every sample once.

These take minutes, so `make test-long` runs them. The hosts are network namespaces with host names,
which need root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay
import pytest
from conftest import REPOSITORY, Cluster, Minio, free_ports, stop, wait_until
from forebay_cluster import binary
from forebay_s3 import client as s3_client

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        "FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it, in minutes"
    ),
    pytest.mark.timeout(900),
]

_EXAMPLES = REPOSITORY / "examples/frameworks"
_SAMPLES = 512
_WHOLE = [f"epoch {epoch}: {_SAMPLES} samples, {_SAMPLES} different" for epoch in range(2)]


def epochs(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("epoch")]


def needs(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not in PYTHONPATH; see ci/{framework}.sh")


def torchrun(framework: str, source: str, *options: str, env: dict[str, str]) -> str:
    """Runs an example as 8 ranks with 4 workers each, and returns its output."""
    launcher = ["torch.distributed.run", "--nproc-per-node=8", f"--master-port={free_ports(1)}"]
    program = [str(_EXAMPLES / f"with_{framework}.py"), source, "--workers=4", *options]
    unset = {name: text for name, text in os.environ.items() if name != "FOREBAY_ENDPOINT"}
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *program],
        env={**unset, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize("stream", [False, True], ids=["map", "stream"])
@pytest.mark.parametrize("framework", ["lightning", "accelerate", "transformers"])
def test_eight_ranks_of_four_workers_see_every_sample_once_at_a_cluster(
    cluster: Cluster, framework: str, stream: bool
) -> None:
    needs(framework)
    bucket = forebay.Client(cluster.endpoint, timeout=20).bucket(f"m{uuid.uuid4().hex[:8]}").create()
    bucket.put_many((f"{i:03}", b"%d" % i) for i in range(_SAMPLES))
    options = ["--stream"] if stream else []
    env = {"FOREBAY_ENDPOINT": cluster.endpoint}
    assert epochs(torchrun(framework, bucket.uri, *options, env=env)) == _WHOLE


@pytest.mark.parametrize("stream", [False, True], ids=["map", "stream"])
@pytest.mark.parametrize("framework", ["lightning", "accelerate", "transformers"])
def test_eight_ranks_of_four_workers_see_every_sample_once_without_an_endpoint(
    minio: Minio, tmp_path: Path, framework: str, stream: bool
) -> None:
    needs(framework)
    name = f"m{uuid.uuid4().hex[:8]}"
    cloud = s3_client(
        minio.endpoint, minio.env["AWS_SECRET_ACCESS_KEY"], access=minio.env["AWS_ACCESS_KEY_ID"]
    )
    cloud.create_bucket(Bucket=name)
    for i in range(_SAMPLES):
        cloud.put_object(Bucket=name, Key=f"{i:03}", Body=b"%d" % i)
    options = ["--stream"] if stream else []
    # The server that the ranks share keeps its data under the home folder.
    env = {**minio.env, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env |= {"FOREBAY_BIN": str(binary())}
    assert epochs(torchrun(framework, f"s3://{name}", *options, env=env)) == _WHOLE


@dataclass
class Hosts:
    """Two hosts with names of their own, and the address at which they reach this machine."""

    names: list[str]
    address: str


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Two network namespaces on one bridge."""
    if os.geteuid() != 0:
        if os.environ.get("FOREBAY_REQUIRE_LAB"):
            pytest.fail("network namespaces need root, and FOREBAY_REQUIRE_LAB is set")
        pytest.skip("network namespaces need root")
    mark = uuid.uuid4().hex[:5]
    subnet = f"10.{200 + int(mark[0], 16)}.{int(mark[1:3], 16)}"
    names = [f"fb{mark}a", f"fb{mark}b"]
    bridge = f"fb{mark}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    folders = [Path(f"/etc/netns/{name}") for name in names]
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, (name, folder) in enumerate(zip(names, folders, strict=True), start=2):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{subnet}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            folder.mkdir(parents=True)
            known = [f"{subnet}.{at} {host}\n" for at, host in enumerate(names, start=2)]
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(known))
        yield Hosts(names, f"{subnet}.1")
    finally:
        for name, folder in zip(names, folders, strict=True):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)
            (folder / "hosts").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", bridge)


def slurm(folder: Path, hosts: Hosts) -> Path:
    """The two commands of Slurm that a batch script calls, for the hosts of this test: `srun` starts
    its command once on each of them."""
    folder.mkdir()
    (folder / "scontrol").write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(hosts.names)}\n")
    (folder / "srun").write_text(
        "#!/usr/bin/env bash\n"
        f"for host in {' '.join(hosts.names)}; do\n"
        '    ip netns exec "$host" unshare --uts sh -c \'hostname "$0"; exec "$@"\' "$host" "$@" &\n'
        '    started+=("$!")\n'
        "done\n"
        'for one in "${started[@]}"; do wait "$one" || failed=1; done\n'
        "exit ${failed:-0}\n"
    )
    for name in ("scontrol", "srun"):
        (folder / name).chmod(0o755)
    torch_run = folder / "torchrun"
    torch_run.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    torch_run.chmod(0o755)
    return folder


def sbatch(
    hosts: Hosts, folder: Path, source: str, *options: str, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs the batch script of the examples as Slurm would on the first of two hosts."""
    commands = slurm(folder / "slurm", hosts)
    return subprocess.run(
        ["bash", str(_EXAMPLES / "two_hosts.sbatch"), source, *options],
        env={
            **{name: text for name, text in os.environ.items() if name != "FOREBAY_ENDPOINT"},
            "PATH": f"{commands}:{os.environ['PATH']}",
            "FOREBAY_EXAMPLES": str(_EXAMPLES),
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_JOB_NODELIST": ",".join(hosts.names),
            "OMP_NUM_THREADS": "1",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("stream", [False, True], ids=["map", "stream"])
def test_two_hosts_see_every_sample_once(hosts: Hosts, tmp_path: Path, stream: bool) -> None:
    needs("lightning")
    port = free_ports(2)
    endpoint = f"http://{hosts.address}:{port}"
    command = [str(binary()), "serve", "--dir", str(tmp_path / "data"), "--port", str(port)]
    command += ["--host", hosts.address, "--insecure"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        ready = tmp_path / "data/serve.json"
        wait_until(ready.exists, f"the server is ready; log in {tmp_path}", 30)
        bucket = forebay.Client(endpoint, timeout=20).bucket("numbers").create()
        bucket.put_many((f"{i:03}", b"%d" % i) for i in range(_SAMPLES))
        options = ["--workers=2", *(["--stream"] if stream else [])]
        done = sbatch(hosts, tmp_path, bucket.uri, *options, env={"FOREBAY_ENDPOINT": endpoint})
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        assert epochs(done.stdout) == _WHOLE
    finally:
        stop(server)


def test_two_hosts_without_an_endpoint_are_refused_by_the_script(
    hosts: Hosts, tmp_path: Path
) -> None:
    done = sbatch(hosts, tmp_path, "ais://numbers", env={})
    assert done.returncode != 0
    assert "set FOREBAY_ENDPOINT to the cluster that all hosts reach" in done.stderr
