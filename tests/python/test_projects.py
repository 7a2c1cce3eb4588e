"""The project that a user of Google's buckets names, and the one that the reads count for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cluster, FakeGcs
from forebay import Client, local
from forebay_torch import IterableDataset, MapDataset
from forebay_torch.compat.dataflux import DataFluxIterableDataset, DataFluxMapStyleDataset
from forebay_torch.project import quota_project

UNSET = (
    *("FOREBAY_ENDPOINT", "AIS_ENDPOINT", "STORAGE_EMULATOR_HOST"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_QUOTA_PROJECT"),
)


@pytest.fixture
def own_server(
    tmp_path: Path, forebay_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """No cluster is named, and the server of this user is not started yet."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FOREBAY_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("FOREBAY_BIN", str(forebay_bin))
    monkeypatch.setenv("FOREBAY_LOCAL", "on")
    monkeypatch.setenv("FOREBAY_LOCAL_SIZE", "1GiB")
    yield monkeypatch
    server = local.LocalServer(local.default_folder())
    server.leave()
    server.stop()


@pytest.fixture
def in_google(fake_gcs: FakeGcs) -> str:
    """A bucket with one object."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    fake_gcs.create_bucket(name)
    fake_gcs.put(name, "train/0", b"content")
    return name


def credentials(path: Path, **fields: str) -> Path:
    """A file as `gcloud auth application-default login` leaves it, with keys that are none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    secrets = {"client_id": "id", "client_secret": "none", "refresh_token": "none"}
    path.write_text(json.dumps({"type": "authorized_user", **secrets, **fields}))
    return path


def test_another_project_than_that_of_the_credentials_is_an_error_at_construction(
    own_server: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = credentials(tmp_path / "adc.json", quota_project_id="theirs")
    own_server.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    for dataflux in (DataFluxMapStyleDataset, DataFluxIterableDataset):
        with pytest.raises(ValueError, match="'ours'.*adc.json names the project 'theirs'"):
            dataflux(project_name="ours", bucket_name="images")
    for kind in (MapDataset, IterableDataset):
        with pytest.raises(ValueError, match="gs://images"):
            kind(project_name="ours", bucket_name="gs://images")


def test_a_project_is_compared_for_buckets_of_google_alone(own_server: pytest.MonkeyPatch) -> None:
    own_server.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "theirs")
    Client().bucket("native").create().object("o").put(b"x")
    assert list(DataFluxMapStyleDataset("ours", "ais://native")) == [b"x"]


def test_a_project_counts_nothing_at_an_emulator(
    own_server: pytest.MonkeyPatch, fake_gcs: FakeGcs, in_google: str
) -> None:
    own_server.setenv("STORAGE_EMULATOR_HOST", fake_gcs.endpoint)
    own_server.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "theirs")
    assert list(DataFluxMapStyleDataset("ours", in_google)) == [b"content"]


def test_a_clusters_credentials_are_not_those_of_this_process(
    own_server: pytest.MonkeyPatch,
    start_cluster: Callable[..., Cluster],
    fake_gcs: FakeGcs,
    in_google: str,
) -> None:
    running = start_cluster(targets=1, env=fake_gcs.env)
    own_server.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "theirs")
    client = Client(running.endpoint, timeout=15)
    assert list(DataFluxMapStyleDataset("ours", in_google, storage_client=client)) == [b"content"]
    assert local.LocalServer(local.default_folder()).running() is None


def test_a_server_that_was_started_with_other_credentials_is_not_judged_by_ours(
    own_server: pytest.MonkeyPatch, fake_gcs: FakeGcs, in_google: str
) -> None:
    own_server.setenv("STORAGE_EMULATOR_HOST", fake_gcs.endpoint)
    client = Client()
    own_server.delenv("STORAGE_EMULATOR_HOST")
    own_server.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "theirs")
    assert list(DataFluxMapStyleDataset("ours", in_google, storage_client=client)) == [b"content"]


def test_the_project_of_credentials_is_found_where_the_targets_find_it(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert quota_project(home)[0] is None
    left = credentials(
        tmp_path / ".config/gcloud/application_default_credentials.json", quota_project_id="left"
    )
    assert quota_project(home) == ("left", str(left))
    service = credentials(tmp_path / "key.json", type="service_account", project_id="its-home")
    key = {**home, "GOOGLE_APPLICATION_CREDENTIALS": str(service)}
    assert quota_project(key) == (None, str(service)), "its home is not who pays"
    named = {**key, "GOOGLE_CLOUD_QUOTA_PROJECT": "named"}
    assert quota_project(named) == ("named", "GOOGLE_CLOUD_QUOTA_PROJECT")
    assert quota_project({**named, "STORAGE_EMULATOR_HOST": "localhost:1"})[0] is None
    for damaged in ("", "[]", "{"):
        left.write_text(damaged)
        assert quota_project(home)[0] is None
