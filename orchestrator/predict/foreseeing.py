"""Foresee the windows of an experiment by simulation: the distribution of iteration times, and the use of links.

What a run will do is drawn several times: costs of messages within their intervals, and the flows of cross traffic by
another salt each. The first draw has the likeliest costs and the salt that is asked for, so that with a run's own salt
it sends that run's very flows; with several seeds, since time-outs are chance: a value is the median over these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from orchestrator.analysis.stats.statistics import student_t
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting, seeds
from orchestrator.experiment.dilation import dilated
from orchestrator.experiment.experiment import Choice, Experiment, WindowSpec
from orchestrator.experiment.seeds import Draws
from orchestrator.parts import registry
from orchestrator.parts.protocols import Computing, Foreseeable, ForeseeableTraffic, Sent, Source
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.topology import TRAFFIC_PORT, Job, Topology
from orchestrator.predict.computing import Computed
from orchestrator.predict.network_costs import Costs, Quantity, Rates
from orchestrator.predict.simulation import links, simulating
from orchestrator.predict.simulation.links import SimulatedNetwork
from orchestrator.predict.simulation.machine import Floats
from orchestrator.predict.simulation.simulating import Grain, Simulated, SimulatedJob
from workloads.common import jitter, placement
from workloads.rank.compute.training import jitter_of

DRAWS, MOST_DRAWS = 5, 1000
SEEDS = 3  # of the draw with the likeliest inputs, at the grain of packets: whether a time-out falls into it is chance
WARMUP = 3  # iterations of a simulation that are not counted
ITERATIONS = 40  # where a file ends its window by time alone
INTERVAL = 0.9  # of one more draw
MODEL_ERROR = 0.058  # how far beyond the interval of draws nine of ten measured means are at most (docs/predictions.md)
MOST_PACKETS = 2_000_000  # of a window that is simulated packet by packet unless asked for
FEW = 5  # iterations by which it is told how many packets one has
CONGESTED = 1.1  # times the iteration without load: where congestion is said to begin
KNOWN = frozenset({"rate", "delay", "loss", "congestion-control", "link", "offloads", "firewall"})
MODELLED_CONTROL = "cubic"


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How windows are simulated: the salt and number of the run whose flows are sent, and how often all is drawn.

    Without a `grain` windows of few packets are simulated by packets. `full_size` undoes scale and dilation: sizes,
    rates and queues are those of a cluster, costs of messages stay. A window is shortened to `most_packets`, or to so
    many `iterations` by its name. `computed` has the compute times of the jobs of which no file says them, and
    `beside` what their iterations take that no cost stands for.
    """

    salt: str = seeds.PLANNED
    repetition: int = 1
    draws: int = DRAWS
    grain: Grain | None = None
    full_size: bool = False
    most_packets: int | None = None
    iterations: Mapping[str, int] = field(default_factory=dict)
    computed: Mapping[str, Computed] = field(default_factory=dict)
    beside: Mapping[str, Quantity] = field(default_factory=dict)


AS_PLANNED = How()
_NOTHING = Quantity(value=0.0, low=0.0, high=0.0, source="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A statistic of iteration times in seconds: by the likeliest inputs, and its interval, which one draw has not."""

    value: float
    interval: tuple[float, float] | None


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
    loads_bps: tuple[float, ...]  # of each source of cross traffic; 0 for one without a load
    jobs: tuple[ForeseenJob, ...]
    use: Mapping[str, float]
    grain: Grain
    draws: int
    iterations: int

    @property
    def busiest(self) -> str:
        """The link that is used most."""
        return max(self.use, key=lambda name: self.use[name], default="")


def refusals(experiment: Experiment) -> Iterator[str]:
    """Yield the reasons why an experiment cannot be simulated: what nobody knows the physics of."""
    for spec in experiment.all_jobs():
        part: Any = registry.workload(spec.workload.name)
        if not hasattr(part, "tasks"):
            yield getattr(
                part, "UNPREDICTED", f"workload {spec.workload.name} does not say what its ranks compute and send"
            )
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
    hosts = fitting.topology_of(experiment).placed
    windows = []
    for window in experiment.all_windows():
        kept = []
        for place, choice in enumerate(window.traffic):
            named = {choice.name, f"{choice.name}{place}"} & set(names)
            for name in named:
                left.pop(name, None)
            kept.append(_silent(choice, hosts) if named else choice)
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


def _silent(choice: Choice, hosts: Sequence[str]) -> Choice:
    """Return a source that sends nothing, for the place of one that is left out: the flows of others are by places."""
    return type(choice).model_validate({"iperf": {"from": hosts[0], "to": hosts[-1], "load": "0gbit"}})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is simulated of an experiment, whichever the window: its testbed, jobs with their workloads, and links."""

    experiment: Experiment
    topology: Topology
    jobs: tuple[tuple[SimulatedJob, str], ...]
    network: SimulatedNetwork
    costs: Costs

    @property
    def simulated(self) -> list[SimulatedJob]:
        return [one for one, _ in self.jobs]


def foresee(experiment: Experiment, costs: Costs, *, file: str, how: How = AS_PLANNED) -> list[ForeseenWindow]:
    """Simulate every window of an experiment without problems; ConfigError says what cannot be, and why."""
    if not 1 <= how.draws <= MOST_DRAWS:
        raise ConfigError(f"{how.draws} draws; accepted: 1 to {MOST_DRAWS}")
    for reason in refusals(experiment):
        raise ConfigError(f"{file}: cannot be predicted: {reason}")
    topology = fitting.topology_of(experiment)
    if how.full_size:
        costs = costs.of_larger_bytes(topology.scale)
        topology = replace(topology, scale=1, dilation=1)
    plan = _Plan(
        experiment=experiment,
        topology=topology,
        jobs=tuple(_jobs(experiment, topology, file, how)),
        network=links.network(experiment, topology, hardware=how.full_size),
        costs=costs,
    )
    found = []
    for window in experiment.all_windows():
        try:
            found.append(_window(plan, window, how))
        except ConfigError as error:
            raise ConfigError(f"{file}: window {window.name} cannot be predicted: {error}") from None
    return found


def _jobs(experiment: Experiment, topology: Topology, file: str, how: How) -> Iterator[tuple[SimulatedJob, str]]:
    paces = experiment.paces()
    for index, spec in enumerate(experiment.all_jobs()):
        config = spec.workload.config
        job = Job(name=spec.name, index=index, ranks=placement.ranks(config.hosts, topology))
        part: Any = registry.workload(spec.workload.name)
        known = how.computed.get(spec.name)
        graph: TaskGraph | str = (
            cast("Foreseeable", part).tasks(config, job, topology)
            if known is None
            else cast("Computing", part).computed_tasks(config, job, topology, known.compute)
        )
        if isinstance(graph, str):
            raise ConfigError(f"{file}: cannot be predicted: {spec.workload.name}: {graph}")
        yield SimulatedJob(job=job, graph=graph, pace=paces[spec.name]), spec.workload.name


def _window(plan: _Plan, window: WindowSpec, how: How) -> ForeseenWindow:
    network = replace(
        plan.network, outages=tuple(one for one in plan.network.outages if one.window in {"", window.name})
    )
    plan = replace(plan, network=network)
    measure = window.measure or plan.experiment.measure
    iterations = how.iterations.get(window.name) or measure.iterations or ITERATIONS
    each_s = _alone_s(plan) if noisy(window) or how.most_packets is not None else 0.0
    if how.most_packets is not None:
        iterations = _shortened(plan, window, how, iterations=iterations, each_s=each_s)
    found: list[Simulated] = []
    chosen, until_s = how.grain, 2.0 * each_s * (WARMUP + iterations)
    for number in range(how.draws):
        result, chosen, until_s = _drawn_once(
            plan, window, how, number=number, iterations=iterations, grain=chosen, until_s=until_s
        )
        found.append(result)
    own = len(network.spines) < 2  # else nobody knows which spines a run's connections cross: all draws are alike
    likeliest = found[:1] if own else found
    more = SEEDS - 1 if own and chosen == "packets" and how.draws > 1 else 0
    for seed in range(how.draws, how.draws + more):
        result, chosen, until_s = _drawn_once(
            plan, window, how, number=0, iterations=iterations, grain=chosen, until_s=until_s, seed=seed
        )
        likeliest.append(result)
    return ForeseenWindow(
        window=window.name,
        loads_bps=tuple(float(getattr(choice.config, "load", 0.0)) for choice in window.traffic),
        traffic=tuple(_described(choice) for choice in window.traffic if not fitting.is_silent(choice)),
        jobs=tuple(_foreseen(one, name, found, likeliest) for one, name in plan.jobs),
        use={link: float(np.mean([one.use.get(link, 0.0) for one in found])) for link in found[0].use},
        grain=chosen or "flows",
        draws=how.draws,
        iterations=iterations,
    )


def _drawn_once(
    plan: _Plan,
    window: WindowSpec,
    how: How,
    *,
    number: int,
    iterations: int,
    grain: Grain | None,
    until_s: float,
    seed: int | None = None,
) -> tuple[Simulated, Grain, float]:
    """Simulate a window by one draw of its costs and its traffic; return for how long traffic was needed, too.

    Draw 0 has the likeliest costs and the very traffic of the run; `seed`, else the number, draws what chance decides.
    """
    costs, salt = plan.costs.at("value"), how.salt
    if number > 0:
        costs, salt = _drawn(plan.costs, np.random.default_rng([number, len(salt)])), f"{salt}-{number}"
    own = replace(how, salt=salt)
    draw = np.random.default_rng([number]) if number else None
    jobs = list(_drawn_jobs(plan, own, count=WARMUP + iterations, draw=draw))
    shared = noisy(window)
    while True:
        sent = traffic(plan.experiment, window, own, topology=plan.topology, until_s=until_s) if shared else []
        grain = grain or _grain(plan, sent, iterations)
        repeats = grain == "flows" and not shared and _repeats(plan, how)
        count = min(iterations, 2 * plan.simulated[0].graph.cycle) if repeats else iterations
        result = simulating.simulate(
            jobs,
            plan.network,
            sent,
            costs,
            warmup=WARMUP,
            iterations=count,
            seed=number if seed is None else seed,
            grain=grain,
        )
        if not shared or result.duration_s <= until_s:
            return result, grain, until_s
        until_s *= 2.0


def noisy(window: WindowSpec) -> bool:
    """Return whether cross traffic shares the links in a window."""
    return any(not fitting.is_silent(choice) for choice in window.traffic)


def with_window(experiment: Experiment, window: WindowSpec) -> Experiment:
    """Return the experiment with one of its windows alone."""
    return experiment.model_copy(update={"windows": (window,)}) if experiment.windows else experiment


def _alone_s(plan: _Plan) -> float:
    """Return how long an iteration takes without cross traffic, in seconds: how much of it will be needed."""
    alone = simulating.simulate(
        plan.simulated, plan.network, [], plan.costs.at("value"), warmup=WARMUP, iterations=2, seed=0, grain="flows"
    )
    return alone.duration_s / (WARMUP + 2)


def _repeats(plan: _Plan, how: How) -> bool:
    """Return whether each iteration is like the one before it, while there is no cross traffic and nothing is lost."""
    steady = all(getattr(spec.workload.config, "jitter", None) is None for spec in plan.experiment.all_jobs())
    steady = steady and all(one.factors is None for one in how.computed.values())
    return steady and len(plan.jobs) == 1 and plan.simulated[0].pace == simulating.FREE and not plan.network.outages


def _shortened(plan: _Plan, window: WindowSpec, how: How, *, iterations: int, each_s: float) -> int:
    """Return how many iterations have no more than the most packets, as flows tell that share links without losses."""
    few = min(iterations, FEW)
    result, _, _ = _drawn_once(
        plan, window, how, number=0, iterations=few, grain="flows", until_s=2.0 * each_s * (WARMUP + few)
    )
    sent = traffic(plan.experiment, window, how, topology=plan.topology, until_s=result.duration_s)
    packets = _packets(plan, sent, few) / (WARMUP + few)
    return max(1, min(iterations, int((how.most_packets or 0) / packets) - WARMUP))


def _drawn_jobs(plan: _Plan, how: How, *, count: int, draw: np.random.Generator | None) -> Iterator[SimulatedJob]:
    """Yield the jobs; with the factors of compute times that the run of this salt draws, or as recorded ones vary.

    `draw` draws what no file says within its interval: compute times, and what iterations take beside all costs;
    without it both are the likeliest.
    """
    experiment = plan.experiment
    run = Draws(salt=how.salt).of_run(experiment.name, experiment.seed, how.repetition)
    for simulated, spec in zip(plan.simulated, experiment.all_jobs(), strict=True):
        config = spec.workload.config
        beside = how.beside.get(spec.name, _NOTHING)
        beside_s = beside.value if draw is None else draw.triangular(beside.low, beside.value, beside.high + 1e-12)
        one = replace(simulated, beside_s=beside_s)
        if spec.name in how.computed:
            yield replace(one, factors=how.computed[spec.name].drawn(one.graph.ranks, count, draw))
            continue
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


def _foreseen(
    one: SimulatedJob, workload: str, found: Sequence[Simulated], likeliest: Sequence[Simulated]
) -> ForeseenJob:
    def spread(statistic: Callable[[Floats], float]) -> Spread:
        drawn, alike = ([statistic(each.seconds[one.job.name]) for each in some] for some in (found, likeliest))
        return _spread(float(np.median(alike)), drawn)

    return ForeseenJob(
        job=one.job.name,
        workload=workload,
        mean=spread(lambda seconds: float(np.mean(seconds))),
        p50=spread(lambda seconds: float(np.percentile(seconds, 50))),
        p99=spread(lambda seconds: float(np.percentile(seconds, 99))),
        compute_s=one.graph.computed_s[0],
    )


def _spread(value: float, draws: Sequence[float]) -> Spread:
    """Return a value with the interval in which a run lies as often as INTERVAL says; one draw has none.

    Logarithms of draws are taken for normal, so that few draws have a wide interval (Student's t; Hahn, "Factors for
    calculating two-sided prediction intervals", JASA 1969). Both ends move by MODEL_ERROR.
    """
    count = len(draws)
    if count == 1:
        return Spread(value=value, interval=None)
    logs = np.log(draws)
    half = student_t((1 + INTERVAL) / 2, count - 1) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / count)
    middle = float(np.mean(logs))
    low, high = min(value, math.exp(middle - half)), max(value, math.exp(middle + half))
    return Spread(value=value, interval=(low / (1 + MODEL_ERROR), high * (1 + MODEL_ERROR)))


def _drawn(costs: Costs, draw: np.random.Generator) -> Rates:
    """Draw all costs: those that were fitted together as they go together, others within their own intervals.

    Those are log-normal, with the interval as that of 95 %.
    """

    def one(quantity: Quantity) -> float:
        if quantity.value <= 0.0 or quantity.low <= 0.0:
            return float(draw.triangular(quantity.low, quantity.value, max(quantity.high, quantity.low + 1e-30)))
        normal = float(draw.standard_normal())
        end = quantity.high if normal > 0 else quantity.low
        return quantity.value * math.exp(abs(normal) / 1.96 * math.log(end / quantity.value))

    found = {name: one(getattr(costs, name)) for name in Rates.__slots__}
    if costs.fits:
        by = math.exp(costs.scatter * float(draw.standard_normal()))
        fit = costs.fits[int(draw.integers(len(costs.fits)))]
        found |= {name: value if name == "link_factor" else by * value for name, value in fit.items()}
    return Rates(**found)


def traffic(experiment: Experiment, window: WindowSpec, how: How, *, topology: Topology, until_s: float) -> list[Sent]:
    """Return what the sources of a window send until `until_s`, in order: what a run of this salt sends.

    Times are as without dilation.
    """
    draws = Draws(salt=how.salt)
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
            seed=draws.of_source(experiment.name, experiment.seed, how.repetition, window=window.name, source=name),
        )
        part = cast("ForeseeableTraffic", registry.traffic(choice.name))
        sent: Iterator[Sent] = part.sent(dilated(choice.config, topology.dilation), source, topology)
        found += [_undilated(one, place, topology.dilation) for one in sent]
    return sorted(found, key=lambda one: one.at_s)


def _undilated(sent: Sent, place: int, dilation: int) -> Sent:
    """Return a message in undilated time, on a connection of its own source."""
    connection = sent.connection if sent.connection < 0 else sent.connection + (place << 20)
    return replace(sent, at_s=sent.at_s / dilation, connection=connection)


def _grain(plan: _Plan, sent: Sequence[Sent], iterations: int) -> Grain:
    """Return packets where there are few enough to simulate them all, else flows."""
    return "packets" if _packets(plan, sent, iterations) <= MOST_PACKETS else "flows"


def _packets(plan: _Plan, sent: Sequence[Sent], iterations: int) -> float:
    """Return about how many packets a window has."""
    training = sum(one.graph.sent for one in plan.simulated) * (iterations + WARMUP)
    return (training + sum(one.size for one in sent)) / plan.network.mss + len(sent)


def congestion_bps(points: Sequence[tuple[float, float]]) -> float:
    """Return the load at which an iteration takes CONGESTED times as long as at the lowest load; NaN where it does not.

    `points` are loads (bit/s) and mean iterations (s); between two of them the load is interpolated.
    """
    ordered = sorted(points)
    if not ordered:
        return math.nan
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
            "iterations": one.iterations,
            "links": dict(one.use),
            "jobs": [
                {
                    "job": job.job,
                    "workload": job.workload,
                    "mean_s": _told(job.mean),
                    "p50_s": _told(job.p50),
                    "p99_s": _told(job.p99),
                    "compute_s": job.compute_s,
                    "waiting_s": job.waiting_s,
                }
                for job in one.jobs
            ],
        }
        for one in found
    ]


def _told(spread: Spread) -> dict[str, float | None]:
    low, high = spread.interval or (None, None)
    return {"value": spread.value, "low": low, "high": high}
