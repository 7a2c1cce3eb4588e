"""Libraries for tables read and write buckets by URLs of fsspec: the examples of examples/tables.

`ci/tables.sh` and `ci/transformers.sh` fetch those that the test environment does not have into folders
of their own; `make test-py` runs this file with these folders in PYTHONPATH. Ray is too large for that:
where it is installed, its example is run, too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator

import forebay
import pytest
from conftest import REPOSITORY, Cluster

PRINTED = {
    "pandas": "100000 ids with the sum 4999950000, and 10 rows of CSV",
    "pyarrow": "4 files, ids [99991, 99995, 99999]",
    "polars": "3000 rows, the last [2998, 2999]",
    "dask": "10 words, 100 times each; ids with the sum 499500",
    "datasets": "1000 saved, 1000 of parquet, streamed {'text': 'line 0', 'id': 0}",
    "ray": "1000 rows with the sum 499500",
}


@pytest.fixture(scope="module")
def folder(cluster: Cluster) -> Iterator[str]:
    bucket = forebay.Client(cluster.endpoint).bucket("tables").create()
    yield "fb://tables"
    bucket.delete()


@pytest.mark.parametrize("library", PRINTED)
def test_a_library_reads_and_writes_a_bucket_by_its_url(
    library: str, cluster: Cluster, folder: str
) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f'PYTHONPATH="$(ci/tables.sh)" has {library}, unless it is Ray')
    assert run_example(library, cluster, folder) == PRINTED[library]


def test_a_model_of_hugging_face_is_saved_loaded_and_read_in_part(
    cluster: Cluster, folder: str
) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip('PYTHONPATH="$(ci/tables.sh):$(ci/transformers.sh)" has transformers')
    assert run_example("transformers", cluster, folder) == (
        "2 files of weights, 2 of 2 models that say the same, 4 rows of 1000"
    )


def run_example(library: str, cluster: Cluster, folder: str) -> str:
    """The last line that it prints."""
    done = subprocess.run(
        [sys.executable, REPOSITORY / f"examples/tables/with_{library}.py", f"{folder}/{library}"],
        env={**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]
