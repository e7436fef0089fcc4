"""Read the causes that a run's table `causes` names, and write them in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.analysis.causes import words
from orchestrator.analysis.causes.explanation import LEAST_SHARE, Finding
from orchestrator.parts.rows import Row
from orchestrator.store.tabular import tables

FILE = "causes.parquet"
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
    for where, finding in of_run(folder):
        largest.setdefault(where, finding)
    said: dict[str, list[str]] = {}
    for where, finding in largest.items():
        said.setdefault(words.what(finding), []).append(f"{finding.share:.0%} of the time in {where}")
    found = [f"{what}: {_several(where)}" for what, where in list(said.items())[:_MOST]]
    return [*found, "`orch why RUN` has the evidence"] if found else []


def newly(before: Sequence[Path], after: Sequence[Path]) -> list[str]:
    """Return the causes that runs `after` name and those `before` do not, or in all of which they cost more now.

    Each with its share of the time and in how many runs.
    """
    known, now = _shares(before), _shares(after)
    found = []
    for key, (what, shares) in sorted(now.items(), key=lambda one: -len(one[1][1])):
        was = known[key][1] if key in known else []
        if not was:
            found.append(f"{what}: {span(shares)} of the time in {len(shares)} of {len(after)} runs")
        elif len(shares) == len(after) and min(shares) > max(was) + LEAST_SHARE:
            found.append(f"{what}: {span(shares)} of the time, {span(was)} in {len(was)} of {len(before)} runs before")
    return found


def _shares(folders: Sequence[Path]) -> dict[tuple[str, tuple[str, ...]], tuple[str, list[float]]]:
    """Return what each cause says, and its shares in the runs that name it: of each run the largest."""
    found: dict[tuple[str, tuple[str, ...]], tuple[str, list[float]]] = {}
    for folder in folders:
        largest: dict[tuple[str, tuple[str, ...]], Finding] = {}
        for _, one in of_run(folder):
            key = one.cause, one.hosts
            largest[key] = max(largest.get(key, one), one, key=lambda finding: finding.share)
        for key, one in largest.items():
            found.setdefault(key, (words.what(one), []))[1].append(one.share)
    return found


def has(folder: Path) -> bool:
    """Return whether a run has the table `causes`: one of before it was made has not, nor one without iterations."""
    return (folder / "tables" / FILE).exists()


def of_run(folder: Path) -> Iterator[tuple[str, Finding]]:
    """Yield window and job, and finding, of a run; nothing where it has no table `causes`."""
    if has(folder):  # reading loads pyarrow, which takes longer than `orch show` does otherwise
        yield from findings(tables.read(folder / "tables", "causes").to_pylist())


def span(shares: Sequence[float]) -> str:
    """Return the least and the most of some shares, for people."""
    least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return least if least == most else f"{least} to {most}"


def _several(where: Sequence[str]) -> str:
    return "; ".join(where[:_MOST]) + (f"; and in {len(where) - _MOST} more" if len(where) > _MOST else "")
