"""A generative model of a training's traffic: fitted to its captured iterations, and drawn again as often as wanted.

What hosts send in an iteration is cut into slices of equally many bytes, about as much as a millisecond carries while
the training sends. When each slice has been sent says everything of an iteration: long waits are computing, short ones
the pace of a burst. Bursts lie at the same bytes in every iteration, however long its computing takes, so that waits
can be compared slice by slice, as quantile functions are (Panaretos and Zemel, An Invitation to Statistics in
Wasserstein Space, 2020, chapter 4). Hosts that train in step have one clock, so that their files stay in step.

- *Period*: its quantiles as measured; its normal scores are an autoregression (Yule-Walker) whose order minimises BIC.
- *Waits*: each one's quantiles as measured; normal scores have the measured correlations among waits and with the
  period (a Gaussian copula: Nelsen, An Introduction to Copulas, 2006). What is missing to the drawn period goes to
  waits that are longer than a slice takes, so that bursts keep their pace.
- *Receivers*: which hosts send how much of each slice to whom, as in an iteration drawn at random from those measured.

Bytes are TCP payload at full size, and times are undilated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import traffic
from orchestrator.analysis.traffic.periodicity import Floats, Ints, autocorrelation, runs_of
from orchestrator.analysis.traffic.traffic import Traffic
from orchestrator.core.errors import ConfigError

FORMAT = 1
FEWEST = 10  # iterations, below which nothing is fitted
SHARE = 0.99  # of the payload, that the pairs of hosts which are fitted carry
IN_STEP = 1 / 3  # of a period: hosts keep within it to how far apart they begin, in three of four iterations at least
PHASES = 20  # of an iteration, by which a pair's clock is told where there are several
MOST_SLICES = 400
FEWEST_SLICES = 8
PAUSE = 4.0  # times what a slice takes: a wait that ends a burst, and is at least this long:
PAUSE_S = 0.002
MOST_ORDER = 5
MOST_FLOWS = 10_000_000
DIGITS = 9  # of seconds: a model that was written draws the same as the one that was fitted

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Pair:
    """A host that sends over a rail, and the host that receives."""

    src: str
    dst: str
    rail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A stretch of sending in an iteration: its bytes, when it begins and how long it takes (mean, deviation)."""

    bytes: float
    at_s: float
    at_sd_s: float
    takes_s: float
    takes_sd_s: float


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Iterations of hosts that train in step.

    `waits` (iterations, slices + 1) is the time from one slice's end to the next one's, and last that to the end of the
    iteration; `split` (iterations, slices, pairs) has the bytes of each; `slice_s` is what a slice takes in a burst.
    """

    pairs: tuple[Pair, ...]
    waits: Floats
    split: Ints
    slice_s: float

    @property
    def seconds(self) -> Floats:
        """How long each iteration took."""
        return np.asarray(self.waits.sum(axis=1))

    @property
    def sending(self) -> float:
        """The share of the time in which something is sent."""
        return float(np.minimum(self.waits[:, :-1], self.slice_s).sum() / self.waits.sum())

    def bursts(self) -> tuple[Burst, ...]:
        """Return the bursts of an iteration, told apart by waits that are long in most iterations."""
        ends = self.waits.cumsum(axis=1)
        pause = np.median(self.waits[:, :-1], axis=0) > max(PAUSE_S, PAUSE * self.slice_s)
        first = np.flatnonzero(pause | (np.arange(len(pause)) == 0))
        last = np.append(first[1:] - 1, len(pause) - 1)
        amounts = self.split.sum(axis=2)
        found = []
        for begin, end in zip(first, last, strict=True):
            starts = ends[:, begin] - np.minimum(self.waits[:, begin], self.slice_s)
            takes = ends[:, end] - starts
            found.append(
                Burst(
                    bytes=float(amounts[:, begin : end + 1].sum(axis=1).mean()),
                    at_s=float(starts.mean()),
                    at_sd_s=float(starts.std(ddof=1)),
                    takes_s=float(takes.mean()),
                    takes_sd_s=float(takes.std(ddof=1)),
                )
            )
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What was fitted, and of which run, window and job; `share` of the job's payload is carried by its pairs."""

    run: str
    window: str
    job: str
    share: float
    clocks: tuple[Clock, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(pair for clock in self.clocks for pair in clock.pairs)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that a host sends at once."""

    start_s: float
    size: int
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Begins:
    """When the iterations of one rank begin on its host, and when the last one ends, in nanoseconds."""

    node: str
    start_ns: Ints
    end_ns: int


def begins(iterations: Any, *, job: str, span_ns: tuple[int, int]) -> tuple[Begins, ...]:
    """Return when iterations of each rank of a job began in a span, from the table `iterations` (pyarrow)."""
    import pyarrow.compute as pc

    mine = iterations.filter(pc.equal(iterations["job"], job)).sort_by(
        [("rank", "ascending"), ("start_ns", "ascending")]
    )
    rank, start_ns, end_ns = (np.asarray(mine[name].to_numpy(), np.int64) for name in ("rank", "start_ns", "end_ns"))
    node = mine["node"].to_pylist()
    inside = (start_ns >= span_ns[0]) & (start_ns < span_ns[1])
    found = []
    for one in np.unique(rank[inside]).tolist():
        places = np.flatnonzero(inside & (rank == one))
        found.append(Begins(node=node[places[0]], start_ns=start_ns[places], end_ns=int(end_ns[places[-1]])))
    return tuple(found)


def fit(found: Traffic, ranks: Sequence[Begins], *, run: str, window: str, job: str, scale: int = 1) -> Model:
    """Return the model of one job's traffic; `ranks` hold the iterations of a window, those of rank 0 first.

    `found` is the traffic of the whole run, its times undilated as in the run's tables. ConfigError where there is too
    little to fit.
    """
    at = f"{run}, window {window}, job {job}"
    ranks = [rank for rank in ranks if len(rank.start_ns) >= 2]
    fewest = min((len(rank.start_ns) for rank in ranks), default=0)
    if fewest < FEWEST + 1:
        raise ConfigError(
            f"{at}: {fewest} iterations in the window; a model needs {FEWEST + 1}", hint="measure more iterations"
        )
    begin, end = (min(int(rank.start_ns[0]) for rank in ranks), max(rank.end_ns for rank in ranks))
    part = traffic.within(found, begin, end)
    pairs, share = _pairs(part, job)
    if not pairs:
        raise ConfigError(f"{at}: hosts sent each other nothing in the window")
    series = {pair: traffic.series(part, flows, payload=True) * scale for pair, flows in pairs.items()}
    clocks = []
    for place, mine in _clocks(part, ranks, series).items():
        together = np.array([series[pair] for pair in mine])
        clocks.append(_clock(together, _bins(part, ranks[place]), mine, part.width_ns / 1e9, at))
    return Model(run=run, window=window, job=job, share=share, clocks=tuple(clocks))


def _pairs(part: Traffic, job: str) -> tuple[dict[Pair, traffic.Mask], float]:
    """Return the flows of the fewest pairs of hosts that carry `SHARE` of a job's payload, and what they carry."""
    rail = np.zeros(len(part), np.int64) if part.rail is None else part.rail
    mine = traffic.of_job(part, job) & (part.src != part.dst)
    masks = {
        Pair(part.hosts[src], part.hosts[dst], int(number)): mine
        & (part.src == src)
        & (part.dst == dst)
        & (rail == number)
        for src, dst, number in sorted(set(zip(part.src[mine], part.dst[mine], rail[mine], strict=True)))
    }
    carried = {pair: float(part.payload_bytes[mask].sum()) for pair, mask in masks.items()}
    total = sum(carried.values())
    chosen: list[Pair] = []
    for pair in sorted(carried, key=lambda one: -carried[one]):
        if sum(carried[one] for one in chosen) < SHARE * total:
            chosen.append(pair)
    share = sum(carried[one] for one in chosen) / total if total else 0.0
    return {pair: masks[pair] for pair in masks if pair in chosen}, share


def _clocks(part: Traffic, ranks: Sequence[Begins], pairs: Mapping[Pair, Floats]) -> dict[int, tuple[Pair, ...]]:
    """Return the pairs of hosts that follow each clock, by the place of a rank whose iterations it is.

    One clock is of all hosts in step; else a pair follows that of its two ends to which its bytes keep better, since
    some send when they have something and others when they are asked.
    """
    first = ranks[0].start_ns
    period = float(np.diff(first).mean())

    def in_step(rank: Begins) -> bool:
        count = min(len(first), len(rank.start_ns))
        behind = rank.start_ns[:count] - first[:count]
        return float(np.quantile(np.abs(behind - np.median(behind)), 0.75)) < IN_STEP * period

    if all(in_step(rank) for rank in ranks):
        return {0: tuple(pairs)}
    of_node = {rank.node: place for place, rank in reversed(list(enumerate(ranks)))}
    follows: dict[int, tuple[Pair, ...]] = {}
    for pair, series in pairs.items():
        ends = [of_node[node] for node in (pair.src, pair.dst) if node in of_node] or [0]
        place = max(ends, key=lambda end: _kept(series, _bins(part, ranks[end])))
        follows[place] = (*follows.get(place, ()), pair)
    return dict(sorted(follows.items()))


def _bins(part: Traffic, rank: Begins) -> Floats:
    """Return when a rank's iterations begin, in bins of a traffic."""
    return np.asarray((rank.start_ns - part.begin_ns) / part.width_ns)


def _kept(series: Floats, starts: Floats) -> float:
    """Return how well bytes keep to phases of iterations: the deviation of their sums in each phase over the mean."""
    middle = np.arange(len(series)) + 0.5
    number = np.searchsorted(starts, middle, side="right") - 1
    inside = (number >= 0) & (number < len(starts) - 1)
    number = number[inside]
    phase = (middle[inside] - starts[number]) / np.diff(starts)[number]
    sums = np.bincount(np.minimum((phase * PHASES).astype(np.int64), PHASES - 1), series[inside], PHASES)
    return float(sums.std() / sums.mean()) if sums.mean() > 0 else 0.0


def _clock(series: Floats, starts: Floats, pairs: tuple[Pair, ...], width_s: float, at: str) -> Clock:
    """Fit one clock: `series` (pairs, bins) in bytes, `starts` of its iterations in bins."""
    total = series.sum(axis=0)
    cuts = _cuts(total, starts)
    if len(cuts) < FEWEST + 1:
        raise ConfigError(
            f"{at}: {max(0, len(cuts) - 1)} whole iterations of {pairs[0].src}; a model needs {FEWEST}",
            hint="measure more iterations",
        )
    edges = np.arange(len(total) + 1.0)
    sums = np.concatenate((np.zeros((len(pairs), 1)), series.cumsum(axis=1)), axis=1)
    whole = sums.sum(axis=0)
    silent = np.diff(np.interp(cuts, edges, whole)) <= 0
    if silent.sum() > len(silent) / 2:
        raise ConfigError(f"{at}: {pairs[0].src} sends in fewer than half of its iterations", hint="a longer window")
    busy = total > 0.05 * float(np.percentile(total[total > 0], 99))
    per_iteration = float(busy.sum()) / max(1e-9, len(total) / float(np.diff(cuts).mean()))
    slices = int(min(MOST_SLICES, max(FEWEST_SLICES, round(per_iteration))))
    waits, split = [], []
    for begin, end in pairwise(cuts):
        low, high = np.interp([begin, end], edges, whole)
        ends = np.clip(_reached(low + (high - low) * np.arange(1, slices + 1) / slices, edges, whole), begin, end)
        waits.append(np.diff(np.concatenate(([begin], ends, [end]))) * width_s)
        places = np.concatenate(([begin], ends[:-1], [end]))
        at_ends = np.array([np.interp(places, edges, one) for one in sums])
        split.append(np.diff(np.rint(at_ends), axis=1).T)
    found = np.array(waits)
    # Of an iteration in which nothing is sent the waits do not matter, but for their sum.
    found[silent] = np.outer(found[silent].sum(axis=1), found[~silent].sum(axis=0) / found[~silent].sum())
    found = np.round(found, DIGITS)
    # The usual wait in a burst: half of the slices wait no longer, pauses are the few that do.
    slice_s = float(np.median(found[:, :-1]))
    return Clock(pairs=pairs, waits=found, split=np.array(split, np.int64), slice_s=slice_s)


def _reached(amounts: Floats, edges: Floats, sums: Floats) -> Floats:
    """Return when a sum first reaches each amount, along straight lines between edges."""
    slack = 1e-9 * max(1.0, float(sums[-1]))
    right = np.clip(np.searchsorted(sums, amounts - slack, side="left"), 1, len(sums) - 1)
    below, above = sums[right - 1], sums[right]
    inside = np.clip((amounts - below) / np.where(above > below, above - below, 1.0), 0.0, 1.0)
    return np.asarray(edges[right - 1] + inside * (edges[right] - edges[right - 1]))


def _cuts(total: Floats, starts: Floats) -> Floats:
    """Return where iterations are cut, in bins: in the middle of the longest silence that they have in common.

    One host's iteration begins while another one still sends what belongs to the last; in the silence nobody does.
    """
    shortest = int(np.diff(starts).min())
    profile = np.zeros(max(1, shortest))
    for start in np.floor(starts).astype(np.int64):
        window = total[start : start + len(profile)]
        profile[: len(window)] += window
    quiet = profile <= 0.02 * profile.max() if profile.max() > 0 else np.ones(len(profile), bool)
    begins, ends = runs_of(quiet)
    if len(begins):
        longest = int(np.argmax(ends - begins))
        shift = (begins[longest] + ends[longest]) / 2
    else:
        shift = float(np.argmin(profile))
    cuts = starts + shift
    return np.asarray(cuts[cuts <= len(total)])


def draw(model: Model, iterations: int, seed: int) -> tuple[tuple[Chunk, ...], float]:
    """Return chunks of so many drawn iterations of each clock, in the order of their starts, and how long they take.

    Clocks that are not in step take differently long for as many iterations: what lies behind the first that ends is
    left out.
    """
    return _laid_out(
        model, [_drawn(clock, iterations, np.random.default_rng([seed, n])) for n, clock in enumerate(model.clocks)]
    )


def recorded(model: Model) -> tuple[tuple[Chunk, ...], float]:
    """Return chunks of the iterations as they were measured, as `draw` does."""
    return _laid_out(model, [(clock.waits, np.arange(len(clock.waits))) for clock in model.clocks])


def _laid_out(model: Model, drawn: Sequence[tuple[Floats, Ints]]) -> tuple[tuple[Chunk, ...], float]:
    length = min(float(waits.sum()) for waits, _ in drawn)
    parts = [_chunks(clock, *one) for clock, one in zip(model.clocks, drawn, strict=True)]
    chunks = sorted((chunk for part in parts for chunk in part), key=lambda chunk: chunk.start_s)
    return tuple(chunk for chunk in chunks if chunk.start_s < length), length


def _chunks(clock: Clock, waits: Floats, splits: Ints) -> Iterator[Chunk]:
    """Yield what hosts send: a slice at the end of its wait, as late as it can begin at the pace of a burst."""
    ends = waits.ravel().cumsum().reshape(waits.shape)
    starts = ends[:, :-1] - np.minimum(waits[:, :-1], clock.slice_s)
    for row, iteration in zip(starts, splits, strict=True):
        amounts = clock.split[iteration]
        for start, sizes in zip(row.tolist(), amounts.tolist(), strict=True):
            for pair, size in zip(clock.pairs, sizes, strict=True):
                if size > 0:
                    yield Chunk(max(0.0, start), size, pair)


def _drawn(clock: Clock, count: int, random: np.random.Generator) -> tuple[Floats, Ints]:
    """Draw iterations: their waits, and the measured iteration whose split each has."""
    seconds, waits = clock.seconds, clock.waits
    if count * waits.shape[1] * len(clock.pairs) > MOST_FLOWS:
        raise ConfigError(
            f"--iterations {count}: more than {MOST_FLOWS:,} flows",
            hint=f"at most {MOST_FLOWS // (waits.shape[1] * len(clock.pairs)):,}",
        )
    score = _scores(seconds[:, None])[:, 0]
    scores = _scores(waits)
    along = scores.T @ score / float(score @ score)
    rest = scores - np.outer(score, along)
    period = _autoregression(*order_of(score), count, random)
    # Normal combinations of the rows have the rows' own covariances.
    free = random.standard_normal((count, len(rest))) @ rest / math.sqrt(len(rest))
    found = _quantiles(waits, np.outer(period, along) + free)
    wanted = _quantiles(seconds[:, None], period[:, None])[:, 0]
    pace = np.minimum(found, clock.slice_s)
    longer = found - pace
    missing = wanted - pace.sum(axis=1)
    room = longer.sum(axis=1)
    stretch = np.where((room > 0) & (missing > 0), missing / np.where(room > 0, room, 1.0), 0.0)
    made = pace + longer * stretch[:, None]
    return made * (wanted / made.sum(axis=1))[:, None], random.integers(0, len(waits), count)


def _scores(values: Floats) -> Floats:
    """Return normal scores by column: what a normal value of the same rank is; equal values share their mean rank."""
    count = len(values)
    normal = np.array([_NORMAL.inv_cdf((place + 0.5) / count) for place in range(count)])
    normal /= normal.std()
    found = np.empty(values.shape)
    for column, one in enumerate(values.T):
        _, same = np.unique(one, return_inverse=True)
        ordered = normal[np.argsort(np.argsort(one, kind="stable"))]
        found[:, column] = (np.bincount(same, ordered) / np.bincount(same))[same]
    return found


def _quantiles(values: Floats, scores: Floats) -> Floats:
    """Return the quantiles of each column at normal scores, straight between measured values: its mean is theirs."""
    count = len(values)
    places = (np.arange(count) + 0.5) / count
    shares = np.array([_NORMAL.cdf(one) for one in scores.ravel().tolist()]).reshape(scores.shape)
    ordered = np.sort(values, axis=0)
    return np.stack([np.interp(shares[:, n], places, ordered[:, n]) for n in range(values.shape[1])], axis=1)


def order_of(score: Floats) -> tuple[Floats, float]:
    """Return coefficients of the autoregression with the least BIC, and the deviation of its innovations."""
    count = len(score)
    most = min(MOST_ORDER, count // 10)
    lags = autocorrelation(score, most) if most else np.ones(1)
    lags = lags * (1 - np.arange(len(lags)) / count)  # the biased estimate is one of a stationary series
    best: tuple[float, Floats, float] = (0.0, np.zeros(0), 1.0)
    for order in range(1, most + 1):
        matrix = lags[np.abs(np.subtract.outer(np.arange(order), np.arange(order)))]
        weights = np.asarray(np.linalg.solve(matrix, lags[1 : order + 1]), np.float64)
        left = float(1 - weights @ lags[1 : order + 1])
        if left <= 0:
            break
        criterion = count * math.log(left) + math.log(count) * order
        if criterion < best[0]:
            best = (criterion, weights, math.sqrt(left))
    return best[1], best[2]


def _autoregression(weights: Floats, deviation: float, count: int, random: np.random.Generator) -> Floats:
    """Draw a stationary series of unit variance."""
    before = 20 * len(weights)
    values = random.standard_normal(before + count) * deviation
    for place in range(len(weights), len(values)):
        values[place] += float(weights @ values[place - len(weights) : place][::-1])
    return values[before:]


def parameters(model: Model) -> dict[str, Any]:
    """Return the parameters that tell a model: of each clock period, order, bursts, sending, receivers."""
    return {
        "run": model.run,
        "window": model.window,
        "job": model.job,
        "payload_share": model.share,
        "in_step": len(model.clocks) == 1,
        "clocks": [_told(clock) for clock in model.clocks],
    }


def _told(clock: Clock) -> dict[str, Any]:
    seconds = clock.seconds
    amounts = clock.split.sum(axis=1)
    iteration = amounts.sum(axis=1)
    weights, _ = order_of(_scores(seconds[:, None])[:, 0])
    low, median, high = np.quantile(seconds, (0.05, 0.5, 0.95)).tolist()
    return {
        "iterations": len(seconds),
        "period_s": {
            "mean": float(seconds.mean()),
            "deviation": float(seconds.std(ddof=1)),
            "p5": low,
            "p50": median,
            "p95": high,
            "autocorrelation": autocorrelation(seconds, 3)[1:].tolist(),
            "autoregression": weights.tolist(),
        },
        "bytes": {"mean": float(iteration.mean()), "deviation": float(iteration.std(ddof=1))},
        "sending": clock.sending,
        "slices": clock.waits.shape[1] - 1,
        "slice_s": clock.slice_s,
        "bursts": [asdict(burst) for burst in clock.bursts()],
        "pairs": [
            {**asdict(pair), "bytes": float(mine.mean()), "deviation": float(mine.std(ddof=1))}
            for pair, mine in zip(clock.pairs, amounts.T, strict=True)
        ],
    }


def as_data(model: Model) -> dict[str, Any]:
    """Return a model as data for JSON: its parameters, and what it is drawn from."""
    return {
        "orch_traffic_model": FORMAT,
        **parameters(model),
        "drawn_from": [
            {"waits_s": clock.waits.tolist(), "split_bytes": clock.split.tolist()} for clock in model.clocks
        ],
    }


def from_data(data: Mapping[str, Any], *, at: str) -> Model:
    """Return the model of such data; ConfigError where it is none."""
    try:
        if data["orch_traffic_model"] != FORMAT:
            raise ConfigError(f"{at}: a model of format {data['orch_traffic_model']}; accepted: {FORMAT}")
        clocks = tuple(_read(told, drawn) for told, drawn in zip(data["clocks"], data["drawn_from"], strict=True))
        texts = {name: str(data[name]) for name in ("run", "window", "job")}
        share = float(data["payload_share"])
    except (KeyError, TypeError, ValueError, OverflowError):
        clocks, texts, share = (), {}, math.nan
    if not clocks:
        raise ConfigError(f"{at}: no model of traffic", hint="the model.json that `orch traffic fit` wrote")
    return Model(**texts, share=share, clocks=clocks)


def _read(told: Mapping[str, Any], drawn: Mapping[str, Any]) -> Clock:
    pairs = tuple(Pair(str(one["src"]), str(one["dst"]), int(one["rail"])) for one in told["pairs"])
    waits = np.asarray(drawn["waits_s"], np.float64)
    split = np.asarray(drawn["split_bytes"], np.int64)
    slice_s = float(told["slice_s"])
    if waits.ndim != 2 or split.shape != (len(waits), waits.shape[1] - 1, len(pairs)) or len(waits) < 2:
        raise ValueError
    good = np.isfinite(waits).all() and (waits >= 0).all() and (waits.sum(axis=1) > 0).all() and (split >= 0).all()
    if not good or not 0 < slice_s < math.inf:
        raise ValueError
    return Clock(pairs=pairs, waits=waits, split=split, slice_s=slice_s)
