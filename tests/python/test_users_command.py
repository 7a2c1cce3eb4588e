"""The command line in a cluster with users and TLS."""

from __future__ import annotations

import json
import os
import stat
import uuid
from pathlib import Path

import pytest
from conftest import UsersCluster
from forebay_users import ADMIN


@pytest.fixture
def bucket(users: UsersCluster) -> str:
    """URI of a bucket with the object `o`."""
    uri = f"ais://t-{uuid.uuid4().hex[:12]}"
    users.as_admin("mb", uri)
    users.as_admin("put", "-", f"{uri}/o", text="here")
    return uri


def test_dev_json_has_a_token_of_the_administrator_that_only_this_user_reads(
    users: UsersCluster,
) -> None:
    info, folder = users.cluster.info, users.cluster.folder
    assert info["endpoint"].startswith("https://") and info["user"] == ADMIN
    assert Path(info["token_file"]).read_text().strip() == info["token"]
    for file in (folder / "dev.json", Path(info["token_file"])):
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600, file
    assert json.loads(users.as_admin("auth", "whoami", "-o", "json"))[0]["user"] == ADMIN


def test_the_keys_of_a_cluster_with_users_are_not_the_published_ones(users: UsersCluster) -> None:
    secrets = {key["secret"] for key in users.cluster.info["s3_keys"]}
    assert len(secrets) == 3 and all(len(secret) == 40 for secret in secrets)


def test_objects_are_read_and_written_with_the_rights_of_the_user(
    users: UsersCluster, bucket: str
) -> None:
    writer, reader = users.token_of("writer"), users.token_of("reader")
    assert users.command("cat", f"{bucket}/o", token=reader).stdout == "here"
    assert f"{bucket.removeprefix('ais://')}" in users.command("ls", token=reader).stdout
    refused = users.command("rm", f"{bucket}/o", "--yes", token=reader)
    assert refused.returncode != 0 and "no right" in refused.stderr, refused.stderr
    assert users.command("rm", f"{bucket}/o", "--yes", token=writer).returncode == 0


@pytest.mark.parametrize("token", [None, "planted-no-token", "planted.no.token"])
def test_a_command_without_a_valid_token_names_the_remedy(
    users: UsersCluster, bucket: str, token: str | None
) -> None:
    refused = users.command("ls", bucket, token=token)
    assert refused.returncode != 0
    assert "token required" in refused.stderr and "forebay auth login" in refused.stderr
    assert "planted" not in refused.stderr + refused.stdout


def test_a_login_is_kept_in_a_private_file_until_the_logout(
    users: UsersCluster, tmp_path: Path
) -> None:
    users.add_user("ann", "reader", password="planted-password-of-ann")
    own = {"XDG_CONFIG_HOME": str(tmp_path)}
    password = "planted-password-of-ann\n"
    done = users.command("auth", "login", "ann", "--password-file", "-", env=own, text=password)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "forebay/tokens").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    who = users.command("auth", "whoami", "-o", "json", env=own)
    assert json.loads(who.stdout)[0]["user"] == "ann", who.stderr
    assert users.command("auth", "logout", env=own).returncode == 0
    assert not file.exists()
    assert users.command("auth", "whoami", env=own).returncode != 0


def test_a_token_comes_from_a_file_that_the_environment_names(
    users: UsersCluster, bucket: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(users.token_of("reader") + "\n")
    for name in ("FOREBAY_TOKEN_FILE", "AIS_AUTHN_TOKEN_FILE"):
        assert users.command("cat", f"{bucket}/o", env={name: str(file)}).stdout == "here", name
