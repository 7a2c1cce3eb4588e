"""A Debian without any toolchain: pip installs what is released from a static index, and a user goes
from there through the first steps in two minutes.

`make test-long` runs this, as root and with debootstrap (ci/debian_rootfs.sh). PyTorch is that of the
test environment, mounted. Its processes do not run as root, and all of them end with the script.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from conftest import REPOSITORY, FakeGcs, Minio, free_ports
from forebay_dist import make_dist, served, tools
from test_readme import ALONE, PORT_IN_README, SESSION

pytestmark = [
    pytest.mark.long,
    pytest.mark.hour,
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
    pytest.mark.timeout(5400),
]

MAX_SECONDS = 120
OBJECTS = 40
USER = 1000
HOME = "srv/researcher"
# In a namespace of mounts and one of processes: nothing of it is left when the script ends.
ENTER = """\
set -eu
mount --rbind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
mount --bind "$TORCH" "$ROOT/opt/torch"
exec chroot --userspec=1000:1000 "$ROOT" /usr/bin/env -i HOME=/srv/researcher \
    PATH=/usr/bin:/bin LANG=C.UTF-8 bash /srv/researcher/steps.sh
"""
# The README's first block, with the bucket as its argument.
FIRST_BLOCK = "import sys\n" + ALONE.code.replace('"gs://bucket/train/"', "sys.argv[1]")
INSTALL_SCRIPT = """\
set -euo pipefail
cd
! command -v cc cargo rustc go node
python3 -m venv venv
echo 'import site; site.addsitedir("/opt/torch")' > venv/lib/python3.11/site-packages/torch.pth
. venv/bin/activate
listed() { find ~ ! -type d ! -path '*/__pycache__/*' ! -path ~/work/'*' ! -name '*.txt' | sort; }
listed > before.txt
pip install --disable-pip-version-check --no-cache-dir --index-url INDEX forebay forebay-torch
begin=$(date +%s)
mkdir work
cd work
(export GCS_ENVIRONMENT; python ../first.py gs://GCS_BUCKET/train/; python -m forebay.local stop)
(export S3_ENVIRONMENT; python ../first.py s3://S3_BUCKET/train/; python -m forebay.local stop)
python ../examples/demo.py --bin "$(command -v forebay)" --dir demo
(
README_SESSION
)
echo "first steps took $(($(date +%s) - begin)) s"
cd
pip uninstall --disable-pip-version-check --yes forebay forebay-torch
listed > after.txt
comm -13 before.txt after.txt | sed 's/^/left: /'
"""


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """A copy of the root folder that the test may write to."""
    script = REPOSITORY / "ci/debian_rootfs.sh"
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True)
    if done.returncode == 3:
        pytest.skip("no Debian root folder; see ci/debian_rootfs.sh")
    assert done.returncode == 0
    root = tmp_path / "debian"
    subprocess.run(["cp", "-a", "--reflink=auto", done.stdout.strip(), root], check=True)
    (root / "opt/torch").mkdir()
    with (root / "etc/passwd").open("a") as users:
        users.write(f"researcher:x:{USER}:{USER}::/{HOME}:/bin/bash\n")
    home = root / HOME
    shutil.copytree(REPOSITORY / "examples", home / "examples")
    (home / "first.py").write_text(FIRST_BLOCK)
    return root


def test_a_laptop_without_a_toolchain_trains_within_two_minutes(
    debian: Path, fake_gcs: FakeGcs, minio: Minio
) -> None:
    released = make_dist()
    # A server knows each name once, whatever the cloud.
    name, s3_name = (f"{cloud}-{uuid.uuid4().hex[:12]}" for cloud in ("gcs", "s3"))
    fake_gcs.create_bucket(name)
    s3 = minio.client()
    s3.create_bucket(Bucket=s3_name)
    for number in range(OBJECTS):
        fake_gcs.put(name, f"train/{number}", bytes(50_000))
        s3.put_object(Bucket=s3_name, Key=f"train/{number}", Body=bytes(50_000))

    session = "\n".join(block.code for block in SESSION)
    with served(released) as server:
        steps = INSTALL_SCRIPT
        for word, text in {
            "INDEX": f"{server.url}/simple/",
            "GCS_ENVIRONMENT": exported(fake_gcs.env),
            "S3_ENVIRONMENT": exported(minio.env),
            "GCS_BUCKET": name,
            "S3_BUCKET": s3_name,
            "README_SESSION": session.replace(PORT_IN_README, str(free_ports(4))),
        }.items():
            steps = steps.replace(word, text)
        (debian / HOME / "steps.sh").write_text(steps)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", debian / HOME], check=True)
        site = f"{tools()}/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
        torch = subprocess.run(site, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER],
            env={"ROOT": str(debian), "TORCH": torch, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
    printed = done.stdout
    print(printed)
    assert done.returncode == 0, printed
    batches = re.findall(r"(?m)^([01]) (\d+) images, \d+ bytes$", printed)
    for epoch in "01":
        assert sum(int(images) for of, images in batches if of == epoch) == 2 * OBJECTS
    assert fake_gcs.reads(name) == OBJECTS, "the second epoch came from the local disk"
    assert "hello from a bucket" in printed
    (seconds,) = re.findall(r"first steps took (\d+) s", printed)
    assert int(seconds) < MAX_SECONDS
    left = re.findall(r"(?m)^left: (.+)$", printed)
    assert left
    assert all(path.startswith(f"/{HOME}/.cache/forebay/") for path in left), left


def exported(environment: dict[str, str]) -> str:
    """Assignments as `export` takes them."""
    return " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
