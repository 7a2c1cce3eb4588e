"""Shards: archives whose members are the parts of samples."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, overload

from forebay import _core
from forebay.errors import InvalidArgument
from forebay.listing import Listing
from forebay.spans import call_span

if TYPE_CHECKING:
    from forebay.object import Object

__all__ = [
    "ShardIndex",
    "ShardMember",
    "ShardSample",
    "ShardSamples",
    "ShardStream",
    "archive_format",
    "member_bytes",
    "member_text",
    "split_member",
]

Keys = Literal["webdataset", "basename"]


class ShardMember(NamedTuple):
    """A file in a shard.

    Attributes:
        offset: Where its data begins: in the TAR once it is unpacked, in the file for zip.
        size: Bytes of its data.
    """

    name: str
    offset: int
    size: int


class ShardSample(NamedTuple):
    """A sample of a shard: its key, and its members by extension."""

    key: str
    members: dict[str, ShardMember]


class ShardIndex:
    """The index of a shard: a sequence of its members in the archive's order, in flat buffers.

    Attributes:
        uri: The shard.
        format: ``tar``, ``tar-gz``, ``tar-lz4``, ``tar-zst`` or ``zip``.
        version: Of the object that was indexed.
        names: Names and sizes of the members.
        offsets: Where the data of each begins.

    Example:
        >>> index = bucket.shard_index("shard-0000.tar")     # doctest: +SKIP
        >>> index["1.jpg"].size, len(index.samples())        # doctest: +SKIP
        (4711, 100)
    """

    __slots__ = ("uri", "format", "version", "names", "offsets", "_numbers")

    def __init__(
        self, uri: str, format: str, version: str, names: Listing, offsets: array[int]
    ) -> None:
        self.uri = uri
        self.format = format
        self.version = version
        self.names = names
        self.offsets = offsets
        self._numbers: dict[str, int] | None = None

    @property
    def members(self) -> Sequence[ShardMember]:
        """The members; each is made when it is asked for."""
        return _Members(self)

    def samples(self, keys: Keys = "webdataset", lowercase: bool = False) -> ShardSamples:
        """The samples that the members make, in the order of their first members.

        Args:
            keys: ``webdataset``: the key is the name with its folder, up to the first dot of its
                last component; the extension is all behind that dot. ``basename``: the key is
                without the folder, the extension is what follows the last dot. Names without an
                extension and leftovers of file systems (``._x``) belong to no sample.
            lowercase: Take extensions in lower case.
        """
        return ShardSamples(self, keys, lowercase)

    def __getitem__(self, name: str) -> ShardMember:
        """The first member of this name."""
        if self._numbers is None:
            numbers: dict[str, int] = {}
            for number, known in enumerate(self.names.names()):
                numbers.setdefault(known, number)
            self._numbers = numbers
        return self.members[self._numbers[name]]

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[ShardMember]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardIndex, (self.uri, self.format, self.version, self.names, self.offsets)

    def __repr__(self) -> str:
        return f"<ShardIndex of {self.uri}: {len(self)} members>"


class _Members(Sequence[ShardMember]):
    """The members of an index."""

    __slots__ = ("_index",)

    def __init__(self, index: ShardIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index.names)

    @overload
    def __getitem__(self, index: SupportsIndex) -> ShardMember: ...
    @overload
    def __getitem__(self, index: slice) -> list[ShardMember]: ...
    def __getitem__(self, index: Any) -> ShardMember | list[ShardMember]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = operator.index(index)
        name, size = self._index.names[number]
        return ShardMember(name, self._index.offsets[number], size)


class ShardSamples(Sequence[ShardSample]):
    """The samples of a shard, in flat buffers.

    Attributes:
        order: Numbers of members, sample after sample.
        ends: Where each sample ends in ``order``.
        problems: Number of a sample -> why it cannot be had: two of its members would have the
            same place in it.
    """

    __slots__ = ("order", "ends", "problems", "_index", "_keys", "_lowercase")

    def __init__(self, index: ShardIndex, keys: Keys, lowercase: bool) -> None:
        names, name_ends = index.names.buffers()
        order, ends, problems = _core.sample_layout(names, name_ends, keys, lowercase)
        self.order, self.ends = array("Q"), array("Q")
        self.order.frombytes(order)
        self.ends.frombytes(ends)
        self.problems: dict[int, str] = dict(problems)
        self._index = index
        self._keys: Keys = keys
        self._lowercase = lowercase

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: SupportsIndex) -> ShardSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[ShardSample]: ...
    def __getitem__(self, index: Any) -> ShardSample | list[ShardSample]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = operator.index(index)
        row = row + len(self) if row < 0 else row
        if not 0 <= row < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        if row in self.problems:
            raise InvalidArgument(f"{self._index.uri}: {self.problems[row]}")
        members: dict[str, ShardMember] = {}
        key = ""
        for number in self.order[self.ends[row - 1] if row else 0 : self.ends[row]]:
            member = self._index.members[number]
            key, extension = split_member(member.name, self._keys, self._lowercase) or ("", "")
            members[extension] = member
        return ShardSample(key, members)


class ShardStream(Iterator[tuple[str, Any]]):
    """The content of a shard from its start to its end, while it arrives.

    Memory holds one sample and ``read_ahead`` bytes, however large the shard is. An error that is
    one sample's alone (two members with one extension; a member that is not next to the others of
    its sample) is raised in its place, and the next ``next()`` goes on behind it. An archive that
    is damaged or cut off is an error that names the shard and the byte, and the end.
    """

    __slots__ = ("uri", "_native", "_members", "_span")

    def __init__(
        self, shard: Object, mime: str | None, keys: Keys | None, lowercase: bool, read_ahead: int
    ) -> None:
        if read_ahead < 1:
            raise ValueError(f"read_ahead must be a positive number of bytes, not {read_ahead}")
        self.uri = shard.uri
        self._members = keys is None
        bucket = shard.bucket
        self._span = call_span("forebay.shard", bucket.uri, shard.name)
        with self._span.requests():
            self._native = bucket.client._native.open_shard(
                bucket.uri, shard.name, mime, keys, lowercase, read_ahead
            )

    def __iter__(self) -> ShardStream:
        return self

    def __next__(self) -> tuple[str, Any]:
        try:
            return next(self._native)
        except BaseException as error:
            self._span.end(None if isinstance(error, StopIteration) else error)
            raise

    def next_run(self, like: dict[str, Any] | None = None) -> list[tuple[str, dict[str, Any]]]:
        """The next samples that are there already, and at least one: a loop over them is cheaper than
        ``next()`` for each.

        Args:
            like: Parts come in dicts of this one's class. Where that has ``__slots__``, they get what
                stands in its slots; a slot ``key`` gets the sample's key. Nothing is called for it.

        Returns:
            At most 256 pairs of key and parts; none at the end. An error that ``next()`` would raise in
            place of a sample is raised by the call after the samples before it.
        """
        if self._members:
            raise TypeError("members come one by one: next_run() is for samples")
        try:
            run = self._native.next_run({} if like is None else like)
        except BaseException as error:
            self._span.end(error)
            raise
        if not run:
            self._span.end()
        return run

    def close(self) -> None:
        """Stops reading; what was read ahead is dropped."""
        self._native.close()
        self._span.end()

    def __repr__(self) -> str:
        return f"<ShardStream of {self.uri}>"


def split_member(
    name: str, keys: Keys = "webdataset", lowercase: bool = False
) -> tuple[str, str] | None:
    """Key and extension of a member, by the rules of ``ShardIndex.samples``.

    Example:
        >>> split_member("train/1.seg.png")
        ('train/1', 'seg.png')
    """
    return _core.split_member(name, keys, lowercase)


def archive_format(name: str) -> str | None:
    """The format of an archive of this name, as ``ShardIndex.format``; None for other objects.

    Example:
        >>> archive_format("shard-0.tgz"), archive_format("photo.jpg")
        ('tar-gz', None)
    """
    return _core.archive_format(name)


# The private-use character that stands for byte 0x80 of a name that is not UTF-8.
_FIRST_RAW, _LAST_RAW, _RAW_BASE = "\uef80", "\uefff", 0xEF00


def member_text(name: bytes) -> str:
    """The name of a member as text, as the cluster and this package write it.

    UTF-8 stays as it is. Each byte B that is no part of UTF-8, as old tools write names in Latin-1
    or GBK, becomes the private-use character U+EF00 + B, so that different names stay different;
    ``member_bytes`` returns the bytes.

    Example:
        >>> member_text("für.txt".encode()), ascii(member_text(b"caf\\xe9.txt"))
        ('für.txt', "'caf\\\\uefe9.txt'")
    """
    text = name.decode("utf-8", "surrogateescape")
    if not any("\udc80" <= c <= "\udcff" or _FIRST_RAW <= c <= _LAST_RAW for c in text):
        return text
    parts = []
    for c in text:
        if "\udc80" <= c <= "\udcff":
            parts.append(chr(ord(c) - 0xDC00 + _RAW_BASE))
        elif _FIRST_RAW <= c <= _LAST_RAW:
            parts += [chr(byte + _RAW_BASE) for byte in c.encode()]
        else:
            parts.append(c)
    return "".join(parts)


def member_bytes(name: str) -> bytes:
    """The bytes of a member's name in its archive: the reverse of ``member_text``.

    Example:
        >>> member_bytes("caf\\uefe9.txt")
        b'caf\\xe9.txt'
    """
    return b"".join(
        bytes([ord(c) - _RAW_BASE]) if _FIRST_RAW <= c <= _LAST_RAW else c.encode() for c in name
    )
