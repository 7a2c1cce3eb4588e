"""A real server for the tests of users' code: nothing is simulated, and nothing is left behind.

With pytest, two lines::

    pytest_plugins = ["forebay.testing.fixtures"]           # in conftest.py

    def test_mine(forebay_bucket): ...                       # an empty bucket of the test's own

Without it::

    with forebay.testing.Cluster() as cluster:
        bucket = cluster.client().bucket("images").create()
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from forebay.bucket import Bucket
from forebay.client import Client
from forebay.config import LocalSettings
from forebay.local import LocalServer

__all__ = ["Cluster"]


class Cluster:
    """A gateway and a target in one process of their own, with an empty folder and a free port.

    It ends with the ``with`` block; should the process that started it be killed, it ends by
    itself some seconds later.

    Args:
        size: Most bytes of disk it uses.
        folder_roots: Folders under which buckets may be windows on folders:
            ``bucket.create(folder=...)``.
        env: More environment for the server, such as the credentials of a cloud and
            ``AWS_ENDPOINT_URL``.
        options: More options of ``forebay serve``.

    Raises:
        FileNotFoundError: The program ``forebay`` is missing.
        ClusterUnavailable: It does not start; the message has its log.

    Example:
        >>> with Cluster() as cluster:                        # doctest: +SKIP
        ...     bucket = cluster.client().bucket("b").create()
        ...     bucket.object("o").put(b"x").size
        1
    """

    def __init__(
        self,
        *,
        size: str = "4GiB",
        folder_roots: Sequence[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._env = {**os.environ, **(env or {})}
        self._options = [*options]
        for root in folder_roots:
            self._options += ["--folder-root", os.fspath(root)]
        self._settings = LocalSettings(size=size, idle_stop="5s")
        self._server: LocalServer | None = None
        self._endpoint: str | None = None

    def start(self) -> Cluster:
        """This cluster, running."""
        if self._server is None:
            folder = Path(tempfile.mkdtemp(prefix="forebay-test-"))
            server = LocalServer(folder, self._settings)
            try:
                self._endpoint = server.join(self._options, self._env).endpoint
            except BaseException:
                server.leave()
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._server = server
        return self

    def stop(self) -> None:
        """Ends it and removes its data.

        Raises:
            RuntimeError: The server panicked at some time: a test that saw nothing of it must not
                pass. The message has the lines of its log.
        """
        server, self._server, self._endpoint = self._server, None, None
        if server is not None:
            server.leave()
            server.stop()
            panic = _first_panic(server.log)
            shutil.rmtree(server.folder, ignore_errors=True)
            if panic is not None:
                raise RuntimeError(f"the server panicked; its log has\n{panic}")

    @property
    def endpoint(self) -> str:
        """Its URL."""
        if self._endpoint is None:
            raise ValueError("the cluster does not run; use it as a context manager, or start() it")
        return self._endpoint

    @property
    def log(self) -> str:
        """The end of what the server wrote about itself."""
        return self._server.tail() if self._server else ""

    def client(self, *, timeout: float = 20.0) -> Client:
        """A client of it; ``timeout`` in seconds."""
        return Client(self.endpoint, timeout=timeout)

    def bucket(self, name: str | None = None) -> Bucket:
        """A new native bucket, by default with a name that no other has."""
        return self.client().bucket(name or f"t-{uuid.uuid4().hex[:12]}").create()

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except RuntimeError:
            # An error inside the block says more.
            if error is None:
                raise


def _first_panic(log: Path) -> str | None:
    """The first panic in a log with the lines behind it; None if there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    found = (at for at, line in enumerate(lines) if "panicked" in line)
    return next(("\n".join(lines[at : at + 12]) for at in found), None)
