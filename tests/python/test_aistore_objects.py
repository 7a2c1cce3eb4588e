"""Operations of the AIStore SDK on single objects beside reading and writing them."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from aistore.sdk import Bucket, Client
from aistore.sdk.blob_download_config import BlobDownloadConfig
from aistore.sdk.errors import AISError
from conftest import Cluster


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of files that may become objects."""
    return tmp_path_factory.mktemp("promote")


@pytest.fixture(scope="module")
def cluster(start_cluster, files: Path) -> Cluster:
    return start_cluster(env={"FOREBAY_PROMOTE__ROOT": str(files)})


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    return Client(cluster.endpoint)


def bucket(client: Client, name: str) -> Bucket:
    return client.bucket(name).create(exist_ok=True)


def test_copies_have_their_source_and_its_metadata(client: Client) -> None:
    source, target = bucket(client, "sdk-copy"), bucket(client, "sdk-copied")
    first = source.object("dir/ä 1%.bin")
    first.get_writer().put_content(b"bytes" * 1000)
    first.get_writer().set_custom_props({"k": "v"})
    copy = target.object("other name #2")
    assert first.copy(copy).status_code == 200
    assert copy.get_reader().read_all() == first.get_reader().read_all() == b"bytes" * 1000
    assert copy.props.custom_metadata == {"k": "v"}
    with pytest.raises(AISError, match="sdk-nowhere.* does not exist"):
        first.copy(client.bucket("sdk-nowhere").object("x"))


def test_folders_are_promoted(client: Client, files: Path) -> None:
    target = bucket(client, "sdk-promoted")
    folder = files / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "top").write_text("top")
    (folder / "sub" / "inner").write_text("inner")
    job = target.object("p/").promote(str(folder), recursive=True, delete_source=True)
    assert client.job(job).wait(timeout=30).success
    assert sorted(e.name for e in target.list_all_objects()) == ["p/sub/inner", "p/top"]
    assert target.object("p/sub/inner").get_reader().read_all() == b"inner"
    assert not (folder / "top").exists()
    with pytest.raises(AISError, match="must be under"):
        target.object("x").promote("/etc/hostname")


def test_blob_downloads_are_for_remote_buckets(client: Client) -> None:
    native = bucket(client, "sdk-native")
    native.object("x").get_writer().put_content(b"x")
    with pytest.raises(AISError, match="has no backend"):
        native.object("x").blob_download()
    config = BlobDownloadConfig(chunk_size="1mb", num_workers="4")
    with pytest.raises(AISError, match="has no backend"):
        native.object("x").get_reader(blob_download_config=config).read_all()


def test_easy_urls_with_names_that_have_slashes(client: Client, cluster: Cluster) -> None:
    easy = bucket(client, "sdk-easy")
    url = f"{cluster.endpoint}/ais/sdk-easy"
    assert requests.put(f"{url}/d/e/x%20y", data=b"bytes", timeout=10).status_code == 200
    assert easy.object("d/e/x y").get_reader().read_all() == b"bytes"
    assert requests.get(f"{url}/d/e/x%20y", timeout=10).content == b"bytes"
    assert "d/e/x y" in requests.get(url, timeout=10).text
