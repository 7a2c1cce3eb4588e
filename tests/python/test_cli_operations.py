"""`forebay bench`, `support-bundle`, `ready`, `config set`, `disk ls` of one target, and profiles."""

from __future__ import annotations

import json
import tarfile
import uuid
from pathlib import Path

import pytest
from conftest import Cluster
from forebay_command import Command

OK, FAILED, USAGE, NOT_FOUND, UNAVAILABLE = 0, 1, 2, 4, 7
DEAD = "http://127.0.0.1:9"


@pytest.fixture
def forebay(cluster: Cluster, tmp_path: Path) -> Command:
    return Command.of(cluster, tmp_path)


@pytest.fixture
def bucket(forebay: Command) -> str:
    uri = f"ais://t-{uuid.uuid4().hex[:12]}"
    forebay.ok("mb", uri)
    return uri


def result_of(forebay: Command, *args: str) -> dict[str, object]:
    return json.loads(forebay.ok("bench", *args, "--time", "300ms", "--jobs", "4", "-o", "json"))


def test_bench_put_removes_what_it_wrote(forebay: Command, bucket: str) -> None:
    result = result_of(forebay, "put", bucket, "--size", "64KiB", "--objects", "20")
    assert result["schema"] == 1 and result["kind"] == "put" and result["failed"] == 0
    assert result["requests"] > 0 and result["bytes"] == result["requests"] * 64 * 1024
    assert forebay.ok("ls", bucket, "-o", "json").strip() == "[]"


def test_bench_reads_what_bench_put_kept(forebay: Command, bucket: str) -> None:
    result_of(forebay, "put", bucket, "--size", "8KiB", "--objects", "50", "--keep")
    whole = result_of(forebay, "get", bucket)
    assert whole["failed"] == 0 and whole["bytes"] == whole["objects"] * 8192
    assert 0 < whole["latency_ms"]["p50"] <= whole["latency_ms"]["p99"] <= whole["latency_ms"]["max"]
    assert whole["first_byte_ms"]["p50"] <= whole["latency_ms"]["p50"]
    ranges = result_of(forebay, "get", f"{bucket}/bench/", "--range", "1KiB")
    assert ranges["failed"] == 0 and ranges["bytes"] == ranges["objects"] * 1024
    batches = result_of(forebay, "batch", bucket, "--batch", "10")
    assert batches["failed"] == 0 and batches["objects"] == batches["requests"] * 10
    assert batches["bytes"] == batches["objects"] * 8192


def test_bench_shard_counts_members_and_their_bytes(forebay: Command, bucket: str) -> None:
    with tarfile.open(forebay.folder / "s.tar", mode="w") as tar:
        for name in ("a.cls", "a.txt"):
            (forebay.folder / name).write_text("12345")
            tar.add(forebay.folder / name, arcname=name)
    forebay.ok("put", "s.tar", f"{bucket}/s.tar")
    result = result_of(forebay, "shard", bucket)
    assert result["failed"] == 0 and result["objects"] == 2 * result["requests"]
    assert result["bytes"] == 5 * result["objects"]


def test_bench_of_nothing_is_an_error_with_the_way_to_write_something(
    forebay: Command, bucket: str
) -> None:
    answer = forebay("bench", "get", bucket)
    assert answer.code == NOT_FOUND and "names no objects" in answer.err, answer
    assert forebay("bench", "get", "ais://no-such-bucket").code == NOT_FOUND
    assert forebay("bench", "put", "ais://no-such-bucket").code == NOT_FOUND
    assert forebay("bench", "get", bucket, "--jobs", "0").code == USAGE
    assert forebay("bench", "get", bucket, "--time", "0s").code == USAGE
    assert forebay("bench", "put", bucket, "--size", "2GiB").code == USAGE


def test_failed_requests_of_bench_are_counted_and_decide_the_exit_code(
    forebay: Command, bucket: str
) -> None:
    forebay.ok("put", "-", f"{bucket}/not-a-shard.tar", text="x" * 2000)
    answer = forebay("bench", "shard", bucket, "--time", "300ms", "--jobs", "1", "-o", "json")
    assert answer.code == FAILED, answer
    assert answer.json["failed"] > 0 and sum(answer.json["errors"].values()) == answer.json["failed"]


def test_bench_compare_shows_the_ratio_of_two_results(forebay: Command, bucket: str) -> None:
    for file in ("a.json", "b.json"):
        result = result_of(forebay, "put", bucket, "--size", "1KiB")
        (forebay.folder / file).write_text(json.dumps(result))
    rows = {row["figure"]: row for row in json.loads(forebay.ok("bench", "compare", "a.json", "b.json", "-o", "json"))}
    row = rows["requests_per_s"]
    assert row["ratio"] == pytest.approx(row["second"] / row["first"])
    (forebay.folder / "other.json").write_text("{}")
    answer = forebay("bench", "compare", "a.json", "other.json")
    assert answer.code == USAGE and "not a result of `forebay bench`" in answer.err, answer
    assert forebay("bench", "compare", "a.json", "missing.json").code == NOT_FOUND


def test_a_support_bundle_has_the_state_of_every_node(forebay: Command, cluster: Cluster) -> None:
    shown = json.loads(forebay.ok("support-bundle", "bundle.tar.gz", "-o", "json"))
    assert shown["missing"] == [] and shown["files"] > 10, shown
    file = forebay.folder / "bundle.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        content = {name.split("/", 1)[1]: tar.extractfile(name).read() for name in tar.getnames()}
    manifest = json.loads(content["manifest.json"])
    assert manifest["layout"] == 1 and set(manifest["files"]) == set(content) - {"manifest.json"}
    for node in [*cluster.info["gateways"], *cluster.info["targets"]]:
        folder = f"nodes/{node['id']}"
        assert json.loads(content[f"{folder}/ready.json"])["ready"] is True
        assert b"forebay_build_info" in content[f"{folder}/metrics.txt"]
        assert json.loads(content[f"{folder}/settings.json"]) and content[f"{folder}/log.txt"]
    assert any(finding["check"] == "endpoint" for finding in json.loads(content["doctor.json"]))
    # The cluster's secret and keys are never shown.
    secrets = [path.read_text().strip() for path in cluster.folder.rglob("secret")]
    assert secrets, f"no secret below {cluster.folder}"
    everything = b"\n".join(content.values())
    assert not [secret for secret in secrets if secret.encode() in everything]


def test_a_support_bundle_goes_to_standard_output_and_not_without_a_cluster(
    forebay: Command,
) -> None:
    answer = forebay("support-bundle", "--endpoint", DEAD, "--timeout", "1s", "x.tar.gz")
    assert answer.code == UNAVAILABLE and not (forebay.folder / "x.tar.gz").exists(), answer


def test_ready_says_whether_a_node_answers(forebay: Command, cluster: Cluster) -> None:
    assert forebay("ready").code == OK
    for node in cluster.info["targets"]:
        answer = forebay("ready", node["url"], "-o", "json")
        assert answer.code == OK and answer.json == {"url": node["url"], "ready": True}, answer
    answer = forebay("ready", DEAD)
    assert answer.code == UNAVAILABLE and f"{DEAD} is not ready" in answer.err, answer
    assert forebay("ready", DEAD, "--wait", "--timeout", "500ms").code == UNAVAILABLE


def test_disk_ls_of_an_unknown_target_or_a_gateway_is_an_error(
    forebay: Command, cluster: Cluster
) -> None:
    assert forebay("disk", "ls", "nobody-here").code == NOT_FOUND
    answer = forebay("disk", "ls", cluster.info["gateways"][0]["id"])
    assert answer.code == USAGE and "is a gateway" in answer.err, answer
    assert forebay("disk", "ls", cluster.info["targets"][0]["id"]).code == OK


def test_a_profile_selects_the_cluster(forebay: Command, cluster: Cluster) -> None:
    config = forebay.folder / "config.toml"
    config.write_text(
        f'endpoint = "{DEAD}"\n[profile.lab]\nendpoint = "{cluster.endpoint}"\n'
        f'[profile.off]\nendpoint = "{DEAD}"\n'
    )
    env = {"FOREBAY_CONFIG": str(config), "FOREBAY_ENDPOINT": ""}
    assert forebay("--profile", "lab", "ready", env=env).code == OK
    assert forebay("ready", env={**env, "FOREBAY_PROFILE": "lab"}).code == OK
    # The flag precedes the endpoint of the environment, which precedes the profile there.
    assert forebay("ready", "--profile", "off", env={**env, "FOREBAY_ENDPOINT": cluster.endpoint}).code == UNAVAILABLE
    both = {**env, "FOREBAY_ENDPOINT": cluster.endpoint, "FOREBAY_PROFILE": "off"}
    assert forebay("ready", env=both).code == OK
    answer = forebay("ready", "--profile", "lba", env=env)
    assert answer.code == USAGE and "the profiles are lab, off" in answer.err, answer
    listed = forebay("config", "profiles", "-o", "json", env=env).json
    assert [profile["profile"] for profile in listed] == ["lab", "off"]


def test_config_set_changes_one_value_and_keeps_the_rest(forebay: Command) -> None:
    file = forebay.folder / "target.toml"
    text = '# Of the lab.\n[log]\nlevel = "info" # for now\n\n[cache]\nhigh = 90\n'
    file.write_text(text)
    file.chmod(0o640)

    def change(*args: str) -> dict[str, object]:
        return json.loads(forebay.ok("config", *args, "--config", "target.toml", "-o", "json"))

    assert change("set", "log.level", "debug")["needs"] == "reload"
    assert file.read_text() == text.replace('"info"', '"debug"')
    assert change("set", "cache.high", "85", "--dry-run")["written"] is False
    assert change("set", "cache.high", "85")["needs"] == "restart"
    assert change("unset", "log.level")["value"] is None
    assert file.read_text() == "# Of the lab.\n[log]\n\n[cache]\nhigh = 85\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in forebay.folder.iterdir()] == ["target.toml"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cache.hihg", "85", "did you mean `high`?"),
        ("cache.high", "many", "target.toml"),
        ("cache.high", "101", "cache.high"),
        ("high", "85", "not a key"),
        ("disk.path", "/x", "by hand"),
    ],
)
def test_config_set_refuses_what_would_make_the_file_invalid(
    forebay: Command, key: str, value: str, message: str
) -> None:
    file = forebay.folder / "target.toml"
    text = '[cache]\nhigh = 90\n\n[[disk]]\npath = "/d"\n'
    file.write_text(text)
    answer = forebay("config", "set", key, value, "--config", "target.toml")
    assert answer.code == USAGE and message in answer.err, answer
    assert file.read_text() == text
    assert [path.name for path in forebay.folder.iterdir()] == ["target.toml"]
