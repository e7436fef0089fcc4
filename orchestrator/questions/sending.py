"""How traffic sends: a training's beside each source of cross traffic, such as a replay of another training's."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.analysis.traffic.periodicity import Floats
from orchestrator.analysis.traffic.traffic import CROSS, Mask, Traffic
from orchestrator.core.errors import ConfigError
from orchestrator.questions import captured
from orchestrator.questions.captured import WIDTH_NS, Captured
from orchestrator.questions.iterations import chosen
from orchestrator.questions.rates import together
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run

_FEWEST_BYTES = 0.01  # of the most that one sends in a window: what carries less sends nothing to speak of


@source
def sending(
    measured: Measured,
    *,
    cross: Literal["each", "all"] = "each",
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return how the first training and each source of cross traffic sends, by point and run: a row for each that does.

    `line` is the job's name or the source's (`replay0`), with `cross: all` "cross" of all sources together. Rates are
    TCP payload of all hosts together (Gbit/s, bins of 10 ms), at full size and, as all times, undilated: `mean_gbps`,
    `peak_gbps` and `p99_gbps` over all bins, `sending_gbps` over those in which it sends, whose share is `duty`.
    `period_s` is the dominant period of bins of 1 ms, `strength` their autocorrelation at it (NaN and 0 without one),
    `period_mb` what is sent in it (10^6 bytes). `together` is the mean correlation of the rates of all pairs of hosts
    that carry 99 % of the payload (NaN of one pair), `pairs` how many these are, one a direction. Means over a run's
    captured windows. `columns`, `defaults` and `where` as of `volumes`.
    """
    if cross not in {"each", "all"}:
        raise ConfigError(f"sending: cross: {cross}; accepted: each, all")
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found: dict[str, list[tuple[str, dict[str, float]]]] = {}
        for one in captured.windows(point):
            for line, flows in _senders(one.traffic, point.job.name, apart=cross == "each").items():
                found.setdefault(line, []).append((one.window.entry.run, _told(one, flows)))
        for line, values in found.items():
            rows += by_run(point, values, {**keys, "line": line})
    return rows


def _senders(found: Traffic, job: str, *, apart: bool) -> dict[str, Mask]:
    """Return the flows of a training, and of each source of cross traffic, that carry something."""
    masks = {job: traffic.of_job(found, job)}
    crossing = found.of(CROSS)
    names = sorted(set(found.name[crossing])) if apart else []
    masks.update({str(name): crossing & (found.name == name) for name in names} if apart else {"cross": crossing})
    carried = {line: int(found.payload_bytes[mask].sum()) for line, mask in masks.items()}
    most = max(carried.values())
    return {line: mask for line, mask in masks.items() if most > 0 and carried[line] >= _FEWEST_BYTES * most}


def _told(one: Captured, flows: Mask) -> dict[str, float]:
    found = one.traffic
    join = max(1, round(WIDTH_NS / found.width_ns))
    width_s = join * found.width_ns / 1e9
    factor = 8 * one.run.scale / width_s / 1e9

    def rates(mask: Mask) -> Floats:
        return traffic.series(found, mask, payload=True, width_ns=join * found.width_ns) * factor

    total = rates(flows)
    busy = periodicity.busy(total)
    beat = periodicity.period(traffic.series(found, flows, payload=True), found.width_ns / 1e9)
    pairs = _pairs(found, flows)
    mean = float(total.mean())
    return {
        "mean_gbps": mean,
        "peak_gbps": float(total.max()),
        "p99_gbps": float(np.quantile(total, 0.99)),
        "sending_gbps": float(total[busy].mean()) if busy.any() else 0.0,
        "duty": float(busy.mean()),
        "period_s": beat.period_s if beat.found else math.nan,
        "strength": beat.strength,
        "period_mb": mean * 1e9 / 8 * beat.period_s / 1e6 if beat.found else math.nan,
        "together": together(np.array([rates(mask) for mask in pairs])),
        "pairs": float(len(pairs)),
    }


def _pairs(found: Traffic, flows: Mask) -> list[Mask]:
    """Return the flows of the fewest ordered pairs of hosts that carry 99 % of some flows' payload."""
    carried = traffic.matrix(found, flows)
    ends = np.argsort(-carried, axis=None, kind="stable")
    count = int(np.searchsorted(np.cumsum(carried.ravel()[ends]), traffic.BIG_SHARE * carried.sum())) + 1
    places = [divmod(int(end), len(found.hosts)) for end in ends[:count]]
    return [flows & (found.src == src) & (found.dst == dst) for src, dst in places]
