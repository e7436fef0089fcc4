"""Options of jitter: iterations of emulated compute last as long, one after the other, as recorded ones did."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths.lookup import NamedFile
from orchestrator.parts.protocols import Problem
from workloads.common.placement import WorkloadConfig
from workloads.rank.lifecycle import Jittered

FEWEST, MOST = 20, 100_000  # recorded iterations
UNPREDICTED = "compute with jitter is drawn anew in each run; without `jitter` its mean is predicted"
LONGEST = 100.0  # times their mean
_ACCEPTED = (
    f"a file with {FEWEST} to {MOST} lines, each the seconds of an iteration's compute, or a line of a rank's "
    "iterations.jsonl, whose forward_s and backward_s count"
)


class JitteredConfig(WorkloadConfig):
    """Options of every workload whose compute may be emulated."""

    jitter: NamedFile | None = None
    """Emulated compute: file of recorded iterations, each a line with the seconds that it computed, or the
    `iterations.jsonl` of a rank of a run (forward and backward pass). Compute times vary as these do about their mean;
    stretches of consecutive ones, as many as the root of all in the mean, are drawn anew in each run. Leave out the
    recording's warm-up. Default: each iteration computes for exactly the same time."""

    jitter_ranks: Literal["own", "common"] = "own"
    """Whether each rank draws its own jitter, so that all wait for the slowest, or all have the same."""


class Emulating(Protocol):
    """A configuration with these options."""

    @property
    def jitter(self) -> Path | None: ...
    @property
    def jitter_ranks(self) -> Literal["own", "common"]: ...


def problems(config: Emulating, *, emulated: bool) -> list[Problem]:
    """Find jitter of real compute, and a file that is no recording."""
    if config.jitter is None:
        found = "drawn by no rank" if config.jitter_ranks != "own" else None
        return [] if found is None else [Problem(at=("jitter_ranks",), message=found, accepted="jitter beside it")]
    if not emulated:
        message = "real compute takes the time that it takes"
        return [Problem(at=("jitter",), message=message, accepted="no jitter, or compute: emulated")]
    try:
        _factors(config)
    except ConfigError as error:
        return [Problem(at=("jitter",), message=error.message, accepted=_ACCEPTED)]
    return []


def settings(config: Emulating, *, seed: int) -> Jittered:
    """Return the ranks' settings of jitter, none without it; the configuration must be without problems."""
    if config.jitter is None:
        return {}
    factors = _factors(config)
    common = config.jitter_ranks == "common"
    return {"jitter": {"factors": list(factors), "stretch": math.sqrt(len(factors)), "common": common, "seed": seed}}


def _factors(config: Emulating) -> tuple[float, ...]:
    path = config.jitter
    if path is None:
        raise AssertionError("no file is named")
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=8)
def _read(path: Path, _changed_ns: int) -> tuple[float, ...]:
    """Return recorded compute times over their mean; ConfigError for a file that has none."""
    times = []
    for number, seconds in enumerate(_seconds(path), start=1):
        if not (math.isfinite(seconds) and seconds > 0):
            raise ConfigError(f"{path}:{number}: no time of an iteration")
        if number > MOST:
            raise ConfigError(f"{path}: more than {MOST} lines")
        times.append(seconds)
    if len(times) < FEWEST:
        raise ConfigError(f"{path}: {len(times)} iterations are too few to draw from")
    mean = math.fsum(times) / len(times)
    if max(times) > LONGEST * mean:
        raise ConfigError(
            f"{path}: an iteration took {max(times) / mean:.3g} times the mean: none of a steady training"
        )
    return tuple(round(seconds / mean, 6) for seconds in times)


def _seconds(path: Path) -> Iterator[float]:
    """Yield the seconds of each line, NaN for a line that tells none."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                read: Any = json.loads(line)
                yield float(read["forward_s"] + read["backward_s"]) if isinstance(read, dict) else float(read)
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                yield math.nan
