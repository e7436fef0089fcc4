"""Account for every measurement of a sweep: done, tried in vain and why, or given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from orchestrator.store import sweeps
from orchestrator.store.manifests.summaries import Point, Summary
from orchestrator.store.sweeps import Key, MeasuredWindow

MEASURING = ("warm-up", "window")  # stages in which a failure is the window's that is measured, not the run's


class Ledger:
    """Takes one run's manifest after the other, old ones and new ones alike; nothing else is ever kept."""

    def __init__(self, *, attempts: int, quarantine: int) -> None:
        self.found: list[MeasuredWindow] = []
        self.done: set[Key] = set()
        self.tries: Counter[Key] = Counter()
        self.why: dict[Key, str] = {}
        self.failed: set[Key] = set()  # their last try gave no window at all
        self.quarantined: dict[str, str] = {}  # host -> what it failed with
        self.spent_s = 0.0  # on sealed runs, from opening to sealing
        self._in_a_row: Counter[str] = Counter()
        self._costs: dict[str, list[float]] = {}  # by point, what each of its windows took of its run
        self._attempts = attempts
        self._quarantine = quarantine

    def take(self, path: Path, manifest: Summary) -> None:
        """Count what a sealed run says of its measurements; of one that was cut off only what is valid counts."""
        measured = sweeps.windows_of(path, manifest)
        self.found += measured
        took_s = manifest.phases.get("total", 0.0)
        self.spent_s += took_s
        for one in measured:
            self._costs.setdefault(one.point, []).append(took_s / len(measured))
        self.done |= {one.key for one in measured if one.valid}
        if manifest.outcome not in ("completed", "failed"):
            return
        for one in measured:
            if not one.valid:
                self._missed(one.key, "; ".join(one.window.reasons), failed=False)
        have = {one.window.name for one in measured}
        rest = {name: point for name, point in manifest.points.items() if name not in have}
        for name, point in rest.items():
            if name in manifest.unreached:
                self._missed(key_of(point), manifest.unreached[name], failed=False)
        if manifest.outcome == "failed":
            never = [point for name, point in rest.items() if name not in manifest.unreached]
            blamed = never[:1] if measured or manifest.stage in MEASURING else never
            for point in blamed:
                self._missed(key_of(point), str(manifest.error), failed=True)

    def _missed(self, key: Key, why: str, *, failed: bool) -> None:
        self.tries[key] += 1
        self.why[key] = why
        (self.failed.add if failed else self.failed.discard)(key)

    def watch_hosts(self, nodes: Iterable[str], *, failed: str | None, why: str) -> str | None:
        """Count runs in a row that failed because of one host; gives the host that is out from now on, if any."""
        for node in nodes:
            self._in_a_row[node] = self._in_a_row[node] + 1 if node == failed else 0
        if failed is None or self._in_a_row[failed] < self._quarantine:
            return None
        self.quarantined[failed] = why
        return failed

    def settled(self, key: Key) -> bool:
        """Return whether a measurement is done, or was tried as often as it may be."""
        return key in self.done or self.tries[key] >= self._attempts

    def cost_s(self, point: str) -> float:
        """Return the seconds of a run that a measurement of a point takes: the median of those made.

        Of a point without any it is what all took on average; 1 where there are none.
        """
        costs = self._costs.get(point)
        if costs is not None:
            return median(costs)
        made = sum(map(len, self._costs.values()))
        return self.spent_s / made if made else 1.0

    def left(self, keys: Sequence[Key]) -> list[Key]:
        """Return what is worth a (further) try: those with fewer tries first, else in the given order."""
        open_ = [key for key in keys if not self.settled(key)]
        return sorted(open_, key=lambda key: self.tries[key])


def key_of(point: Point) -> Key:
    """Which measurement that is."""
    return point.point, point.repetition, point.recheck
