"""Runs `orch` in this process and writes down the memory and processor time it took: watched.py FILE ARGUMENT..."""

from __future__ import annotations

import json
import re
import resource
import sys
from pathlib import Path


def peaks() -> dict[str, int]:
    """Bytes: the most that this process held, and the most that any one process below it held that has ended."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    own = int(found[1]) if found else 0
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"peak_bytes": own * 1024, "children_peak_bytes": children * 1024}


if __name__ == "__main__":
    from orchestrator.cli.main import main

    try:
        STATUS = main(sys.argv[2:])
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        Path(sys.argv[1]).write_text(json.dumps({**peaks(), "cpu_s": used.ru_utime + used.ru_stime}))
    sys.exit(STATUS)
