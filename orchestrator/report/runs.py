"""Read sealed runs for reports: manifest, tables on demand, and the factor that multiplies back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.stats.iterations import JobSeries, series
from orchestrator.analysis.traffic import traffic, view
from orchestrator.analysis.traffic.traffic import Traffic
from orchestrator.analysis.traffic.view import View
from orchestrator.core.errors import UnsafePath
from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import Row
from orchestrator.parts.topology import Node
from orchestrator.store.manifests import manifest
from orchestrator.store.manifests.records import Window
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular import tables

if TYPE_CHECKING:
    import pyarrow as pa


def load(paths: Sequence[Path]) -> list[Run]:
    """Load runs with distinct names: experiment and repetition, then what is needed to tell them apart."""
    runs = [Run(path) for path in paths]
    for tell in (_began, lambda run: run.id):
        counts = Counter(run.name for run in runs)
        for run in runs:
            if counts[run.name] > 1:
                run.name += f", {tell(run)}"
    return runs


class Run:
    """A run folder whose tables are read on first use and cached.

    `name` is what tables and figures call it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = manifest.load(path / MANIFEST)
        self.id = self.manifest.run
        self.scale = self.manifest.scale
        repetition = self.manifest.repetition
        self.name = self.manifest.experiment + (f" #{repetition}" if repetition else "")
        self._tables: dict[str, pa.Table] = {}

    def counter_rows(self, pattern: str) -> Any:
        """Return the rows of `counters` (a pyarrow Table) whose counter matches a regular expression."""
        import pyarrow.compute as pc

        where = pc.match_substring_regex(pc.field("counter"), pattern)
        return tables.read(self.path / "tables", "counters", where=where)

    def table(self, name: str) -> Any:
        """Return a table of the run as a pyarrow Table; empty when it was not written."""
        if name not in self._tables:
            self._tables[name] = tables.read(self.path / "tables", name)
        return self._tables[name]

    def rows(self, name: str) -> list[Row]:
        """Return a small table as dictionaries."""
        rows: list[Row] = self.table(name).to_pylist()
        return rows

    @cached_property
    def jobs(self) -> list[JobSeries]:
        """Every job that logged iterations."""
        table = self.table("iterations")
        found = (series(table, name) for name in sorted(set(table["job"].to_pylist())))
        return [job for job in found if len(job.iteration)]

    @cached_property
    def traffic(self) -> Traffic | None:
        """All captured traffic; None when there is none."""
        nodes = self.manifest.topology.nodes
        return traffic.from_tables(self.table("capture_flows"), self.table("flow_packets"), nodes=nodes)

    @cached_property
    def views(self) -> dict[str, View]:
        """The traffic of every window that was measured, as its training sees it."""
        if self.traffic is None:
            return {}
        ranks = {
            job.name: [rank.node for rank in sorted(job.ranks, key=lambda rank: rank.rank)]
            for job in self.manifest.jobs
        }
        found = {}
        for window in self.windows:
            begin, end = window.span_ns
            if 0 < begin < end:
                spans = window.iterations
                logs = [job.within(span.first, span.last) for job in self.jobs if (span := spans.get(job.job))]
                part = traffic.within(self.traffic, begin, end)
                found[window.name] = view.look(part, ranks=ranks, logs=logs)
        return found

    @property
    def windows(self) -> tuple[Window, ...]:
        """The manifest's windows."""
        return self.manifest.windows

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The manifest's hosts (its nodes that are no switches)."""
        return self.manifest.topology.hosts

    @property
    def origin_ns(self) -> int:
        """The zero of figures' time axes: the beginning of the first window, else of the run."""
        return min((window.start_ns for window in self.windows if window.start_ns), default=self.manifest.began_ns)

    @property
    def end_ns(self) -> int:
        """The end of the last window, else of the run."""
        ends = (window.end_ns for window in self.windows if window.end_ns)
        return max(ends, default=self.manifest.ended_ns or self.origin_ns)

    def facts(self, node: str) -> JsonObject:
        """Return the facts of a node as they were before the run; empty when they were not collected."""
        try:
            facts = json.loads(safepath.content(safepath.under(self.path / "hosts", f"{node}/before.json")) or b"")
        except (OSError, ValueError, RecursionError, UnsafePath):
            return {}
        return facts if isinstance(facts, dict) else {}


def _began(run: Run) -> str:
    return f"{datetime.fromtimestamp(run.manifest.began_ns / 1e9, tz=timezone.utc):%m-%d %H:%M:%S}"


def multiplied_back(runs: Sequence[Run]) -> str:
    """Return the end of a caption of figures at full size: the scale by which they were multiplied, if any."""
    scales = sorted({run.scale for run in runs})
    return "." if scales == [1] else f"; multiplied back by the scale ({', '.join(map(str, scales))})."
