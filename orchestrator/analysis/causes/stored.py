"""Read the causes that a run's table `causes` names, and write them in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.analysis.causes import words
from orchestrator.analysis.causes.explanation import Finding
from orchestrator.parts.rows import Row
from orchestrator.store.tabular import tables

_MOST = 3


def findings(rows: Sequence[Row]) -> Iterator[tuple[str, Finding]]:
    """Yield window and job, and finding, of each row of the table `causes`."""
    for row in rows:
        yield (
            f"{row['window_name']}, {row['job']}",
            Finding(
                cause=row["cause"],
                place=row["place"],
                hosts=tuple(row["hosts"].split(",")),
                share=row["cost_share"],
                low=row["low_share"],
                high=row["high_share"],
                seconds=row["cost_s"],
                evidence=tuple(row["evidence"].splitlines()),
            ),
        )


def lines(folder: Path) -> list[str]:
    """Return what made a run's iterations slow: a line for each largest cause, with windows and jobs, and where to ask.

    Nothing for a run without the table, or in which nothing stood out.
    """
    largest: dict[str, Finding] = {}
    for where, finding in _stored(folder):
        largest.setdefault(where, finding)
    said: dict[str, list[str]] = {}
    for where, finding in largest.items():
        said.setdefault(words.what(finding), []).append(f"{finding.share:.0%} of the time in {where}")
    found = [f"{what}: {_several(where)}" for what, where in list(said.items())[:_MOST]]
    return [*found, "`orch why RUN` has the evidence"] if found else []


def newly(before: Sequence[Path], after: Sequence[Path]) -> list[str]:
    """Return the causes that stand out in runs `after` and in none of those `before`: what, share, in how many runs."""
    known = {(one.cause, one.hosts) for folder in before for _, one in _stored(folder)}
    shares: dict[str, list[float]] = {}
    for folder in after:
        new = {words.what(one): one.share for _, one in _stored(folder) if (one.cause, one.hosts) not in known}
        for what, share in new.items():
            shares.setdefault(what, []).append(share)
    return [
        f"{what}: {_range(found)} of the time in {len(found)} of {len(after)} runs"
        for what, found in sorted(shares.items(), key=lambda one: -len(one[1]))
    ]


def _stored(folder: Path) -> Iterator[tuple[str, Finding]]:
    path = folder / "tables"
    if (path / "causes.parquet").exists():  # reading loads pyarrow, which takes longer than `orch show` does otherwise
        yield from findings(tables.read(path, "causes").to_pylist())


def _range(shares: Sequence[float]) -> str:
    least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return least if least == most else f"{least} to {most}"


def _several(where: Sequence[str]) -> str:
    return "; ".join(where[:_MOST]) + (f"; and in {len(where) - _MOST} more" if len(where) > _MOST else "")
