"""The servers that are measured side by side: how each is started, filled and asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

MINIO_USER = "benchuser"
MINIO_PASSWORD = "benchsecret"


def free_port(count: int) -> int:
    """First of `count` free ports in a row, below those that the kernel gives to clients."""
    while True:
        first = random.randrange(12000, 31000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first


@contextlib.contextmanager
def process(
    command: list[str], ready: Callable[[], bool], **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server while the block runs; waits at most 60 s for it to be ready."""
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        wait(ready, command[0], child)
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait(
    ready: Callable[[], bool], what: str, child: subprocess.Popen[bytes] | None = None
) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if (child and child.poll() is not None) or time.monotonic() > deadline:
            sys.exit(f"error: {what} does not start")
        time.sleep(0.02)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def call(method: str, url: str, body: object = None, token: str = "") -> bytes:
    """One request with a body of JSON; an answer that is no success is an exception."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        call("GET", url)
        return True
    return False


class Beside:
    """A server of the bench's own, in a process of its own while the context lasts."""

    def __init__(self, name: str) -> None:
        self.name, self.port = name, free_port(1)
        self.process = multiprocessing.Process(target=self._serve, daemon=True)

    def _serve(self) -> None:
        # The bench's own handler, which a fork inherits, would end this by an exception.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(self.run())

    async def run(self) -> None:
        """Serves at the port for good."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.process.start()
        wait(lambda: listens(self.port), self.name)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join()


@dataclass
class Server:
    """One server as the load generator sees it: straight at the process that has the objects."""

    name: str
    address: str
    pid: int
    """The process whose CPU time counts, with its children."""
    get: str
    """Path of an object; `{bucket}` and `{name}` are replaced."""
    put: str | None = None
    headers: list[str] = field(default_factory=list)
    """Of a PUT: what proves that a gateway or the map sent it here."""
    endpoint: str = ""
    """Endpoint of its own clients."""
    folder: Path | None = None
    """Folder of its objects."""
    front: str = ""
    """Address at which S3 lists its buckets."""
    s3: str = "/{bucket}"
    """Path of a bucket there."""
    helpers: list[int] = field(default_factory=list)
    """More processes whose CPU time counts."""

    def make_bucket(self, name: str, **props: object) -> None:
        raise NotImplementedError


class Forebay(Server):
    """One gateway and one target, addressed as our own client does: with the map's grant."""

    gateway_pid: int
    description: dict
    """Content of `dev.json`."""

    def make_bucket(self, name: str, **props: object) -> None:
        url = f"{self.endpoint}/v1/buckets/{name}"
        call("POST", url, {"action": "create-bck"})
        if props:
            call("PATCH", url, {"action": "set-bprops", "value": props})
        self.look_up()
        open_to_all(s3_client(f"{self.endpoint}/s3", ("forebay", "forebaysecret")), name)

    def by_s3(self) -> list[Server]:
        """The same as S3 clients see it: straight at the target, and through the gateway."""
        path = "/s3/{bucket}/{name}"
        straight = Server("Forebay by S3", self.address, self.pid, path)
        through = Server("Forebay by S3, gateway", self.front, self.pid, path)
        through.helpers = [self.gateway_pid]
        return [straight, through]

    def backend_calls(self, provider: str, op: str) -> int:
        """Calls of one kind to a cloud that succeeded so far."""
        labels = f'op="{op}",provider="{provider}",result="ok"'
        wanted = f"forebay_backend_requests_total{{{labels}}} "
        lines = call("GET", f"http://{self.address}/metrics").decode().splitlines()
        return sum(int(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    def look_up(self, token: str = "") -> None:
        """Takes the map and its grant."""
        known = json.loads(call("GET", f"{self.endpoint}/api/v1/map", token=token))
        version = known["state"]["version"]
        self.headers = [f"forebay-grant: {known['grant']}", f"forebay-map: {version}"]


@contextlib.contextmanager
def forebay(binary: str, folder: Path, targets: int = 1, *more: str) -> Iterator[Forebay]:
    port = free_port(1 + targets)
    description_file = folder / "dev.json"
    command = [binary, "dev", "--dir", str(folder), "--gateways", "1", *more]
    command += ["--targets", str(targets), "--port", str(port)]
    with process(command, description_file.exists):
        # A cluster that serves both schemes names HTTPS; servers are compared without it.
        description = json.loads(description_file.read_text().replace("https://", "http://"))
        target = description["targets"][0]
        path = "/v1/objects/{bucket}/{name}"
        server = Forebay("Forebay", target["url"].removeprefix("http://"), target["pid"], path)
        server.put, server.endpoint = path, description["endpoint"]
        server.front, server.s3 = server.endpoint.removeprefix("http://"), "/s3/{bucket}"
        server.gateway_pid = description["gateways"][0]["pid"]
        server.description = description
        server.folder = Path(target["disks"][0])
        yield server


class Aistore(Server):
    """One proxy and one target; writes go straight to the target with the proxy's mark."""

    def make_bucket(self, name: str, **props: object) -> None:
        url = f"{self.endpoint}/v1/buckets/{name}"
        call("POST", url, {"action": "create-bck"})
        if props:
            call("PATCH", url, {"action": "set-bprops", "value": props})


@contextlib.contextmanager
def aistore(binary: str, folder: Path, settings: Path | None = None) -> Iterator[Aistore]:
    """AIStore from its `aisnode` binary, with the values of its own development setup or others."""
    folder = folder.absolute()
    port = free_port(6)
    endpoint = f"http://127.0.0.1:{port}"
    home = folder / "home"
    home.mkdir(parents=True)
    # The build of ci/aistore.sh then listens on the configured address, and not on all interfaces.
    env = {**os.environ, "HOME": str(home), "AIS_LAB_BIND_PUB": "1"}

    def command(index: int, role: str) -> list[str]:
        place = folder / role
        (place / "log").mkdir(parents=True)
        config = place / "ais.json"
        content = (settings or AISTORE_CONFIG).read_text()
        config.write_text(content.replace("PRIMARY", endpoint))
        ports = [str(port + index + step) for step in (0, 2, 4)]
        names = ("port", "port_intra_control", "port_intra_data")
        hosts = ("hostname", "hostname_intra_control", "hostname_intra_data")
        local = {
            "confdir": str(place),
            "log_dir": str(place / "log"),
            "host_net": dict(zip(names, ports, strict=True)) | dict.fromkeys(hosts, "127.0.0.1"),
            "fspaths": {},
            "test_fspaths": {"root": f"{folder}/disk/", "count": 1, "instance": index},
        }
        (place / "local.json").write_text(json.dumps(local))
        flags = [f"-config={config}", f"-local_config={place / 'local.json'}", f"-role={role}"]
        return [binary, *flags, *(["-ntargets=1"] if role == "proxy" else [])]

    (folder / "disk").mkdir()
    with contextlib.ExitStack() as stack:
        started = process(command(0, "proxy"), lambda: listens(port), env=env)
        stack.enter_context(started)
        joined = process(
            command(1, "target"), lambda: answers(f"{endpoint}/v1/health?prr=true"), env=env
        )
        target = stack.enter_context(joined)
        cluster = f"{endpoint}/v1/daemon?what=smap"
        wait(lambda: len(json.loads(call("GET", cluster))["tmap"]) == 1, "AIStore's target")
        proxy = next(iter(json.loads(call("GET", cluster))["pmap"]))
        path = "/v1/objects/{bucket}/{name}"
        server = Aistore("AIStore", f"127.0.0.1:{port + 1}", target.pid, path)
        server.put = f"{path}?pid={proxy}&utm={time.time_ns()}"
        server.endpoint, server.folder = endpoint, folder / "disk"
        yield server


AISTORE_CONFIG = Path(__file__).parent.parent / "tests/data/aistore.json"
"""Values of AIStore's own development setup; PRIMARY stands for its proxy."""


def open_to_all(client, bucket: str) -> None:  # noqa: ANN001: boto3 has no types of its own
    """Lets anybody read, write and list a bucket, so that no signature is checked."""
    rights = {
        "Effect": "Allow",
        "Principal": {"AWS": ["*"]},
        "Action": ["s3:GetObject", "s3:PutObject"],
        "Resource": [f"arn:aws:s3:::{bucket}/*"],
    }
    listing = {**rights, "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{bucket}"]}
    policy = {"Version": "2012-10-17", "Statement": [rights, listing]}
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))


def s3_client(endpoint: str, login: tuple[str, str]):  # noqa: ANN201
    import boto3

    access, secret = login
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )


def minio_client(port: int):  # noqa: ANN201
    return s3_client(f"http://127.0.0.1:{port}", (MINIO_USER, MINIO_PASSWORD))


class Minio(Server):
    """MinIO with buckets that anybody may read and write, so that it checks no signatures."""

    def make_bucket(self, name: str, **props: object) -> None:
        client = minio_client(int(self.address.rpartition(":")[2]))
        client.create_bucket(Bucket=name)
        open_to_all(client, name)

    def fill_with_empty(self, bucket: str, names: Iterable[str]) -> None:
        """Objects without bytes, written as the server writes them: each is a folder with one small
        file, which does not contain the name. Many times faster than so many PUTs."""
        client = minio_client(int(self.address.rpartition(":")[2]))
        client.put_object(Bucket=bucket, Key="first", Body=b"")
        assert self.folder is not None
        content = (self.folder / bucket / "first/xl.meta").read_bytes()
        client.delete_object(Bucket=bucket, Key="first")
        for name in names:
            folder = f"{self.folder}/{bucket}/{name}"
            os.makedirs(folder)
            with open(f"{folder}/xl.meta", "wb") as file:
                file.write(content)


@contextlib.contextmanager
def minio(binary: str, folder: Path) -> Iterator[Minio]:
    port = free_port(1)
    env = {**os.environ, "MINIO_ROOT_USER": MINIO_USER, "MINIO_ROOT_PASSWORD": MINIO_PASSWORD}
    command = [binary, "server", str(folder), "--quiet", "--address", f"127.0.0.1:{port}"]
    live = f"http://127.0.0.1:{port}/minio/health/cluster"
    with process(command, lambda: answers(live), env=env) as child:
        path = "/{bucket}/{name}"
        address = f"127.0.0.1:{port}"
        yield Minio("MinIO", address, child.pid, path, path, folder=folder, front=address)


class FakeGcs(Server):
    """Google Cloud Storage as near as it gets, in memory."""

    def make_bucket(self, name: str, **props: object) -> None:
        call("POST", f"{self.endpoint}/storage/v1/b?project=bench", {"name": name})


@contextlib.contextmanager
def fake_gcs(binary: str) -> Iterator[FakeGcs]:
    port = free_port(1)
    command = [binary, "-backend", "memory", "-scheme", "http", "-log-level", "error"]
    command += ["-host", "127.0.0.1", "-port", str(port)]
    endpoint = f"http://127.0.0.1:{port}"
    ready = f"{endpoint}/_internal/healthcheck"
    with process(command, lambda: answers(ready)) as child:
        path = "/storage/v1/b/{bucket}/o/{name}?alt=media"
        server = FakeGcs("fake-gcs-server", f"127.0.0.1:{port}", child.pid, path, endpoint=endpoint)
        server.put = "/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        yield server


class Nginx(Server):
    """nginx over a folder of files, with sendfile; the files are written by hand."""

    def make_bucket(self, name: str, **props: object) -> None:
        assert self.folder is not None
        (self.folder / name).mkdir()

    def write(self, bucket: str, count: int, size: int) -> None:
        assert self.folder is not None
        content = random.Random(bucket).randbytes(size)
        for number in range(count):
            (self.folder / bucket / f"o{number:08d}").write_bytes(content)


@contextlib.contextmanager
def nginx(binary: str, folder: Path, tls: str = "") -> Iterator[Nginx]:
    """`tls`: directives of a server that serves HTTPS."""
    port = free_port(1)
    folder = folder.absolute()
    files = folder / "files"
    files.mkdir(parents=True)
    # Workers run as the user that starts nginx; started by root they could not read the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(f"""
daemon off; {user} worker_processes auto; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} {"ssl" if tls else ""} sndbuf=128k; root {files}; {tls} }}
}}
""")
    command = [binary, "-c", str(config), "-e", str(folder / "errors")]
    with process(command, lambda: listens(port)) as child:
        yield Nginx("nginx", f"127.0.0.1:{port}", child.pid, "/{bucket}/{name}", folder=files)


def found(program: str | None) -> str | None:
    """The path of a program, if it is there."""
    return shutil.which(program) if program else None
