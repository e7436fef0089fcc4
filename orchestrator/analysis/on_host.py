"""Reduces the captures of a run on the host that keeps them: `python -m orchestrator.analysis.on_host POINTS`.

It stands in a folder of its own beside those of the host's launches. POINTS is a file of JSON there, one object for
each capture point. What was made of a capture before this program was killed is not made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.analysis import packed_tables
from orchestrator.analysis.capture import captures, flowtable
from orchestrator.core.errors import OrchError
from orchestrator.parts.launch import Flow
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import CapturePoint

_CHUNK = 1 << 20


def reduce_all(folder: Path, points: Path) -> None:
    """Reduce every capture below the run's folder on this host, one after the other, with all processors."""
    home = folder / capture_files.REDUCED
    home.mkdir(exist_ok=True)
    for found in json.loads(points.read_bytes()):
        point = _point(found)
        record = home / f"{point.launch}.json"
        port = capture_files.listening(folder / point.launch)
        if port is None or record.exists():
            continue
        files = capture_files.in_order(folder / point.launch)
        workers = flowtable.threads(files, os.cpu_count() or 1)
        job = captures.job_of(point, files, workers=workers)
        packed_tables.save(home / f"{point.launch}.npz", captures.reduce(job))
        kept = [{"name": file.name, "bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files]
        unfinished = record.with_suffix(".new")
        unfinished.write_text(json.dumps(kept))
        unfinished.replace(record)


def _point(found: Mapping[str, Any]) -> CapturePoint:
    flows = {name: tuple(Flow(**flow) for flow in found[name]) for name in ("flows", "generated")}
    return CapturePoint(**{**found, "addresses": tuple(found["addresses"]), "peers": tuple(found["peers"]), **flows})


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def main() -> int:
    """Reduce what lies beside this folder; a failure is told on standard error."""
    points = Path(sys.argv[1])
    try:
        reduce_all(Path.cwd().parent, points)
        points.unlink()
    except (OrchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
