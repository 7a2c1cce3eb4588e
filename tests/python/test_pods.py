"""The pods that helm renders run, and keep what they have, while they are restarted, scaled and upgraded.

`make pods-test` runs this as root. Each pod runs from the unpacked image in namespaces of its own (tests/pods); the
rest of Kubernetes is there in small. Requests of the Python client must not fail meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from forebay_chart import of_kind
from forebay_pods import PodsRun, content, next_program, running_pods

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif("FOREBAY_TEST_LONG" not in os.environ, reason="make test-long runs it"),
]

ONE_COPY, TWO_COPIES = "ais://single", "ais://pairs"
OBJECTS = 200
VALUES: dict[str, Any] = {
    "gateway": {"preStopSeconds": 3},
    "target": {
        "disks": [{"size": "2Gi"}],
        "drainTimeoutSeconds": 60,
        "terminationGracePeriodSeconds": 90,
    },
    "backends": {"s3": {"enabled": True, "existingSecret": "s3"}},
}


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[PodsRun]:
    """Three gateways and three targets with native objects, and a bucket of MinIO."""
    minio = request.getfixturevalue("minio")
    folder = tmp_path_factory.mktemp("pods")
    with running_pods(folder, VALUES, minio) as release:
        name, s3 = minio.new_bucket()
        for number in range(OBJECTS):
            s3.put_object(Bucket=name, Key=f"first/{number}", Body=content(f"first/{number}"))
        release.cloud = f"s3://{name}"
        release.write(ONE_COPY, OBJECTS, copies=1)
        release.write(TWO_COPIES, OBJECTS, copies=2)
        yield release


def test_pods_run_with_the_user_and_the_rights_of_the_manifest(pods: PodsRun) -> None:
    for pod in pods.cluster.controller.pods():
        status = pod.container.status()
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65532"}, pod.name
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        assert status["NSpid"].split()[-1] == "1"
        mounts = pod.container.mounts()
        assert "ro" in mounts["/"]
        assert "ro" in mounts["/etc/forebay"]
        data = next(path for path in mounts if path.startswith("/var/lib/forebay"))
        assert "rw" in mounts[data]


def test_helm_test_passes_in_a_pod_of_its_own(pods: PodsRun) -> None:
    (test,) = of_kind(pods.render(), "Pod")
    assert pods.cluster.run_pod(test, pods.render()) == 0


def test_a_rolling_restart_fails_no_request_and_moves_nothing(pods: PodsRun) -> None:
    before = len(pods.cluster.ended())
    with pods.under_load(ONE_COPY, TWO_COPIES, pods.cloud):
        pods.rollout_restart()
    ended = pods.cluster.ended()[before:]
    assert len(ended) == 6
    assert not [pod for pod in ended if pod.was_killed or pod.exit_code != 0]
    for role in ("gateway", "target"):
        names = [pod.pod for pod in ended if role in pod.pod]
        assert names == [f"rel-forebay-{role}-{n}" for n in (2, 1, 0)]
    # The hook finds that its pod comes back.
    assert {pod.hook for pod in ended if "target" in pod.pod} == {0}


def test_a_target_that_is_scaled_down_moves_its_objects_first(pods: PodsRun) -> None:
    last = "rel-forebay-target-3"
    with pods.under_load(ONE_COPY, TWO_COPIES, pods.cloud):
        pods.upgrade(target={"replicas": 4})
        # A fair share is a quarter.
        moved = OBJECTS // 8
        pods.cluster.wait(lambda: pods.objects_of(last) > moved, f"{last} gets objects", 60)
        pods.upgrade(target={"replicas": 3})
    ended = pods.cluster.ended()[-1]
    assert (ended.pod, ended.hook, ended.exit_code, ended.was_killed) == (last, 0, 0, False)
    answers = {status for pod, _, status in pods.cluster.api.requests if pod == last}
    assert answers == {200}


def test_an_upgrade_and_its_rollback_fail_no_request(pods: PodsRun) -> None:
    pods.cluster.add_image("registry.example.com/forebay:next", next_program())
    before = pods.values
    with pods.under_load(ONE_COPY, TWO_COPIES, pods.cloud):
        pods.upgrade(
            image={"repository": "registry.example.com/forebay", "tag": "next"},
            gateway={"podAnnotations": {"example.com/release": "2"}},
            target={"podAnnotations": {"example.com/release": "2"}},
        )
        images = {pod.node["image"] for pod in pods.cluster.controller.pods()}
        assert images == {"registry.example.com/forebay:next"}
        pods.roll_back(before)
    assert not [pod for pod in pods.cluster.ended() if pod.was_killed]


def test_no_pod_was_restarted_by_a_probe_or_an_error(pods: PodsRun) -> None:
    assert not [(pod.name, pod.restarts) for pod in pods.cluster.controller.pods() if pod.restarts]


def test_an_uninstall_leaves_only_the_volumes(pods: PodsRun) -> None:
    pods.cluster.uninstall()
    assert not pods.cluster.processes()
    claims = sorted(folder.name for folder in (pods.cluster.folder / "claims").iterdir())
    targets = [f"disk0-rel-forebay-target-{n}" for n in range(4)]
    assert claims == targets + [f"state-rel-forebay-gateway-{n}" for n in range(3)]
    # The same release again has its objects.
    pods.upgrade()
    for uri in (ONE_COPY, TWO_COPIES):
        pods.assert_holds(uri, [f"first/{n}" for n in range(OBJECTS)])
