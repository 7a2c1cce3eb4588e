#!/usr/bin/env python3
"""Lays out wheels and source packages as an index that pip reads from any static server.

    package_index.py FOLDER FILE...

Writes FOLDER/index.html and FOLDER/PROJECT/index.html (PEP 503), the same as index.json (PEP 691) for
servers that choose by the Accept header, and each wheel's metadata beside it (PEP 658), so that pip
reads what a wheel requires without fetching it. Needs only the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

API_VERSION = "1.1"


@dataclass(frozen=True)
class Distribution:
    """A wheel or a source package.

    Attributes:
        project: The project's name as an index writes it: `forebay-torch`.
        requires_python: Versions of Python that may install it; None if any may.
        metadata: The wheel's METADATA; None for a source package, whose own may change in its build.
    """

    file: Path
    project: str
    version: str
    requires_python: str | None
    sha256: str
    metadata: bytes | None

    @classmethod
    def read(cls, file: Path) -> Distribution:
        """Reads the file's own metadata.

        Raises:
            ValueError: It is neither a wheel nor a source package, or its name is not that of its
                metadata.
        """
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                content = wheel.read(_only(wheel.namelist(), ".dist-info/METADATA", file))
        elif file.name.endswith(".tar.gz"):
            with tarfile.open(file) as source:
                member = source.extractfile(_only(source.getnames(), "/PKG-INFO", file))
                assert member
                content = member.read()
        else:
            raise ValueError(f"{file} is neither a wheel nor a source package")
        fields = HeaderParser().parsestr(content.decode())
        project = normalized(fields["Name"])
        version = fields["Version"]
        # pip takes project and version from the file's name.
        if not file.name.startswith(f"{project.replace('-', '_')}-{version}"):
            raise ValueError(f"{file} is named otherwise than {project} {version} in it")
        return cls(
            file=file,
            project=project,
            version=version,
            requires_python=fields["Requires-Python"],
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
            metadata=content if file.suffix == ".whl" else None,
        )

    @property
    def metadata_sha256(self) -> str | None:
        """The hash of the metadata that pip may read alone."""
        return None if self.metadata is None else hashlib.sha256(self.metadata).hexdigest()


def normalized(name: str) -> str:
    """A project's name as an index writes it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write_index(folder: Path, files: Iterable[Path]) -> None:
    """Copies the files into an index at `folder`, which is made anew."""
    projects: dict[str, list[Distribution]] = {}
    for file in sorted(files):
        found = Distribution.read(file)
        projects.setdefault(found.project, []).append(found)
    shutil.rmtree(folder, ignore_errors=True)
    for project, found_files in projects.items():
        below = folder / project
        below.mkdir(parents=True)
        for each in found_files:
            # Not copy2: the time of a file says nothing here.
            shutil.copyfile(each.file, below / each.file.name)
            if each.metadata is not None:
                (below / f"{each.file.name}.metadata").write_bytes(each.metadata)
        links = [_link(each) for each in found_files]
        (below / "index.html").write_text(_page(f"Links for {project}", links))
        (below / "index.json").write_text(_project_json(project, found_files))
    links = [f'<a href="{project}/">{project}</a>' for project in sorted(projects)]
    (folder / "index.html").write_text(_page("Packages of Forebay", links))
    listed = [{"name": project} for project in sorted(projects)]
    (folder / "index.json").write_text(_json({"projects": listed}))


def _only(names: Iterable[str], end: str, file: Path) -> str:
    """The one name that ends so, of those that lie least deep."""
    found = sorted((n for n in names if n.endswith(end)), key=lambda n: (n.count("/"), n))
    if not found:
        raise ValueError(f"{file} has no {end}")
    return found[0]


def _link(each: Distribution) -> str:
    attributes = {"href": f"{each.file.name}#sha256={each.sha256}"}
    if each.requires_python:
        attributes["data-requires-python"] = each.requires_python
    if each.metadata_sha256:
        attributes["data-core-metadata"] = f"sha256={each.metadata_sha256}"
        # The name that pip before 23.3 knows.
        attributes["data-dist-info-metadata"] = attributes["data-core-metadata"]
    text = " ".join(f'{name}="{html.escape(value)}"' for name, value in attributes.items())
    return f"<a {text}>{html.escape(each.file.name)}</a>"


def _page(title: str, links: Iterable[str]) -> str:
    body = "\n".join(f"    {link}<br>" for link in links)
    return f"""\
<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="pypi:repository-version" content="1.0">
    <title>{html.escape(title)}</title>
  </head>
  <body>
{body}
  </body>
</html>
"""


def _project_json(project: str, files: list[Distribution]) -> str:
    listed = []
    for each in files:
        entry: dict[str, Any] = {
            "filename": each.file.name,
            "url": each.file.name,
            "hashes": {"sha256": each.sha256},
            "size": each.file.stat().st_size,
        }
        if each.requires_python:
            entry["requires-python"] = each.requires_python
        if each.metadata_sha256:
            entry["core-metadata"] = {"sha256": each.metadata_sha256}
        listed.append(entry)
    versions = sorted({each.version for each in files})
    return _json({"name": project, "versions": versions, "files": listed})


def _json(content: dict[str, Any]) -> str:
    return json.dumps({"meta": {"api-version": API_VERSION}, **content}, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    try:
        write_index(given.folder, given.files)
    except ValueError as error:
        print(f"package_index: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
