"""Our Python client and the PyTorch package in a cluster with users and TLS."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import UsersCluster, wait_until
from forebay_cluster import metrics_of
from forebay_users import FOREIGN_VARIABLES

forebay = pytest.importorskip("forebay")

BODIES = {f"o{n:02}": os.urandom(1000 * n + 1) for n in range(20)}


@pytest.fixture
def client(users: UsersCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., forebay.Client]:
    """`client("reader")` -> a client with a new token of this user; `None` for no token."""
    for name in FOREIGN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(users.folder / "config"))

    def make(user: str | None) -> forebay.Client:
        token = None if user is None else users.token_of(user)
        return forebay.Client(users.endpoint, ca_file=users.ca, token=token, timeout=20)

    return make


@pytest.fixture
def bucket(client: Callable[..., forebay.Client]) -> Iterator[forebay.Bucket]:
    """A bucket with objects, at the client of the writer."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    client("root").bucket(name).create()
    made = client("writer").bucket(name)
    made.put_many(BODIES.items())
    yield made
    client("root").bucket(made.name).delete(missing_ok=True)


def run(
    users: UsersCluster, code: str, *arguments: str, token: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script whose clients have this token."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=users.environment(token),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_writer_writes_and_a_reader_reads_in_every_way(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client]
) -> None:
    reader = client("reader").bucket(bucket.name)
    assert {o.name for o in reader.list_objects()} == set(BODIES)
    assert {name: reader.object(name).get().read_all() for name in BODIES} == BODIES
    assert reader.object("o19").get(byte_range=(5, 9)).read_all() == BODIES["o19"][5:14]
    assert reader.object("o19").head().size == len(BODIES["o19"])
    batch = reader.client.batch(BODIES, reader)
    assert [bytes(body) for _, body in batch.get()] == list(BODIES.values())
    pairs = [(reader, name) for name in BODIES]
    assert [bytes(body) for body in reader.client.get_many(pairs)] == list(BODIES.values())


def test_targets_serve_reads_without_a_gateway_in_between(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client], users: UsersCluster
) -> None:
    reader = client("reader").bucket(bucket.name)
    targets = [node["url"] for node in users.cluster.targets]
    before = reads_at(users, [users.endpoint]), reads_at(users, targets)
    for name in BODIES:
        reader.object(name).get().read_all()
    after = reads_at(users, [users.endpoint]), reads_at(users, targets)
    assert after == (before[0], before[1] + len(BODIES))


def reads_at(users: UsersCluster, urls: list[str]) -> float:
    """Reads of objects that these nodes answered."""
    return sum(
        value
        for url in urls
        for name, labels, value in metrics_of(url, users.admin_token, users.ca)
        if name == "forebay_http_requests_total" and labels["op"] == "get"
    )


def test_a_reader_may_not_write(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client]
) -> None:
    reader = client("reader").bucket(bucket.name)
    for change in (
        lambda: reader.object("o01").put(b"changed"),
        lambda: reader.object("o01").delete(),
        lambda: reader.put_many([("new", b"x")]),
        lambda: reader.delete(),
        lambda: reader.client.bucket("of-a-reader").create(),
    ):
        with pytest.raises(forebay.AccessDenied) as refused:
            change()
        assert refused.value.status == 403
    assert bucket.object("o01").get().read_all() == BODIES["o01"]


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("stranger", 403)])
def test_requests_without_a_right_are_refused(
    bucket: forebay.Bucket,
    client: Callable[..., forebay.Client],
    user: str | None,
    status: int,
) -> None:
    stranger = client(user).bucket(bucket.name)
    for call in (
        lambda: stranger.object("o01").get().read_all(),
        lambda: stranger.object("o01").head(),
        lambda: list(stranger.list_objects()),
        lambda: stranger.client.get_many([(stranger, "o01")]),
        lambda: stranger.object("o01").put(b"x"),
    ):
        started = time.monotonic()
        with pytest.raises(forebay.AccessDenied) as refused:
            call()
        assert refused.value.status == status
        assert time.monotonic() - started < 5, "a refusal is not tried again"


def test_asynchronous_clients_send_the_token(bucket: forebay.Bucket, users: UsersCluster) -> None:
    async def read() -> bytes:
        client = forebay.AsyncClient(
            users.endpoint, ca_file=users.ca, token=users.token_of("reader")
        )
        async with client:
            found = await client.bucket(bucket.name).object("o01").get().read_all()
            return bytes(found)

    assert asyncio.run(read()) == BODIES["o01"]


def test_file_systems_of_fsspec_send_the_token(
    bucket: forebay.Bucket, users: UsersCluster
) -> None:
    fsspec = pytest.importorskip("fsspec")
    options = {"endpoint": users.endpoint, "ca_file": users.ca}
    reader = fsspec.filesystem("forebay", token=users.token_of("reader"), **options)
    assert reader.cat(f"{bucket.name}/o01") == BODIES["o01"]
    with pytest.raises(PermissionError):
        reader.pipe(f"{bucket.name}/o01", b"x")


def test_datasets_read_with_the_token_of_a_client_of_aistore(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client], users: UsersCluster
) -> None:
    sdk = pytest.importorskip("aistore.sdk")
    compat = pytest.importorskip("forebay_torch.compat.aistore")
    theirs = sdk.Client(users.endpoint, ca_cert=users.ca, token=users.token_of("reader"))
    dataset = compat.AISMapDataset(ais_source_list=theirs.bucket(bucket.name))
    assert dict(dataset) == BODIES


def test_a_pickled_client_carries_its_token(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client]
) -> None:
    reader = client("reader")
    copy = pickle.loads(pickle.dumps(reader))
    assert copy == reader
    assert copy.bucket(bucket.name).object("o01").get().read_all() == BODIES["o01"]
    again = copy.with_retry(forebay.Retry())
    assert again.bucket(bucket.name).object("o02").get().read_all() == BODIES["o02"]


def test_clients_of_different_users_are_not_equal(client: Callable[..., forebay.Client]) -> None:
    assert client("reader") != client("writer")


def test_neither_texts_nor_errors_show_the_token(
    bucket: forebay.Bucket, client: Callable[..., forebay.Client], users: UsersCluster
) -> None:
    token = users.token_of("reader")
    reader = forebay.Client(users.endpoint, ca_file=users.ca, token=token, timeout=20)
    there = reader.bucket(bucket.name)
    texts = [repr(reader), str(reader), repr(there), repr(there.object("o01")), repr(reader._native)]
    with pytest.raises(forebay.AccessDenied) as denied:
        there.object("o01").put(b"x")
    wrong = forebay.Client(users.endpoint, ca_file=users.ca, token=f"{token}x", timeout=5)
    with pytest.raises(forebay.AccessDenied) as invalid:
        wrong.bucket(bucket.name).object("o01").head()
    unreachable = forebay.Client("https://127.0.0.1:9", ca_file=users.ca, token=token, timeout=1)
    with pytest.raises(forebay.ForebayError) as gone:
        unreachable.buckets()
    for error in (denied.value, invalid.value, gone.value):
        texts += [str(error), repr(error), repr(error.__dict__)]
    signature = token.rsplit(".", 1)[1]
    assert not [text for text in texts if signature in text]


def test_a_token_file_that_changes_is_read_again(
    bucket: forebay.Bucket,
    client: Callable[..., forebay.Client],
    users: UsersCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "token"
    file.write_text(users.token_of("stranger"))
    monkeypatch.setenv("FOREBAY_TOKEN_FILE", str(file))
    there = client(None).bucket(bucket.name)
    with pytest.raises(forebay.AccessDenied):
        there.object("o01").get().read_all()
    half = tmp_path / "token.new"
    half.write_text(users.token_of("reader"))
    half.rename(file)

    def reads() -> bool:
        try:
            return bool(there.object("o01").get().read_all() == BODIES["o01"])
        except forebay.AccessDenied:
            return False

    wait_until(reads, "the client uses the new token", 3)


WORKERS = """
import os
import sys
import forebay
from forebay_torch import IterableDataset, MapDataset
from torch.utils.data import DataLoader

def pair(data): return len(bytes(data))

def main():
    uri, start = sys.argv[1:]
    sizes = []
    # One with a client of its own, one with that of the environment.
    token = os.environ.pop("FOREBAY_TOKEN")
    client = forebay.Client(token=token)
    given = MapDataset(sources=client.bucket_of(uri)[0], data_format_fn=pair)
    loader = DataLoader(given, batch_size=4, num_workers=2, multiprocessing_context=start)
    sizes.append(sum(int(n) for batch in loader for n in batch))
    os.environ["FOREBAY_TOKEN"] = token
    found = IterableDataset(sources=uri, data_format_fn=pair)
    loader = DataLoader(found, batch_size=4, num_workers=2, multiprocessing_context=start)
    sizes.append(sum(int(n) for batch in loader for n in batch))
    print(sizes)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_two_worker_processes_of_a_loader_have_the_token(
    bucket: forebay.Bucket, users: UsersCluster, tmp_path: Path, start: str
) -> None:
    script = tmp_path / "loader.py"
    script.write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, script, bucket.uri, start],
        env=users.environment(users.token_of("reader")),
        capture_output=True,
        text=True,
        timeout=120,
    )
    total = sum(map(len, BODIES.values()))
    assert done.stdout.strip() == str([total, total]), done.stderr


CHECKPOINT = """
import sys
import torch
from forebay_torch import Checkpoint
state = {"weight": torch.arange(1 << 20), "step": 7}
checkpoint = Checkpoint("p", sys.argv[1])
try:
    with checkpoint.writer("epoch0.ckpt") as writer:
        torch.save(state, writer)
except PermissionError as error:
    print("refused", error.status)
with checkpoint.reader("epoch0.ckpt") as reader:
    loaded = torch.load(reader, weights_only=True)
print(torch.equal(loaded["weight"], state["weight"]), loaded["step"])
"""


def test_a_writer_saves_checkpoints_that_a_reader_only_loads(
    bucket: forebay.Bucket, users: UsersCluster
) -> None:
    saved = run(users, CHECKPOINT, bucket.uri, token=users.token_of("writer"))
    assert saved.stdout == "True 7\n", saved.stderr
    loaded = run(users, CHECKPOINT, bucket.uri, token=users.token_of("reader"))
    assert loaded.stdout == "refused 403\nTrue 7\n", loaded.stderr
