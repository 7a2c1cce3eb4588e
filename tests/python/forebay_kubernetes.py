"""The Kubernetes API as a pod reaches it: an address, a CA, a token and a namespace.

`stand_in` serves the one object that `forebay node prestop` reads, over HTTPS and with a check of the
token. A real API server fits in its place: tests use only what `KubernetesApi` has.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

NAMESPACE = "store"
TOKEN = "token-of-the-pod"


class KubernetesApi(Protocol):
    """An API server, as tests use it."""

    host: str
    port: int
    # The folder of the service account: ca.crt, token, namespace.
    folder: Path

    def apply(self, name: str, stateful_set: dict[str, Any] | None) -> None:
        """Replaces a StatefulSet in the namespace of the pod; None deletes it."""


@dataclass
class StandIn:
    """A server of StatefulSets; `allows` is whether the role of the pod may read them."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    allows: bool = True
    sets: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply(self, name: str, stateful_set: dict[str, Any] | None) -> None:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{name}"
        if stateful_set is None:
            self.sets.pop(path, None)
        else:
            self.sets[path] = stateful_set

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Status and body of a GET."""
        if authorization != f"Bearer {TOKEN}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if not self.allows:
            return 403, {"kind": "Status", "message": "statefulsets.apps is forbidden"}
        if path not in self.sets:
            return 404, {"kind": "Status", "message": "not found"}
        return 200, self.sets[path]


def environment(api: KubernetesApi) -> dict[str, str]:
    """The variables by which a pod finds the API."""
    return {"KUBERNETES_SERVICE_HOST": api.host, "KUBERNETES_SERVICE_PORT": str(api.port)}


def of_replicas(replicas: int, **spec: Any) -> dict[str, Any]:
    """A StatefulSet with so many replicas."""
    return {"kind": "StatefulSet", "metadata": {}, "spec": {"replicas": replicas, **spec}}


@contextlib.contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """A running server, with the files of a service account in `folder`."""
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "token").write_text(f"{TOKEN}\n")
    (account / "namespace").write_text(NAMESPACE)
    key, cert = certificate(folder, account / "ca.crt")
    api = StandIn(account)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, found = api.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            # As the API server does: it announces the end of the connection.
            if isinstance(self.connection, ssl.SSLSocket):
                with contextlib.suppress(OSError):
                    self.connection.unwrap()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((api.host, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(folder: Path, ca: Path) -> tuple[Path, Path]:
    """Makes a CA and a certificate for 127.0.0.1 by it; returns the key and the certificate."""
    ca_key, key, request, cert = (folder / name for name in ("ca.key", "api.key", "api.csr", "api.crt"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n")
    for words in (
        ["req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=cluster"],
        ["req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=kubernetes"],
        ["x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", cert]
        + ["-days", "2", "-extfile", names],
    ):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    return key, cert
