"""Retries of clouds that travel with a dataset's requests."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

import forebay
from forebay import Client, Retry
from forebay_torch import Config, MapDataset
from forebay_torch.compat.s3 import S3ClientConfig, S3MapDataset


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str | None]]]:
    """A server that refuses everything, and the retries that its requests asked for."""
    received: list[str | None] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("forebay-cloud-retry"))
            self.send_response(403)
            self.send_header("content-length", "0")
            self.end_headers()

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def test_retry_has_the_builders_of_google_api_core() -> None:
    retry = Retry().with_deadline(300.0).with_delay(initial=1.0, multiplier=1.2, maximum=45.0)
    assert (retry.initial, retry.multiplier, retry.maximum, retry.deadline) == (1.0, 1.2, 45.0, 300)
    assert retry.with_delay(initial=2.0).maximum == 45.0
    assert pickle.loads(pickle.dumps(retry)) == retry
    for wrong in ({"initial": -1}, {"multiplier": 0.5}, {"max_attempts": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Retry(**wrong)  # type: ignore[arg-type]


def test_a_retry_of_google_is_taken_by_its_attributes() -> None:
    googles = SimpleNamespace(_initial=1.5, _maximum=20.0, _multiplier=3, _timeout=60.0)
    assert Retry.of(googles) == Retry(1.5, 3.0, 20.0, 60.0)
    config = Config(list_retry_config=googles)  # type: ignore[arg-type]
    assert config.list_retry_config == Retry(1.5, 3.0, 20.0, 60.0)
    with pytest.raises(TypeError, match="not a str"):
        Config(download_retry_config="often")  # type: ignore[arg-type]


def test_list_retry_config_goes_with_the_requests_of_a_listing(listener: Any) -> None:
    url, received = listener
    retry = Retry(initial=0.25, multiplier=1.5, maximum=4, deadline=9, max_attempts=3, jitter=False)
    with pytest.raises(PermissionError):
        MapDataset(Client(url).bucket("b"), config=Config(list_retry_config=retry))
    assert set(received) == {
        "attempts=3,first_pause_ms=250,multiplier=1.5,longest_pause_ms=4000,"
        "deadline_ms=9000,jitter=0"
    }
    received.clear()
    with pytest.raises(PermissionError):
        MapDataset(Client(url).bucket("b"))
    assert set(received) == {None}, "without one the bucket's own settings hold"


def test_download_retry_config_goes_with_the_dataset_to_its_workers(
    bucket: forebay.Bucket,
) -> None:
    bucket.object("a").put(b"x")
    dataset = MapDataset(bucket, config=Config(download_retry_config=Retry(deadline=7)))
    for one in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert one.get_obj_list()[0].bucket.client.retry == Retry(deadline=7)
        assert one[0] == ("a", b"x") and one.__getitems__([0]) == [("a", b"x")]


def test_max_attempts_of_a_client_config_travels_and_the_rest_is_taken(
    bucket: forebay.Bucket,
) -> None:
    bucket.object("a").put(b"x")
    config = S3ClientConfig(
        throughput_target_gbps=5.0,
        part_size=8 << 20,
        unsigned=True,
        force_path_style=True,
        max_attempts=4,
        profile="p",
        requester_pays=True,
    )
    dataset = S3MapDataset.from_prefix(f"{bucket.uri}/", s3client_config=config)
    assert dataset[0].read() == b"x"
    item = dataset._inner().get_obj_list()[0]
    assert item.bucket.client.retry == Retry(max_attempts=4)
