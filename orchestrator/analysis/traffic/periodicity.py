"""Detect the iterations of a training in its traffic alone: period, sending and silence, bytes, messages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.statistics import CONFIDENCE, FEWEST, Estimate, student_t, summarise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STRONG = 0.3  # autocorrelation below which nothing is called periodic
BINS_A_PERIOD = 6  # fewer do not show one
BUSY = 0.05  # of the 99th percentile of the rate: what counts as sending
BATCHES = 30  # as Zerwas et al. take samples
_ALIKE = 0.8  # an earlier peak of about the height of the highest one is the period, the later ones its multiples
_FEWEST_BINS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The period of a series: `strength` is its autocorrelation at one period; NaN and weak without one."""

    period_s: float
    strength: float

    @property
    def found(self) -> bool:
        return self.strength >= STRONG and not math.isnan(self.period_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """Iterations detected in traffic.

    `starts_ns`: when sending begins after each one's longest silence, empty when the traffic never pauses; `duty`:
    share of the time in which anything is sent; `amount`: bytes an iteration, with its confidence interval.
    """

    period: Period
    starts_ns: Ints
    seconds: Floats  # between starts
    on_s: float  # mean length of what is sent without a pause longer than a bin
    duty: float
    amount: Estimate


def autocorrelation(values: npt.ArrayLike, most: int) -> Floats:
    """Return the autocorrelation of a series at lags 0 to `most`, each over the pairs there are (unbiased)."""
    series = np.asarray(values, np.float64)
    centred = series - series.mean()
    size = 1 << (2 * len(centred) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(spectrum, size)[: most + 1] / np.arange(len(centred), len(centred) - most - 1, -1)
    return covariance / covariance[0] if covariance[0] > 0 else np.zeros(most + 1)


def period(values: npt.ArrayLike, width_s: float) -> Period:
    """Return the period of a series in bins of `width_s`, of at most a third of its length.

    Iterations are not equally long, which blurs a fine series, and a coarse one hides short periods: so bins are
    joined step by step, and the resolution that repeats itself best counts.
    """
    series = np.asarray(values, np.float64)
    best = Period(period_s=math.nan, strength=0.0)
    join = 1
    while len(series) // join >= _FEWEST_BINS:
        joined = series[: len(series) // join * join].reshape(-1, join).sum(axis=1)
        lag, strength = _peak(joined)
        chance = 4 / math.sqrt(max(1.0, len(joined) - lag)) if lag > 0 else math.inf  # four standard errors of noise
        # A coarser series must repeat itself clearly better to replace a finer one.
        if lag >= BINS_A_PERIOD and strength > max(best.strength + 0.02, chance):
            best = Period(period_s=lag * join * width_s, strength=strength)
        join *= 2
    return best


def _peak(series: Floats) -> tuple[float, float]:
    """Return lag, between bins, and height of the first peak of the autocorrelation about as high as the highest."""
    most = len(series) // 3
    if most < BINS_A_PERIOD or np.ptp(series) == 0:
        return math.nan, 0.0
    r = autocorrelation(series, most)
    fallen = np.flatnonzero(r < 0.5 * STRONG)
    if not len(fallen):
        return math.nan, 0.0
    inner = np.arange(max(1, int(fallen[0])), most)
    peaks = inner[(r[inner] >= r[inner - 1]) & (r[inner] > r[inner + 1])]
    if not len(peaks) or r[peaks].max() <= 0:
        return math.nan, 0.0
    lag = int(peaks[np.argmax(r[peaks] >= _ALIKE * r[peaks].max())])
    # The highest one within reach, since noise makes several peaks out of one.
    reach = slice(max(1, round(0.85 * lag)), min(most, round(1.15 * lag)) + 1)
    lag = reach.start + int(np.argmax(r[reach]))
    return _between(r, lag), float(r[lag])


def _between(r: Floats, lag: int) -> float:
    """Return the top of the parabola through a peak and its neighbours."""
    if not 0 < lag < len(r) - 1:
        return float(lag)
    left, top, right = r[lag - 1 : lag + 2]
    bend = left - 2 * top + right
    return float(lag) + (0.5 * float(left - right) / float(bend) if bend < 0 else 0.0)


def busy(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return a mask of the bins that carry more than `BUSY` of what a full one does."""
    series = np.asarray(values, np.float64)
    if not (series > 0).any():
        return np.zeros(len(series), bool)
    return series > BUSY * float(np.percentile(series[series > 0], 99))


def runs_of(flags: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return first places and places behind the end of every stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return edges[::2].astype(np.int64), edges[1::2].astype(np.int64)


def iterations(values: npt.ArrayLike, *, begin_ns: int, width_ns: int) -> Iterations:
    """Detect iterations in a series of bytes in bins from `begin_ns` on."""
    series = np.asarray(values, np.float64)
    found = period(series, width_ns / 1e9)
    sending = busy(series)
    starts, ends = runs_of(sending)
    on_s = float(np.mean(ends - starts)) * width_ns / 1e9 if len(starts) else math.nan
    cuts = _cuts(starts, ends, found, len(series), width_ns) if found.found else np.zeros(0, np.int64)
    if len(cuts) >= 3:
        amounts = np.add.reduceat(series, cuts)[:-1]
        amount = summarise(amounts, fewest_of_mean=FEWEST).mean
    elif found.found:
        bins = max(1, round(found.period_s * 1e9 / width_ns))
        whole = series[: len(series) // bins * bins].reshape(-1, bins).sum(axis=1)
        amount = summarise(whole, fewest_of_mean=FEWEST).mean
    else:
        amount = Estimate(math.nan, math.nan, math.nan)
    return Iterations(
        period=found,
        starts_ns=begin_ns + cuts * width_ns,
        seconds=np.diff(cuts) * width_ns / 1e9,
        on_s=on_s,
        duty=float(sending.mean()) if len(series) else math.nan,
        amount=amount,
    )


def _cuts(starts: Ints, ends: Ints, found: Period, bins: int, width_ns: int) -> Ints:
    """Return the bins where iterations begin: behind the longest silences, about a period apart; else none.

    The silence while the first layers compute is the longest of an iteration. When far fewer are found than there are
    periods, sending and computing overlap all the time, and nothing marks where one iteration ends.
    """
    lag = found.period_s * 1e9 / width_ns
    gaps = starts - np.concatenate(([0], ends[:-1]))  # the first one may have begun before the series
    taken: list[int] = []
    for place in np.argsort(-gaps, kind="stable"):
        at = int(starts[place])
        if gaps[place] >= max(1.0, 0.02 * lag) and all(abs(at - other) >= 0.6 * lag for other in taken):
            taken.append(at)
    if len(taken) < 0.7 * bins / lag - 1:
        return np.zeros(0, np.int64)
    return np.array(sorted(taken), np.int64)


def messages(flow: Ints, start_ns: Ints, payload: npt.ArrayLike, *, pause_ns: int) -> Floats:
    """Return the bytes that flows sent without a pause of `pause_ns` or more, a value a stretch; bins in any order."""
    amount = np.asarray(payload, np.float64)
    keep = amount > 0
    flow, start_ns, amount = flow[keep], start_ns[keep], amount[keep]
    if not len(amount):
        return np.zeros(0)
    order = np.lexsort((start_ns, flow))
    flow, start_ns, amount = flow[order], start_ns[order], amount[order]
    fresh = np.concatenate(([True], (np.diff(flow) != 0) | (np.diff(start_ns) > pause_ns)))
    sums: Floats = np.add.reduceat(amount, np.flatnonzero(fresh))
    return sums


def batch_means(values: npt.ArrayLike, *, longest_cycle: int = 1) -> Estimate:
    """Estimate the mean of a correlated series with the interval of batch means (Law and Kelton, section 9.5.3).

    Up to `BATCHES` batches, as in tables I and II of Zerwas et al., each of at least three of the series' longest
    cycles (in values), so that batches are about independent; no interval below `FEWEST` batches.
    """
    series = np.asarray(values, np.float64)
    if not len(series):
        return Estimate(math.nan, math.nan, math.nan)
    batches = min(BATCHES, len(series) // max(1, 3 * longest_cycle))
    mean = float(series.mean())
    if batches < FEWEST:
        return Estimate(mean, math.nan, math.nan)
    means = series[: len(series) // batches * batches].reshape(batches, -1).mean(axis=1)
    half = student_t((1 + CONFIDENCE) / 2, batches - 1) * float(means.std(ddof=1)) / math.sqrt(batches)
    return Estimate(mean, mean - half, mean + half)
