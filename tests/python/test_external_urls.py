"""External URLs of nodes: a client that reaches only those reads and writes through every interface, also
objects of a target that has none. The client is in a network namespace without the internal addresses. The clients of
others run by `make test-long`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from external_client import forward
from forebay_cluster import binary, free_ports, wait_until
from forebay_skips import long

OUTSIDE = "127.0.9.9"
TARGETS = 3
# The last target has no external URL.
HIDDEN = f"target-{TARGETS}"


class Nodes:
    """A gateway and targets, each with its configuration, and a client outside of their network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(TARGETS + 1)
        self.outside = free_ports(TARGETS + 1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.client: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports}"

    @property
    def outer(self) -> str:
        return f"http://{OUTSIDE}:{self.outside + 1}"

    def start(self) -> None:
        secret = self.folder / "secret"
        secret.write_text("the-secret-of-this-test-cluster\n")
        secret.chmod(0o600)
        self.node("gateway-1", 0, f"http://{OUTSIDE}:{{ordinal+{self.outside}}}")
        for n in range(1, TARGETS + 1):
            # The gateway has the ordinal 1, too.
            template = f"http://{OUTSIDE}:{{ordinal+{self.outside + 1}}}"
            self.node(f"target-{n}", n, "" if n == TARGETS else template)
        wait_until(lambda: len(self.members()) == TARGETS + 1, "all nodes joined", 60)
        self.start_client()

    def node(self, name: str, n: int, external: str) -> None:
        folder = self.folder / name
        folder.mkdir()
        role = name.split("-")[0]
        config = folder / "forebay.toml"
        text = f"""
            [cluster]
            gateways = ["{self.endpoint}"]
            secret_file = "{self.folder}/secret"
            [node]
            id = "{name}"
            dir = "{folder}/state"
            [listen]
            http = "127.0.0.1:{self.ports + n}"
            external = "{external}"
            external_hosts = ["{OUTSIDE}", "*.outside.test"]
        """
        disk = f'[[disk]]\npath = "{folder}/disk"\nsize = "1GiB"\n' if role == "target" else ""
        config.write_text(textwrap.dedent(text) + disk)
        with (folder / "log").open("wb") as log:
            command = [str(binary()), role, "--config", str(config)]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def members(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/api/v1/map", timeout=5) as answer:
                nodes: dict[str, Any] = json.load(answer)["state"]["nodes"]
        except OSError:
            return {}
        return {name: node for name, node in nodes.items() if node["alive"]}

    def start_client(self) -> None:
        words = ["unshare", "-n", sys.executable, str(Path(__file__).with_name("external_client.py"))]
        for n in range(TARGETS):
            path = f"{self.folder}/{n}.sock"
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(128)
            port = self.ports + n
            forward(listener, lambda port=port: socket.create_connection(("127.0.0.1", port)))
            words.append(f"{OUTSIDE}:{self.outside + 1 + n}={path}")
        env = {key: value for key, value in os.environ.items() if not key.startswith("FOREBAY_")}
        env |= {"FOREBAY_LOCAL": "off", "OUTER": self.outer, "NO_PROXY": "*"}
        self.client = subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if not self.client.stdout or json.loads(self.client.stdout.readline() or "null") != "ready":
            pytest.skip("this machine makes no network namespaces")

    def run(self, code: str) -> Any:
        """Runs code at the client; returns its variable `result`."""
        assert self.client and self.client.stdin and self.client.stdout
        self.client.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self.client.stdin.flush()
        answer = json.loads(self.client.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def stop(self) -> None:
        if self.client:
            self.client.kill()
            self.client.wait()
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(30)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Running nodes, and their client."""
    made = Nodes(tmp_path_factory.mktemp("external"))
    try:
        made.start()
        made.run(
            """
            import os, urllib.request, urllib.error, json
            outer = os.environ["OUTER"]
            bodies = {f"o{n:02}": (b"%d " % n) * (1000 + 3000 * n) for n in range(24)}
            """
        )
        yield made
    finally:
        made.stop()


def test_the_client_reaches_no_internal_address(nodes: Nodes) -> None:
    reached = nodes.run(
        f"""
        try:
            urllib.request.urlopen("{nodes.endpoint}/healthz", timeout=2)
            result = True
        except OSError:
            result = False
        """
    )
    assert not reached


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/map",
        "/api/v1/cluster",
        "/api/v1/overview",
        "/v1/daemon?what=smap",
        "/v1/daemon?what=snode",
        "/v1/daemon?what=node_status",
        "/v1/cluster?what=smap",
        "/v1/cluster?what=cluster_config",
        "/v1/cluster?what=node_stats",
        "/v1/cluster?what=target_ips",
    ],
)
def test_no_answer_to_the_outside_names_an_internal_url(nodes: Nodes, path: str) -> None:
    text = nodes.run(f'result = urllib.request.urlopen(outer + "{path}").read().decode()')
    # The overview has the addresses of clients, too: that of the test's relay is one of this machine.
    internal = text.replace('"external":', "").replace('"client":"127.0.0.1"', "")
    assert "127.0.0.1" not in internal, internal
    with urllib.request.urlopen(nodes.endpoint + path) as answer:
        assert OUTSIDE not in answer.read().decode().replace(f'"external":"http://{OUTSIDE}', "")


def test_a_redirect_leads_to_the_external_url_or_is_followed_by_the_gateway(nodes: Nodes) -> None:
    nodes.run(
        """
        import forebay
        forebay.Client(outer).bucket("redirects").create()
        forebay.Client(outer).bucket("redirects").put_many(bodies.items())
        """
    )
    answers = nodes.run(
        """
        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *args):
                return None
        opener = urllib.request.build_opener(Stay)
        result = {}
        for name, body in bodies.items():
            try:
                answer = opener.open(f"{outer}/v1/objects/redirects/{name}")
                result[name] = answer.read() == body
            except urllib.error.HTTPError as e:
                result[name] = e.headers["Location"]
        """
    )
    led = [where for where in answers.values() if isinstance(where, str)]
    assert led and all(where.startswith(f"http://{OUTSIDE}:") for where in led)
    relayed = [where for where in answers.values() if where is True]
    assert relayed and len(led) + len(relayed) == len(answers), "the hidden target has some of them"


def test_our_python_client_reads_writes_and_gets_batches(nodes: Nodes) -> None:
    done = nodes.run(
        """
        import forebay
        client = forebay.Client(outer)
        bucket = client.bucket("own")
        bucket.create()
        bucket.put_many(bodies.items())
        one = {n: bucket.object(n).get().read_all() == body for n, body in bodies.items()}
        got = client.get_many([(bucket, name) for name in bodies])
        many = {n: bytes(data) == bodies[n] for n, data in zip(bodies, got)}
        listed = sorted(entry.name for entry in bucket.list_objects())
        bucket.object("o00").delete()
        left = len(list(bucket.list_objects()))
        result = [all(one.values()), all(many.values()), len(many), listed == sorted(bodies), left]
        """
    )
    assert done == [True, True, 24, True, 23]


@long
def test_the_client_of_aistore_reads_writes_and_gets_batches(nodes: Nodes) -> None:
    pytest.importorskip("aistore")
    done = nodes.run(
        """
        from aistore.sdk import Client
        bucket = Client(outer).bucket("theirs").create()
        for name, body in bodies.items():
            bucket.object(name).get_writer().put_content(body)
        one = [bucket.object(n).get_reader().read_all() == body for n, body in bodies.items()]
        batch = Client(outer).batch(list(bodies), bucket=bucket)
        many = [bodies[info.obj_name] == data for info, data in batch.get()]
        appended = bucket.object("o01").head() is not None
        result = [all(one), all(many), len(many), len(bucket.list_all_objects()), appended]
        """
    )
    assert done == [True, True, 24, 24, True]


@long
def test_s3_clients_read_and_write(nodes: Nodes) -> None:
    pytest.importorskip("boto3")
    done = nodes.run(
        """
        import boto3
        s3 = boto3.client("s3", endpoint_url=outer + "/s3", region_name="us-east-1",
                          aws_access_key_id="forebay", aws_secret_access_key="forebaysecret")
        s3.create_bucket(Bucket="s3-bucket")
        for name, body in bodies.items():
            s3.put_object(Bucket="s3-bucket", Key=name, Body=body)
        one = [s3.get_object(Bucket="s3-bucket", Key=n)["Body"].read() == b for n, b in bodies.items()]
        listed = s3.list_objects_v2(Bucket="s3-bucket")["KeyCount"]
        upload = s3.create_multipart_upload(Bucket="s3-bucket", Key="parts")
        part = s3.upload_part(Bucket="s3-bucket", Key="parts", UploadId=upload["UploadId"], PartNumber=1,
                              Body=b"x" * 1000)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        made = s3.complete_multipart_upload(Bucket="s3-bucket", Key="parts", UploadId=upload["UploadId"],
                                            MultipartUpload=parts)
        result = [all(one), listed, made.get("Location", "")]
        """
    )
    assert done[:2] == [True, 24]
    assert "127.0.0.1" not in done[2], done


def test_a_name_of_external_hosts_is_a_name_of_the_node_and_others_are_not(nodes: Nodes) -> None:
    def locations(host: str) -> str:
        request = urllib.request.Request(f"{nodes.endpoint}/api/v1/map", headers={"Host": host})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["state"]["nodes"][HIDDEN]["url"])

    assert locations("gw.outside.test") == "http://gw.outside.test"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        locations("gw.elsewhere.test")
    forged = urllib.request.Request(
        f"{nodes.endpoint}/api/v1/map", headers={"forebay-external": "http://evil.test"}
    )
    with urllib.request.urlopen(forged, timeout=10) as answer:
        assert "evil.test" not in answer.read().decode(), "only the listener sets the mark"
