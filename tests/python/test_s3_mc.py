"""The S3 front as MinIO's client uses it: the same script here and on MinIO has the same results.

`make test-long` runs this; `ci/mc.sh` builds the client.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Cluster, Minio
from forebay_s3 import ACCESS, SECRET, built, content

pytestmark = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(900),
]

CHECKSUMS = ["CRC64NVME", "CRC32", "CRC32C", "SHA1", "SHA256"]

# Name and command. `x` is the server, `src` a folder, `out` an empty one.
MC_COMMANDS = {
    "mb": "mc mb x/one",
    "mb of a bad name": "mc mb x/no_good",
    "mb -p": "mc mb -p x/one",
    "cp": "mc cp src/a.txt x/one/a.txt",
    "cp --attr": 'mc cp --attr "Cache-Control=max-age=90;label=cat" src/a.txt x/one/attr',
    "cp --tags": 'mc cp --tags "k1=v1&k2=v2" src/a.txt x/one/tagged',
    "cp --md5": "mc cp --md5 src/big x/one/md5",
    "cp --disable-multipart": "mc cp --disable-multipart src/big x/one/single",
    "cp -r": "mc cp -r src/ x/one/dir/",
    "cp -r back": "mc cp -r x/one/dir/ out/back/ && diff -r src out/back",
    "put of parts": "mc put --part-size 5MiB --parallel 2 src/big x/one/parts",
    "pipe of unknown length": "head -c 70000000 /dev/zero | pipe x/one/piped",
    "pipe of little": "echo hi | pipe x/one/piped-little",
    "pipe of nothing": "printf '' | pipe x/one/piped-nothing",
    "pipe --checksum": "cat src/big | pipe --checksum crc32c x/one/piped-sum",
    "cat of what was piped": "mc cat x/one/piped | cksum; mc cat x/one/piped-sum | cmp - src/big",
    **{
        f"{step} {sum}": command.replace("SUM", sum)
        for sum in CHECKSUMS
        for step, command in {
            "put --checksum": "mc put --checksum SUM src/big x/one/put-SUM",
            "cp --checksum": "mc cp --checksum SUM src/big x/one/cp-SUM",
            "cp --checksum of little": "mc cp --checksum SUM src/a.txt x/one/little-SUM",
            "cat of": "mc cat x/one/put-SUM | cmp - src/big",
            "stat of": "mc stat x/one/put-SUM; mc stat x/one/cp-SUM; mc stat x/one/little-SUM",
        }.items()
    },
    "stat": "mc stat x/one/a.txt",
    "stat of attributes": "mc stat x/one/attr",
    "stat -r": "mc stat -r x/one/dir",
    "stat of nothing": "mc stat x/one/none",
    "cat": "mc cat x/one/dir/sub/b.txt",
    "cat --offset": "mc cat --offset 2 x/one/dir/sub/b.txt",
    "cat --tail": "mc cat --tail 3 x/one/dir/sub/b.txt",
    "cat --part-number": "mc cat --part-number 2 x/one/parts | cksum",
    "head": "mc head -n 1 x/one/dir/sub/b.txt",
    "get": "mc get x/one/a.txt out/got && cmp out/got src/a.txt",
    "ls": "mc ls x/one",
    "ls -r": "mc ls -r x/one",
    "ls --summarize": "mc ls -r --summarize x/one/dir/",
    "ls -I": "mc ls -I x/one",
    "du": "mc du x/one; mc du -r x/one/dir",
    "tree": "mc tree x/one",
    "find --name": 'mc find x/one --name "*.txt"',
    "find --larger": "mc find x/one --larger 1MB",
    "tag": 'mc tag set x/one/a.txt "a=b&c=d" && mc tag list x/one/a.txt; mc tag remove x/one/a.txt',
    "tag of a bucket": 'mc tag set x/one "a=b" && mc tag list x/one && mc tag remove x/one',
    "cp within": "mc cp x/one/a.txt x/one/copy",
    "cp within of parts": "mc cp x/one/put-CRC32C x/one/copy-sum && mc stat x/one/copy-sum",
    "cp within of nothing": "mc cp x/one/none x/one/copy",
    "cp -r within": "mc cp -r x/one/dir/ x/one/dir2/",
    "mv": "mc mv x/one/copy x/one/moved && mc ls x/one/moved",
    "mv -r": "mc mv -r x/one/dir2/ x/one/dir3/ && mc ls -r x/one/",
    "mirror": "mc mirror src x/one/mirror",
    "mirror again": "mc mirror src x/one/mirror",
    "mirror --overwrite": "echo new > src/sub/b.txt; mc mirror --overwrite src x/one/mirror",
    "mirror --remove": "rm src/sub/b.txt; mc mirror --overwrite --remove src x/one/mirror; "
    "mc ls -r x/one/mirror",
    "mirror back": "mc mirror x/one/mirror out/mirror && diff -r src out/mirror",
    "mirror of buckets": "mc mb x/two; mc mirror x/one/mirror x/two",
    "mirror --checksum": "mc mirror --checksum crc32c src x/two/sums",
    "diff": "mc diff x/one/mirror x/two",
    "anonymous": "mc anonymous set download x/one; mc anonymous get x/one; "
    "mc anonymous list x/one; mc anonymous set none x/one",
    "share": "curl -sf $(mc share download x/one/a.txt | sed 's/.*\"share\":\"//; s/\".*//; "
    "s/.u0026/\\&/g') | cmp - src/a.txt",
    "version": "mc version info x/two; mc version enable x/two; mc version info x/two",
    "versions": "for i in 1 2 3; do echo v$i | pipe x/two/v; done; "
    "mc ls --versions x/two/v",
    "stat --versions": "mc stat --versions x/two/v",
    "rm of a version": "mc rm x/two/v; mc ls --versions x/two/v; mc cat x/two/v",
    "undo": "mc undo x/two/v --force; mc cat x/two/v",
    "rm --versions": "mc rm --versions --force x/two/v; mc ls --versions x/two/v",
    "version suspend": "mc version suspend x/two; mc version info x/two",
    "rm": "mc rm x/one/a.txt; mc rm x/one/a.txt; mc ls x/one/a.txt",
    "rm --dry-run": "mc rm -r --force --dry-run x/one/dir",
    "rm -r --force": "mc rm -r --force x/one/dir; mc ls -r x/one/dir",
    "rm --older-than": "mc rm -r --force --older-than 1d x/one/; mc du x/one",
    "rb of a full bucket": "mc rb x/one",
    "rb --force": "mc rb --force x/one; mc rb --force x/two",
}

# Differences, and their reasons.
LEFT_OUT = {
    "mc mb twice": "made again it is there once, as in AWS's first region",
    "mc find --metadata and --tags": "they need a parameter of listings that only MinIO has",
    "mc cat --part-number 9": "InvalidPart as Ceph has it; MinIO has another code",
    "mc ls --rewind": "what it shows depends on the second",
    "mc retention, legalhold, encrypt, ilm, replicate, event, admin": "not served",
}

# Values that differ with each run or server; clients act on none of them.
VOLATILE = {
    *("lastModified", "versionId", "versionID", "time", "speed", "totalTime", "duration"),
    *("elapsed", "location", "expiration", "date", "region", "HostID", "RequestID", "Server"),
    *("Resource", "share", "url", "totalCount", "Message", "message", "Region"),
    # Of delete markers MinIO names one; policies have it or not.
    *("storageClass", "Sid"),
}


def normal(value: Any) -> Any:
    """A document without what may differ."""
    if isinstance(value, dict):
        return {k: normal(v) for k, v in sorted(value.items()) if k not in VOLATILE}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return value


def documents(text: str) -> list[Any]:
    """Parses the output of a command: JSON documents, and lines between them."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            document, at = decoder.raw_decode(text, at)
            found.append(normal(document))
        except ValueError:
            line, _, _ = text[at:].partition("\n")
            at += len(line)
            found.append(line)
    return sorted(found, key=lambda document: json.dumps(document, sort_keys=True))


def outcomes(
    program: str, folder: Path, endpoint: str, access: str, secret: str
) -> dict[str, Any]:
    """The exit code of each step, and what it said."""
    source = folder / "src"
    (source / "sub").mkdir(parents=True)
    (folder / "out").mkdir()
    (source / "a.txt").write_bytes(b"a" * 300_000)
    (source / "big").write_bytes(content(20_000_000))
    (source / "sub/b.txt").write_text("hello\n")
    (source / "sub/c d+é.txt").write_text("\n")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "MC_HOST_x": endpoint.replace("://", f"://{access}:{secret}@"),
    }
    functions = f'''set -o pipefail
        mc() {{ "{program}" --config-dir "{folder}/config" --json "$@"; }}
        pipe() {{ mc pipe "$@" | grep -o "{{.*}}"; }} # without its progress
    '''
    all_steps = {}
    for name, command in MC_COMMANDS.items():
        done = subprocess.run(
            ["bash", "-c", functions + command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = done.stdout.replace(str(folder), "").replace(endpoint, "")
        all_steps[name] = (done.returncode, documents(said))
    return all_steps


def test_a_script_of_mc_has_the_outcomes_that_it_has_on_minio(
    s3_cluster: Cluster, minio: Minio, tmp_path: Path
) -> None:
    program = built("mc.sh")
    ours = outcomes(program, tmp_path / "ours", s3_cluster.endpoint, ACCESS, SECRET)
    keys = (minio.env["AWS_ACCESS_KEY_ID"], minio.env["AWS_SECRET_ACCESS_KEY"])
    theirs = outcomes(program, tmp_path / "theirs", minio.endpoint, *keys)
    worked = [name for name, (code, _) in theirs.items() if code == 0]
    assert len(worked) > len(MC_COMMANDS) * 3 / 4, theirs
    different = {name: (ours[name], theirs[name]) for name in MC_COMMANDS if ours[name] != theirs[name]}
    assert not different, json.dumps(different, indent=1)
