"""Files that a reader, or a crash, finds as they were or as they are to be, never half written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from orchestrator.core.paths import safepath


def write(path: Path, content: bytes) -> None:
    """Put a file in place of what is there, once it is on the disk; OSError where that cannot be done."""
    temporary = path.with_name(f".{path.name}.new")
    with safepath.fresh(temporary) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, data: Any) -> None:
    """The same with data as JSON that people can read too."""
    write(path, json.dumps(data, indent=1).encode() + b"\n")
