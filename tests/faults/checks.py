"""The five things that hold whatever breaks: each check says what is wrong, or nothing."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from orchestrator.store import rundir
from orchestrator.store.stamps import MANIFEST, PARTIAL

STATUS, LINE, STATE, DATA, PROCESSES = CHECKS = ("status", "line", "state", "data", "processes")

TRACEBACK = re.compile(r"(?m)^Traceback \(")  # one of ours: that of a rank is shown with an indent
MOST_TOLD = 4  # lines that differ

State = Mapping[str, Mapping[str, str]]  # of each machine by name: what was read of it, by kind


def status(found: int | None, wanted: Collection[int], *, seconds: float, within_s: float) -> str | None:
    """Whether a command ended with one of these, in time; `found` is None where it had to be killed."""
    if found is None:
        return f"it has not ended within {within_s:.0f} s"
    if found not in wanted:
        return f"exit status {found}, not {' or '.join(map(str, sorted(wanted)))}"
    return None if seconds <= within_s else f"it has ended after {seconds:.0f} s, not within {within_s:.0f} s"


def line(text: str, pattern: str, *, begins: str = "orch: ") -> str | None:
    """Whether one line, the only one that begins so (a pattern), says what happened; no traceback does."""
    if TRACEBACK.search(text):
        return "a traceback"
    found = [one for one in re.split(r"[\r\n]+", text) if re.match(begins, one)]
    if len(found) != 1:
        return f"{len(found)} lines begin with {begins!r}, not one" + "".join(f"\n  {one}" for one in found)
    return None if re.search(pattern, found[0]) else f"{pattern!r} is not in the line: {found[0]}"


def mention(text: str, pattern: str) -> str | None:
    """Whether it is said at all what happened, beside the line that says what came of it; no traceback is."""
    if TRACEBACK.search(text):
        return "a traceback"
    return None if re.search(pattern, text) else f"nothing says {pattern!r}"


def state(before: State, after: State) -> str | None:
    """Whether all that was read of the machines is as before."""
    changed = [
        f"{machine}: {kind}: {_difference(before.get(machine, {}).get(kind, ''), after.get(machine, {}).get(kind, ''))}"
        for machine in sorted({*before, *after})
        for kind in sorted({*before.get(machine, {}), *after.get(machine, {})})
        if before.get(machine, {}).get(kind, "") != after.get(machine, {}).get(kind, "")
    ]
    return "; ".join(changed) or None


def _difference(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    found = [one for one in lines if not one.startswith(("---", "+++", "@@"))]
    return " | ".join(found[:MOST_TOLD]) + (f" | and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else "")


def data(results: Path, outcome: str, *, iterations: int) -> str | None:
    """Whether the only run is sealed with this outcome (a pattern), files as hashed, and iterations enough."""
    found = [*results.glob(f"*/*/{MANIFEST}")]
    if len(found) != 1:
        return f"{len(found)} runs in {results}, not one"
    folder = found[0].parent
    manifest = json.loads(found[0].read_bytes())
    if folder.name.endswith(PARTIAL):
        return f"{folder.name} is not sealed"
    if not re.fullmatch(outcome, manifest["outcome"]):
        return f"its outcome is {manifest['outcome']}, not {outcome}"
    for artifact in manifest["artifacts"]:
        path = folder / artifact["path"]
        if not path.is_file() or rundir.sha256(path) != artifact["sha256"]:
            return f"{artifact['path']} is not what the manifest says"
    table = folder / "tables/iterations.parquet"
    kept = pq.read_table(table).num_rows if table.is_file() else 0
    return None if kept >= iterations else f"{kept} iterations are home, not {iterations}"


def nothing_kept(results: Path) -> str | None:
    """Whether there is no run: it was refused before anything was touched."""
    found = [path.parent.name for path in results.glob(f"*/*/{MANIFEST}")]
    return f"there is a run: {', '.join(found)}" if found else None


def processes(left: Collection[str]) -> str | None:
    """Whether nothing runs any more, of what ran for the row; `left` has command lines."""
    return "; ".join(left) or None
