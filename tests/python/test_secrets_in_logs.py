"""Each cluster of a test is searched at its end: no log, span or exemplar of it has a secret of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay_secrets import first_secret, outputs_of

FILES = {
    "secret": "planted-cluster-secret\n",
    "token": "planted-token\n",
    "gateway1/state/node.key": "planted-node-key\n",
    "gateway1/forebay.toml": '[[s3.keys]]\naccess = "a"\nsecret = "planted-s3-secret"\n',
    "collector-headers": "x-tenant: a\nauthorization: Bearer planted-collector-header\n",
    "tls/gateway1-key.pem": "-----BEGIN PRIVATE KEY-----\nplantedLineOfAKey\n",
}


SECRETS = [
    "planted-cluster-secret",
    "planted-token",
    "planted-node-key",
    "planted-s3-secret",
    "planted-collector-header",
    "plantedLineOfAKey",
]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """The folder of a cluster with secrets."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_log_is_found_and_named(planted: Path, secret: str) -> None:
    log = planted / "gateway1/log"
    log.write_text("INFO all is well, forebaysecret\n")
    assert first_secret(planted, [log, planted / "missing"]) is None
    log.write_text(f"INFO it is {secret}!\n")
    found = first_secret(planted, [log])
    assert found is not None and "gateway1/log has the" in found and secret not in found


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("name", ["spans.otlp", "target1.metrics"])
def test_a_secret_in_spans_or_exemplars_is_found_and_named(
    planted: Path, name: str, secret: str
) -> None:
    # As the protobuf has a text, between bytes that are none.
    (planted / name).write_bytes(b"\x0a\xff\x12" + b"all is well" + b"\x00")
    assert first_secret(planted, outputs_of(planted)) is None
    (planted / name).write_bytes(b"\x0a\xff\x12" + secret.encode() + b"\x00\xfe")
    found = first_secret(planted, outputs_of(planted))
    assert found is not None and f"{name} has the" in found and secret not in found
