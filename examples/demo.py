#!/usr/bin/env python3
"""The demo: images in a bucket, a cluster of one gateway and three targets before it, and three
epochs of training, each in a Python process of its own. The first finds the cluster empty, the
second finds everything there. Then the cluster packs the images into shards, and the third epoch
reads those.

`make demo` and `make demo-s3` run it. It stops all processes that it starts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import make_images

import forebay

# Bytes of a shard: a dozen of them, so that two workers have enough to share.
SHARD_SIZE = "1MiB"
HERE = Path(__file__).resolve().parent
MARKER = ".forebay-demo"
_SAMPLE = re.compile(r"(?m)^([a-z_]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="([^"]*)"')


class DemoFailed(Exception):
    """Failure of the demo; its message is a sentence for the user."""


class Stopped(Exception):
    """The user, or the program that runs the demo, wants it to end."""


# Signals that came. They are acted on between steps: an exception out of the middle of a process
# being started would lose sight of that process.
_signals: list[int] = []


def pause() -> None:
    """Waits a moment, unless the demo is to end."""
    time.sleep(0.05)
    if _signals:
        raise Stopped


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(17400, 32000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise DemoFailed("found no free ports between 17400 and 32000")


@contextlib.contextmanager
def running(
    command: list[str], env: Mapping[str, str], log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block lasts; its output goes to ``log``, where there is one."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else None
        # In a session of its own: a Ctrl-C reaches the demo alone, which then stops the rest.
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **env}, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # Processes that a stopped process may have left, such as its data workers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(process: subprocess.Popen[bytes], log: Path, ready: Any) -> None:
    """Returns when ``ready()`` is true; fails with the end of the log when it never will be."""
    deadline = time.monotonic() + 60
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-2000:]
            raise DemoFailed(f"{log.stem} did not start; the end of {log}:\n{end}")
        pause()


def metrics(url: str) -> list[tuple[str, dict[str, str], float]]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    return [(n, dict(_LABEL.findall(ls or "")), float(v)) for n, ls, v in _SAMPLE.findall(text)]


def counts(info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the counters of the cluster, summed over its targets."""
    total: dict[str, float] = dict.fromkeys(
        ("hits", "misses", "hit_bytes", "miss_bytes", "backend_gets", "requests"), 0
    )
    for node in info["targets"]:
        for name, labels, value in metrics(f"{node['url']}/metrics"):
            warm = "hit" if labels.get("result") == "hit" else "miss"
            if name == "forebay_get_bytes_total":
                total[f"{warm}_bytes"] += value
            elif name == "forebay_get_objects_total":
                total["hits" if warm == "hit" else "misses"] += value
            elif name == "forebay_backend_requests_total":
                total["requests"] += value
                total["backend_gets"] += value if labels["op"] == "get" else 0
    return total


class Minio:
    """A MinIO of the demo's own."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.data = folder / "minio"
        self.log = folder / "minio.log"
        port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self.console = f"127.0.0.1:{port + 1}"
        self.user, self.password = "demo", secrets.token_hex(16)

    @property
    def credentials(self) -> dict[str, str]:
        """How the targets reach it."""
        return {
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.password,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    @contextlib.contextmanager
    def run(self, bucket: str) -> Iterator[None]:
        # With a single drive a folder is a bucket.
        (self.data / bucket).mkdir(parents=True)
        command = [
            str(self.binary), "server", str(self.data), "--quiet",
            "--address", self.url.removeprefix("http://"), "--console-address", self.console,
        ]  # fmt: skip
        env = {
            "MINIO_ROOT_USER": self.user,
            "MINIO_ROOT_PASSWORD": self.password,
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            "MINIO_UPDATE": "off",
        }
        with running(command, env, self.log) as process:
            wait_until_ready(process, self.log, self._is_ready)
            yield

    def object_reads(self) -> int:
        """GetObject requests that MinIO itself has counted."""
        found = metrics(f"{self.url}/minio/metrics/v3/api/requests")
        return int(
            sum(
                value
                for name, labels, value in found
                if name == "minio_api_requests_total" and labels.get("name") == "GetObject"
            )
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/minio/health/ready", timeout=5):
                return True
        except OSError:
            return False


def finish(what: str, command: list[str], endpoint: str) -> None:
    """Runs a command against the cluster to its end."""
    with running(command, {"FOREBAY_ENDPOINT": endpoint}) as process:
        while process.poll() is None:
            pause()
    pause()
    if process.returncode != 0:
        raise DemoFailed(f"{what} ended with exit code {process.returncode}")


def train(folder: Path, endpoint: str, source: list[str], number: int) -> dict[str, Any]:
    """The result of one epoch in a new Python process."""
    result = folder / f"epoch-{number}.json"
    command = [
        sys.executable, str(HERE / "train_images.py"), *source, "--json", str(result),
        "--state", str(folder / "model.pt"),
    ]  # fmt: skip
    finish(f"epoch {number}", command, endpoint)
    epoch: dict[str, Any] = json.loads(result.read_text())
    return {"step": f"epoch {number}, " + ("shards" if "--shards" in source else "objects")} | epoch


def pack(binary: Path, endpoint: str, source: str, shards: str) -> dict[str, Any]:
    """Packs the images into shards, as a job of the cluster."""
    start_time = time.monotonic()
    command = [
        str(binary), "ishard", source, shards, "--create", "--wait", "--quiet",
        "--size", SHARD_SIZE, "--key", "full_name", "--sort", "shuffle:7",
    ]  # fmt: skip
    finish("ishard", command, endpoint)
    seconds = time.monotonic() - start_time
    bucket, _ = forebay.Client(endpoint).bucket_of(shards)
    manifest = bucket.object("manifest.jsonl").get().read_all().splitlines()
    written = [json.loads(line) for line in manifest]
    samples = sum(shard["samples"] for shard in written)
    size = sum(shard["bytes"] for shard in written)
    return {
        "step": f"ishard, {len(written)} shards",
        "samples": samples,
        "bytes": size,
        "samples_per_s": samples / seconds,
        "mb_per_s": size / seconds / 1e6,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    columns = [
        ("step", "step", "{}"),
        ("samples/s", "samples_per_s", "{:.0f}"),
        ("MB/s", "mb_per_s", "{:.2f}"),
        ("data wait", "wait_share", "{:.0%}"),
        ("hits", "hits", "{:.0f}"),
        ("misses", "misses", "{:.0f}"),
        ("hit bytes", "hit_bytes", "{:.0f}"),
        ("backend GETs", "backend_gets", "{:.0f}"),
        ("backend requests", "requests", "{:.0f}"),
        ("MinIO GetObject", "minio_gets", "{:.0f}"),
        ("accuracy", "accuracy", "{:.0%}"),
    ]
    columns = [column for column in columns if column[1] in rows[0]]
    table = [[title for title, _, _ in columns]]
    table += [
        [form.format(row[key]) if key in row else "-" for _, key, form in columns] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print()
    for line in table:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print()


def check(rows: list[dict[str, Any]], images: int, size: int) -> None:
    """Fails unless the first epoch was cold and all after it touched nothing but the cluster."""
    cold, warm, packed, sharded = rows
    wanted = [
        ("samples of epoch 1", cold["samples"], images),
        ("samples of epoch 2", warm["samples"], images),
        ("objects read from the backend in epoch 1", cold["backend_gets"], images),
        ("bytes of hits in epoch 2", warm["hit_bytes"], size),
        ("samples in the shards", packed["samples"], images),
        ("bytes of images in the shards", packed["bytes"], size),
        ("samples of epoch 3", sharded["samples"], images),
        ("misses in epoch 3", sharded["misses"], 0),
    ]
    for row in (warm, packed, sharded):
        wanted.append((f"objects read from the backend in {row['step']}", row["backend_gets"], 0))
        if "minio_gets" in row:
            wanted.append((f"GetObject requests at MinIO in {row['step']}", row["minio_gets"], 0))
    wrong = [f"{what}: {got:.0f}, not {want}" for what, got, want in wanted if got != want]
    if wrong:
        raise DemoFailed("; ".join(wrong))


def prepare(folder: Path) -> None:
    """Makes ``folder`` empty, if it is the demo's own."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise DemoFailed(f"{folder} has files of somebody else's; choose another --dir")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def run(arguments: argparse.Namespace) -> None:
    start_time = time.monotonic()
    folder: Path = arguments.dir.resolve()
    prepare(folder)
    data = folder / "images"
    size = make_images.write(data / "train", arguments.images)
    say(f"made {arguments.images} images, {size / 1e6:.1f} MB ({time.monotonic() - start_time:.1f} s)")

    with contextlib.ExitStack() as stack:
        minio = Minio(arguments.minio, folder) if arguments.backend == "s3" else None
        if minio is not None:
            stack.enter_context(minio.run("images"))
            say(f"MinIO at {minio.url}")
        command = [
            str(arguments.bin), "dev", "--dir", str(folder / "cluster"), "--gateways", "1",
            "--targets", "3", "--port", str(free_ports(4)), "--folder-root", str(data),
        ]  # fmt: skip
        log, described = folder / "cluster.log", folder / "cluster/dev.json"
        process = stack.enter_context(
            running(command, minio.credentials if minio else {}, log)
        )
        wait_until_ready(process, log, described.exists)
        info = json.loads(described.read_text())
        say(f"cluster of 1 gateway and {len(info['targets'])} targets at {info['endpoint']}")

        client = forebay.Client(info["endpoint"])
        if minio is not None:
            bucket = client.bucket("images", "s3").create(exist_ok=True)
            files = sorted(path for path in data.rglob("*.jpg"))
            bucket.put_many((str(path.relative_to(data)), path.read_bytes()) for path in files)
            bucket.evict(prefix="").wait(120)
            say(f"uploaded them to {bucket.uri} and emptied the cluster")
        else:
            bucket = client.bucket("images").create(folder=data)
            say(f"{bucket.uri} is the folder {data}")

        images, shards = f"{bucket.uri}/train/", "ais://image-shards"
        steps = [
            lambda: train(folder, info["endpoint"], [images], 1),
            lambda: train(folder, info["endpoint"], [images], 2),
            lambda: pack(arguments.bin, info["endpoint"], images, shards),
            lambda: train(folder, info["endpoint"], ["--shards", shards], 3),
        ]
        rows = []
        for step in steps:
            before, reads = counts(info), minio.object_reads() if minio else 0
            row = step()
            after = counts(info)
            row.update({key: after[key] - before[key] for key in after})
            if minio is not None:
                row["minio_gets"] = minio.object_reads() - reads
            rows.append(row)
        print_table(rows)
        (folder / "result.json").write_text(json.dumps(rows, indent=2) + "\n")
        check(rows, arguments.images, size)
    say(
        f"after epoch 1 nothing was read from the {arguments.backend} backend; all stopped "
        f"({time.monotonic() - start_time:.0f} s, details in {folder})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--bin", type=Path, required=True, help="the forebay program")
    parser.add_argument("--dir", type=Path, required=True, help="folder for everything it writes")
    parser.add_argument("--backend", choices=["folder", "s3"], default="folder")
    parser.add_argument("--minio", type=Path, help="the minio program, for --backend s3")
    parser.add_argument("--images", type=int, default=4000)
    arguments = parser.parse_args()
    if arguments.backend == "s3" and arguments.minio is None:
        parser.error("--backend s3 needs --minio")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: _signals.append(number))
    try:
        run(arguments)
    except (DemoFailed, forebay.ForebayError) as error:
        print(f"demo: failed: {error}", file=sys.stderr)
        return 1
    except Stopped:
        print("demo: interrupted; everything is stopped", file=sys.stderr)
        return 128 + _signals[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
