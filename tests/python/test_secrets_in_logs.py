"""Each cluster of a test is searched at its end: no log of it has a secret of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay_secrets import first_secret

FILES = {
    "secret": "planted-cluster-secret\n",
    "token": "planted-token\n",
    "gateway1/state/node.key": "planted-node-key\n",
    "gateway1/forebay.toml": '[[s3.keys]]\naccess = "a"\nsecret = "planted-s3-secret"\n',
    "tls/gateway1-key.pem": "-----BEGIN PRIVATE KEY-----\nplantedLineOfAKey\n",
}


@pytest.mark.parametrize(
    "secret",
    [
        "planted-cluster-secret",
        "planted-token",
        "planted-node-key",
        "planted-s3-secret",
        "plantedLineOfAKey",
    ],
)
def test_a_secret_in_a_log_is_found_and_named(tmp_path: Path, secret: str) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    log = tmp_path / "gateway1/log"
    log.write_text("INFO all is well, forebaysecret\n")
    assert first_secret(tmp_path, [log, tmp_path / "missing"]) is None
    log.write_text(f"INFO it is {secret}!\n")
    found = first_secret(tmp_path, [log])
    assert found is not None and "gateway1/log has the" in found and secret not in found
