"""Archives that common tools write are read as these tools read them: `tarfile`, `zipfile`, GNU tar
and Info-ZIP write each archive and say what is in it.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import forebay
import pytest
from conftest import Cluster

FILES = {"a.txt": b"first", "dir/b.bin": bytes(range(256)) * 9, "dir/empty": b"", "ünï.txt": b"4"}
"""Contents of the files that the tools pack."""

Archive = tuple[str, bytes]
"""Name of the object and its bytes."""


def run(*command: str, cwd: Path, stdin: bytes = b"") -> bytes:
    """Returns the output of a command, which must succeed."""
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, timeout=30)
    assert done.returncode == 0, (command, done.stderr.decode())
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the tools pack."""
    root = tmp_path_factory.mktemp("files")
    for name, data in FILES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    with open(root / "holes", "wb") as sparse:
        for place in range(0, 120 << 16, 1 << 17):
            sparse.seek(place)
            sparse.write(b"x")
    return root


def tar_of(names: list[str], encoding: str = "utf-8", form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar of members whose data are their names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding=encoding) as tar:
        for name in names:
            data = name.encode(encoding)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Cp437Info(zipfile.ZipInfo):
    """An entry that does not say that its name is UTF-8."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.filename.encode("cp437"), self.flag_bits & ~0x800


class Pipe(io.RawIOBase):
    """A file that can only be written to, from its start to its end."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.data += bytes(data)
        return len(data)


def zip_of(
    names: list[str],
    entry: type[zipfile.ZipInfo] = zipfile.ZipInfo,
    to: io.BytesIO | Pipe | None = None,
    zip64: bool = False,
) -> bytes:
    """A zip of members whose data are their names."""
    out = io.BytesIO() if to is None else to
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        for name in names:
            with archive.open(entry(name), "w", force_zip64=zip64) as member:
                member.write(name.encode())
    return bytes(out.data) if isinstance(out, Pipe) else out.getvalue()


def bzip2_zip() -> bytes:
    """A zip whose member is compressed in a way that is not read."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", b"a" * 100)
    return out.getvalue()


def in_tar(data: bytes) -> dict[bytes, bytes]:
    """Members by the bytes of their names, as `tarfile` finds them."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        files = [member for member in tar if member.isreg() and not member.issparse()]
        read = {os.fsencode(member.name): tar.extractfile(member) for member in files}
        return {name: file.read() for name, file in read.items() if file is not None}


def in_zip(data: bytes) -> dict[bytes, bytes]:
    """Members by their names, as `zipfile` finds them. Names of which nothing says that they are UTF-8
    are UTF-8 if all are, as `unzip` takes them: Info-ZIP writes them so.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        legacy = [entry.filename for entry in entries if not entry.flag_bits & 0x800]
        try:
            names = {name: name.encode("cp437").decode() for name in legacy}
        except UnicodeDecodeError:
            names = {}
        read = {entry.filename: archive.read(entry) for entry in entries}
        return {names.get(name, name).encode(): content for name, content in read.items()}


def by_gnu_tar(*options: str) -> Callable[[Path], bytes]:
    """A tar that GNU tar makes of the files."""
    return lambda folder: run("tar", "-c", *options, *FILES, cwd=folder)


def sparse_tar(form: str) -> Callable[[Path], bytes]:
    """A tar with a sparse member between others."""
    return lambda folder: run(
        "tar", "-c", "-S", f"--format={form}", "a.txt", "holes", "dir/b.bin", cwd=folder
    )


def by_info_zip(*options: str) -> Callable[[Path], bytes]:
    """A zip that Info-ZIP writes to a pipe."""
    return lambda folder: run("zip", "-q", *options, "-", *FILES, cwd=folder)


def of_stdin(*options: str) -> Callable[[Path], bytes]:
    """A zip of what Info-ZIP reads from a pipe, written to another."""
    return lambda folder: run("zip", "-q", *options, "-", "-", cwd=folder, stdin=b"piped\n")


LATIN_1 = ["im-é.txt", "im-è.txt", "plain.txt"]
GBK = ["你.jpg", "好.jpg", "你好.jpg"]
LONG_NAMES = ["x" * 120 + ".a", "y" * 300 + "/é.b"]

TARS: dict[str, Callable[[Path], bytes]] = {
    "gnu.tar": by_gnu_tar("--format=gnu"),
    "posix.tar": by_gnu_tar("--format=posix"),
    "ustar.tar": by_gnu_tar("--format=ustar"),
    "v7.tar": by_gnu_tar("--format=v7"),
    "packed.tar.gz": by_gnu_tar("-z"),
    "blocks.tar": by_gnu_tar("-b", "1"),
    "two-streams.tgz": lambda folder: (
        gzip.compress(tar_of(["a"])[:1024]) + gzip.compress(tar_of(["a"])[1024:])
    ),
    "behind.tar.gz": lambda folder: gzip.compress(tar_of(["a", "b"])) + b"\0" * 700,
    "rubbish-behind.tar.gz": lambda folder: gzip.compress(tar_of(["a", "b"])) + b"rubbish",
    "unended.tar": lambda folder: tar_of(["a", "b"])[:2048],
    "unended.tar.gz": lambda folder: gzip.compress(tar_of(["a", "b"])[:2048]),
    "latin-1.tar": lambda folder: tar_of(LATIN_1, "latin-1"),
    "latin-1-ustar.tar.gz": lambda folder: gzip.compress(
        tar_of(LATIN_1, "latin-1", tarfile.USTAR_FORMAT)
    ),
    "gbk.tar": lambda folder: tar_of(GBK, "gbk"),
    "long.tar": lambda folder: tar_of(LONG_NAMES, form=tarfile.PAX_FORMAT),
    "long-latin-1.tar": lambda folder: tar_of(LONG_NAMES, "latin-1"),
    "sparse-gnu.tar": sparse_tar("gnu"),
    "sparse-posix.tar": sparse_tar("posix"),
    "gzip.tar": lambda folder: gzip.compress(tar_of(["a", "b"])),
    "plain.tar.gz": lambda folder: tar_of(["a", "b"]),
    "gzip.zip": lambda folder: gzip.compress(tar_of(["a", "b"])),
}

ZIPS: dict[str, Callable[[Path], bytes]] = {
    "info.zip": by_info_zip(),
    "info-stored.zip": by_info_zip("-0"),
    "piped.zip": of_stdin(),
    "streamed.zip": lambda folder: zip_of(["a", "b/c"], to=Pipe()),
    "streamed-zip64.zip": lambda folder: zip_of(["a", "b/c"], to=Pipe(), zip64=True),
    "zip64.zip": lambda folder: zip_of(["a", "b/c"], zip64=True),
    "before.zip": lambda folder: b"#!/bin/sh\nexit\n" + zip_of(["a", "b/c"]),
    "behind.zip": lambda folder: zip_of(["a", "b/c"]) + b"\r\n" + b"x" * 99,
    "cp437.zip": lambda folder: zip_of(["é.txt", "ü.txt", "a.txt"], Cp437Info),
    "utf-8.zip": lambda folder: zip_of(["é.txt", "日本.txt"]),
    "zip.tar": lambda folder: zip_of(["a", "b/c"]),
}


@pytest.fixture(scope="module")
def shards(cluster: Cluster) -> forebay.Bucket:
    """The bucket of the archives."""
    return forebay.Client(cluster.endpoint).bucket("archives").create()


def get(cluster: Cluster, shard: str, member: bytes) -> tuple[int, bytes]:
    """Status and body of a member, asked for by its bytes."""
    asked = urllib.parse.quote(member)
    url = f"{cluster.endpoint}/v1/objects/archives/{shard}?archpath={asked}"
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


@pytest.mark.parametrize("name", [*TARS, *ZIPS])
def test_an_archive_is_read_as_tarfile_or_zipfile_reads_it(
    cluster: Cluster, shards: forebay.Bucket, folder: Path, name: str
) -> None:
    make, oracle = (TARS[name], in_tar) if name in TARS else (ZIPS[name], in_zip)
    data = make(folder)
    wanted = oracle(data)
    assert wanted
    shards.object(name).put(data)
    for member, content in wanted.items():
        assert get(cluster, name, member) == (200, content), member
    names = [member.name for member in shards.shard_index(name)]
    assert len(set(names)) == len(names)
    sparse = [n for n in names if n == "holes"]
    assert len(names) - len(sparse) == len(wanted)
    if name in ZIPS:
        assert sorted(names) == sorted(member.decode() for member in wanted)
    if name.startswith("sparse"):
        status, text = get(cluster, name, b"holes")
        assert status == 501 and b"stored as a sparse file" in text, text
    if name == "cp437.zip":
        assert get(cluster, name, "é.txt".encode("cp437")) == (200, "é.txt".encode())


@pytest.mark.parametrize("name", ["latin-1.tar", "cp437.zip", "sparse-gnu.tar"])
def test_samples_of_such_shards_are_distinct_and_in_order(
    shards: forebay.Bucket, folder: Path, name: str
) -> None:
    make = TARS.get(name) or ZIPS[name]
    shards.object(f"own-{name}").put(make(folder))
    if name == "sparse-gnu.tar":
        members = shards.object(f"own-{name}").members()
        assert next(members)[0] == "a.txt"
        with pytest.raises(forebay.ForebayError, match='"holes" is stored as a sparse file'):
            next(members)
        assert next(members) == ("dir/b.bin", FILES["dir/b.bin"])
        assert next(members, None) is None
        return
    keys = [key for key, _ in shards.object(f"own-{name}").samples()]
    assert len(keys) == len(set(keys)) == 3
    if name == "latin-1.tar":
        # Byte 0xE9 is the private-use character U+EFE9.
        assert keys == ["im-\uefe9", "im-\uefe8", "plain"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("xz.tar", lzma.compress(tar_of(["a"])), "compressed by xz"),
        ("bzip2.tar.gz", b"BZh91AY&SY" + bytes(600), "compressed by bzip2"),
        ("7z.tar", b"7z\xbc\xaf\x27\x1c" + bytes(600), "a 7z archive"),
        ("cut.tar", tar_of(["a", "b"])[:1500], "ends at byte 1500"),
        ("cut.tar.gz", gzip.compress(tar_of(["a", "b"]))[:60], "archive ends at byte"),
        ("cut.zip", zip_of(["a", "b"])[:60], "without its directory"),
        ("bzip2.zip", bzip2_zip(), "compressed by bzip2"),
    ],
)
def test_what_is_not_read_says_what_it_is(
    cluster: Cluster, shards: forebay.Bucket, name: str, data: bytes, says: str
) -> None:
    shards.object(name).put(data)
    status, text = get(cluster, name, b"a")
    assert status in (400, 501) and says in text.decode(), text
