"""Filter runs by conditions, experiment, age and validity."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.core.where import Fields
    from orchestrator.store.manifests.summaries import Summary
    from orchestrator.store.rundir import Listed

E = TypeVar("E", bound="Listed")

_AGO = {"min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_LONGEST_S = 1e12  # longer ago than any run, and a number still
_PLAIN = ("run", "experiment", "stage", "valid", "scale", "dilation", "repetition", "point", "salt", "seed", "began_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions on runs; an empty one lets all through."""

    where: tuple[str, ...] = ()
    experiment: str | None = None
    since: str | None = None
    valid: bool = False


def select(entries: Sequence[E], wanted: Filter) -> list[E]:
    """Return the runs that a filter lets through, in their order."""
    from orchestrator.core import where

    conditions = where.parse(wanted.where)
    since_ns = None if wanted.since is None else began_since(wanted.since)
    found = []
    for entry in entries:
        manifest = entry.manifest
        if wanted.experiment not in (None, manifest.experiment) or (wanted.valid and not manifest.valid):
            continue
        if since_ns is not None and manifest.began_ns < since_ns:
            continue
        if conditions:
            fields = fields_of(entry)
            if not all(condition.holds(fields) for condition in conditions):
                continue
        found.append(entry)
    return found


def began_since(text: str) -> int:
    """Parse a date, a date and time (local), or an age into nanoseconds since the epoch."""
    ago = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(min|h|d|w)", text)
    if ago:
        return time.time_ns() - int(min(float(ago[1]) * _AGO[ago[2]], _LONGEST_S) * 1e9)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1e9)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--since {text}: not a time; accepted: 2026-11-20, 2026-11-20T18:00, or a number and one of min, h, d, w"
        ) from None


def fields_of(entry: Listed) -> Fields:
    """Return the fields on which conditions filter runs; of each window its loads (bit/s, full size) and times (s)."""
    manifest = entry.manifest
    fields = {key: getattr(manifest, key) for key in _PLAIN}
    fields["outcome"] = entry.outcome
    fields["sweep"] = manifest.sweep.id if manifest.sweep else None
    for job in manifest.jobs:
        fields |= {f"{job.name}.{key}": getattr(job, key) for key in ("workload", "model", "compute")}
        fields[f"{job.name}.ranks"] = len(job.ranks)
    for name, values in _windows(manifest):
        fields |= {f"{name}.{key}": value for key, value in values.items()}
    return fields


def _windows(manifest: Summary) -> Iterator[tuple[str, Fields]]:
    for window in manifest.windows:
        point = manifest.points.get(window.name)
        values: dict[str, object] = {} if point is None else dict(point.values)
        values["load"] = window.requested_bps * manifest.scale
        achieved = window.achieved_bps
        values["achieved"] = None if achieved is None else achieved * manifest.scale
        for row in window.training:
            values |= {f"{row.job}.{key}": getattr(row, key) for key in ("iterations", "mean_s", "p50_s", "p99_s")}
        yield window.name, values
