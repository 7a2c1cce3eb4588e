"""The S3 front as WebDataset uses it: shards that a command streams in and out, as `pipe:` says."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import webdataset as wds
from forebay_s3 import content, environment, objects, program

SAMPLES = 30


@pytest.fixture
def aws(s3_url: str) -> str:
    """The command line, with the settings of the endpoint in it: this process has native threads of other
    clients, under which its own environment must not change."""
    settings = [f"{name}={value}" for name, value in environment(s3_url).items()]
    return shlex.join(["env", *settings, str(program("awscli", "aws"))])


def sample(n: int) -> dict[str, Any]:
    return {"__key__": f"{n:06}", "jpg": content(40_000 + n, n), "cls": n % 10, "json": {"n": n}}


def test_shards_are_written_and_read_through_pipes(aws: str, s3: Any, bucket: str) -> None:
    there = f"s3://{bucket}/set"
    with wds.ShardWriter(f"pipe:{aws} s3 cp - {there}/%06d.tar", maxcount=10, verbose=0) as shards:
        for n in range(SAMPLES):
            shards.write(sample(n))
    assert list(objects(s3, bucket)) == [f"set/{n:06}.tar" for n in range(3)]
    urls = f"pipe:{aws} s3 cp {there}/{{000000..000002}}.tar -"
    read = list(wds.WebDataset(urls, shardshuffle=False).decode())
    assert [each["__key__"] for each in read] == [f"{n:06}" for n in range(SAMPLES)]
    assert all(sample(n).items() <= each.items() for n, each in enumerate(read))


def test_a_presigned_address_is_read_by_curl(aws: str, s3: Any, bucket: str) -> None:
    command = f"{aws} s3 cp - 's3://{bucket}/a b.tar'"
    with wds.TarWriter(f"pipe:{command}") as shard:
        shard.write({"__key__": "one", "txt": "hello"})
    url = s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a b.tar"})
    (read,) = wds.WebDataset([f"pipe:curl -sSf '{url}'"], shardshuffle=False).decode()
    assert read["txt"] == "hello"
