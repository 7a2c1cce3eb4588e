"""Checkpoints by torch.save and torch.load: bounded memory, and whole or not there."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch

import forebay
from forebay import range_reader
from forebay_cluster import wait_until
from forebay_memory import needs_proc, peak_growth
from forebay_torch import Checkpoint
from forebay_torch.checkpoint.location import locate

MIB = 1 << 20
# 20 MiB: more than a part. With tied weights, a view and no tensor at all beside it.
WEIGHT = torch.arange(5 * MIB, dtype=torch.float32).reshape(1024, -1)


def state() -> dict[str, Any]:
    return {"weight": WEIGHT, "tied": WEIGHT, "row": WEIGHT[7], "empty": torch.empty(0), "step": 7}


@pytest.fixture
def checkpoint(bucket: forebay.Bucket) -> Checkpoint:
    return Checkpoint("project", bucket.uri, bucket.client)


def names(bucket: forebay.Bucket) -> list[str]:
    return list(bucket.list_snapshot().names())


def test_a_state_is_saved_and_loaded_through_files(checkpoint: Checkpoint) -> None:
    with checkpoint.writer("a/epoch0.ckpt") as writer:
        assert isinstance(writer, io.BufferedIOBase) and writer.writable()
        torch.save(state(), writer)
    with checkpoint.reader("a/epoch0.ckpt") as reader:
        assert isinstance(reader, io.BufferedIOBase) and reader.readable() and reader.seekable()
        loaded = torch.load(reader, weights_only=True)
    assert torch.equal(loaded["weight"], WEIGHT) and loaded["step"] == 7
    assert loaded["tied"].data_ptr() == loaded["weight"].data_ptr()
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_paths_are_names_uris_and_pathlib_paths(bucket: forebay.Bucket) -> None:
    client = bucket.client
    base = locate(f"{bucket.uri}/run", client)
    assert locate("e/1.pt", client, base).uri == f"{bucket.uri}/run/e/1.pt"
    for path, uri in [
        ("gs://b/k", "gs://b/k"),
        ("gcs://b/k/l", "gs://b/k/l"),
        (Path("gcs://b/k"), "gs://b/k"),
        (Path("s3://b/k"), "s3://b/k"),
        (Path("fb://b/k"), "ais://b/k"),
        ("az://b/k", "az://b/k"),
    ]:
        assert locate(path, client, base).uri == uri
    with pytest.raises(ValueError, match="no bucket was named"):
        locate("k", client)
    with pytest.raises(ValueError, match="names no object"):
        Checkpoint(storage_client=client).writer(bucket.uri)
    with pytest.raises(ValueError, match="unknown provider"):
        locate("ftp://b/k", client)
    inside = Checkpoint(bucket_name=f"{bucket.uri}/run", storage_client=client)
    assert inside.save(1, "x.pt") == f"{bucket.uri}/run/x.pt"
    again = pickle.loads(pickle.dumps(inside))
    assert again.load("x.pt") == again.load(Path(f"{bucket.uri}/run/x.pt")) == 1


LOADER = """
import sys, forebay, torch
from forebay_torch import Checkpoint
endpoint, bucket, folder = sys.argv[1:]
cache = forebay.NodeCache(folder)
checkpoint = Checkpoint(bucket_name=bucket, storage_client=forebay.Client(endpoint), node_cache=cache)
sys.stdin.readline()
path, found = checkpoint.resume_latest()
assert path == "e1.pt" and torch.equal(found["weight"], checkpoint.load("e1.pt")["weight"])
print(int(found["weight"].view(torch.int32).sum()))
"""


def test_processes_with_a_node_cache_fetch_a_checkpoint_once(
    checkpoint: Checkpoint, bucket: forebay.Bucket, cluster: Any, tmp_path: Path
) -> None:
    checkpoint.save(state(), "e1.pt")
    command = [sys.executable, "-c", LOADER, bucket.client.endpoint, bucket.uri, str(tmp_path)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    before = served_bytes(cluster)
    sums = [process.communicate("go\n", timeout=120)[0].strip() for process in started]
    assert sums == [str(int(WEIGHT.view(torch.int32).sum()))] * 3
    size = bucket.object("e1.pt").head().size
    assert size <= served_bytes(cluster) - before <= 1.1 * size


def served_bytes(cluster: Any) -> int:
    """Bytes of objects that the targets sent to readers."""
    lines = []
    for target in cluster.targets:
        with urllib.request.urlopen(f"{target['url']}/metrics", timeout=10) as answer:
            lines += answer.read().decode().splitlines()
    counts = (line for line in lines if line.startswith("forebay_get_bytes_total"))
    return sum(int(float(line.rpartition(" ")[2])) for line in counts)


def test_parts_go_out_while_torch_save_runs(
    checkpoint: Checkpoint, bucket: forebay.Bucket, cluster: Any
) -> None:
    with checkpoint.writer("c.pt") as writer:
        torch.save({str(i): WEIGHT + i for i in range(4)}, writer)
        # The end of it, not yet a part, is still here.
        wait_until(
            lambda: uploaded(cluster, "c.pt") >= 64 * MIB, "4 parts of 16 MiB have arrived"
        )
        assert names(bucket) == []
    assert names(bucket) == ["c.pt"]


def uploaded(cluster: Any, name: str) -> int:
    """Bytes in the folders of uploads."""
    parts = cluster.folder.glob("*/**/uploads/**/*")
    return sum(part.stat().st_size for part in parts if part.is_file())


@needs_proc
def test_memory_is_that_of_the_parts_and_not_of_the_checkpoint(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    grown = peak_growth(
        "import torch, forebay\n"
        "from forebay_torch import Checkpoint\n"
        "c = Checkpoint(bucket_name=sys.argv[2], storage_client=forebay.Client(sys.argv[1]))\n"
        "state = {str(i): torch.full((16 << 20,), float(i)) for i in range(8)}\n"
        "c.save(torch.ones(9), 'small.pt')\n",
        "c.save(state, 'large.pt')",
        bucket.client.endpoint,
        bucket.uri,
    )
    # At least one part of 16 MiB, or this measures nothing; 160 MiB at most, of 512.
    assert 16 * MIB <= grown <= 160 * MIB
    assert bucket.object("large.pt").head().size > 512 * MIB


def test_an_exception_in_the_block_leaves_the_old_checkpoint_and_is_the_one_raised(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    checkpoint.save("old", "c.pt")
    with pytest.raises(KeyError, match="mine"), checkpoint.writer("c.pt") as writer:
        torch.save(state(), writer)
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"), checkpoint.writer("new.pt") as writer:
        raise KeyError("mine")
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        checkpoint.save({"weight": WEIGHT, "f": lambda: 0}, "new.pt")
    assert checkpoint.load("c.pt") == "old" and names(bucket) == ["c.pt"]


def test_a_process_killed_in_a_save_leaves_the_old_checkpoint(
    checkpoint: Checkpoint, bucket: forebay.Bucket, cluster: Any
) -> None:
    checkpoint.save("old", "c.pt")
    code = (
        "import os, signal, sys, torch, forebay\n"
        "from forebay_torch import Checkpoint\n"
        "c = Checkpoint(bucket_name=sys.argv[2], storage_client=forebay.Client(sys.argv[1]))\n"
        "for name in ('c.pt', 'new.pt'):\n"
        "    w = c.writer(name).__enter__()\n"
        "    torch.save(torch.ones(16 << 20), w)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, bucket.client.endpoint, bucket.uri])
    assert done.returncode == -9
    assert checkpoint.load("c.pt") == "old" and names(bucket) == ["c.pt"]


def test_a_refused_part_is_raised_though_torch_stumbles_over_it(
    client: forebay.Client,
) -> None:
    own = client.bucket(f"refused-{os.getpid()}").create()
    checkpoint = Checkpoint(bucket_name=own.uri, storage_client=client, concurrency=3)
    with pytest.raises(forebay.ForebayError, match=own.name), checkpoint.writer("c.pt") as writer:
        torch.save(WEIGHT, writer)
        own.delete()
        torch.save([WEIGHT + i for i in range(4)], writer)
        pytest.fail("the last of them cannot have been taken")
    own.create()
    assert names(own) == []
    own.delete()


def test_a_target_killed_in_a_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    from forebay_cluster import Cluster

    running = Cluster.start(tmp_path, targets=1)
    try:
        client = forebay.Client(running.endpoint, timeout=3)
        bucket = client.bucket("b").create()
        checkpoint = Checkpoint(bucket_name=bucket.uri, storage_client=client)
        checkpoint.save("old", "c.pt")
        target = running.targets[0]["id"]
        with pytest.raises(forebay.ForebayError) as raised, checkpoint.writer("c.pt") as writer:
            torch.save(WEIGHT, writer)
            running.kill(target)
            torch.save([WEIGHT + 1, WEIGHT + 2], writer)
        assert isinstance(raised.value, forebay.ClusterUnavailable | forebay.Timeout)
        command = (tmp_path / target / "cmd").read_text()
        again = subprocess.Popen(command, shell=True, start_new_session=True)
        try:
            patient = Checkpoint(
                bucket_name=bucket.uri, storage_client=forebay.Client(running.endpoint, timeout=30)
            )
            assert patient.load("c.pt") == "old"
            assert names(bucket) == ["c.pt"]
        finally:
            os.killpg(again.pid, 15)
            again.wait(20)
    finally:
        running.stop()


def test_a_large_tensor_is_read_into_its_own_memory_by_ranges(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(state(), "c.pt")
    received: list[int] = []
    receive = range_reader._Windows._receive

    def noting(self: range_reader._Windows, target: memoryview) -> int:
        received.append(len(target))
        return receive(self, target)

    monkeypatch.setattr(range_reader._Windows, "_receive", noting)
    loaded = checkpoint.load("c.pt")
    assert torch.equal(loaded["weight"], WEIGHT)
    assert len(received) == 1 and received[0] >= 19 * MIB, "of 20; the rest lies behind its header"


def test_a_checkpoint_that_is_replaced_while_it_is_loaded_is_an_error(
    checkpoint: Checkpoint, bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = range_reader._Windows._receive

    def replacing(self: range_reader._Windows, target: memoryview) -> int:
        checkpoint.save({"weight": -WEIGHT}, "c.pt")
        return receive(self, target)

    checkpoint.save({"weight": WEIGHT}, "c.pt")
    with monkeypatch.context() as patch:
        patch.setattr(range_reader._Windows, "_receive", replacing)
        with pytest.raises(forebay.ObjectChanged, match="c.pt"):
            checkpoint.load("c.pt")
    assert torch.equal(checkpoint.load("c.pt")["weight"], -WEIGHT)


def test_a_save_in_the_background_has_the_state_of_its_call(checkpoint: Checkpoint) -> None:
    current = state()
    current["nested"] = [{"momentum": torch.ones(5)}, (1, "two")]
    current["parameter"] = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    future = checkpoint.save_async(current, "c.pt")
    current["nested"][0]["momentum"].zero_()
    assert future.result(30) == f"{checkpoint._base.uri}/c.pt"  # type: ignore[union-attr]
    loaded = checkpoint.load("c.pt")
    assert torch.equal(loaded["weight"], WEIGHT)
    assert loaded["tied"].data_ptr() == loaded["weight"].data_ptr()
    assert loaded["row"].untyped_storage().data_ptr() == loaded["weight"].data_ptr()
    assert torch.equal(loaded["nested"][0]["momentum"], torch.ones(5))
    assert loaded["nested"][1] == (1, "two")
    assert isinstance(loaded["parameter"], torch.nn.Parameter)


def test_one_save_at_a_time_and_a_failure_is_raised_by_the_next_unless_it_was_raised_before(
    checkpoint: Checkpoint, bucket: forebay.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, save = [0], [0], Checkpoint.save

    def counting(self: Checkpoint, obj: Any, path: Any) -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        try:
            return save(self, obj, path)
        finally:
            running[0] -= 1

    monkeypatch.setattr(Checkpoint, "save", counting)
    futures = [checkpoint.save_async(WEIGHT, f"{i}.pt") for i in range(3)]
    assert [future.done() for future in futures[:2]] == [True, True]
    checkpoint.wait()
    assert most == [1] and names(bucket) == ["0.pt", "1.pt", "2.pt"]
    assert threading.active_count() < 10

    missing = bucket.client.bucket("there-is-none").uri
    checkpoint.save_async(1, f"{missing}/a.pt")
    with pytest.raises(forebay.NotFound, match="there-is-none"):
        checkpoint.save_async(1, "3.pt")
    failed = checkpoint.save_async(1, f"{missing}/a.pt")
    with pytest.raises(forebay.NotFound, match="there-is-none"):
        failed.result()
    checkpoint.save_async(1, "4.pt").result()
    assert "3.pt" not in names(bucket) and "4.pt" in names(bucket)


def test_the_latest_is_the_last_whole_one_in_the_order_of_numbers(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    assert checkpoint.latest() is None and checkpoint.resume_latest() is None
    for step in (8, 9, 10):
        checkpoint.save(step, f"run/step={step}.pt")
    bucket.object("run/step=11/__0_0.distcp").put(b"of a save that never ended")
    bucket.object("run/zzz.log").put(b"no checkpoint")
    assert checkpoint.latest() == "run/step=10.pt"
    assert checkpoint.latest(f"{bucket.uri}/run/") == f"{bucket.uri}/run/step=10.pt"
    assert checkpoint.resume_latest("run/") == ("run/step=10.pt", 10)
    bucket.object("run/step=11/.metadata").put(b"now it has")
    assert checkpoint.latest() == "run/step=11"


def test_prune_keeps_the_newest_and_what_is_still_being_written(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    for step in (8, 9, 10, 11):
        checkpoint.save(step, f"run/step={step}.pt")
    for name in ("step=7/__0_0.distcp", "step=12/__0_0.distcp", "readme.txt"):
        bucket.object(f"run/{name}").put(b"x")
    assert sorted(checkpoint.prune("run/", keep=2)) == ["run/step=7", "run/step=8.pt", "run/step=9.pt"]
    assert names(bucket) == [
        "run/readme.txt", "run/step=10.pt", "run/step=11.pt", "run/step=12/__0_0.distcp",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="keep"):
        checkpoint.prune("run/", keep=0)


def test_resume_passes_over_a_file_that_ends_in_its_middle(
    checkpoint: Checkpoint, bucket: forebay.Bucket
) -> None:
    checkpoint.save("good", "run/1.pt")
    checkpoint.save(WEIGHT, "run/2.pt")
    whole = bucket.object("run/2.pt").get().memoryview()
    bucket.object("run/2.pt").put(whole[: len(whole) // 2])
    bucket.object("run/3.pt").put(b"")
    with pytest.warns(UserWarning, match="ends in its middle"):
        assert checkpoint.resume_latest("run/") == ("run/1.pt", "good")


def test_a_missing_bucket_is_named_when_the_checkpoint_is_made(client: forebay.Client) -> None:
    for name in ("there-is-none", "ais://there-is-none/run"):
        with pytest.raises(forebay.NotFound, match="there-is-none"):
            Checkpoint(bucket_name=name, storage_client=client)
