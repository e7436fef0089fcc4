"""Which runs are meant: what conditions on runs are about, and which of them a filter selects."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.store.rundir import Entry

_AGO = {"min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_LONGEST_S = 1e12  # longer ago than any run, and a number still
_PLAIN = ("run", "experiment", "stage", "valid", "scale", "repetition", "point", "seed", "began_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What runs must be like; empty, it lets all through."""

    where: tuple[str, ...] = ()
    experiment: str | None = None
    since: str | None = None
    valid: bool = False


def select(entries: Sequence[Entry], wanted: Filter) -> list[Entry]:
    """The runs that a filter lets through, in their order."""
    from orchestrator.core import where

    conditions = where.parse(wanted.where)
    since_ns = None if wanted.since is None else began_since(wanted.since)
    found = []
    for entry in entries:
        manifest = entry.manifest
        if wanted.experiment not in (None, manifest["experiment"]) or (wanted.valid and not manifest.get("valid")):
            continue
        if since_ns is not None and manifest.get("began_ns", 0) < since_ns:
            continue
        if conditions:
            fields = fields_of(entry)
            if not all(condition.holds(fields) for condition in conditions):
                continue
        found.append(entry)
    return found


def began_since(text: str) -> int:
    """An instant in nanoseconds since the epoch, from a date, a date and time (local), or how long ago."""
    ago = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(min|h|d|w)", text)
    if ago:
        return time.time_ns() - int(min(float(ago[1]) * _AGO[ago[2]], _LONGEST_S) * 1e9)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1e9)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--since {text}: not a time; accepted: 2026-11-20, 2026-11-20T18:00, or a number and one of min, h, d, w"
        ) from None


def fields_of(entry: Entry) -> dict[str, Any]:
    """What conditions on a run are about; of each window its loads (bit/s, full size) and times, in seconds."""
    manifest = entry.manifest
    fields = {key: manifest.get(key) for key in _PLAIN}
    fields["outcome"] = entry.outcome
    fields["sweep"] = manifest.get("sweep", {}).get("id")
    for job in manifest.get("jobs", []):
        fields |= {f"{job['name']}.{key}": job.get(key) for key in ("workload", "model", "compute")}
        fields[f"{job['name']}.ranks"] = len(job["ranks"])
    for name, values in _windows(manifest):
        fields |= {f"{name}.{key}": value for key, value in values.items()}
    return fields


def _windows(manifest: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    scale = manifest.get("scale", 1)
    planned = manifest.get("sweep", {}).get("points", {})
    for window in manifest.get("windows", []):
        name = window["window"]
        values = dict(planned.get(name, {}).get("values", {}))
        values["load"] = sum(load["requested_bps"] for load in window["loads"]) * scale
        known = [load["achieved_bps"] for load in window["loads"]]
        values["achieved"] = None if None in known else sum(known) * scale
        for row in window["training"]:
            values |= {f"{row['job']}.{key}": row.get(key) for key in ("iterations", "mean_s", "p50_s", "p99_s")}
        yield name, values
