"""Client of a Forebay cluster: buckets, objects, batches.

    import forebay

    bucket = forebay.Client().bucket("images").create(exist_ok=True)
    bucket.object("cat.jpg").put(b"...")
    for name, size in bucket.list_snapshot():
        data = bucket.object(name).get().read_all()
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

try:
    from forebay import _core
except ImportError as error:
    from forebay._platform import explain

    raise ImportError(explain(error)) from error
from forebay._version import __version__
from forebay.batch import Batch
from forebay.bucket import Bucket, ObjectGroup
from forebay.client import Client, Cluster
from forebay.dsort import DsortOptions
from forebay.errors import (
    AccessDenied,
    AlreadyExists,
    ChecksumMismatch,
    ClusterUnavailable,
    CorruptAnswer,
    ForebayError,
    InvalidArgument,
    NotFound,
    ObjectChanged,
    Timeout,
    TooManyRequests,
)
from forebay.job import Job
from forebay.listing import Listing
from forebay.object import Object, Reader
from forebay.pending import PendingMany
from forebay.range_reader import RangeReader
from forebay.retry import Retry
from forebay.shard import (
    ShardIndex,
    ShardMember,
    ShardSample,
    ShardStream,
    archive_format,
    member_bytes,
    member_text,
    split_member,
)
from forebay.types import (
    ArchiveConfig,
    BatchResult,
    BucketWarmth,
    JobStatus,
    ObjectEntry,
    ObjectProps,
    ObjectRange,
    PrefetchPlan,
    ReadWindow,
)
from forebay.writer import Writer

if TYPE_CHECKING:
    from forebay.aio import AsyncClient
    from forebay.node_cache import NodeCache

if _core.__version__ != __version__:
    raise ImportError(
        f"forebay {__version__} found a native core of version {_core.__version__}; "
        "install the package again: pip install --force-reinstall ./sdk"
    )

if sys.platform != "linux":
    from forebay import notices as _notices

    _notices.print_platform_notice()

__all__ = [
    "Client",
    "AsyncClient",
    "NodeCache",
    "Cluster",
    "Retry",
    "Bucket",
    "BucketWarmth",
    "ReadWindow",
    "Object",
    "ObjectGroup",
    "ObjectRange",
    "Reader",
    "RangeReader",
    "Writer",
    "Batch",
    "BatchResult",
    "PendingMany",
    "ArchiveConfig",
    "ShardIndex",
    "ShardMember",
    "ShardSample",
    "ShardStream",
    "archive_format",
    "member_bytes",
    "member_text",
    "split_member",
    "Listing",
    "ObjectEntry",
    "ObjectProps",
    "DsortOptions",
    "Job",
    "JobStatus",
    "PrefetchPlan",
    "ForebayError",
    "NotFound",
    "AlreadyExists",
    "AccessDenied",
    "InvalidArgument",
    "ObjectChanged",
    "ChecksumMismatch",
    "CorruptAnswer",
    "TooManyRequests",
    "Timeout",
    "ClusterUnavailable",
    "__version__",
]

# Imported when first asked for: not everybody who imports forebay should wait for asyncio.
_LATER = {"AsyncClient": "forebay.aio", "NodeCache": "forebay.node_cache"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = value
    return value
