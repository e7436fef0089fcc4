"""Name the causes of a window's iteration times: parts that sum to them, and findings with place, share and evidence.

Nothing here reads what an experiment was set to: conditions, loads and jobs count by what was measured of them. Limits
were chosen on runs of planted causes and tried on others (`python -m tests.bench causes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes import passes as passed
from orchestrator.analysis.causes import ports as measured
from orchestrator.analysis.causes.evidence import Cost, Evidence, Source, gathered
from orchestrator.analysis.causes.explanation import LEAST_SHARE, UNSEEN, Explanation, Finding, Part
from orchestrator.analysis.causes.idle_links import of_failed_links, on_idle_links
from orchestrator.analysis.causes.ports import STEP_NS
from orchestrator.analysis.causes.queues import at_queues
from orchestrator.analysis.causes.ranks import of_processors, of_ranks
from orchestrator.store.manifests.records import Window
from orchestrator.store.manifests.summaries import Job

Floats = npt.NDArray[np.float64]

RARE = (
    "stall",
    "slow-disk",
    "loss",
    "link-down",
)  # happened, however rarely: an interval down to nothing is of how often they come back
SLOWED = frozenset({"slow-rank", "jittery-rank", "slow-step"})  # of ranks that compute longer
SURE = 1.5  # times as strong must the first candidate be as the second, to be named alone
_Z = 1.96

TELLS: Mapping[str, str] = {  # of causes that show while links are idle: what has the evidence
    "loss": "tcpdump (payload sent again) and tcp (time-outs)",
    "delay": "tcp (least round-trip time)",
    "receive-window": "tcp (time limited by the receiver's window)",
    "slow-reader": "tcp (payload that the receiver leaves unread)",
    "send-buffer": "tcp (time limited by the sender's buffer)",
    "small-queue": "qdisc (backlogs and drops)",
}


def explanations(run: Source, *, iteration: int | None = None) -> Iterator[Explanation]:
    """Yield an explanation for each job of each window that logged iterations.

    With `iteration`, a number in the job, those that have it are explained by that iteration alone.
    """
    for window in run.manifest.windows:
        yield from of_window(run, window, iteration=iteration)


def of_window(run: Source, window: Window, *, iteration: int | None = None) -> Iterator[Explanation]:
    """Yield an explanation for each job of a window, likewise; the window's processors have been judged."""
    for job in run.manifest.jobs:
        if job.name in window.iterations:
            found = explain(run, window, job, iteration=iteration)
            if found is not None:
                yield found


def explain(run: Source, window: Window, job: Job, *, iteration: int | None = None) -> Explanation | None:
    """Explain the iterations of a job in a window, or one of them; None where nothing of it is logged."""
    found = passed.passes(run.table("iterations"), run.table("spans"), job, window.iterations[job.name])
    if found is None or (iteration is not None and iteration not in found.iteration):
        return None
    whole = len(found.iteration)
    most_s = measured.MOST_VALUES // max(1, len(run.manifest.topology.links)) * STEP_NS / 1e9
    found = passed.within(found, most_s, until=iteration)
    bare = gathered(run, window, job, found, passed.split(found))
    queued, full = at_queues(bare)
    seen = replace(bare, full=full)
    evidence = replace(seen, idle=np.clip(seen.split.network - seen.seconds(seen.used()), 0, None))
    costs = [
        *of_failed_links(evidence),
        *queued,
        *on_idle_links(evidence),
        *(_by_processors(evidence, cost) for cost in of_ranks(evidence)),
        *of_processors(evidence),
    ]
    chosen = np.ones(len(found.iteration), bool) if iteration is None else found.iteration == iteration
    return _explained(run.manifest.run, window, evidence, costs, chosen, whole=whole)


def _explained(
    run: str, window: Window, evidence: Evidence, costs: Sequence[Cost], chosen: npt.NDArray[np.bool_], *, whole: int
) -> Explanation:
    """Return the explanation of these iterations: what several causes claim is given to the strongest first."""
    split = evidence.split
    left = {"network": split.network.copy(), "computing": split.behind.sum(axis=0) + split.held.sum(axis=0)}
    left["passes"] = split.computing - np.minimum(split.computing, np.quantile(split.computing, 0.05))
    named: list[tuple[Cost, Floats]] = []
    for cost in sorted(costs, key=_order):
        pools = ("network", "computing", "passes") if cost.of == "both" else (cost.of,)
        wanted, given = cost.seconds.copy(), np.zeros_like(cost.seconds)
        for pool in pools:
            taken = np.minimum(wanted, left[pool])
            left[pool] -= taken
            wanted -= taken
            given += taken
        named.append((cost, given))
    named = _together(named)
    total = split.total[chosen]
    findings = [
        finding
        for cost, given in named
        if (finding := _finding(cost, given[chosen], total)).share >= LEAST_SHARE
        and (finding.low > 0 or finding.cause in RARE)
    ]
    usual = np.minimum(split.computing, np.quantile(split.computing, 0.05))
    sending = np.minimum(left["network"], evidence.seconds(evidence.used()))
    parts = {
        "computing": usual + left["passes"],
        "between iterations": split.between,
        "waiting for ranks that are out of step": left["computing"],
        "sending at the links' rates": sending,
        UNSEEN: left["network"] - sending,
        **{f"{cost.cause}: {cost.place}": given for cost, given in named},
    }
    mean = float(total.mean())
    return Explanation(
        run=run,
        window=window.name,
        job=evidence.job.name,
        iterations=tuple(int(number) for number in evidence.passes.iteration[chosen]),
        measured=whole,
        mean_s=mean,
        noise=_half_width(total, total),
        parts=tuple(
            Part(name=name, seconds=float(values[chosen].mean()), share=float(values[chosen].mean()) / mean)
            for name, values in parts.items()
        ),
        findings=tuple(sorted(findings, key=lambda one: -one.share)),
        undecided=_undecided(named),
        missing=evidence.missing(),
    )


def _by_processors(evidence: Evidence, cost: Cost) -> Cost:
    """Return the cost of a rank that computes longer as one of its host's processors, where threads wait for these."""
    crowded = evidence.crowded(cost.hosts[0]) if cost.cause in SLOWED else ()
    if not crowded:
        return cost
    return replace(cost, cause="processor", place=cost.hosts[0], evidence=(*crowded, *cost.evidence))


def _together(named: Sequence[tuple[Cost, Floats]]) -> list[tuple[Cost, Floats]]:
    """Return costs of the same cause and place as one, with all that tells of it."""
    found: dict[tuple[str, str], tuple[Cost, Floats]] = {}
    for cost, given in named:
        key = cost.cause, cost.place
        if key in found:
            before, sum_of = found[key]
            evidence = tuple(dict.fromkeys((*before.evidence, *cost.evidence)))
            strength = max(before.strength, cost.strength)
            found[key] = replace(before, evidence=evidence, strength=strength), sum_of + given
        else:
            found[key] = cost, given
    return list(found.values())


def _order(cost: Cost) -> tuple[bool, bool, bool, float]:
    """Return the place of a cost where several claim the same time: what failed, queues, idle links, all the rest."""
    return cost.of == "both", cost.cause in TELLS, cost.cause != "link-down", -cost.strength


def _undecided(named: Sequence[tuple[Cost, Floats]]) -> tuple[str, ...]:
    """Return two causes of idle links that this evidence does not tell apart, and the collector that would."""
    idle = sorted((cost for cost, _ in named if cost.cause in TELLS), key=lambda one: -one.strength)
    if len(idle) > 1:
        first, second = idle[:2]
        one_place = set(first.hosts) & set(second.hosts)
        if first.cause != second.cause and one_place and first.strength < SURE * second.strength:
            return first.cause, second.cause, TELLS[second.cause]
    return ()


def _finding(cost: Cost, given: Floats, total: Floats) -> Finding:
    share = float(given.sum() / total.sum())
    half = _half_width(given, total)
    return Finding(
        cause=cost.cause,
        place=cost.place,
        hosts=cost.hosts,
        share=share,
        low=max(0.0, share - half),
        high=share + half,
        seconds=float(given.mean()),
        evidence=cost.evidence,
        strength=cost.strength,
    )


def _half_width(given: Floats, total: Floats) -> float:
    """Return the half width of the 95 % interval of a share, sum over sum (ratio estimator); 0 of one iteration.

    Iterations that follow one another are alike: the variance is that of means of neighbours in groups.
    """
    count = len(total)
    if count < 4:
        return 0.0
    rest = given - float(given.sum() / total.sum()) * total if given is not total else total - total.mean()
    size = max(1, int(math.sqrt(count) / 2))
    groups = count // size
    means = rest[: groups * size].reshape(groups, size).mean(axis=1)
    return _Z * float(means.std(ddof=1)) / math.sqrt(groups) / float(total.mean())
