"""A mixture of experts in the report: whose experts got how many tokens, and how uneven that made the traffic."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from orchestrator.report.runs import Run
from orchestrator.report.style import LINES, SERIES, figure, from_zero, legend


def routing(run: Run) -> tuple[Any, str] | None:
    """Tokens to each rank's experts, and the nonuniform factor of each iteration (Li, figure 5), of the first job."""
    rows = run.rows("routing")
    if not rows:
        return None
    job = min(row["job"] for row in rows)
    tokens: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    factor: dict[int, int] = {}
    heard: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        if row["job"] == job:
            tokens[row["peer"]][row["iteration"]] += row["tokens"]
            factor[row["iteration"]] = row["nonuniform_bytes"]
            heard[row["iteration"]].add(row["rank"])
    # A sender that did not log an iteration, at the run's end, is no sign that experts got less.
    whole = [iteration for iteration in sorted(heard) if len(heard[iteration]) == len(tokens)]
    if not whole:
        return None
    drawing, (above, below) = figure(2, height_in=3.8)
    total = np.array([sum(counts[iteration] for counts in tokens.values()) for iteration in whole], float)
    for number, (rank, counts) in enumerate(sorted(tokens.items())):
        share = np.array([counts[iteration] for iteration in whole]) / np.maximum(total, 1) * 100
        above.plot(
            whole,
            share,
            color=SERIES[number % len(SERIES)],
            linewidth=1.1,
            label=f"experts of rank {rank}",
            linestyle=LINES[number // len(SERIES) % len(LINES)],
        )
    above.set(ylabel="share of tokens (%)")
    from_zero(above)
    below.plot(whole, [factor[iteration] * run.scale / 1e6 for iteration in whole], color=SERIES[0], linewidth=1.1)
    below.set(xlabel="iteration", ylabel="nonuniform factor (MB)")
    from_zero(below)
    legend(above)
    back = "" if run.scale == 1 else f", multiplied back by the scale ({run.scale})"
    return drawing, (
        f"Job {job}. Above: copies of tokens that all ranks sent to each rank's experts. Below: the highest less the "
        f"lowest volume that one rank sent another for experts in the iteration{back}; even gates would make it 0."
    )
