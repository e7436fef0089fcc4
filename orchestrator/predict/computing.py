"""Find how long ranks compute where no file says it: in runs of the store, else by the FLOPs of the model.

A run tells it of the same setting best, and otherwise of the same model and batch on such a testbed. Iterations vary as
those of the run do, all ranks together, since ranks of one machine share its processors.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment, JobSpec
from orchestrator.parts import registry
from orchestrator.parts.rows import Row
from orchestrator.parts.theory import Compute
from orchestrator.parts.topology import Topology
from orchestrator.predict import inputs
from orchestrator.predict.network_costs import Quantity, assumed
from orchestrator.store import index
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement, trained_model
from workloads.models import catalog

Floats = npt.NDArray[np.float64]

LEAST = 5  # iterations of a run that tell how long one computes
BATCHES, STUDENT = 5, 2.776  # consecutive parts of a run, and the 97.5 % point of Student's t with so many less one
CROWDED = 1.3  # by how much a time may be off that is reckoned from another number of ranks on the same processors
USED = 0.15  # share of the rate of a matrix product that a training reaches; between these two
USED_WITHIN = (0.03, 0.6)
ANOTHER_ACCELERATOR = 3.0  # by how much a time may be off that was calibrated on another one
_SIZE, _TRIES = 768, 5  # of the matrix product that is timed
NO_MATTER = frozenset({"hosts", "env", "env_from", "python", "trace", "checksum", "bucket", "first_bucket", "fusion"})
_SAME_COMPUTING = ("model", "batch", "classes", "image", "threads", "compute", "framework")


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Compute times of a job: what is likeliest, by which factors iterations vary, and the interval of the mean.

    `factors` (ranks x iterations) have the mean 1; there are none where nothing was recorded. `mean` is in seconds.
    `runs` told it; none did where it is estimated.
    """

    compute: Compute
    mean: Quantity
    factors: Floats | None = None
    runs: tuple[str, ...] = ()

    def drawn(self, ranks: int, count: int, draw: np.random.Generator | None) -> Floats:
        """Return factors of so many ranks and iterations; those of the likeliest times in their order without `draw`.

        A draw begins at another iteration of the record, and has another mean within its interval.
        """
        recorded = np.ones((1, 1)) if self.factors is None else self.factors
        by = 1.0
        if draw is not None:
            recorded = np.roll(recorded, int(draw.integers(recorded.shape[1])), axis=1)
            by = draw.triangular(self.mean.low, self.mean.value, self.mean.high * (1 + 1e-12)) / self.mean.value
        rows = recorded[np.arange(ranks) % len(recorded)]
        return by * np.array([np.resize(row, count) for row in rows])


def find(
    results: Path, experiment: Experiment, *, step_s: float = 0.0, named: Sequence[Listed] = ()
) -> dict[str, Computed]:
    """Return by name the compute times of the jobs of which no file says them; those of whom nothing does are left out.

    They are taken from the `named` runs, or from all completed ones of the store. `step_s` is what the simulation adds
    to each iteration anyway.
    """
    topology = fitting.topology_of(experiment)
    wanted = [spec for spec in experiment.all_jobs() if unsaid(spec)]
    found: dict[str, Computed] = {}
    runs = list(named) or (index.entries(results) if wanted and results.is_dir() else [])
    recorded = [one for entry in runs for one in _recorded(entry, topology, wanted)]
    for spec in wanted:
        known = _of_runs(spec, topology, recorded) or _estimated(spec, topology)
        if known is not None:
            rest_s = max(0.0, known.compute.step_s - step_s)
            found[spec.name] = replace(known, compute=replace(known.compute, step_s=rest_s))
    return found


def unsaid(spec: JobSpec) -> bool:
    """Return whether no file says how long ranks of a job compute."""
    part = registry.workload(spec.workload.name)
    return hasattr(part, "computes") and bool(part.computes(spec.workload.config))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """A job of a run: its setting, and what its ranks computed in each iteration of a window, in seconds."""

    run: str
    spec: JobSpec
    ranks: int
    compute: Compute
    seconds: Floats  # ranks x iterations


def _recorded(entry: Listed, topology: Topology, wanted: Sequence[JobSpec]) -> Iterator[_Recorded]:
    """Yield the jobs of a run that compute the same as one of these; none where the run cannot tell."""
    models = {getattr(spec.workload.config, "model", None) for spec in wanted}
    if not entry.sealed or entry.outcome != "completed" or not {job.model for job in entry.manifest.jobs} & models:
        return
    try:
        if not inputs.like(entry, topology):
            return
        experiment = loading.sealed(entry.path)
        where = fitting.topology_of(experiment)
        specs = [spec for spec in experiment.all_jobs() if unsaid(spec)]
        specs = [spec for spec in specs if any(_computes_alike(spec, one) for one in wanted)]
        rows = {name: tables.read(entry.path / "tables", name).to_pylist() for name in ("iterations", "spans")}
    except (ConfigError, StoreError):
        return  # of a part that this version does not know, or damaged: other runs tell
    for spec in specs:
        own = {name: [row for row in found if row["job"] == spec.name] for name, found in rows.items()}
        ranks = len(placement.ranks(spec.workload.config.hosts, where))
        measured = _measured(own["iterations"], own["spans"], passes=getattr(spec.workload.config, "accumulate", 1))
        if measured is not None:
            compute, seconds = measured
            yield _Recorded(run=entry.run, spec=spec, ranks=ranks, compute=compute, seconds=seconds)


def _measured(iterations: Sequence[Row], spans: Sequence[Row], *, passes: int) -> tuple[Compute, Floats] | None:
    """Return what ranks computed in the mean, and in each iteration (ranks x iterations); None of too few."""
    by_rank: defaultdict[int, dict[int, Row]] = defaultdict(dict)
    for row in iterations:
        passed = (row["forward_s"], row["backward_s"], row["wait_s"])
        if row["window_name"] and row["samples"] != 0 and None not in passed:
            by_rank[row["rank"]][row["iteration"]] = row
    common = sorted(set.intersection(*(set(rows) for rows in by_rank.values()))) if by_rank else []
    kept = [by_rank[rank][number] for rank in sorted(by_rank) for number in common]
    if len(common) < LEAST or any(row["forward_s"] + row["backward_s"] <= 0 for row in kept):
        return None
    forward_s, backward_s = (float(np.mean([row[name] for row in kept])) for name in ("forward_s", "backward_s"))
    rest = [row["seconds"] - row["forward_s"] - row["backward_s"] - row["wait_s"] for row in kept]
    compute = Compute(
        forward_s=forward_s / passes,
        backward_s=backward_s / passes,
        step_s=max(0.0, float(np.mean(rest))),
        ready=_ready(spans),
    )
    seconds = np.array([row["forward_s"] + row["backward_s"] for row in kept])
    return compute, seconds.reshape(len(by_rank), len(common))


def _ready(spans: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """Return when gradients were there, by when buckets began to travel: the median over iterations and ranks.

    Empty where the ranks recorded no buckets.
    """
    backward: dict[tuple[int, int], tuple[int, int]] = {}
    buckets: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in spans:
        where = row["rank"], row["iteration"]
        if row["window_name"] and row["span"] == "backward":
            backward[where] = row["start_ns"], row["end_ns"]  # of several passes the last one's
        elif row["window_name"] and row["span"] == "all-reduce" and row["what"].startswith("bucket ") and row["bytes"]:
            buckets[where].append(row)
    paths = []
    for where, own in buckets.items():
        begin, end = backward.get(where, (0, 0))
        if end > begin:
            own.sort(key=lambda row: row["start_ns"])
            size = np.cumsum([row["bytes"] for row in own], dtype=np.float64)
            at = np.clip([(row["start_ns"] - begin) / (end - begin) for row in own], 0.0, 1.0)
            paths.append((size / size[-1], at))
    counts = [len(at) for _, at in paths]
    alike = [one for one in paths if len(one[1]) == (max(set(counts), key=counts.count))]
    if not alike:
        return ()
    sizes, instants = (np.median([one[side] for one in alike], axis=0) for side in (0, 1))
    return tuple(zip(sizes.tolist(), np.maximum.accumulate(instants).tolist(), strict=True))


def _computes_alike(one: JobSpec, other: JobSpec) -> bool:
    """Return whether a rank of both computes the same in an iteration, whatever it sends."""
    return _told(one, "framework") == _told(other, "framework") and all(
        _batch(one, name) == _batch(other, name) for name in _SAME_COMPUTING if name != "framework"
    )


def _told(spec: JobSpec, name: str) -> Any:
    framework = "tensorflow" if spec.workload.name == "tensorflow" else "torch"
    return getattr(spec.workload.config, name, framework)


def _batch(spec: JobSpec, name: str) -> Any:
    config = spec.workload.config
    if name == "batch":
        return trained_model.batch(config)
    if name == "image":
        return _edge(config)
    return getattr(config, name, None)


def _same(one: JobSpec, other: JobSpec) -> bool:
    """Return whether two jobs are the same training, but for what it sends when."""
    told = (spec.workload.config.model_dump(mode="json", exclude=NO_MATTER) for spec in (one, other))
    return one.workload.name == other.workload.name and next(told) == next(told)


def _of_runs(spec: JobSpec, topology: Topology, recorded: Sequence[_Recorded]) -> Computed | None:
    """Return what runs tell of a job: the same training with as many ranks best, then the same computing."""
    ranks = len(placement.ranks(spec.workload.config.hosts, topology))
    alike = [one for one in recorded if _computes_alike(one.spec, spec)]
    kinds = [(_same(one.spec, spec), one.ranks == ranks) for one in alike]
    if not alike:
        return None
    best = max(kinds, key=lambda kind: (kind[1], kind[0]))
    chosen = [one for one, kind in zip(alike, kinds, strict=True) if kind == best]
    newest = chosen[-1]
    by = 1.0
    if newest.ranks != ranks and topology.kind == "local":
        by = _crowd(spec, ranks) / _crowd(newest.spec, newest.ranks)
    low, value, high = _interval([one.seconds for one in chosen])
    more = CROWDED if newest.ranks != ranks else 1.0
    shift = by * value / float(newest.seconds.mean())
    compute = newest.compute
    names = ", ".join(one.run for one in chosen[-3:]) + (f" and {len(chosen) - 3} more" if len(chosen) > 3 else "")
    how = "" if best[0] else ", another training of the model"
    how += "" if newest.ranks == ranks else f", reckoned from {newest.ranks} ranks"
    return Computed(
        compute=replace(compute, forward_s=compute.forward_s * shift, backward_s=compute.backward_s * shift),
        mean=Quantity(value=by * value, low=by * low / more, high=by * high * more, source=f"measured: {names}{how}"),
        factors=newest.seconds / newest.seconds.mean(),
        runs=tuple(one.run for one in chosen),
    )


def _interval(runs: Sequence[Floats]) -> tuple[float, float, float]:
    """Return the mean over runs with its ends: the least and largest of all, each by 95 % of its batch means."""
    found = []
    for seconds in runs:
        means = [float(part.mean()) for part in np.array_split(seconds.mean(axis=0), BATCHES)]
        found.append((float(seconds.mean()), STUDENT * float(np.std(means, ddof=1)) / BATCHES**0.5))
    value = float(np.mean([mean for mean, _ in found]))
    low = min(mean - half for mean, half in found)
    return max(low, 0.1 * value), value, max(mean + half for mean, half in found)


def _crowd(spec: JobSpec, ranks: int) -> float:
    """Return how many threads that compute share a processor of this machine, 1 at least."""
    return max(1.0, ranks * getattr(spec.workload.config, "threads", 1) / (os.cpu_count() or 1))


def _estimated(spec: JobSpec, topology: Topology) -> Computed | None:
    """Return what a model's FLOPs take, or its calibrated time where ranks have GPUs; None where that is not known."""
    config = spec.workload.config
    model, batch = trained_model.data(config), trained_model.batch(config)
    placed = placement.ranks(config.hosts, topology)
    if any(rank.device != "cpu" for rank in placed):
        seconds = catalog.compute_time(model, batch)
        if seconds is None:
            return None
        by = ANOTHER_ACCELERATOR
        source = f"the catalog's time of {model.name}, of another accelerator; a run of it tells better"
        mean = assumed(seconds, low=seconds / by, high=seconds * by, source=source)
    else:
        shared = _crowd(spec, len(placed)) if topology.kind == "local" else 1.0
        flops = sum(layer.flops for layer in model.layers) * (_edge(config) / _own_edge(model)) ** 2
        each = matrix_flops_per_s() / (os.cpu_count() or 1) * config.threads / shared
        seconds = flops * batch / catalog.FORWARD_SHARE / each
        source = f"{USED:.0%} of this machine's rate of a matrix product; a run of it tells better"
        least, most = USED_WITHIN
        mean = assumed(seconds / USED, low=seconds / most, high=seconds / least, source=source)
    passes = getattr(config, "accumulate", 1)
    forward_s = mean.value * catalog.FORWARD_SHARE
    return Computed(compute=Compute(forward_s=forward_s, backward_s=mean.value - forward_s), mean=_times(mean, passes))


def _times(mean: Quantity, passes: int) -> Quantity:
    return replace(mean, value=mean.value * passes, low=mean.low * passes, high=mean.high * passes)


def _edge(config: Any) -> int:
    """Return the edge of the images that are trained on, in pixels; gratings and CIFAR-10 have 32."""
    if config.data == "gratings" or config.model == "small_cnn":
        return 32
    return int(getattr(config, "image", 32))


def _own_edge(model: catalog.ModelData) -> int:
    """Return the edge of the images by which the model's FLOPs are counted, in pixels."""
    return int(model.sample.rpartition(" ")[2])


def matrix_flops_per_s() -> float:
    """Measure the rate of a product of float32 matrices on all processors of this machine, in FLOP/s."""
    one = np.random.default_rng(1).standard_normal((_SIZE, _SIZE), dtype=np.float32)
    best = float("inf")
    for _ in range(_TRIES):
        began = time.perf_counter()
        one @ one
        best = min(best, time.perf_counter() - began)
    return 2.0 * _SIZE**3 / best
