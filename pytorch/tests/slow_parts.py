"""Slow parts for tests of what a loop waits for: a proxy that delays requests, and a slow disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

import pytest

# The time of one read of a slow disk.
SLOW_READ_S = 0.015

# Loaded into the nodes of a cluster. While the control file exists, what is read from objects and
# logs is not in the page cache, and each read takes its time.
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_slow(int fd) {
    const char *control = getenv("SLOW_DISK_CONTROL");
    if (!control || access(control, F_OK) != 0) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return path[0] == '/' && !strstr(path, "/index/") && !strncmp(path, getenv("SLOW_DISK_FOLDER"),
                                                                 strlen(getenv("SLOW_DISK_FOLDER")));
}

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t at, int flags) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t, int);
    if (!real) real = dlsym(RTLD_NEXT, "preadv2");
    if ((flags & RWF_NOWAIT) && is_slow(fd)) { errno = EAGAIN; return -1; }
    return real(fd, iov, count, at, flags);
}

ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    if (is_slow(fd)) usleep(SLOW_READ_US);
    return real(fd, to, count, at);
}
"""


class SlowDisk:
    """A library that makes the disks of a cluster slow, on demand."""

    def __init__(self, folder: Path, data: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler for the slow disk")
        source, library = folder / "slow_disk.c", folder / "slow_disk.so"
        source.write_text(_SHIM)
        define = f"-DSLOW_READ_US={int(SLOW_READ_S * 1e6)}"
        command = [compiler, "-shared", "-fPIC", "-O1", define, "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self._control = folder / "slow"
        self.env = {
            "LD_PRELOAD": str(library),
            "SLOW_DISK_CONTROL": str(self._control),
            "SLOW_DISK_FOLDER": str(data),
        }

    def begin(self) -> None:
        """From now on reads are slow."""
        self._control.touch()


class DelayingProxy:
    """Forwards connections to a server, each request after a delay."""

    def __init__(self, server: str, delay_s: float) -> None:
        host, port = server.removeprefix("http://").split(":")
        self._server = (host, int(port))
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pairs = ((client, server, self._delay_s), (server, client, 0.0))
            for source, sink, delay_s in pairs:
                arguments = (source, sink, delay_s)
                threading.Thread(target=_forward, args=arguments, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _forward(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    try:
        while data := source.recv(1 << 16):
            time.sleep(delay_s)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()
