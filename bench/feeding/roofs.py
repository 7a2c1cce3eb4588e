"""Upper bounds of the machine and of the loaders: no reader can be faster than these."""

from __future__ import annotations

import io
import multiprocessing
import socket
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

from feeding import samples
from feeding.reader import Counts, Epoch


def ready_map(endpoint: str, bucket: str, batch: int, size: int, count: int = 10_000) -> Epoch:
    """A DataLoader over contents that are in memory already, by index."""
    from torch.utils.data import Dataset

    content = bytes(size)

    class Ready(Dataset[Any]):
        def __len__(self) -> int:
            return count

        def __getitems__(self, indices: list[int]) -> list[tuple[str, bytes]]:
            return [(f"o/{index:08}.bin", content) for index in indices]

    loader = samples.data_loader(Ready(), batch, shuffle=True)
    return lambda: samples.of_pairs(loader)


def ready_iterable(endpoint: str, bucket: str, batch: int, size: int, count: int = 10_000) -> Epoch:
    """The same, one after the other."""
    from torch.utils.data import IterableDataset

    content = bytes(size)

    class Ready(IterableDataset[Any]):
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            return ((f"o/{number:08}.bin", content) for number in range(count))

    loader = samples.data_loader(Ready(), batch)
    return lambda: samples.of_pairs(loader)


def ready_shards(endpoint: str, bucket: str, batch: int, size: int, count: int = 10_000) -> Epoch:
    """A DataLoader over samples of shards that are in memory, unpacked."""
    from torch.utils.data import IterableDataset

    content = bytes(size)

    class Ready(IterableDataset[Any]):
        def __iter__(self) -> Iterator[tuple[str, dict[str, bytes]]]:
            return ((f"s/{number:08}", {"bin": content}) for number in range(count))

    loader = samples.data_loader(Ready(), batch)
    return lambda: samples.of_shards(loader)


def ready_lines(endpoint: str, bucket: str, batch: int, size: int, count: int = 10_000) -> Epoch:
    """A DataLoader over a text in memory that is split into lines."""
    from torch.utils.data import IterableDataset

    text = (b"x" * (size - 1) + b"\n") * count

    class Ready(IterableDataset[Any]):
        def __iter__(self) -> Iterator[bytes]:
            yield from text.splitlines()

    loader = samples.data_loader(Ready(), batch)
    return lambda: samples.of_contents(loader)


def sent_lines(endpoint: str, bucket: str, batch: int, size: int, count: int = 10_000) -> Epoch:
    """The same, of a text that a second process sends through a loopback connection: no server and no
    protocol, received by one call into what is split."""
    from torch.utils.data import IterableDataset

    text = (b"x" * (size - 1) + b"\n") * count
    connection = sent(lambda: text)

    class Sent(IterableDataset[Any]):
        def __iter__(self) -> Iterator[bytes]:
            yield from connection.recv(len(text), socket.MSG_WAITALL).splitlines()

    loader = samples.data_loader(Sent(), batch)
    return lambda: samples.of_contents(loader)


def ready_images(
    endpoint: str, bucket: str, batch: int, workers: int, count: int = 640
) -> Epoch:
    """A DataLoader that does nothing but decode one image again and again."""
    from torch.utils.data import Dataset

    from feeding.data import image

    content = image(0)

    class Ready(Dataset[Any]):
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> Any:
            return samples.decoded(content)

    loader = samples.data_loader(Ready(), batch, workers)
    return lambda: samples.of_tensors(loader)


def training(endpoint: str, bucket: str, batch: int, model: str) -> Epoch:
    """A model trained on contents that are in memory: reading costs nothing."""
    from feeding.data import LINE, image
    from feeding.models import MODELS, trained

    step = MODELS[model]()
    content = image(0) if model == "resnet" else b"x" * LINE
    return lambda: trained([[content] * batch for _ in range(20)], step)


def tar_in_memory(endpoint: str, bucket: str, size: int, count: int = 10_000) -> Epoch:
    """Python's own tarfile over a shard in memory."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(count):
            member = tarfile.TarInfo(f"s/{number:08}.bin")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))

    def epoch() -> Iterator[Counts]:
        with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as archive:
            yield from samples.of_stream((m.name, archive.extractfile(m).read()) for m in archive)

    return epoch


def sent(piece: Callable[[], bytes]) -> socket.socket:
    """A loopback connection through which a second process sends the same piece without end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        to, _ = listener.accept()
        content = piece()
        try:
            while True:
                to.sendall(content)
        except OSError:
            return

    multiprocessing.get_context("fork").Process(target=send, daemon=True).start()
    return socket.create_connection(listener.getsockname())


def loopback(endpoint: str, bucket: str, size: int) -> Epoch:
    """Pieces of `size` bytes that a second process sends through a loopback connection."""
    connection = sent(lambda: bytes(min(size, 256 << 10)))

    def epoch() -> Iterator[Counts]:
        while True:
            content, got = memoryview(bytearray(size)), 0
            while got < size:
                got += connection.recv_into(content[got:])
            yield 1, size

    return epoch
