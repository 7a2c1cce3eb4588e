"""The manifests of examples/k8s: Kubernetes knows their fields, they fit the chart, and what their pods
run works in a cluster over a real bucket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import REPOSITORY, Cluster, Minio
from forebay_chart import CHART, Manifest, helm, of_kind, one, tool
from forebay_cluster import binary

EXAMPLES = REPOSITORY / "examples"
FOLDER = EXAMPLES / "k8s"
JOBS = ("prefetch", "training")
IMAGES = 60


def documents(name: str) -> list[Manifest]:
    return [d for d in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()) if d]


def pod_of(name: str) -> Manifest:
    (job,) = of_kind(documents(name), "Job")
    spec: Manifest = job["spec"]["template"]["spec"]
    return spec


def container_of(name: str) -> Manifest:
    (container,) = pod_of(name)["containers"]
    found: Manifest = container
    return found


def values_of(name: str) -> dict[str, Any]:
    """The values of the chart in one of the three ways to install it."""
    found = documents(name)
    if name == "values":
        return dict(found[0])
    if name == "argocd":
        return dict(found[0]["spec"]["source"]["helm"]["valuesObject"])
    return dict(one(found, "HelmRelease", "forebay")["spec"]["values"])


def rendered() -> list[Manifest]:
    file = FOLDER / "values.yaml"
    done = helm("template", "forebay", CHART, "-n", "forebay", "--kube-version", "1.34", "-f", file)
    assert done.returncode == 0, done.stderr
    return [d for d in yaml.safe_load_all(done.stdout) if d]


@pytest.mark.parametrize("kubernetes", ["1.28", "1.34"])
def test_kubernetes_knows_every_field_of_the_jobs(kubernetes: str) -> None:
    validate = tool("kubernetes_validate.sh", "FOREBAY_REQUIRE_HELM")
    files = [FOLDER / f"{name}.yaml" for name in JOBS]
    command = [validate, "-k", kubernetes, "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    resources = sum(len(documents(name)) for name in JOBS)
    assert (done.stdout + done.stderr).count("passed for resource") == resources


def test_helm_argo_cd_and_flux_install_the_same() -> None:
    assert values_of("values") == values_of("argocd") == values_of("flux")
    done = helm("lint", "--strict", CHART, "-f", FOLDER / "values.yaml")
    assert done.returncode == 0, done.stdout


def test_everything_names_the_version_of_the_chart() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    (application,) = documents("argocd")
    assert application["spec"]["source"]["targetRevision"] == version
    assert one(documents("flux"), "OCIRepository", "forebay")["spec"]["ref"]["tag"] == version
    assert values_of("values")["image"]["tag"] == version
    image = values_of("values")["image"]["repository"]
    assert container_of("prefetch")["image"] == f"{image}:{version}"


def test_argo_cd_and_flux_name_the_same_place_of_the_chart() -> None:
    (application,) = documents("argocd")
    source = application["spec"]["source"]
    # Argo CD takes the registry without a scheme, and the name of the chart apart.
    assert "://" not in source["repoURL"]
    repository = one(documents("flux"), "OCIRepository", "forebay")
    assert repository["spec"]["url"] == f"oci://{source['repoURL']}/{source['chart']}"
    release = one(documents("flux"), "HelmRelease", "forebay")
    assert release["spec"]["chartRef"] == {"kind": "OCIRepository", "name": "forebay"}
    assert release["metadata"]["namespace"] == application["spec"]["destination"]["namespace"]


@pytest.mark.parametrize("name", JOBS)
def test_pods_find_the_cluster_and_the_network_policy_admits_them(name: str) -> None:
    target = one(rendered(), "StatefulSet", "forebay-target")["spec"]["template"]["spec"]
    endpoints = [
        {e["name"]: e.get("value") for e in c["env"]}["FOREBAY_ENDPOINT"]
        for c in (target["containers"][0], container_of(name))
    ]
    assert endpoints[0] == endpoints[1]
    (job,) = of_kind(documents(name), "Job")
    admitted = {"kubernetes.io/metadata.name": job["metadata"]["namespace"]}
    for role in ("gateway", "target"):
        policy = one(rendered(), "NetworkPolicy", f"forebay-{role}")["spec"]
        peers = policy["ingress"][0]["from"]
        assert {"namespaceSelector": {"matchLabels": admitted}} in peers


@pytest.mark.parametrize("name", JOBS)
def test_pods_meet_the_pod_security_level_restricted(name: str) -> None:
    pod, container = pod_of(name), container_of(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
    assert mounts == {volume["name"] for volume in pod.get("volumes", [])}


def put_images(minio: Minio, folder: Path) -> None:
    code = (
        "import make_images, pathlib, sys\n"
        "make_images.write(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, folder, str(IMAGES)], cwd=EXAMPLES, check=True)
    s3 = minio.client()
    # No other test has a bucket of this name.
    s3.create_bucket(Bucket="images")
    for image in folder.glob("*/*.jpg"):
        name = f"train/{image.relative_to(folder).as_posix()}"
        s3.put_object(Bucket="images", Key=name, Body=image.read_bytes())


def test_the_prefetch_fetches_all_images_and_three_pods_train_an_epoch_each(
    start_cluster: Callable[..., Cluster], minio: Minio, tmp_path: Path
) -> None:
    put_images(minio, tmp_path / "images")
    cluster = start_cluster(env=minio.env)
    env = {**os.environ, "FOREBAY_ENDPOINT": cluster.endpoint}

    def fetched() -> float:
        return cluster.count("forebay_backend_requests_total", op="get", provider="aws")

    prefetch = [str(binary()), *container_of("prefetch")["args"]]
    done = subprocess.run(prefetch, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert fetched() == IMAGES

    places = {"/code/": f"{EXAMPLES}/", "/state/": f"{tmp_path}/"}
    (job,) = of_kind(documents("training"), "Job")
    command = container_of("training")["command"]
    for inside, here in places.items():
        command = [word.replace(inside, here) for word in command]
    for epoch in range(1, job["spec"]["completions"] + 1):
        train = [sys.executable, *command[1:]]
        done = subprocess.run(train, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"epoch {epoch}: {IMAGES} samples")
    assert fetched() == IMAGES
