"""Client of a Forebay cluster: buckets, objects, batches.

    import forebay

    bucket = forebay.Client().bucket("images").create(exist_ok=True)
    bucket.object("cat.jpg").put(b"...")
    for name, size in bucket.list_snapshot():
        data = bucket.object(name).get().read_all()
"""

from __future__ import annotations

from forebay import _core
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
    ForebayError,
    InvalidArgument,
    NotFound,
    ObjectChanged,
    Timeout,
    TooManyRequests,
)
from forebay.job import Job
from forebay.listing import Listing
from forebay.object import Object, Reader, Writer
from forebay.retry import Retry
from forebay.shard import (
    ShardIndex,
    ShardMember,
    ShardSample,
    ShardStream,
    archive_format,
    split_member,
)
from forebay.types import (
    ArchiveConfig,
    BatchResult,
    JobStatus,
    ObjectEntry,
    ObjectProps,
    ObjectRange,
)

if _core.__version__ != __version__:
    raise ImportError(
        f"forebay {__version__} found a native core of version {_core.__version__}; "
        "install the package again: pip install --force-reinstall ./sdk"
    )

__all__ = [
    "Client",
    "Cluster",
    "Retry",
    "Bucket",
    "Object",
    "ObjectGroup",
    "ObjectRange",
    "Reader",
    "Writer",
    "Batch",
    "BatchResult",
    "ArchiveConfig",
    "ShardIndex",
    "ShardMember",
    "ShardSample",
    "ShardStream",
    "archive_format",
    "split_member",
    "Listing",
    "ObjectEntry",
    "ObjectProps",
    "DsortOptions",
    "Job",
    "JobStatus",
    "ForebayError",
    "NotFound",
    "AlreadyExists",
    "AccessDenied",
    "InvalidArgument",
    "ObjectChanged",
    "ChecksumMismatch",
    "TooManyRequests",
    "Timeout",
    "ClusterUnavailable",
    "__version__",
]
