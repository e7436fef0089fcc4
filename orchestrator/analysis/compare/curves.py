"""Curves of iteration time over cross traffic, from the runs and sweeps that measured their points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import window_settings
from orchestrator.analysis.compare.window_settings import Setting
from orchestrator.analysis.stats.iterations import JobSeries, series
from orchestrator.analysis.stats.levels import level
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate, summarise
from orchestrator.analysis.stats.variance_moderation import ModeratedVariance, Spread, moderate
from orchestrator.analysis.traffic import congestion
from orchestrator.analysis.traffic.sharedlink import SharedLink, shared_link
from orchestrator.analysis.traffic.throughput import CachedTable
from orchestrator.parts.topology import carried_bps
from orchestrator.store.manifests import records
from orchestrator.store.manifests.records import Manifest, Span
from orchestrator.store.rundir import Entry
from orchestrator.store.tabular import tables

Floats = npt.NDArray[np.float64]
NO_TRAFFIC = "none"


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """The settings that the points of a curve share.

    `differs` tells what else was set differently from other curves of the same, else it is empty.
    """

    model: str
    traffic: str  # the part's name, with "-burst" where flows come in bursts; several joined by "+"
    transport: str
    ranks: int
    workload: str
    differs: str = ""

    @property
    def name(self) -> str:
        text = f"{self.model}, {self.traffic}, {self.ranks} ranks, {self.workload}"
        text = f"{text} over {self.transport}" if self.transport else text
        return f"{text} ({self.differs})" if self.differs else text


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A point: all valid windows that asked for the same load and were set alike.

    Loads are in bit/s at full size, times in seconds. `links` tells of the queue where training and
    cross traffic met, in each window whose queues were sampled.
    """

    requested_bps: float
    load_bps: float
    mean_s: float
    error_s: float  # standard error of the mean over runs, steadied by the curve's other points; NaN: not known
    freedom: float  # its degrees of freedom
    p99_s: float
    iterations: int
    seconds: tuple[Floats, ...]
    links: tuple[SharedLink, ...] = ()
    runs: Mapping[str, float] = field(default_factory=dict)  # mean of each run (s), by its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A curve with everything that was measured of it; `points` are ordered by load."""

    kind: Kind
    points: tuple[CurvePoint, ...]
    capacity_bps: float
    theory_bytes: float
    scales: tuple[int, ...]
    emulated: bool

    @property
    def curve(self) -> congestion.Curve:
        """The curve as arrays."""
        return congestion.curve(
            [point.load_bps for point in self.points],
            [point.mean_s for point in self.points],
            [point.error_s for point in self.points],
            [point.freedom for point in self.points],
            capacity_bps=self.capacity_bps,
            theory_bytes=self.theory_bytes,
            runs=[point.runs for point in self.points],
        )

    def seconds_at(self, load_bps: float) -> float:
        """Return the mean at a load, ln t interpolated between measured points; NaN outside of them."""
        of = self.curve
        if not len(of.load_bps) or not of.load_bps[0] <= load_bps <= of.load_bps[-1]:
            return math.nan
        return float(np.exp(np.interp(load_bps, of.load_bps, np.log(of.seconds))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedWindow:
    """A valid window of a run in the folder `path`; `record` is what the manifest says of it.

    `point` is its point's id in a sweep, else empty; `recheck` says that it checks one of a sweep's windows.
    """

    kind: Kind
    setting: Setting
    requested_bps: float
    load_bps: float
    path: Path
    record: records.Window
    point: str
    recheck: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedWindow:
    """A place with its iteration times (seconds), the link's capacity, and the bytes of an iteration by theory."""

    place: LoadedWindow
    seconds: Floats
    capacity_bps: float
    theory_bytes: float
    scale: int
    emulated: bool
    link: SharedLink | None

    @property
    def kind(self) -> Kind:
        return self.place.kind

    @property
    def curve(self) -> _Key:
        return self.place.kind, self.place.setting


_Key = tuple[Kind, Setting]


def measured(entries: Iterable[Entry]) -> tuple[Series, ...]:
    """Return every curve in these runs: valid windows of runs with one job; checks of a sweep's own are left out.

    A window without cross traffic is a point of every curve of the same model, ranks, workload and transport that was
    set alike.
    """
    windows = [window for entry in entries for window in windows_of(entry) if not window.place.recheck]
    by_curve: dict[_Key, list[TimedWindow]] = defaultdict(list)
    for window in windows:
        by_curve[window.curve].append(window)
    with_traffic = {_without_traffic(key) for key in by_curve if key[0].traffic != NO_TRAFFIC}
    keys = [key for key in sorted(by_curve) if key not in with_traffic]  # those stand in the curves with traffic
    found = []
    for key, kind in zip(keys, _told_apart(keys), strict=True):
        alone = [] if kind.traffic == NO_TRAFFIC else by_curve.get(_without_traffic(key), [])
        found.append(_series(kind, [*alone, *by_curve[key]]))
    return tuple(found)


def _told_apart(keys: Sequence[_Key]) -> list[Kind]:
    """Return the kind of each, with what was set differently where several are of one kind."""
    of_kind: dict[Kind, list[Setting]] = defaultdict(list)
    for kind, setting in keys:
        of_kind[kind].append(setting)
    texts = {
        (kind, setting): text
        for kind, found in of_kind.items()
        for setting, text in zip(found, window_settings.differences(found), strict=True)
    }
    return [replace(key[0], differs=texts[key]) for key in keys]


def _without_traffic(key: _Key) -> _Key:
    return replace(key[0], traffic=NO_TRAFFIC), key[1].without_traffic


def _series(kind: Kind, windows: Sequence[TimedWindow]) -> Series:
    by_load: dict[float, list[TimedWindow]] = defaultdict(list)
    for window in windows:
        by_load[window.place.requested_bps].append(window)
    steadied = moderate({str(load): _spread(mine) for load, mine in by_load.items()}).points
    points = [_point(requested, mine, steadied.get(str(requested))) for requested, mine in by_load.items()]
    return Series(
        kind=kind,
        points=tuple(sorted(points, key=lambda one: one.load_bps)),
        capacity_bps=min(window.capacity_bps for window in windows),
        theory_bytes=float(np.mean([window.theory_bytes for window in windows])),
        scales=tuple(sorted({window.scale for window in windows})),
        emulated=any(window.emulated for window in windows),
    )


def _spread(windows: Sequence[TimedWindow]) -> Spread:
    """Return the residuals of a point's runs about their mean, in logarithms."""
    of_runs = _by_run(windows)
    middle = math.fsum(of_runs.values()) / len(of_runs)
    return Spread(freedom=len(of_runs) - 1, residuals={run: value - middle for run, value in of_runs.items()})


def _by_run(windows: Sequence[TimedWindow]) -> dict[str, float]:
    """Return the logarithm of each run's mean; several windows of a run count as one."""
    logs: dict[str, list[float]] = defaultdict(list)
    for window in windows:
        logs[window.place.path.name].append(math.log(float(np.mean(window.seconds))))
    return {run: math.fsum(found) / len(found) for run, found in logs.items()}


def _point(requested: float, windows: Sequence[TimedWindow], spread: ModeratedVariance | None) -> CurvePoint:
    of_runs = _by_run(windows)
    mean_s = math.exp(math.fsum(of_runs.values()) / len(of_runs))
    together = np.concatenate([window.seconds for window in windows])
    return CurvePoint(
        requested_bps=requested,
        load_bps=float(np.mean([window.place.load_bps for window in windows])),
        mean_s=mean_s,
        error_s=mean_s * math.sqrt(spread.variance / len(of_runs)) if spread is not None else math.nan,
        freedom=spread.freedom if spread is not None else math.nan,
        p99_s=float(np.quantile(together, 0.99, method="inverted_cdf")),
        iterations=len(together),
        seconds=tuple(window.seconds for window in windows),
        links=tuple(window.link for window in windows if window.link is not None),
        runs={run: math.exp(log) for run, log in of_runs.items()},
    )


def loaded_windows(entry: Entry) -> Iterator[LoadedWindow]:
    """Yield the valid windows of a run with one job whose loads are known."""
    manifest = entry.manifest
    valid = [window for window in manifest.windows if window.valid]
    if len(manifest.jobs) != 1 or not valid:
        return
    (job,), scale = manifest.jobs, manifest.scale
    set_to = window_settings.of_windows(entry)
    for record in valid:
        load_bps = record.achieved_bps
        if load_bps is None:
            continue
        point, mine = manifest.points.get(record.name), set_to[record.name]
        yield LoadedWindow(
            kind=Kind(
                str(job.model),
                mine.traffic if record.loads else NO_TRAFFIC,
                _transport(record, job.name),
                len(job.ranks),
                job.workload,
            ),
            setting=mine.setting if record.loads else mine.setting.without_traffic,
            requested_bps=record.requested_bps * scale,
            load_bps=load_bps * scale,
            path=entry.path,
            record=record,
            point=point.point if point else "",
            recheck=point is not None and point.recheck,
        )


def windows_of(entry: Entry) -> Iterable[TimedWindow]:
    """Yield the valid windows of a run whose loads are known, with their iterations and the shared link's queue."""
    here = list(loaded_windows(entry))
    if not here:
        return
    manifest = entry.manifest
    (job,) = manifest.jobs
    times = series(tables.read(entry.path / "tables", "iterations"), job.name)
    queues = CachedTable(tables.read(entry.path / "tables", "counters", where=_of_queues()))
    scale = manifest.scale
    for place in here:
        yield TimedWindow(
            place=place,
            seconds=_within(times, place.record.iterations[job.name]),
            capacity_bps=min(capacity_bps(manifest), place.setting.least_rate_bps),
            theory_bytes=job.theory_bytes * scale,
            scale=scale,
            emulated="emulated" in (job.compute or ""),
            link=shared_link(queues, manifest.topology, span_ns=place.record.span_ns, scale=scale),
        )


def _of_queues() -> Any:
    import pyarrow.compute as pc

    return pc.match_substring_regex(pc.field("counter"), r"^qdisc\.")


def _within(times: JobSeries, span: Span) -> Floats:
    return times.within(span.first, span.last).seconds


def capacity_bps(manifest: Manifest) -> float:
    """Return the rate of the slowest link (bit/s, in the unit of loads): cross traffic and training meet on one.

    The rate of a real link counts what stands between frames; the buckets of a local testbed count frames.
    """
    topology = manifest.topology
    rate = min(link.rate for link in topology.links)
    return rate if topology.kind == "local" else carried_bps(rate, mtu=topology.mtu)


def _transport(record: records.Window, job: str) -> str:
    """Return "tcp" or "rdma" (captures saw less than half of the bytes by theory); "" where neither is known."""
    for row in record.training:
        if row.job == job and row.sent_bytes is not None and row.theory_bytes:
            return "tcp" if row.sent_bytes > 0.5 * row.theory_bytes else "rdma"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Medians of a window of many and of the same in a fresh run, in seconds; intervals are of each run alone.

    `runs` are the two runs.
    """

    kind: Kind
    load_bps: float
    among: Estimate
    alone: Estimate
    runs: tuple[str, str]


def checks(entries: Iterable[Entry]) -> tuple[Check, ...]:
    """Return every point of a sweep in windows mode that was measured again in a run of its own."""
    windows = [window for entry in entries for window in windows_of(entry) if window.place.point]
    found = []
    for alone in windows:
        others = [one for one in windows if not one.place.recheck and one.place.point == alone.place.point]
        if alone.place.recheck and others:
            among = others[-1]
            found.append(
                Check(
                    kind=alone.kind,
                    load_bps=alone.place.load_bps,
                    among=summarise(among.seconds).p50,
                    alone=summarise(alone.seconds).p50,
                    runs=(among.place.path.name, alone.place.path.name),
                )
            )
    return tuple(found)


def agreement(found: Sequence[Check]) -> Estimate:
    """Return a fresh run's median over that of a window among others, over all checks.

    The interval needs two of them.
    """
    ratios = [Estimate(one.alone.value / one.among.value, math.nan, math.nan) for one in found]
    return level(ratios).estimate if ratios else UNKNOWN
