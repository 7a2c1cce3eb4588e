"""DataPipes of files and lines, under the names that torchdata had them.

    import forebay_torch.datapipes
    from torch.utils.data.datapipes.iter import IterableWrapper

    files = IterableWrapper(["s3://bucket/prefix/"]).list_files_by_s3().shuffle().sharding_filter()
    lines = files.load_files_by_s3().readlines(return_path=False)

torchdata itself has had none of them since 0.10, and PyTorch's core never had. Importing this module
registers them on its ``IterDataPipe``.
"""

from __future__ import annotations

from torch.utils.data.datapipes.iter import IterableWrapper

from forebay_torch.datapipes.files import (
    AISFileLister,
    AISFileLoader,
    OpenFile,
    S3FileLister,
    S3FileLoader,
)
from forebay_torch.datapipes.lines import LineReader

__all__ = [
    "AISFileLister",
    "AISFileLoader",
    "IterableWrapper",
    "LineReader",
    "OpenFile",
    "S3FileLister",
    "S3FileLoader",
]
