"""Reduce a run's captures on the host that keeps them: `python -m orchestrator.analysis.on_host POINTS`.

It runs in a folder of its own beside those of the host's launches. POINTS is a file of JSON there, one object for each
capture point. A capture that was reduced before this program was killed is not reduced again. As `on_host POINTS
as-they-close` it reads captures while they are written; the one that is started after them has it finish.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.analysis import closing_captures, packed_tables
from orchestrator.analysis.capture import captures
from orchestrator.analysis.closing_captures import ClosingCapture
from orchestrator.core.errors import OrchError
from orchestrator.parts.launch import Flow
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import CapturePoint


def reduce_all(folder: Path, points: Path, closing: Mapping[str, ClosingCapture] | None = None) -> None:
    """Reduce every capture below the run's folder on this host, one after the other, with all processors.

    `closing`: what was read of launches' captures while they were written.
    """
    home = folder / capture_files.REDUCED
    home.mkdir(exist_ok=True)
    for point in _points(points):
        record = home / f"{point.launch}.json"
        port = capture_files.listening(folder / point.launch)
        if port is None or record.exists():
            continue
        files = capture_files.in_order(folder / point.launch)
        job = captures.job_of(point, files)
        begun = (closing or {}).get(point.launch)
        packed_tables.save(home / f"{point.launch}.npz", begun.reading.tables(job) if begun else captures.reduce(job))
        known = begun.kept if begun else {}
        kept = [asdict(known.get(file) or capture_files.keep(file)) for file in files]
        unfinished = record.with_suffix(".new")
        unfinished.write_text(json.dumps(kept))
        unfinished.replace(record)


def _points(file: Path) -> list[CapturePoint]:
    return [_point(found) for found in json.loads(file.read_bytes())]


def _point(found: Mapping[str, Any]) -> CapturePoint:
    flows = {name: tuple(Flow(**flow) for flow in found[name]) for name in ("flows", "generated")}
    return CapturePoint(**{**found, "addresses": tuple(found["addresses"]), "peers": tuple(found["peers"]), **flows})


def main() -> int:
    """Reduce the captures beside this folder; print a failure on standard error."""
    points, folder = Path(sys.argv[1]), Path.cwd().parent
    try:
        if sys.argv[2:] == [capture_files.AS_THEY_CLOSE]:
            reduce_all(folder, *closing_captures.read_until_asked(folder, _points(points)))
        else:
            closing_captures.ask_for_all(folder, points)
            reduce_all(folder, points)
        points.unlink()
    except (OrchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
