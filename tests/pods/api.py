"""The API server of Kubernetes, as far as the pods of the chart use it: GET of one StatefulSet.

Tokens and rights are checked: a request needs the token of a pod, and a Role that names what it reads.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pods.manifest import Manifest, of_kind

PATH = re.compile(r"/apis/apps/v1/namespaces/([^/]+)/statefulsets/([^/?]+)")


class Api:
    """Serves HTTPS with a certificate of its own.

    Attributes:
        ca: The certificate of the CA, as pods find it in kube-root-ca.crt.
        requests: For each request, who sent it, its path and the status of the answer.
    """

    def __init__(
        self, address: str, folder: Path, documents: Callable[[], list[Manifest]], port: int = 443
    ) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self._documents = documents
        self._tokens: dict[str, tuple[str, str]] = {}
        ca, certificate, key = _certificate(folder, address)
        self.ca = ca.read_text()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = ThreadingHTTPServer((address, port), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, pod: str, account: str) -> str:
        """A new token of the account of a pod."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = (pod, account)
        return token

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
        pod, account = self._tokens.get(authorization.removeprefix("Bearer "), ("", ""))
        status, body = self._found(path, account)
        self.requests.append((pod or "nobody", path, status))
        return status, body

    def _found(self, path: str, account: str) -> tuple[int, dict[str, Any]]:
        if not account:
            return 401, _status(401, "Unauthorized")
        named = PATH.fullmatch(path.partition("?")[0])
        if named is None or not self._may_get(account, *named.groups()):
            return 403, _status(403, f"{account} may not get {path}")
        namespace, name = named.groups()
        for stateful in of_kind(self._documents(), "StatefulSet"):
            if (stateful["metadata"]["namespace"], stateful["metadata"]["name"]) == (namespace, name):
                return 200, stateful
        return 404, _status(404, f"statefulsets.apps {name!r} not found")

    def _may_get(self, account: str, namespace: str, name: str) -> bool:
        documents = self._documents()
        roles = {
            binding["roleRef"]["name"]
            for binding in of_kind(documents, "RoleBinding")
            for subject in binding["subjects"]
            if subject["name"] == account and binding["metadata"]["namespace"] == namespace
        }
        return any(
            "get" in rule["verbs"]
            and "statefulsets" in rule["resources"]
            and "apps" in rule["apiGroups"]
            and name in rule.get("resourceNames", [name])
            for role in of_kind(documents, "Role")
            if role["metadata"]["name"] in roles
            for rule in role["rules"]
        )

    def _handler(api) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = api.answer(self.path, self.headers.get("Authorization", ""))
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def finish(self) -> None:
                super().finish()
                # The end of TLS, as the real one sends it: a client may take its lack for a cut.
                with contextlib.suppress(OSError):
                    self.connection.unwrap()

            def log_message(self, format: str, *args: object) -> None:
                """Requests are in `Api.requests`."""

        return Handler


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _certificate(folder: Path, address: str) -> tuple[Path, Path, Path]:
    """A CA; a certificate that it signed for the API server; and the key of that."""
    ca, ca_key, certificate, key = (folder / name for name in ("ca.crt", "ca.key", "api.crt", "api.key"))
    names = f"subjectAltName=IP:{address},DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    of_ca = ["-subj", "/CN=kubernetes-ca", "-keyout", str(ca_key), "-out", str(ca)]
    signed = ["-subj", "/CN=kubernetes", "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
    signed += ["-CA", str(ca), "-CAkey", str(ca_key), "-keyout", str(key), "-out", str(certificate)]
    for more in (of_ca, signed):
        done = subprocess.run([*new, "-days", "2", *more], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"openssl: {done.stderr}")
    return ca, certificate, key
