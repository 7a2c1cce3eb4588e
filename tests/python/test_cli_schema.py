"""Every command: its JSON fits the schema of `forebay schema`, in all forms, and wrong use is an error.

The command lines are in forebay_cli_cases.py. A field that a command prints and the schema does not
describe fails the test, although the schema allows programs to meet new fields. `make test-long` runs each command
in all forms of output; JSON alone is checked at every commit.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import Cluster, UsersCluster
from forebay_cli_cases import CASES, WRONG, Case
from forebay_cluster import binary
from forebay_command import Answer
from forebay_skips import long
from jsonschema import Draft202012Validator, FormatChecker

USAGE, NOT_FOUND = 2, 4
#: Commands with tests of their own below.
OWN_TEST = {"trace", "schema"}

FORMATS = FormatChecker()


@FORMATS.checks("date-time", raises=ValueError)
def is_time(value: object) -> bool:
    """Whether a text is a time of RFC 3339; the package checks it only with another package."""
    return not isinstance(value, str) or (value[10] == "T" and datetime.fromisoformat(value).tzinfo is not None)


def strict(schema: Any) -> Any:
    """The schema without the leave for fields that it does not describe."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def check(value: Any, schema: Mapping[str, Any]) -> None:
    """Fails the test with the place and the reason if the value does not fit."""
    errors = list(Draft202012Validator(schema, format_checker=FORMATS).iter_errors(value))
    assert not errors, "\n".join(f"{error.json_path}: {error.message}" for error in errors)


class Fixture:
    """A cluster with some content, one with users, and the words of the cases."""

    def __init__(self, cluster: Cluster, users: UsersCluster, folder: Path, backend: Path) -> None:
        self.cluster, self.users, self.folder = cluster, users, folder
        (folder / "one.txt").write_text("one")
        (folder / "dir").mkdir()
        for name in ("a", "b"):
            (folder / "dir" / name).write_text(name)
        with tarfile.open(folder / "s.tar", mode="w") as tar:
            tar.add(folder / "dir" / "a", arcname="a")
        for name, text in {
            "target.toml": '[log]\nlevel = "warn"\n[cache]\nhigh = 91\n',
            "other.toml": "[cache]\nhigh = 89\n",
            "wrong.toml": "[cache]\nhigh = 101\n",
        }.items():
            (folder / name).write_text(text)
        (folder / "forebay").mkdir()
        (folder / "forebay/config.toml").write_text('[profile.lab]\nendpoint = "http://127.0.0.1:9"\n')
        self.known = {
            "bucket": "ais://content",
            "backed": "ais://backed",
            "endpoint": cluster.endpoint,
            "folder": str(folder),
            "gateway": cluster.info["gateways"][0]["id"],
            "target": cluster.info["targets"][0]["id"],
            "password": str(users.folder / "password"),
            "feed": "loop",
        }
        self.ok("mb {bucket}")
        self.ok(f"mb {{backed}} --folder {backend}")
        self.ok("put -r dir {bucket}/dir/")
        self.ok("put one.txt {bucket}")
        self.ok("put s.tar {bucket}/shards/s.tar")
        (folder / "result.json").write_text(self.ok("bench get {bucket} --time 100ms -o json"))
        self.known["job"] = json.loads(self.ok("scrub {bucket} --wait -o json"))["id"]
        feed = {"id": "loop", "name": "loop", "steps": 7, "wait_s": 1.5, "step_s": 3.0, "causes": {"disk": 1.0}}
        requests.put(f"{cluster.endpoint}/api/v1/feeds/loop", json=feed, timeout=10).raise_for_status()

    def words(self, line: str) -> list[str]:
        """A command line with its words filled in; what it names is made."""
        made: dict[str, Callable[[], str]] = {
            "new": lambda: self.new(),
            "key": lambda: self.users.key_of("writer")[0],
            "join_token": lambda: json.loads(self.users.as_admin("node", "join-token", "create", "-o", "json"))["id"],
            "request": self.request,
        }
        missing = {name: make() for name, make in made.items() if f"{{{name}}}" in line and name not in self.known}
        return shlex.split(line.format_map({**self.known, **missing}))

    def new(self) -> str:
        """A name that nothing has; a folder of this name is made."""
        name = f"t{uuid.uuid4().hex[:12]}"
        (self.folder / name).mkdir()
        return name

    def request(self) -> str:
        """Id of a request that ended a moment ago."""
        answer = self.run("stat {bucket}/missing -o json")
        return str(json.loads(answer.err)["error"]["request_id"])

    def run(self, line: str, *, users: bool = False, text: str | None = None) -> Answer:
        """Runs a command line to its end."""
        env = self.users.environment(self.users.admin_token if users else None)
        if not users:
            key = self.cluster.info["s3_keys"][0]
            env |= {"AWS_ACCESS_KEY_ID": key["access"], "AWS_SECRET_ACCESS_KEY": key["secret"]}
            env |= {"FOREBAY_ENDPOINT": self.cluster.endpoint, "XDG_CONFIG_HOME": str(self.folder)}
            env.pop("FOREBAY_CA_FILE", None)
        for name in ("FOREBAY_CONFIG", "FOREBAY_OUTPUT", "FOREBAY_PROFILE"):
            env.pop(name, None)
        done = subprocess.run(
            [str(binary()), *self.words(line)],
            env=env,
            cwd=self.folder,
            input=text or "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def ok(self, line: str, *, users: bool = False) -> str:
        """The output of a command line that succeeds."""
        answer = self.run(line, users=users)
        assert answer.code == 0, (line, answer)
        return answer.out

    def answers(self, case: Case, form: str) -> Iterator[tuple[Case, Answer]]:
        """Runs a case and those that go on from it, in one form of output."""
        self.known["new"] = self.new()
        try:
            for line in case.before:
                self.ok(line, users=case.users)
            for step in case.steps:
                answer = self.run(f"{step} -o {form}", users=step.users, text=step.text)
                assert answer.code == step.code, (str(step), form, answer)
                yield step, answer
        finally:
            del self.known["new"]


@pytest.fixture(scope="module")
def fixture(
    start_cluster: Callable[..., Cluster], users: UsersCluster, tmp_path_factory: pytest.TempPathFactory
) -> Fixture:
    """A cluster whose requests are all chosen for traces, with a bucket over a folder."""
    folder = tmp_path_factory.mktemp("cli-schema")
    (folder / "dev.toml").write_text("[trace]\nsample = 1.0\n")
    folders = folder / "folders"
    folders.mkdir()
    (folders / "far.txt").write_text("far")
    options = ["--config", str(folder / "dev.toml"), "--folder-root", str(folders)]
    cluster = start_cluster(options=options)
    work = folder / "work"
    work.mkdir()
    return Fixture(cluster, users, work, folders)


@pytest.fixture(scope="module")
def document(fixture: Fixture) -> dict[str, Any]:
    """The document of `forebay schema`."""
    return dict(json.loads(fixture.ok("schema")))


@pytest.fixture(scope="module")
def definition(document: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    """`definition("job get")`: the strict schema of a command."""
    parts = strict(document["$defs"])
    return lambda name: {**parts[name], "$defs": parts}


def test_the_document_is_a_schema_and_has_a_case_for_each_command(fixture: Fixture, document: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(document)
    commands = set(fixture.ok("schema -o name").splitlines())
    assert commands == {step.command for case in CASES for step in case.steps} | OWN_TEST
    assert commands <= set(WRONG)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_json_fits_the_schema(
    case: Case, fixture: Fixture, definition: Callable[[str], dict[str, Any]]
) -> None:
    for step, answer in fixture.answers(case, "json"):
        check(answer.json, definition(step.command))


@long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_output_fits_the_schema_in_every_form(
    case: Case, fixture: Fixture, definition: Callable[[str], dict[str, Any]]
) -> None:
    is_list = {}
    for step, answer in fixture.answers(case, "json"):
        check(answer.json, definition(step.command))
        is_list[step] = isinstance(answer.json, list)
    for step, answer in fixture.answers(case, "jsonl"):
        values = [json.loads(line) for line in answer.out.splitlines()]
        assert is_list[step] or len(values) == 1, answer
        check(values if is_list[step] else values[0], definition(step.command))
    for _, answer in fixture.answers(case, "name"):
        assert not any(line.startswith(("{", "[")) for line in answer.out.splitlines()), answer
    for step, answer in fixture.answers(case, "table"):
        assert step.shows.format_map(fixture.known) in answer.out + answer.err, answer
        assert not answer.out.startswith(("{", "[")), answer


def test_trace_prints_one_document_a_line(
    fixture: Fixture, definition: Callable[[str], dict[str, Any]]
) -> None:
    for form in ("json", "jsonl", "name", "table"):
        ended = threading.Event()

        def requests_go_on(ended: threading.Event = ended) -> None:
            while not ended.wait(0.1):
                fixture.run("stat {bucket}/one.txt")

        traffic = threading.Thread(target=requests_go_on)
        traffic.start()
        try:
            lines = fixture.ok(f"trace --count 2 --operation head -o {form}").splitlines()
        finally:
            ended.set()
            traffic.join()
        assert len(lines) == 2
        for line in lines:
            match form:
                case "json" | "jsonl":
                    check(json.loads(line), definition("trace"))
                case "name":
                    assert len(line) == 16, line
                case _:
                    assert "v1.head ais://content/one.txt" in line


@pytest.mark.parametrize("command", WRONG)
def test_wrong_use_is_exit_code_2_and_names_the_word(
    command: str, fixture: Fixture, definition: Callable[[str], dict[str, Any]]
) -> None:
    arguments, word = WRONG[command]
    word = word.format_map(fixture.known)
    people = fixture.run(f"{command} {arguments}")
    assert people.code == USAGE and people.out == "", people
    assert people.err.startswith("error: ") and word in people.err, people
    program = fixture.run(f"{command} {arguments} -o json")
    assert program.code == USAGE and program.out == "", program
    error = json.loads(program.err)
    check(error, definition("error"))
    assert word in error["error"]["message"], error


def test_schema_of_a_command_has_all_that_it_refers_to(fixture: Fixture) -> None:
    job = json.loads(fixture.ok("schema job get"))
    check(json.loads(fixture.ok("job get {job} -o json")), job)
    assert set(job["$defs"]) == {"Job", "JobKind"}
    assert job == json.loads(fixture.ok("schema job get -o jsonl"))
    failed = fixture.run("stat ais://nowhere/x -o json")
    check(json.loads(failed.err), json.loads(fixture.ok("schema error")))


def test_schema_of_an_unknown_command_names_the_nearest(fixture: Fixture) -> None:
    unknown = fixture.run("schema job gte")
    assert unknown.code == NOT_FOUND and "did you mean job get?" in unknown.err, unknown
    server = fixture.run("schema gateway")
    assert server.code == NOT_FOUND and "prints no JSON" in server.err, server
    group = fixture.run("schema disk")
    assert group.code == NOT_FOUND and "disk attach" in group.err, group


def test_an_error_of_the_cluster_fits_the_schema(
    fixture: Fixture, definition: Callable[[str], dict[str, Any]]
) -> None:
    for line, code in {
        "stat ais://nowhere/x": "bucket_not_found",
        "job get nobody": "job_not_found",
        "get {bucket}/missing x": "object_not_found",
        "put missing.txt {bucket}": "file_not_found",
        "mb {bucket}": "bucket_exists",
        "ready http://127.0.0.1:9": "unavailable",
    }.items():
        answer = fixture.run(f"{line} -o json")
        error = json.loads(answer.err)
        check(error, definition("error"))
        assert error["error"]["code"] == code and answer.out == "", answer
