"""S3Checkpoint of s3torchconnector on MinIO, and the one of forebay_torch.compat.s3 on a cluster before
the same bucket: what holds for the one holds for the other.

`test_s3_torchconnector.py` runs this file in a process of its own, with the addresses and BUCKET in the
environment.
"""

from __future__ import annotations

import inspect
import io
import os
import uuid
from collections.abc import Callable
from typing import Any

import forebay
import forebay_torch.compat.s3 as ours
import pytest
import s3torchconnector as theirs
import torch

PART = 5 << 20
MADE = {"theirs": theirs, "ours": ours}
STATE = {"weights": torch.arange(3 << 20, dtype=torch.float32), "step": 7}
both = pytest.mark.parametrize("which", MADE)


def checkpoint(which: str) -> Any:
    module: Any = MADE[which]
    config = module.S3ClientConfig(force_path_style=True, part_size=PART, max_attempts=1)
    return module.S3Checkpoint("us-east-1", os.environ["AWS_ENDPOINT_URL"], config)


@pytest.fixture
def uri() -> str:
    """Of an object that is not there yet."""
    return f"s3://{os.environ['BUCKET']}/{uuid.uuid4().hex}/model.pt"


def test_the_calls_take_the_same_arguments() -> None:
    def taken(call: Callable[..., Any]) -> list[str]:
        return [n for n, p in inspect.signature(call).parameters.items() if p.kind != p.KEYWORD_ONLY]

    for name in ("__init__", "reader", "writer"):
        calls = [getattr(module.S3Checkpoint, name) for module in (theirs, ours)]
        assert taken(calls[0]) == taken(calls[1])
    fields = [module.S3ClientConfig.__dataclass_fields__ for module in (theirs, ours)]
    assert all(fields[1][name].default == field.default for name, field in fields[0].items())


@pytest.mark.parametrize("reads", MADE)
@pytest.mark.parametrize("writes", MADE)
def test_what_one_saves_the_other_loads(uri: str, writes: str, reads: str) -> None:
    with checkpoint(writes).writer(uri) as writer:
        torch.save(STATE, writer)
    with checkpoint(reads).reader(uri) as reader:
        loaded = torch.load(reader, weights_only=True)
    assert loaded["step"] == 7 and torch.equal(loaded["weights"], STATE["weights"])


@both
def test_a_reader_is_a_seekable_file_that_knows_its_object(which: str, uri: str) -> None:
    content = os.urandom(PART + 1000)
    with checkpoint(which).writer(uri) as writer:
        writer.write(content)
    with checkpoint(which).reader(uri) as reader:
        assert isinstance(reader, MADE[which].S3Reader) and isinstance(reader, io.BufferedIOBase)
        assert f"s3://{reader.bucket}/{reader.key}" == uri
        assert (reader.readable(), reader.seekable(), reader.writable()) == (True, True, False)
        assert reader.read(4) == content[:4] and reader.tell() == 4
        assert reader.seek(-6, io.SEEK_END) == len(content) - 6 and reader.read() == content[-6:]
        assert reader.read(1) == b"" and reader.seek(PART - 2) == PART - 2
        memory = bytearray(50)
        assert reader.readinto(memory) == 50 and memory == content[PART - 2 : PART + 48]
        with pytest.raises(ValueError, match="negative seek"):
            reader.seek(-1)


@both
def test_a_writer_stores_what_it_was_given_when_it_is_closed(which: str, uri: str) -> None:
    writer = checkpoint(which).writer(uri)
    assert isinstance(writer, MADE[which].S3Writer) and isinstance(writer, io.BufferedIOBase)
    assert (writer.readable(), writer.writable(), writer.closed) == (False, True, False)
    assert writer.write(b"abc") == 3 and writer.write(memoryview(b"de")) == 2
    writer.flush()
    assert writer.tell() == 5
    writer.close()
    writer.close()
    assert writer.closed and not writer.writable()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"f")
    assert checkpoint(which).reader(uri).read() == b"abcde"


@both
def test_an_exception_in_the_block_leaves_the_old_object_and_is_the_one_raised(
    which: str, uri: str
) -> None:
    with checkpoint(which).writer(uri) as writer:
        writer.write(b"old")
    with pytest.raises(ZeroDivisionError), checkpoint(which).writer(uri) as writer:
        writer.write(bytes(3 * PART))
        raise ZeroDivisionError
    assert checkpoint(which).reader(uri).read() == b"old"


@both
def test_what_is_not_there_is_an_S3Exception(which: str, uri: str) -> None:
    with pytest.raises(MADE[which].S3Exception):
        checkpoint(which).reader(uri).read()
    with pytest.raises(MADE[which].S3Exception), checkpoint(which).writer(f"s3://none-{uri[5:]}") as file:
        file.write(b"x")


@both
@pytest.mark.parametrize("wrong", ["", "model.pt", "s3://", "/s3/bucket/key", "ftp://bucket/key"])
def test_what_is_no_URI_is_a_ValueError(which: str, wrong: str) -> None:
    for call in (checkpoint(which).reader, checkpoint(which).writer):
        with pytest.raises(ValueError):
            call(wrong)


def test_a_client_may_be_passed(uri: str) -> None:
    client = forebay.Client(os.environ["FOREBAY_ENDPOINT"], timeout=20)
    with ours.S3Checkpoint(client=client).writer(uri) as writer:
        writer.write(b"by a client")
    assert checkpoint("theirs").reader(uri).read() == b"by a client"
