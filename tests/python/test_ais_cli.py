"""AIStore's own command line works against our cluster.

The `ais` binary is built from AIStore's source (`cd cmd/cli && go build .`); AIS_CLI says where it
is. Without it these tests are skipped.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from conftest import Cluster, Minio, wait_until

AIS = os.environ.get("AIS_CLI", "")

pytestmark = pytest.mark.skipif(
    not AIS, reason="AIS_CLI names no `ais` binary (built from AIStore's cmd/cli)"
)

Ais = Callable[..., str]


def command_line(cluster: Cluster, home: Path) -> Ais:
    """Runs one command and returns what it printed; fails the test when the command fails."""
    env = {"AIS_ENDPOINT": cluster.endpoint, "HOME": str(home), "PATH": os.environ["PATH"]}

    def run(*args: str, fails: bool = False) -> str:
        done = subprocess.run(
            [AIS, *args],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        shown = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"ais {' '.join(args)}: {shown}"
        return shown

    return run


@pytest.fixture(scope="module")
def ais(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ais:
    """The command line against the cluster that the tests of this file share."""
    return command_line(cluster, tmp_path_factory.mktemp("ais-home"))


def test_the_cluster_is_shown(ais: Ais) -> None:
    shown = ais("show", "cluster")
    assert shown.count("online") >= 4, shown
    assert "incompatible" not in shown.lower() and "unexpected" not in shown, shown
    # Targets report their disks by heartbeats.
    wait_until(lambda: "disk1" in ais("show", "storage", "mountpath"), "disks are reported")
    assert "checksum.type" in ais("config", "cluster")
    ais("config", "cluster", "checksum.validate_warm_get=true")
    assert re.search(r"validate_warm_get\s+true", ais("config", "cluster", "checksum"))
    ais("config", "cluster", "checksum.validate_warm_get=false")
    ais("config", "cluster", "no.such=1", fails=True)


def test_buckets_and_objects(ais: Ais, tmp_path: Path) -> None:
    ais("create", "ais://cli")
    assert "ais://cli" in ais("ls")
    (tmp_path / "one.txt").write_text("hello")
    ais("put", str(tmp_path / "one.txt"), "ais://cli/one.txt")
    assert "one.txt" in ais("ls", "ais://cli")
    ais("get", "ais://cli/one.txt", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "hello"
    assert "5B" in ais("object", "show", "ais://cli/one.txt")
    assert "xxhash2" in ais("bucket", "props", "show", "ais://cli")
    ais("bucket", "props", "set", "ais://cli", "mirror.copies=3")
    assert re.search(r"mirror.*3", ais("bucket", "props", "show", "ais://cli", "mirror"))
    ais("bucket", "props", "reset", "ais://cli")
    assert "ais://cli" in ais("storage", "summary", "ais://cli")
    assert "ais://cli" in ais("ls", "ais://cli", "--summary")
    ais("rmo", "ais://cli/one.txt")
    assert "one.txt" not in ais("ls", "ais://cli")
    ais("rmb", "ais://cli", "-y")
    assert "ais://cli" not in ais("ls")
    ais("ls", "ais://no-such-bucket", fails=True)


def test_many_objects_by_template(ais: Ais, tmp_path: Path) -> None:
    ais("create", "ais://many")
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(20):
        (folder / f"o-{i:02}.txt").write_text(f"object {i}")
    ais("put", str(folder), "ais://many", "-y")
    ais("put", str(folder / "o-{00..09}.txt"), "ais://many/again-", "-y")
    shown = ais("ls", "ais://many", "--name-only")
    assert shown.count("o-") >= 20, shown
    ais("cp", "ais://many", "ais://copied", "--wait")
    assert ais("ls", "ais://copied", "--name-only").count(".txt") >= 20
    ais("rmo", "ais://many", "--template", "o-{00..04}.txt", "--wait", "-y")
    assert "\no-03.txt" not in ais("ls", "ais://many", "--name-only")
    ais("rmb", "ais://many", "ais://copied", "-y")


def test_disks(ais: Ais, cluster: Cluster, tmp_path: Path) -> None:
    disk, target = tmp_path / "disk", cluster.info["targets"][0]["id"]
    disk.mkdir()
    named = f"{target}={disk}"

    def shown() -> str:
        return ais("show", "storage", "mountpath")

    ais("storage", "mountpath", "attach", named)
    wait_until(lambda: str(disk) in shown(), "the disk is in use")
    ais("storage", "mountpath", "attach", named, fails=True)
    ais("storage", "mountpath", "disable", named)
    wait_until(lambda: "Disabled" in shown(), "the disk is disabled")
    ais("storage", "mountpath", "enable", named)
    ais("storage", "mountpath", "detach", named)
    wait_until(lambda: str(disk) not in shown(), "the disk is gone")
    ais("storage", "mountpath", "detach", named, fails=True)


def test_shards(ais: Ais, tmp_path: Path) -> None:
    ais("create", "ais://shards")
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(3):
            info = tarfile.TarInfo(f"d/{i}.txt")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hell%d" % i))
    ais("put", str(path), "ais://shards/a.tar")
    assert "d/1.txt" in ais("archive", "ls", "ais://shards/a.tar")
    ais("get", "ais://shards/a.tar", str(tmp_path / "one"), "--archpath", "d/1.txt")
    found = tmp_path / "one"
    found = found / "d/1.txt" if found.is_dir() else found
    assert found.read_text() == "hell1"
    ais("rmb", "ais://shards", "-y")


def test_jobs(ais: Ais) -> None:
    ais("start", "lru")
    shown = ais("show", "job", "--all")
    found = re.search(r"lru-eviction\[([A-Za-z0-9_-]{9,})\]", shown)
    assert found, shown
    ais("wait", found.group(1))
    ais("stop", "lru", "-y")
    assert "No running jobs" in ais("show", "job")


def test_a_bucket_in_the_cloud(
    start_cluster: Callable[..., Cluster], minio: Minio, tmp_path: Path
) -> None:
    cluster = start_cluster(env=minio.env)
    s3 = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name="us-east-1",
        aws_access_key_id=minio.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=minio.env["AWS_SECRET_ACCESS_KEY"],
    )
    s3.create_bucket(Bucket="cloud")
    for i in range(5):
        s3.put_object(Bucket="cloud", Key=f"d/{i}", Body=b"bytes")
    ais = command_line(cluster, tmp_path)
    cached = ("ls", "s3://cloud", "--prefix", "d/", "--cached")
    assert ais("ls", "s3://cloud", "--all").count("d/") == 5
    assert ais(*cached).count("d/") == 0
    ais("prefetch", "s3://cloud", "--prefix", "d/", "--wait")
    assert ais(*cached).count("d/") == 5
    ais("evict", "s3://cloud", "--prefix", "d/", "--wait", "-y")
    assert ais(*cached).count("d/") == 0
    ais("nbi", "create", "s3://cloud", "--inv-name", "inv-one")
    wait_until(lambda: "inv-one" in ais("nbi", "show", "s3://cloud"), "the inventory is taken")
    assert "inv-one" in ais("nbi", "show")
    assert ais("ls", "s3://cloud", "--inventory", "--inv-name", "inv-one").count("d/") == 5
    ais("nbi", "rm", "s3://cloud")
    ais("evict", "s3://cloud", "-y")
