"""Shards: streams of samples, indexes, single members, and batches of members."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from typing import Any

import pytest
from forebay_memory import needs_proc, peak_growth
from shard_files import FORMATS, pack, tar

import forebay

SAMPLES: dict[str, dict[str, bytes]] = {
    f"train/{i:03}": {
        "jpg": os.urandom(i * 211 % 5000),
        "cls": str(i).encode(),
        **({"seg.png": os.urandom(77)} if i % 3 else {}),
    }
    for i in range(60)
}
MEMBERS = [(f"{key}.{ext}", data) for key, parts in SAMPLES.items() for ext, data in parts.items()]


def samples(stream: forebay.ShardStream) -> list[tuple[str, Any]]:
    return list(stream)


@pytest.mark.parametrize("ending", FORMATS)
def test_samples_of_every_format(bucket: forebay.Bucket, ending: str) -> None:
    shard = bucket.object(f"s/a{ending}")
    shard.put(pack(MEMBERS, ending))
    assert samples(shard.samples()) == list(SAMPLES.items())
    assert samples(shard.members()) == MEMBERS
    assert samples(shard.samples(read_ahead=1)) == list(SAMPLES.items())


@pytest.mark.parametrize("ending", FORMATS)
def test_a_name_that_tells_nothing_is_no_obstacle(bucket: forebay.Bucket, ending: str) -> None:
    shard = bucket.object("shard")
    shard.put(pack(MEMBERS, ending))
    assert len(samples(shard.samples())) == len(SAMPLES)
    assert len(samples(shard.samples(mime=ending))) == len(SAMPLES)


def test_what_is_no_shard_is_refused(bucket: forebay.Bucket) -> None:
    bucket.object("text").put(b"no archive " * 100)
    with pytest.raises(forebay.InvalidArgument, match=f"{bucket.uri}/text: neither its name"):
        samples(bucket.object("text").samples())
    bucket.object("text.tar").put(b"no archive " * 100)
    with pytest.raises(forebay.ForebayError, match=f"{bucket.uri}/text.tar"):
        samples(bucket.object("text.tar").samples())
    with pytest.raises(forebay.NotFound, match="absent.tar"):
        samples(bucket.object("absent.tar").samples())
    with pytest.raises(forebay.InvalidArgument, match="no format of archives"):
        bucket.object("text").samples(mime="rar")
    with pytest.raises(forebay.InvalidArgument, match="unknown rule"):
        bucket.object("text").samples(keys="wds")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="read_ahead"):
        bucket.object("text").samples(read_ahead=0)


def test_keys_keep_folders_and_extensions_keep_their_dots(bucket: forebay.Bucket) -> None:
    names = ["b/1.jpg", "a.d/1.PNG", "a.d/1.seg.png", "a.d/1.png", "README", "a.d/._1.png", "x/.gz"]
    bucket.object("a.tar").put(tar([(name, name.encode()) for name in names], folders=True))
    assert samples(bucket.object("a.tar").samples()) == [
        ("b/1", {"jpg": b"b/1.jpg"}),
        ("a.d/1", {"PNG": b"a.d/1.PNG", "seg.png": b"a.d/1.seg.png", "png": b"a.d/1.png"}),
    ]
    # Without folders they are one sample, whose masks would overwrite each other.
    with pytest.raises(forebay.InvalidArgument, match='"1" has two members.*extension "png"'):
        next(bucket.object("a.tar").samples(keys="basename"))
    lower = bucket.object("a.tar").samples(lowercase=True)
    assert next(lower) == ("b/1", {"jpg": b"b/1.jpg"})
    with pytest.raises(forebay.InvalidArgument, match='"a.d/1".*extension "png"'):
        next(lower)
    assert forebay.split_member("a.d/1.seg.PNG") == ("a.d/1", "seg.PNG")
    assert forebay.split_member("a.d/1.seg.PNG", "basename", lowercase=True) == ("1", "png")
    assert forebay.split_member("README") is None


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_other_kinds_of_members(bucket: forebay.Bucket, format: int) -> None:
    long = "/".join(["folder" * 15] * 4) + "/ünï.jpg"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            other = tarfile.TarInfo("1.other")
            other.type, other.linkname = kind, "elsewhere"
            archive.addfile(other)
        for name in (long, "2.jpg"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    bucket.object("a.tar").put(out.getvalue())
    assert samples(bucket.object("a.tar").members()) == [(long, b"abc"), ("2.jpg", b"abc")]
    key = long.removesuffix(".jpg")
    assert samples(bucket.object("a.tar").samples())[0] == (key, {"jpg": b"abc"})


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.zst"])
def test_a_shard_cut_off_names_itself_and_the_byte(bucket: forebay.Bucket, ending: str) -> None:
    whole = pack(MEMBERS, ending)
    shard = bucket.object(f"cut{ending}")
    shard.put(whole[: len(whole) * 2 // 3])
    stream = shard.samples()
    got = []
    with pytest.raises(forebay.ForebayError, match=rf"{shard.uri}: .*byte \d+") as caught:
        for sample in stream:
            got.append(sample)
    assert not isinstance(caught.value, forebay.ClusterUnavailable)
    assert got == list(SAMPLES.items())[: len(got)]
    assert 10 < len(got) < len(SAMPLES)
    assert list(stream) == []


def test_a_bad_sample_is_an_error_of_its_own(bucket: forebay.Bucket) -> None:
    names = ["1.a", "1.b", "2.a", "2.a", "3.a", "1.c", "4.a"]
    shard = bucket.object("a.tar")
    shard.put(tar([(name, name.encode()) for name in names]))
    stream = shard.samples()
    assert next(stream) == ("1", {"a": b"1.a", "b": b"1.b"})
    with pytest.raises(forebay.InvalidArgument, match=f'{shard.uri}: sample "2" has two'):
        next(stream)
    assert next(stream)[0] == "3"
    with pytest.raises(forebay.InvalidArgument, match='"1.c" of sample "1" comes after other'):
        next(stream)
    assert next(stream)[0] == "4"
    assert list(stream) == []


def runs(stream: forebay.ShardStream, like: Any = None) -> list[Any]:
    """Returns the samples that are left of a stream, read by runs."""
    got = []
    while run := stream.next_run(like):
        assert 1 <= len(run) <= 256
        got += run
    return got


def test_samples_that_are_there_come_together(bucket: forebay.Bucket) -> None:
    shard = bucket.object("a.tar")
    shard.put(pack(MEMBERS, ".tar"))
    assert runs(shard.samples()) == list(SAMPLES.items())
    stream = shard.samples()
    first = next(stream)
    assert [first, *runs(stream)] == list(SAMPLES.items())
    assert stream.next_run() == []
    with pytest.raises(TypeError, match="members come one by one"):
        shard.members().next_run()


def test_parts_are_returned_in_dicts_of_the_given_kind(bucket: forebay.Bucket) -> None:
    class Parts(dict[str, bytes]):
        __slots__ = ("key", "origin")

        def __init__(self) -> None:
            raise AssertionError("no code runs for a sample")

    like = Parts.__new__(Parts)
    like.origin = "here"
    shard = bucket.object("a.tar")
    shard.put(pack(MEMBERS, ".tar"))
    for (key, parts), wanted in zip(runs(shard.samples(), like), SAMPLES.items(), strict=True):
        assert (key, parts) == wanted
        assert type(parts) is Parts
        assert (parts.key, parts.origin) == (key, "here")


def test_a_run_needs_no_slots_and_loses_nothing_to_a_bad_one(bucket: forebay.Bucket) -> None:
    class Plain(dict[str, bytes]):
        pass

    class One(dict[str, bytes]):
        __slots__ = "key"

    class Unset(dict[str, bytes]):
        __slots__ = ("origin",)

    shard = bucket.object("a.tar")
    shard.put(pack(MEMBERS, ".tar"))
    assert runs(shard.samples(), Plain()) == list(SAMPLES.items())
    assert [parts.key for _, parts in runs(shard.samples(), One())] == list(SAMPLES)
    stream = shard.samples()
    with pytest.raises(AttributeError, match="origin"):
        stream.next_run(Unset())
    assert runs(stream) == list(SAMPLES.items())


def test_a_bad_sample_ends_a_run_and_is_raised_in_its_place(bucket: forebay.Bucket) -> None:
    names = ["1.a", "2.a", "2.a", "3.a", "1.c", "4.a"]
    shard = bucket.object("a.tar")
    shard.put(tar([(name, name.encode()) for name in names]))
    stream = shard.samples()
    events: list[Any] = []
    while True:
        try:
            run = stream.next_run()
        except forebay.InvalidArgument as error:
            events.append("two" if "has two" in str(error) else "apart")
            continue
        if not run:
            break
        events += [key for key, _ in run]
    assert events == ["1", "two", "3", "apart", "4"]


def test_a_stream_stays_with_the_process_that_opened_it(bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar(MEMBERS))
    stream = bucket.object("a.tar").samples()
    next(stream)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(stream)
        except RuntimeError:
            own = list(bucket.object("a.tar").samples())
            code = 0 if own == list(SAMPLES.items()) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(stream)) == len(SAMPLES) - 1
    stream = bucket.object("a.tar").samples()
    next(stream)
    stream.close()
    assert list(stream) == []


@needs_proc
def test_memory_does_not_grow_with_the_shard(
    bucket: forebay.Bucket, cluster: Any, tmp_path: Any
) -> None:
    bucket.object("warm.tar").put(tar(MEMBERS))
    data, count = os.urandom(1 << 20), 200
    with tarfile.open(tmp_path / "large.tar", "w") as archive:
        for i in range(count):
            member = tarfile.TarInfo(f"{i:04}.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    bucket.object("large.tar").put(tmp_path / "large.tar")
    grown = peak_growth(
        "import forebay\n"
        "bucket = forebay.Client(sys.argv[1], timeout=60).bucket(sys.argv[2])\n"
        "list(bucket.object('warm.tar').samples())\n",
        "total = 0\n"
        "for key, parts in bucket.object('large.tar').samples():\n"
        "    total += sum(map(len, parts.values()))\n"
        f"assert total == {count << 20}\n",
        cluster.endpoint,
        bucket.name,
    )
    # At least a member, or this measures nothing.
    assert 1 << 20 <= grown < 48 << 20, "200 MiB went through it"


@pytest.mark.parametrize("ending", FORMATS)
def test_an_index_says_what_is_in_a_shard(bucket: forebay.Bucket, ending: str) -> None:
    shard = bucket.object(f"a{ending}")
    content = pack(MEMBERS, ending)
    shard.put(content)
    index = bucket.shard_index(shard.name)
    assert (index.format, index.uri) == (FORMATS[ending], shard.uri)
    assert [(m.name, m.size) for m in index] == [(name, len(data)) for name, data in MEMBERS]
    assert len(index) == len(index.members) == len(MEMBERS)
    assert "train/000.jpg" in index and "train/000" not in index
    for name, data in MEMBERS[:9]:
        member = index[name]
        assert shard.get(archpath=name).read_all() == data
        if ending == ".tar":
            assert content[member.offset : member.offset + member.size] == data
    found = index.samples()
    assert len(found) == len(SAMPLES) and not found.problems
    assert [sample.key for sample in found] == list(SAMPLES)
    assert {e: m.size for e, m in found[-1].members.items()} == {
        e: len(data) for e, data in SAMPLES["train/059"].items()
    }
    again = pickle.loads(pickle.dumps(index))
    assert list(again) == list(index) and again.version == index.version
    with pytest.raises(KeyError):
        index["absent"]


def test_a_zip_of_more_members_than_one_request_takes(bucket: forebay.Bucket) -> None:
    many = [(f"{i // 2:05}.{'ab'[i % 2]}", str(i).encode()) for i in range(5000)]
    many.insert(3, ("._junk", b"-"))
    bucket.object("many.zip").put(pack(many, ".zip"))
    got = samples(bucket.object("many.zip").samples())
    assert len(got) == 2500
    assert got[-1] == ("02499", {"a": b"4998", "b": b"4999"})
    assert samples(bucket.object("many.zip").members()) == many


def test_names_like_their_shard_are_found(bucket: forebay.Bucket) -> None:
    names = ["s.tar/1.a", "/2.a", "./3.a", "s.tar/s.tar/4.a", "a b%20?&=+#.a"]
    content = [(name, name.encode()) for name in names]
    bucket.object("s.tar").put(tar(content))
    assert samples(bucket.object("s.tar").members()) == content
    for name in names:
        assert bucket.object("s.tar").get(archpath=name).read_all() == name.encode()
    batch = bucket.client.batch(bucket=bucket)
    for name in names:
        batch.add("s.tar", archpath=name)
    assert [bytes(content) for _, content in batch.get_all()] == [n.encode() for n in names]


def test_an_index_of_what_is_no_shard(client: forebay.Client, bucket: forebay.Bucket) -> None:
    bucket.object("a.tar").put(tar([("1.a", b""), ("2.a", b"x"), ("1.b", b""), ("2.a", b"y")]))
    bucket.object("b.tar").put(b"no archive " * 100)
    good, bad, absent = client.shard_indexes(map(bucket.object, ["a.tar", "b.tar", "c.tar"]))
    assert isinstance(good, forebay.ShardIndex)
    assert isinstance(bad, forebay.ForebayError) and "b.tar" in str(bad)
    assert isinstance(absent, forebay.NotFound) and "c.tar" in str(absent)
    with pytest.raises(forebay.NotFound, match="c.tar"):
        bucket.shard_index("c.tar")
    found = good.samples()
    assert list(found[0].members) == ["a", "b"]
    with pytest.raises(forebay.InvalidArgument, match='a.tar: sample "2" has two members'):
        found[1]


def test_a_member_and_a_range_of_it(bucket: forebay.Bucket) -> None:
    shard = bucket.object("a.tar")
    shard.put(tar([("x/1.txt", b"0123456789"), ("x/2.txt", b"")]))
    assert shard.get(archpath="x/1.txt").read_all() == b"0123456789"
    assert shard.get(archpath="x/1.txt", byte_range=(2, 3)).read_all() == b"234"
    assert shard.get(archpath="x/2.txt").read_all() == b""
    config = forebay.ArchiveConfig("x/1.txt", mime="tar")
    assert b"".join(shard.get_reader(archive_config=config)) == b"0123456789"
    with pytest.raises(forebay.NotFound, match="x/3.txt"):
        shard.get(archpath="x/3.txt").read_all()
    with pytest.raises(TypeError, match="not both"):
        shard.get(archpath="x/1.txt", archive_config=config)
    with pytest.raises(ValueError, match="must not be empty"):
        shard.get(archpath="")


def test_a_batch_of_members_and_ranges(client: forebay.Client, bucket: forebay.Bucket) -> None:
    bucket.object("plain").put(b"abcdef")
    bucket.object("a.tar").put(tar(MEMBERS))
    bucket.object("b.zip").put(pack(MEMBERS, ".zip"))
    batch = client.batch(["plain"], bucket, on_error="return")
    batch.add("a.tar", archpath="train/007.jpg", opaque=b"seven")
    batch.add("b.zip", archpath="train/008.jpg", start=10, length=20)
    batch.add("plain", start=2).add("plain", length=3).add("plain", start=1, length=2)
    batch.add("a.tar", archpath="absent").add("plain", start=4, length=9).add("plain")
    for answers in (batch.get_all(), list(batch.get())):
        contents = [bytes(content) for result, content in answers if result.ok]
        assert contents == [
            b"abcdef",
            SAMPLES["train/007"]["jpg"],
            SAMPLES["train/008"]["jpg"][10:30],
            b"cdef",
            b"abc",
            b"bc",
            b"abcdef",
        ]
        results = [result for result, _ in answers]
        assert (results[1].archpath, results[1].opaque) == ("train/007.jpg", b"seven")
        assert results[0].archpath is None
        assert isinstance(results[6].error, forebay.NotFound)
        assert isinstance(results[7].error, forebay.InvalidArgument)
    for wrong in ({"archpath": ""}, {"start": -1}, {"length": -1}):
        with pytest.raises(ValueError):
            client.batch().add(bucket.object("plain"), **wrong)  # type: ignore[arg-type]
