"""Lhotse's loader of batches from AIStore reads from us: recordings, members of shards, arrays.

`ci/lhotse.sh` fetches Lhotse into a folder of its own; `make test-py` runs this file with that
folder in PYTHONPATH. Elsewhere the file is skipped.
"""

from __future__ import annotations

import io
import logging
import wave
from collections.abc import Iterator

import numpy as np
import pytest
from aistore.sdk import Bucket, Client
from conftest import Cluster
from shard_files import pack

pytest.importorskip("lhotse", reason='PYTHONPATH="$(ci/lhotse.sh)" has Lhotse')

from lhotse import CutSet, MonoCut, Recording
from lhotse.ais import AISBatchLoader
from lhotse.array import Array
from lhotse.audio import AudioSource
from lhotse.serialization import get_aistore_client

RATE = 16_000
COUNT = 24


def tone(number: int) -> np.ndarray:
    """A second of 16-bit samples, shape (RATE,), that only this number has."""
    return (np.sin(np.arange(RATE) * (0.01 + number / 1000)) * 20_000).astype(np.int16)


def wav(number: int) -> bytes:
    """The tone as a file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(tone(number).tobytes())
    return out.getvalue()


@pytest.fixture(scope="module")
def bucket(cluster: Cluster) -> Iterator[Bucket]:
    """Half of the recordings as objects, the others in shards of two formats."""
    own = Client(cluster.endpoint).bucket("speech")
    own.create()
    for number in range(COUNT // 2):
        own.object(f"wav/{number:02}.wav").get_writer().put_content(wav(number))
    for ending, numbers in ((".tar", range(12, 18)), (".tar.gz", range(18, 24))):
        members = [(f"{number:02}.wav", wav(number)) for number in numbers]
        own.object(f"shard{ending}").get_writer().put_content(pack(members, ending))
    yield own
    own.delete(missing_ok=True)


@pytest.fixture
def loader(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AISBatchLoader:
    monkeypatch.setenv("AIS_ENDPOINT", cluster.endpoint)
    get_aistore_client.cache_clear()
    return AISBatchLoader()


def url(number: int) -> str:
    if number < 12:
        return f"ais://speech/wav/{number:02}.wav"
    ending = ".tar" if number < 18 else ".tar.gz"
    return f"ais://speech/shard{ending}/{number:02}.wav"


def cut(number: int) -> MonoCut:
    source = AudioSource(type="url", channels=[0], source=url(number))
    name = f"r{number}"
    recording = Recording(name, [source], sampling_rate=RATE, num_samples=RATE, duration=1.0)
    return MonoCut(name, start=0.0, duration=1.0, channel=0, recording=recording)


def test_a_batch_of_cuts_is_one_request_and_has_every_recording(
    cluster: Cluster,
    bucket: Bucket,
    loader: AISBatchLoader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    order = [number * 7 % COUNT for number in range(COUNT)]
    before = cluster.count("forebay_http_requests_total", op="moss")
    with caplog.at_level(logging.WARNING):
        cuts = loader(CutSet.from_cuts([cut(number) for number in order]).to_eager())
    assert not caplog.records, "it fell back to nothing"
    assert cluster.count("forebay_http_requests_total", op="moss") - before == 1
    for number, loaded in zip(order, cuts, strict=True):
        assert loaded.recording.sources[0].source == wav(number)
        audio = loaded.load_audio()
        assert audio.shape == (1, RATE)
        assert np.allclose(audio[0] * 32768, tone(number), atol=1)


def test_arrays_beside_recordings_are_in_the_same_batch(
    bucket: Bucket, loader: AISBatchLoader
) -> None:
    vector = np.arange(500, dtype=np.float32)
    out = io.BytesIO()
    np.save(out, vector)
    bucket.object("vectors/a.npy").get_writer().put_content(out.getvalue())
    both = cut(3)
    both.custom = {
        "vector": Array(
            storage_type="numpy_files",
            storage_path="ais://speech/vectors",
            storage_key="a.npy",
            shape=list(vector.shape),
        )
    }
    (loaded,) = loader(CutSet.from_cuts([both]).to_eager())
    assert loaded.recording.sources[0].source == wav(3)
    assert loaded.vector.storage_key == out.getvalue()

