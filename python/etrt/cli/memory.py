"""How much memory this process has."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """The most that was resident at once, mapped files included."""
    if sys.platform == "linux":
        return _status("VmHWM")  # getrusage would count what was before exec too.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def rss_bytes() -> int | None:
    """What is resident now; None where the system doesn't tell."""
    return _status("VmRSS") if sys.platform == "linux" else None


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field + ":")).split()[1]) * 1024
