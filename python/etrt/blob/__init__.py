"""The container that a TensorRTBackend delegate is stored in; docs/blob_format.md describes it.

TR01 and TR02 are torch_tensorrt's, TR03 is etrt's. The C++ reader and writer (src/blob) do the same checks in
the same order and speak of errors alike. Needs neither torch nor the C++ library.
"""

from etrt.blob.container import check_engine_digest, digest
from etrt.blob.reader import read
from etrt.blob.types import (
    DTYPES,
    MAX_RANK,
    Alias,
    Binding,
    Blob,
    BlobError,
    Count,
    Position,
    State,
)
from etrt.blob.validate import validate
from etrt.blob.writer import write

__all__ = [
    "DTYPES",
    "MAX_RANK",
    "Alias",
    "Binding",
    "Blob",
    "BlobError",
    "Count",
    "Position",
    "State",
    "check_engine_digest",
    "digest",
    "read",
    "validate",
    "write",
]
