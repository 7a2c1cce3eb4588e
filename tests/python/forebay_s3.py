"""Shared by the tests of S3 clients: credentials, settings of a client, odd names, bytes.

Fixtures that use it (`s3_cluster`, `s3_url`, `s3`, `bucket`) are in conftest.py.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

# The first of the keys that a cluster has by default.
ACCESS = "forebay"
SECRET = "forebaysecret"
REGION = "us-east-1"

# Over the threshold of every client from which it uploads in parts, and not a multiple of a part.
LARGE_OBJECT_BYTES = (17 << 20) + 4321
COMMAND_DEADLINE_S = 120.0

# Names as people have them. Every client can say them, files of these names can be made.
ODD_NAMES = [
    "with space",
    "plus+and&=?#",
    "percent%20sign",
    "ünï/çødé",
    "數據/🐱",
    "(brackets) [too] {here}",
    "it's ~fine, $really; @home!",
    "ds/part-1",
]


def client(
    url: str, secret: str = SECRET, style: str = "path", access: str = ACCESS, **config: Any
) -> Any:
    """boto3 with the keys that a trial cluster has by default."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": style}, **config),
    )


def content(size: int, seed: int = 0) -> bytes:
    """`size` bytes that no compression and no shift of offsets would leave unnoticed."""
    return random.Random(seed).randbytes(size)


def environment(url: str) -> dict[str, str]:
    """The variables by which every client of AWS's makers finds `url`, and nothing else."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        # No settings of the user that runs the tests, and no question to a machine in a cloud.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def built(script: str) -> str:
    """The program that a script of `ci` finds or builds; skips where there is no Go."""
    folder = Path(__file__).parents[2] / "ci"
    done = subprocess.run([folder / script], stdout=subprocess.PIPE, text=True)
    if done.returncode == 3:
        pytest.skip(f"ci/{script} finds no Go")
    assert done.returncode == 0
    return done.stdout.strip()


def program(distribution: str, name: str) -> Path:
    """The executable `name` that a Python package brought along."""
    for file in importlib.metadata.files(distribution) or []:
        if file.name == name and file.parent.name == "bin":
            return Path(str(file.locate())).resolve()
    pytest.fail(f"the package {distribution} has no program {name}")


def duckdb_httpfs() -> Path:
    """DuckDB's extension for S3, from a Python package: its own `INSTALL` downloads it."""
    package = importlib.util.find_spec("duckdb_extension_httpfs")
    assert package and package.origin
    (extension,) = Path(package.origin).parent.rglob("httpfs.duckdb_extension")
    return extension


def run(command: list[Any], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Output of a command that succeeds; fails the test with all it said when it does not."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=COMMAND_DEADLINE_S,
    )
    if done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files of these names, with `/` for folders, under `folder`."""
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files under `folder` by their names relative to it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def objects(s3: Any, bucket: str) -> dict[str, bytes]:
    """Everything in a bucket, as boto3 reads it."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}
