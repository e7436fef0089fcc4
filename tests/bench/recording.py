"""Writes docs/measurements: one file a bench and machine, with version, date, machine, load, and figures with units."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.commands import ROOT
from tests.bench.figure import Figure, Table

FOLDER = ROOT / "docs" / "measurements"
VALUES = ("goal", "theory", "requested")  # references that no peer measured
COLUMNS = ("what", "unit", "median", "least", "most", "n", "against", "reference", "ratio", "95 % interval", "note")


def this_machine() -> dict[str, Any]:
    """Return what figures depend on: processor, cores that this process may use, memory, kernel, Python."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
    }


def version() -> str:
    """Return the commit that is checked out, with a mark where files that git knows are changed since."""
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode
    return commit.stdout.decode().strip() + ("-changed" if changed else "")


def path_of(bench: str, machine: Mapping[str, Any]) -> Path:
    """Return the file of a bench on a machine: NAME.PROCESSOR-CORES.json."""
    processor = re.sub(r"[^a-z0-9]+", "-", str(machine["cpu"]).lower()).strip("-")
    return FOLDER / f"{bench}.{processor}-{machine['cores']}.json"


def record(
    bench: str, found: Sequence[Figure | Table], *, load: str, quick: bool = False, command: str | None = None
) -> Path:
    """Write what a bench found on this machine, in place of what was measured here last; return the file.

    `load` says what ran beside it. Figures become one table; those that are points of a curve become one for each.
    """
    machine = this_machine()
    path = path_of(bench, machine)
    data = {
        "bench": bench,
        "title": _title(path),
        "command": command or f"python -m tests.bench {bench}{' --quick' if quick else ''}",
        "version": version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine,
        "load": load,
        "quick": quick,
        "tables": tables(found),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(data), encoding="utf-8")
    return path


def _title(path: Path) -> str | None:
    """Return the heading that the file has, to which pages link."""
    title: str | None = json.loads(path.read_text(encoding="utf-8")).get("title") if path.exists() else None
    return title


def tables(found: Sequence[Figure | Table]) -> list[dict[str, Any]]:
    """Return the tables of what was found: curves, then figures, then tables of the bench's own."""
    figures = [one for one in found if isinstance(one, Figure)]
    curves = dict.fromkeys((axis, one.unit) for one in figures for axis, _, _ in one.over)
    made = [_curve(axis, unit, figures) for axis, unit in curves]
    single = [_row(one) for one in figures if not one.tabled]
    used = [place for place in range(len(COLUMNS)) if any(row[place] is not None for row in single)]
    if single:
        rows = [[row[place] for place in used] for row in single]
        made.append({"title": "", "columns": [COLUMNS[place] for place in used], "rows": rows})
    return [*made, *(one.as_data() for one in found if isinstance(one, Table))]


def _curve(axis: str, unit: str, figures: Sequence[Figure]) -> dict[str, Any]:
    """Return medians over an axis, with those of the peers that did the same as lines of their own."""
    medians: dict[str, dict[float, float]] = {}
    for one in figures:
        for place, line in ((place, line) for name, place, line in one.over if (name, one.unit) == (axis, unit)):
            medians.setdefault(line, {})[place] = statistics.median(one.values)
            if one.reference and one.against not in VALUES:
                medians.setdefault(one.against, {})[place] = statistics.median(one.reference)
    places = sorted({place for line in medians.values() for place in line})
    rows = [[place, *(_rounded(line.get(place)) for line in medians.values())] for place in places]
    curve = {"x": axis, "y": list(medians), "unit": unit}
    return {"title": f"Over {axis} ({unit})", "columns": [axis, *medians], "rows": rows, "curve": curve}


def _row(one: Figure) -> list[Any]:
    interval = f"{one.interval[0]:.4f} to {one.interval[1]:.4f}" if one.interval else None
    reference = _rounded(statistics.median(one.reference)) if one.reference else None
    median, least, most = map(_rounded, (statistics.median(one.values), min(one.values), max(one.values)))
    against = one.against or None
    return [
        one.what,
        one.unit,
        median,
        least,
        most,
        len(one.values),
        against,
        reference,
        _rounded(one.ratio),
        interval,
        one.note or None,
    ]


def _rounded(value: float | None) -> float | None:
    """Return six significant digits, which is more than any bench repeats."""
    return None if value is None else float(f"{value:.6g}")


def as_text(data: Mapping[str, Any]) -> str:
    """Return the JSON of a file, with a row of a table a line, so that a new measurement is a readable change.

    Where the project and its environment lie on this machine is no part of it: paths in messages begin with their
    names.
    """
    marked = json.loads(json.dumps(data))
    rows: list[str] = []
    for table in marked["tables"]:
        for number, row in enumerate(table["rows"]):
            table["rows"][number] = f"@row{len(rows)}@"
            rows.append(json.dumps(row, ensure_ascii=False))
    text = json.dumps(marked, indent=1, ensure_ascii=False)
    text = re.sub(r'"@row(\d+)@"', lambda match: rows[int(match[1])], text) + "\n"
    for place in (*([sys.prefix] if sys.prefix != sys.base_prefix else []), str(ROOT)):
        text = text.replace(f"{place}/", f"{Path(place).name}/")
    return text
