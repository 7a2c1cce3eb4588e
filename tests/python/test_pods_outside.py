"""A client outside of Kubernetes, which reaches only the ports of its machines, reads and writes by the chart.

The client runs in a namespace of its own, with a link to this machine and no route to pods and Services (tests/pods).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from forebay_pods import ENDPOINT, PodsRun, running_pods

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
]

OBJECTS = 60
VALUES: dict[str, Any] = {
    "gateway": {"replicas": 1, "preStopSeconds": 1},
    "target": {"disks": [{"size": "2Gi"}], "drainTimeoutSeconds": 20, "terminationGracePeriodSeconds": 60},
}
CONNECT = """
import socket
try:
    socket.create_connection(({address!r}, {port}), 2).close()
    print("open")
except OSError:
    print("closed")
"""
# How a gateway answers a request for an object: the host and the port that it names.
REDIRECT = """
import http.client, urllib.parse
url = urllib.parse.urlparse({endpoint!r})
connection = http.client.HTTPConnection(url.hostname, url.port, timeout=10)
connection.request("GET", "/v1/objects/outside/{name}?provider=ais")
answer = connection.getresponse()
print(urllib.parse.urlparse(answer.headers.get("Location", "")).netloc)
"""


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodsRun]:
    """One gateway and three targets with node ports, and objects that a client outside wrote."""
    with running_pods(tmp_path_factory.mktemp("pods"), VALUES, outside=True) as release:
        release.forebay("mb", "ais://outside")
        code = "bucket = client.bucket('outside')\n"
        code += f"for n in range({OBJECTS}): bucket.object(f'o/{{n}}').put(content(f'o/{{n}}'))"
        release.python_outside(code)
        yield release


def test_the_client_has_no_way_to_pods_and_services(pods: PodsRun) -> None:
    gateway = pods.cluster.pod("rel-forebay-gateway-0")
    assert pods.python(CONNECT.format(address=gateway.address, port=7400)) == "open\n"
    for address in (gateway.address, pods.cluster.service_address("rel-forebay")):
        assert pods.python_outside(CONNECT.format(address=address, port=7400)) == "closed\n"


def test_objects_that_were_written_outside_are_read_outside_and_inside(pods: PodsRun) -> None:
    code = "bucket = client.bucket('outside')\n"
    code += f"names = [f'o/{{n}}' for n in range({OBJECTS})]\n"
    code += "print(sum(bucket.object(n).get().read_all() == content(n) for n in names), end=' ')\n"
    code += "print(sum(d == content(n) for n, d in zip(names, bucket.get_many(names, as_bytes=True))))"
    expected = f"{OBJECTS} {OBJECTS}\n"
    assert pods.python_outside(code) == expected
    assert pods.python(code) == expected
    # Each target has some of them.
    assert all(pods.objects_of(f"rel-forebay-target-{n}") for n in range(3))


def test_each_client_gets_addresses_that_it_can_reach(pods: PodsRun) -> None:
    machine = pods.cluster.network.machine_outside
    ports = {f"{machine}:{port}" for port in range(30750, 30753)}
    named, inside = set(), set()
    for number in range(20):
        name = f"o/{number}"
        named.add(pods.python_outside(REDIRECT.format(endpoint=pods.endpoint_outside, name=name)).strip())
        inside.add(pods.python(REDIRECT.format(endpoint=ENDPOINT, name=name)).strip())
    assert named == ports
    assert all("rel-forebay-target-headless" in host for host in inside)


def test_a_client_outside_waits_for_targets_that_restart(pods: PodsRun) -> None:
    pods.upgrade(target={"podAnnotations": {"kubectl.kubernetes.io/restartedAt": "1"}})
    code = "bucket = client.bucket('outside')\n"
    code += f"print(sum(bucket.object(f'o/{{n}}').get().read_all() == content(f'o/{{n}}') for n in range({OBJECTS})))"
    assert pods.python_outside(code) == f"{OBJECTS}\n"
