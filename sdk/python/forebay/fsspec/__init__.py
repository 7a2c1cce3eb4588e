"""Buckets of a cluster as a file system of ``fsspec``: ``forebay://bucket/name``, or ``fb://``.

    import pandas
    pandas.read_parquet("fb://tables/a.parquet")

    import fsspec
    fs = fsspec.filesystem("forebay", endpoint="http://10.0.0.7:7400")
    fs.cat_ranges(["tables/a", "tables/b"], [0, 100], [10, 200])     # one request per target

Needs the package ``fsspec``: ``pip install forebay[fsspec]``.
"""

from __future__ import annotations

try:
    from forebay.fsspec.file_system import ForebayFileSystem
except ModuleNotFoundError as error:
    if error.name != "fsspec":
        raise
    raise ModuleNotFoundError(
        "forebay.fsspec needs fsspec: pip install 'forebay[fsspec]'", name="fsspec"
    ) from None

__all__ = ["ForebayFileSystem"]
