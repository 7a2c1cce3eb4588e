"""Shards that are being read while the target that serves them dies."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from forebay_cluster import Cluster
from shard_files import tar

import forebay
from forebay_torch import ShardReader


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect to who asked."""

    def redirect_request(self, *_: Any) -> None:
        return None


def owner(cluster: Cluster, bucket: forebay.Bucket, name: str) -> str:
    """The id of the target that a gateway sends readers of this object to."""
    opener = urllib.request.build_opener(NoRedirect)
    with pytest.raises(urllib.error.HTTPError) as sent:
        opener.open(f"{cluster.endpoint}/v1/objects/{bucket.name}/{name}", timeout=10)
    location = sent.value.headers["Location"]
    sent.value.close()
    return next(str(t["id"]) for t in cluster.targets if location.startswith(t["url"]))


def test_an_epoch_over_shards_sees_every_sample_once_although_a_target_is_killed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    samples: dict[str, Any] = {}
    for shard in range(4):
        own = {f"{shard}-{i:02}": {"bin": os.urandom(200_000)} for i in range(40)}
        members = [(f"{key}.bin", parts["bin"]) for key, parts in own.items()]
        (folder / f"s{shard}.tar").write_bytes(tar(members))
        samples.update(own)
    (tmp_path / "cluster").mkdir()
    cluster = Cluster.start(tmp_path / "cluster", options=["--folder-root", str(folder)])
    try:
        bucket = forebay.Client(cluster.endpoint).bucket("shards").create(folder=folder)
        # Little is read ahead, so that the kill comes while most of the shard is still to come.
        reader = ShardReader(bucket, read_ahead=1 << 16)
        got = []
        for sample in reader:
            got.append(sample)
            if len(got) == 3:
                cluster.kill(owner(cluster, bucket, "s0.tar"))
        assert len(got) == len(samples)
        assert dict(got) == samples
    finally:
        cluster.stop()
