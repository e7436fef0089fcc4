"""Foresee the windows of an experiment by simulation: the distribution of iteration times, and the use of links.

What a run will do is drawn several times: costs of messages within their intervals, and the flows of cross traffic by
another salt each. The first draw has the likeliest costs and the salt that is asked for, so that with a run's own salt
it sends that run's very flows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting, seeds
from orchestrator.experiment.dilation import dilated
from orchestrator.experiment.experiment import Choice, Experiment, WindowSpec
from orchestrator.experiment.seeds import Draws
from orchestrator.parts import registry
from orchestrator.parts.protocols import Foreseeable, ForeseeableTraffic, Sent, Source
from orchestrator.parts.topology import TRAFFIC_PORT, Job, Topology
from orchestrator.predict.network_costs import Costs, Quantity, Rates
from orchestrator.predict.simulation import links, simulating
from orchestrator.predict.simulation.links import SimulatedNetwork
from orchestrator.predict.simulation.simulating import Grain, Simulated, SimulatedJob
from workloads.common import jitter, placement
from workloads.rank.compute.training import jitter_of

DRAWS, MOST_DRAWS = 5, 1000
WARMUP = 3  # iterations of a simulation that are not counted
ITERATIONS = 40  # where a file ends its window by time alone
INTERVAL = (5.0, 95.0)  # percentiles over draws: an interval of 90 %
MOST_PACKETS = 2_000_000  # of a window that is simulated packet by packet unless asked for
CONGESTED = 1.1  # times the iteration without load: where congestion is said to begin
KNOWN = frozenset({"rate", "delay", "loss", "congestion-control", "offloads", "firewall"})
MODELLED_CONTROL = "cubic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A statistic of iteration times in seconds: by the likeliest inputs, and its interval over all draws."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenJob:
    """A job in a window: statistics of its iterations, and what of an iteration rank 0 computes, in seconds."""

    job: str
    workload: str
    mean: Spread
    p50: Spread
    p99: Spread
    compute_s: float

    @property
    def waiting_s(self) -> float:
        """What an iteration takes beside computing, in the mean: communication that nothing hides, and its end."""
        return max(0.0, self.mean.value - self.compute_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenWindow:
    """A window by simulation: its jobs, the use of each link (0 to 1), and at which grain it was simulated."""

    window: str
    traffic: tuple[str, ...]
    load_bps: float  # of all its traffic that has one
    jobs: tuple[ForeseenJob, ...]
    use: Mapping[str, float]
    grain: Grain
    draws: int

    @property
    def busiest(self) -> str:
        """The link that is used most."""
        return max(self.use, key=lambda name: self.use[name], default="")


def refusals(experiment: Experiment) -> Iterator[str]:
    """Yield the reasons why an experiment cannot be simulated: what nobody knows the physics of."""
    for spec in experiment.all_jobs():
        if not hasattr(registry.workload(spec.workload.name), "tasks"):
            yield f"workload {spec.workload.name} does not say what its ranks compute and send"
    for spec in experiment.jobs:
        if spec.start is not None or spec.every is not None:
            yield f"job {spec.name} begins at instants of its own, which are not simulated; accepted: neither"
    for window in experiment.all_windows():
        for choice in window.traffic:
            if not fitting.is_silent(choice) and not hasattr(registry.traffic(choice.name), "sent"):
                yield f"traffic {choice.name} in window {window.name} does not say what it sends"
    for condition in experiment.conditions:
        if condition.name not in KNOWN:
            yield f"the simulation knows nothing of the condition {condition.name}"


def without(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """Return the experiment without sources or jobs of these names; ConfigError for a name of none.

    A source is named as in a plan, by its part and its place ("websearch0"), or by its part alone.
    """
    left = dict.fromkeys(names)
    windows = []
    for window in experiment.all_windows():
        kept = []
        for place, choice in enumerate(window.traffic):
            named = {choice.name, f"{choice.name}{place}"} & set(names)
            for name in named:
                left.pop(name, None)
            kept.append(_silent(choice) if named else choice)
        windows.append(window.model_copy(update={"traffic": tuple(kept)}))
    jobs = []
    for spec in experiment.all_jobs():
        if spec.name in names and experiment.jobs:
            left.pop(spec.name, None)
        else:
            jobs.append(spec)
    if left or not jobs:
        known = [spec.name for spec in experiment.jobs]
        known += [
            f"{one.name}{place}" for window in experiment.all_windows() for place, one in enumerate(window.traffic)
        ]
        raise ConfigError(
            f"--without {', '.join(left or names)}: not part of the experiment, or all of it; "
            f"accepted: {', '.join(dict.fromkeys(known)) or 'nothing, since there is nothing beside the training'}"
        )
    if experiment.windows:
        changed = experiment.model_copy(update={"windows": tuple(windows)})
    else:
        changed = experiment.model_copy(update={"traffic": windows[0].traffic})
    return changed.model_copy(update={"jobs": tuple(jobs)}) if experiment.jobs else changed


def _silent(choice: Choice) -> Choice:
    return choice.with_config(choice.config.model_copy(update={"load": 0.0})) if _has_load(choice) else choice


def _has_load(choice: Choice) -> bool:
    return hasattr(choice.config, "load")


def foresee(
    experiment: Experiment,
    costs: Costs,
    *,
    file: str,
    salt: str = seeds.PLANNED,
    draws: int = DRAWS,
    grain: Grain | None = None,
) -> list[ForeseenWindow]:
    """Simulate every window of an experiment without problems; ConfigError says what cannot be, and why."""
    if not 1 <= draws <= MOST_DRAWS:
        raise ConfigError(f"{draws} draws; accepted: 1 to {MOST_DRAWS}")
    for reason in refusals(experiment):
        raise ConfigError(f"{file}: cannot be predicted: {reason}")
    topology = fitting.topology_of(experiment)
    jobs = list(_jobs(experiment, topology, file))
    network = links.network(experiment, topology)
    found = []
    for window in experiment.all_windows():
        try:
            found.append(_window(experiment, window, jobs, network, costs, salt=salt, draws=draws, grain=grain))
        except ConfigError as error:
            raise ConfigError(f"{file}: window {window.name} cannot be predicted: {error}") from None
    return found


def _jobs(experiment: Experiment, topology: Topology, file: str) -> Iterator[tuple[SimulatedJob, str]]:
    for index, spec in enumerate(experiment.all_jobs()):
        config = spec.workload.config
        job = Job(name=spec.name, index=index, ranks=placement.ranks(config.hosts, topology))
        graph = cast("Foreseeable", registry.workload(spec.workload.name)).tasks(config, job, topology)
        if isinstance(graph, str):
            raise ConfigError(f"{file}: cannot be predicted: {spec.workload.name}: {graph}")
        yield SimulatedJob(job=job, graph=graph), spec.workload.name


def _window(
    experiment: Experiment,
    window: WindowSpec,
    jobs: Sequence[tuple[SimulatedJob, str]],
    network: SimulatedNetwork,
    costs: Costs,
    *,
    salt: str,
    draws: int,
    grain: Grain | None,
) -> ForeseenWindow:
    measure = window.measure or experiment.measure
    iterations = measure.iterations or ITERATIONS
    simulated = [one for one, _ in jobs]
    alone = simulating.simulate(
        simulated, network, [], costs.at("value"), warmup=WARMUP, iterations=2, seed=0, grain="flows"
    )
    horizon_s = 2.0 * alone.duration_s / (WARMUP + 2) * (WARMUP + iterations)
    noisy = any(not fitting.is_silent(choice) for choice in window.traffic)
    found: list[Simulated] = []
    chosen = grain
    for number in range(draws):
        rates = costs.at("value") if number == 0 else _drawn(costs, np.random.default_rng([number, len(salt)]))
        own_salt = salt if number == 0 else f"{salt}-{number}"
        jittered = list(_jittered(experiment, simulated, salt=own_salt, count=WARMUP + iterations))
        until_s = horizon_s
        while True:
            sent = traffic(experiment, window, until_s=until_s, salt=own_salt) if noisy else []
            chosen = chosen or _grain(simulated, sent, network, iterations)
            result = simulating.simulate(
                jittered, network, sent, rates, warmup=WARMUP, iterations=iterations, seed=number, grain=chosen
            )
            if not noisy or result.duration_s <= until_s:
                break
            until_s *= 2.0
        found.append(result)
        horizon_s = max(horizon_s, until_s)
    return ForeseenWindow(
        window=window.name,
        load_bps=float(sum(getattr(choice.config, "load", 0.0) for choice in window.traffic)),
        traffic=tuple(_described(choice) for choice in window.traffic if not fitting.is_silent(choice)),
        jobs=tuple(_foreseen(one, name, found) for one, name in jobs),
        use={link.name: float(np.mean([one.use[link.name] for one in found])) for link in network.links},
        grain=chosen or "flows",
        draws=draws,
    )


def _jittered(experiment: Experiment, jobs: Sequence[SimulatedJob], *, salt: str, count: int) -> Iterator[SimulatedJob]:
    """Yield the jobs; those with jitter with the factors of compute times that the run of this salt draws."""
    run = Draws(salt=salt).of_run(experiment.name, experiment.seed, 1)
    for one, spec in zip(jobs, experiment.all_jobs(), strict=True):
        config = spec.workload.config
        if getattr(config, "jitter", None) is None:
            yield one
            continue
        settings = jitter.settings(config, seed=seeds.of_job(run, spec.name))
        clocks = [jitter_of(settings, rank) for rank in range(one.graph.ranks)]
        factors = np.array([[clock.next() for _ in range(count)] for clock in clocks if clock is not None])
        yield replace(one, factors=factors)


def _described(choice: Choice) -> str:
    load = getattr(choice.config, "load", None)
    return choice.name if load is None else f"{choice.name} {load / 1e9:g} Gbit/s"


def _foreseen(one: SimulatedJob, workload: str, found: Sequence[Simulated]) -> ForeseenJob:
    seconds = [result.seconds[one.job.name] for result in found]
    return ForeseenJob(
        job=one.job.name,
        workload=workload,
        mean=_spread([float(np.mean(each)) for each in seconds]),
        p50=_spread([float(np.percentile(each, 50)) for each in seconds]),
        p99=_spread([float(np.percentile(each, 99)) for each in seconds]),
        compute_s=one.graph.computed_s[0],
    )


def _spread(values: Sequence[float]) -> Spread:
    low, high = np.percentile(values, INTERVAL)
    return Spread(value=values[0], low=float(min(low, values[0])), high=float(max(high, values[0])))


def _drawn(costs: Costs, draw: np.random.Generator) -> Rates:
    """Draw all costs within their intervals: log-normal, with the interval as that of 95 %."""

    def one(quantity: Quantity) -> float:
        if quantity.value <= 0.0 or quantity.low <= 0.0:
            return float(draw.triangular(quantity.low, quantity.value, max(quantity.high, quantity.low + 1e-30)))
        normal = float(draw.standard_normal())
        end = quantity.high if normal > 0 else quantity.low
        return quantity.value * math.exp(abs(normal) / 1.96 * math.log(end / quantity.value))

    return Rates(**{name: one(getattr(costs, name)) for name in Rates.__slots__})


def traffic(experiment: Experiment, window: WindowSpec, *, until_s: float, salt: str) -> list[Sent]:
    """Return what the sources of a window send until `until_s`, in order: what a run of this salt sends.

    Times are as without dilation.
    """
    topology = fitting.topology_of(experiment)
    draws = Draws(salt=salt)
    found: list[Sent] = []
    for place, choice in enumerate(window.traffic):
        if fitting.is_silent(choice):
            continue
        name = f"{choice.name}{place}"
        source = Source(
            name=name,
            window=window.name,
            port=TRAFFIC_PORT,
            duration_s=until_s * topology.dilation,
            seed=draws.of_source(experiment.name, experiment.seed, 1, window=window.name, source=name),
        )
        part = cast("ForeseeableTraffic", registry.traffic(choice.name))
        sent: Iterator[Sent] = part.sent(dilated(choice.config, topology.dilation), source, topology)
        found += [_undilated(one, place, topology.dilation) for one in sent]
    return sorted(found, key=lambda one: one.at_s)


def _undilated(sent: Sent, place: int, dilation: int) -> Sent:
    """Return a message in undilated time, on a connection of its own source."""
    connection = sent.connection if sent.connection < 0 else sent.connection + (place << 20)
    return Sent(sent.at_s / dilation, sent.src, sent.dst, sent.rail, sent.size, sent.wire, connection)


def _grain(jobs: Sequence[SimulatedJob], sent: Sequence[Sent], network: SimulatedNetwork, iterations: int) -> Grain:
    """Return packets where there are few enough to simulate them all, else flows."""
    training = sum(sum(one.graph.sizes) for one in jobs) * (iterations + WARMUP)
    count = (training + sum(one.size for one in sent)) / network.mss + len(sent)
    return "packets" if count <= MOST_PACKETS else "flows"


def congestion_bps(points: Sequence[tuple[float, float]]) -> float:
    """Return the load at which an iteration takes CONGESTED times as long as at the lowest load; NaN where it does not.

    `points` are loads (bit/s) and mean iterations (s); between two of them the load is interpolated.
    """
    ordered = sorted(points)
    limit = CONGESTED * ordered[0][1]
    for (below, quick), (above, slow) in pairwise(ordered):
        if slow >= limit > quick:
            return below + (above - below) * (limit - quick) / (slow - quick)
    return math.nan


def data(found: Sequence[ForeseenWindow]) -> list[dict[str, Any]]:
    """Return windows as JSON data, times in seconds."""
    return [
        {
            "window": one.window,
            "traffic": list(one.traffic),
            "grain": one.grain,
            "draws": one.draws,
            "links": dict(one.use),
            "jobs": [
                {
                    "job": job.job,
                    "workload": job.workload,
                    **{
                        name: {"value": spread.value, "low": spread.low, "high": spread.high}
                        for name, spread in (("mean_s", job.mean), ("p50_s", job.p50), ("p99_s", job.p99))
                    },
                    "compute_s": job.compute_s,
                    "waiting_s": job.waiting_s,
                }
                for job in one.jobs
            ],
        }
        for one in found
    ]
