"""Build the section about captured traffic (`traffic_section.html`): tables and figures of hosts, flows, shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import periodicity, traffic, view
from orchestrator.analysis.traffic.bottleneck import Rates
from orchestrator.analysis.traffic.pattern import Pattern
from orchestrator.analysis.traffic.traffic import CONTROL, CROSS, OTHER, TRAINING, Traffic
from orchestrator.analysis.traffic.view import KINDS, JobView, View
from orchestrator.core.units import span_text
from orchestrator.report import page
from orchestrator.report.style import LINES, SERIES, SOFT, WIDTH_IN, figure, legend
from orchestrator.report.tables import Cell, Number, Table, percent, rate, size, table

_JOBS = """Read off the captured bytes alone. The pattern's score is from 0 to 1: the share of the bytes that the
pattern explains, lowered where an edge of it is weak. Iterations by the autocorrelation of the payload's rate, cut
at its longest silences."""
_KINDS = "All captured traffic; a flow is a 5-tuple in one direction, each counted at one place; layer 2."
_RATES = [Number("mean"), Number("sending"), Number("peak")]
_THROUGHPUT = """Throughput, layer 2, with 95 % confidence intervals by batch means; sending: mean while anything is
sent; peak: highest {step}, which is above a link's rate by what its token bucket lets through at once, where one
sets the rate."""

COLORS = {TRAINING: SERIES[0], CROSS: SERIES[1], CONTROL: SERIES[2], OTHER: SOFT}
_CALLED = {TRAINING: "training", CROSS: "cross traffic", CONTROL: "SSH and set-up", OTHER: "other"}
ZOOM_NS = 250_000_000
_MOST_HOSTS = 24
_MOST_WRITTEN = 8  # hosts whose squares hold a number
_MOST_FLOWS = 24
_MOST_PAIRS = 8
_LEAST_PAIR = 0.05  # of the bytes of the busiest one
_LEAST_SHOWN = 0.001  # of all bytes, for a line of its own
_STEPS = 120
_FINE_STEPS = 1600

Drawn = tuple[str, str, Any, str]  # name, title, figure, caption


def section(views: Sequence[tuple[str, View]], *, scale: int = 1) -> str:
    """Return the tables of some stretches of traffic as HTML.

    A stretch is told by its place where there are several.
    """
    tables = [made(views, scale) for made in (_jobs, _kinds, _flows, _share_table)]
    return page.fill("traffic_section.html", tables=tables)


def _places(views: Sequence[tuple[str, View]]) -> list[tuple[str, View]]:
    """Return the stretches with an empty place where there is but one."""
    return [(place if len(views) > 1 else "", one) for place, one in views]


def _jobs(views: Sequence[tuple[str, View]], scale: int) -> Table:
    heads = [
        "window",
        "job",
        "communication pattern",
        Number("iteration"),
        Number("by its own log"),
        Number("sending"),
        Number("bytes an iteration, all hosts"),
    ]
    rows = [[place, *_job(one, job, scale)] for place, one in _places(views) for job in one.jobs]
    return table("Trainings, as their traffic shows them", heads, rows, caption=_JOBS)


def _job(one: View, job: JobView, scale: int) -> Iterator[str]:
    seen = job.iterations
    found = seen.period.found
    seconds = float(seen.seconds.mean()) if len(seen.seconds) else seen.period.period_s
    yield job.name or called(TRAINING, one.traffic)
    patterns = "; ".join(pattern_text(pattern, one.traffic.hosts) for pattern in job.patterns)
    yield Cell(patterns or "none seen", notes=(job.order,))
    strength = f"{len(seen.starts_ns)} seen, correlation {seen.period.strength:.2f}"
    yield Cell(span_text(seconds) if found else "none found", notes=(strength,))
    off = percent(seconds / job.logged_s - 1) if found and job.logged else "?"
    yield Cell(span_text(job.logged_s), notes=(f"{job.logged}, off by {off}",)) if job.logged else "no log"
    yield "" if math.isnan(seen.duty) else Cell(f"{seen.duty:.0%}", notes=("of the time",))
    yield _estimate(seen.amount, scale, size, unknown="unknown")


def _kinds(views: Sequence[tuple[str, View]], scale: int) -> Table:
    rows = [
        [place, called(row.kind, one.traffic), f"{row.flows:,}", size(row.wire_bytes * scale), f"{row.share:.2%}"]
        for place, one in _places(views)
        for row in one.kinds
        if row.flows
    ]
    heads = ["window", "kind", Number("flows"), Number("bytes"), Number("share")]
    return table("Captured traffic by kind", heads, rows, caption=_KINDS)


def _flows(views: Sequence[tuple[str, View]], scale: int) -> Table:
    """Return a table of the rates of every training as a whole, and of the biggest flows of the first stretch."""
    rows: list[list[str]] = [
        [
            "everything of " + (job.name or called(TRAINING, one.traffic)) + (f", {place}" if place else ""),
            "training",
            "",
            "",
            *_rates(job.total, scale),
        ]
        for place, one in _places(views)
        for job in one.jobs
    ]
    caption = _THROUGHPUT.format(step=f"{view.STEP_NS / 1e6:.0f} ms")
    for place, one in views[:1]:
        rows += [
            [
                row.label,
                called(row.kind, one.traffic) + (f", {row.name}" if row.name and row.name != row.kind else ""),
                size(row.wire_bytes * scale),
                f"{row.share:.1%}",
                *_rates(row.rates, scale),
            ]
            for row in one.flows
        ]
        if one.flows:
            where = f" in {place}" if len(views) > 1 else ""
            biggest = ", of which the biggest are here" if len(one.big) > len(one.flows) else ""
            seen = int((one.traffic.wire_bytes > 0).sum())
            caption += f" {len(one.big)} of {seen} flows carry 99 % of the bytes{where}{biggest}."
    heads = ["of", "kind", Number("bytes"), Number("share"), *_RATES]
    return table("Throughput", heads, rows, caption=caption)


def _share_table(views: Sequence[tuple[str, View]], scale: int) -> Table:
    rows = [
        [place, share.label, *_rates(rates, scale)]
        for place, one in _places(views)
        for share, rates in zip(one.shares, one.share_rates, strict=True)
    ]
    cross = called(CROSS, views[0][1].traffic) if views else ""
    caption = f"The link that training and {cross} share most, beside training on a link of its own; rates as above."
    return table("Shared and own links", ["window", "flow", *_RATES], rows, caption=caption)


def pattern_text(pattern: Pattern, hosts: Sequence[str]) -> str:
    """Return a pattern in words, with how well it fits and what comes next."""
    names = [hosts[host] for host in pattern.hosts]
    after = f"; next {pattern.runner_up} {pattern.runner_up_score:.2f}" if pattern.runner_up else ""
    if pattern.shape == "unknown":
        return f"unknown: {pattern.same_as[0]} fits best, {pattern.score:.2f}{after}"
    who = {
        "ring": " → ".join([*names, names[0]]),
        "ring both ways": " ↔ ".join([*names, names[0]]),
        "chain": " ↔ ".join(names),
        "pair": " ↔ ".join(names),
        "full mesh": ", ".join(names),
    }.get(pattern.shape, f"{', '.join(names[: pattern.heads])} with {', '.join(names[pattern.heads :])}")
    same = f" (or {' or '.join(pattern.same_as)}: bytes cannot tell)" if pattern.same_as else ""
    return f"{pattern.shape}{same}: {who}; score {pattern.score:.2f}{after}"


def _rates(rates: Rates, scale: int) -> tuple[Cell, str, str]:
    return _estimate(rates.mean, scale, rate, unknown="none"), rate(rates.sending * scale), rate(rates.peak * scale)


def _estimate(estimate: Estimate, scale: int, text: Callable[[float], str], *, unknown: str) -> Cell:
    bounds = [text(bound * scale) for bound in (estimate.low, estimate.high)]
    interval = " to ".join(bounds) if all(bounds) else "unknown"
    return Cell(text(estimate.value * scale) or unknown, notes=(interval,))


def called(kind: str, found: Traffic) -> str:
    """Return the name of a kind of traffic in tables and figures, with a mark where it is inferred."""
    return _CALLED[kind] + (" (guess)" if found.guessed and kind in (TRAINING, CROSS) else "")


def figures(view: View, *, whole: Traffic | None = None, scale: int = 1, place: str = "") -> Iterator[Drawn]:
    """Yield every figure that a stretch of traffic has data for; within `style.look()`.

    `whole` is what the stretch was taken from, for the figures of flows' whole lives. `scale` multiplies rates and
    sizes back; `place` says in captions which stretch it is.
    """
    back = "" if scale == 1 else f" Multiplied back by the scale ({scale})."
    guess = " Kinds are guesses by the shape of flows." if view.traffic.guessed else ""
    note = (f" {place}." if place else "") + back + guess
    lives = view.traffic if whole is None else whole
    for name, title, made in (
        ("heatmap", "Who sends how much to whom", _heatmap(view, scale)),
        ("arrivals", "Arrivals of flows", _arrivals(lives, scale)),
        ("flowchart", "Flows over time", flow_chart(lives, view.cycle_s)),
        ("total", "Throughput of everything together", _total(view, scale)),
        ("zoom", "Pairs of hosts within a quarter of a second", zoom(view, scale)),
        ("shares", f"Training alone and beside {called(CROSS, view.traffic)}", _shares(view, scale)),
        ("period", "Iterations in the traffic, and sizes of messages", _period(view, scale)),
    ):
        if made is not None:
            yield name, title, made[0], made[1] + (back + guess if name in ("arrivals", "flowchart") else note)


def _heatmap(view: View, scale: int) -> tuple[Any, str] | None:
    """Draw the traffic matrix, after Zerwas et al., figure 4."""
    found = view.traffic
    kinds = [kind for kind in (TRAINING, CROSS) if found.wire_bytes[found.of(kind)].sum() > 0] or [OTHER]
    matrices = [traffic.matrix(found, found.of(kind), payload=False) * scale for kind in kinds]
    both = sum(matrices[1:], matrices[0])
    hosts = np.flatnonzero(both.sum(axis=0) + both.sum(axis=1) > 0)
    if len(hosts) < 2:
        return None
    hosts = np.sort(hosts[np.argsort(-(both.sum(axis=0) + both.sum(axis=1))[hosts])][:_MOST_HOSTS])
    names = [found.hosts[host] for host in hosts]
    drawing = Figure(figsize=(WIDTH_IN, min(5.0, 1.1 + 0.26 * max(len(hosts), 6))), layout="constrained")
    panels = drawing.subplots(1, 2, squeeze=False)[0]
    factor, unit = _unit(max(part.max() for part in matrices))
    for panel in panels[len(kinds) :]:
        panel.axis("off")
    for panel, kind, part in zip(panels, kinds, matrices, strict=False):
        shown = part[np.ix_(hosts, hosts)] / factor
        image = panel.imshow(
            np.where(shown > 0, shown, np.nan), cmap="Blues", vmin=-0.15 * shown.max(), vmax=shown.max()
        )
        panel.set_xticks(range(len(hosts)), names, rotation=90 if max(map(len, names)) > 4 else 0)
        panel.set_yticks(range(len(hosts)), names)
        panel.set(xlabel="to", ylabel="from", title=f"{called(kind, found)} ({unit})")
        panel.grid(visible=False)
        if len(hosts) <= _MOST_WRITTEN:
            for row, column in np.argwhere(shown >= 0.001 * shown.max()):
                value = shown[row, column]
                panel.text(
                    column,
                    row,
                    f"{value:.2g}" if value < 10 else f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="#fefefe" if value > 0.5 * shown.max() else "#101010",
                )
        else:
            drawing.colorbar(image, ax=panel, fraction=0.046, pad=0.03).outline.set_visible(False)
    return drawing, "Bytes of layer 2 from row to column."


def _unit(most: float) -> tuple[float, str]:
    return next(((f, u) for f, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if most >= f), (1.0, "B"))


def _arrivals(found: Traffic, scale: int) -> tuple[Any, str] | None:
    """Draw the number of flows over time (after Zerwas et al.), and their sizes by start (after Salamy)."""
    drawing, (above, below) = figure(2, height_in=3.6)
    seconds = (found.first_ns - found.begin_ns) / 1e9
    drawn = 0
    for kind in KINDS:
        mine = np.flatnonzero(found.of(kind) & (found.packets > 0))
        if not len(mine):
            continue
        at = np.sort(seconds[mine])
        x, y = np.concatenate(([0.0], at, [found.seconds])), np.concatenate((np.arange(len(at) + 1), [len(at)]))
        keep = np.unique(np.linspace(0, len(x) - 1, 1000).astype(int))
        above.step(x[keep], y[keep], where="post", color=COLORS[kind], label=called(kind, found))
        shown = mine[np.argsort(-found.wire_bytes[mine])][:1000]
        size = np.maximum(found.wire_bytes[shown], 1) * scale / 1e6
        below.plot(seconds[shown], size, linestyle="", marker="o", markersize=4, color=COLORS[kind], alpha=0.7)
        drawn += len(mine)
    if not drawn:
        return None
    above.set(ylabel="flows so far")
    above.set_ylim(bottom=0)
    below.set(xlabel="time since the first packet (s)", ylabel="size (MB)", yscale="log")
    legend(above)
    return drawing, f"When each of the {drawn:,} 5-tuples (one a direction) was first seen, and the bytes it carried."


def flow_chart(found: Traffic, cycle_s: float) -> tuple[Any, str] | None:
    """Draw the big flows over time, after Zerwas et al., figure 6."""
    rows = np.argsort(-found.wire_bytes, kind="stable")[:_MOST_FLOWS]
    rows = rows[found.wire_bytes[rows] > 0]
    if not len(rows) or found.seconds <= 0:
        return None
    rows = np.array(sorted(rows.tolist(), key=lambda row: (KINDS.index(found.kind[row]), -found.wire_bytes[row])))
    # Whole iterations, or neighbouring steps would hold more or fewer bursts by chance.
    step_s = found.seconds / _STEPS
    step_s = np.ceil(step_s / cycle_s) * cycle_s if 0 < cycle_s < found.seconds / 20 else step_s
    step = max(1, round(step_s * 1e9 / found.width_ns)) * found.width_ns
    rates = np.array([traffic.series(found, np.arange(len(found)) == row, width_ns=step) for row in rows])
    image = np.ones((2 * len(rows), rates.shape[1], 4))
    for place, row in enumerate(rows):
        # The least is still seen.
        opacity = np.where(rates[place] > 0, 0.12 + 0.88 * rates[place] / rates.max(), 0.0)
        image[2 * place, :, :3] = to_rgb(COLORS[found.kind[row]])
        image[2 * place, :, 3] = opacity
        image[2 * place + 1, :, 3] = 0.0
    drawing, (panel,) = figure(height_in=1.0 + 0.19 * len(rows))
    panel.imshow(
        image, aspect="auto", interpolation="none", extent=(0, rates.shape[1] * step / 1e9, len(rows) - 0.25, -0.25)
    )
    panel.set_yticks(range(len(rows)), [found.label(row) for row in rows], fontsize=7)
    panel.set(xlabel="time since the first packet (s)", xlim=(0, found.seconds))
    panel.grid(visible=False)
    for kind in KINDS:
        if kind in set(found.kind[rows].tolist()):
            panel.plot([], [], color=COLORS[kind], linewidth=5, label=called(kind, found))
    legend(panel)
    others = int((found.wire_bytes > 0).sum()) - len(rows)
    left = f" The {others:,} smallest flows are not drawn." if others > 0 else ""
    return drawing, f"Each bar a flow; the fuller its colour, the more it carries in {span_text(step / 1e9)}.{left}"


def _total(view: View, scale: int) -> tuple[Any, str] | None:
    found = view.traffic
    step = max(1, (found.end_ns - found.begin_ns) // _FINE_STEPS // found.width_ns) * found.width_ns
    smooth = max(3, round((2 * view.cycle_s * 1e9 or found.seconds * 1e9 / 20) / step))
    drawing, (panel,) = figure(height_in=2.6)
    drawn = False
    for kind in (TRAINING, CROSS, OTHER):
        rate = traffic.series(found, found.of(kind), width_ns=step) * 8 * scale / step
        if found.wire_bytes[found.of(kind)].sum() < _LEAST_SHOWN * found.wire_bytes.sum() or not rate.any():
            continue
        at = (np.arange(len(rate)) + 0.5) * step / 1e9
        panel.plot(at, rate, color=COLORS[kind], linewidth=0.6, alpha=0.4)
        panel.plot(
            at, traffic.moving_average(rate, smooth), color=COLORS[kind], linewidth=1.6, label=called(kind, found)
        )
        drawn = True
    if not drawn:
        return None
    panel.set(xlabel="time (s)", ylabel="Gbit/s", xlim=(0, found.seconds))
    panel.set_ylim(bottom=0)
    legend(panel)
    return drawing, (
        f"Layer 2, sum over all links: thin in steps of {span_text(step / 1e9)}, thick the moving average over "
        f"{smooth * step / 1e9:.2g} s."
    )


def zoom(view: View, scale: int) -> tuple[Any, str] | None:
    """Draw a few iterations where the training sends most, after Zerwas et al., figure 7."""
    found = view.traffic
    mine = found.of(TRAINING) if found.of(TRAINING).any() else found.of(CROSS, OTHER)
    begin = _middle(view)
    near = traffic.within(found, begin, min(begin + ZOOM_NS, found.end_ns))
    part = traffic.matrix(near, mine, payload=False)
    pairs = [divmod(int(place), part.shape[1]) for place in np.argsort(-part, axis=None)[:_MOST_PAIRS]]
    pairs = [pair for pair in pairs if part[pair] >= _LEAST_PAIR * part.max() > 0]
    if not pairs or near.width_ns * 20 > ZOOM_NS:
        return None
    pairs.sort()
    step = max(1, round(1e6 / near.width_ns)) * near.width_ns
    drawing, panels = figure(len(pairs), height_in=0.8 + 0.72 * len(pairs))
    for panel, (src, dst) in zip(panels, pairs, strict=True):
        rate = traffic.series(near, mine & (found.src == src) & (found.dst == dst), width_ns=step) * 8 * scale / step
        at = (np.arange(len(rate)) + 0.5) * step / 1e6
        panel.fill_between(at, rate, color=SERIES[0], alpha=0.75, linewidth=0, step="mid")
        panel.set_title(f"{found.hosts[src]} → {found.hosts[dst]}", pad=2, loc="right")
    top = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set(ylim=(0, top), xlim=(0, (near.end_ns - near.begin_ns) / 1e6))
        panel.locator_params(axis="y", nbins=3)
    panels[-1].set_xlabel("time (ms)")
    drawing.supylabel("Gbit/s", fontsize=9)
    left = " Pairs with less than 5 % of the busiest one's bytes are left out."
    return drawing, f"The middle of the stretch, layer 2, in steps of {span_text(step / 1e9)}.{left}"


def _middle(view: View) -> int:
    """Return the beginning of an iteration in the middle of the stretch, else its middle."""
    found = view.traffic
    middle = (found.begin_ns + found.end_ns - ZOOM_NS) // 2
    starts = view.jobs[0].iterations.starts_ns if view.jobs else np.zeros(0, np.int64)
    if len(starts):
        return max(found.begin_ns, int(starts[np.argmin(np.abs(starts - middle))]) - 10_000_000)
    return max(found.begin_ns, middle)


def _shares(view: View, scale: int) -> tuple[Any, str] | None:
    """Draw the rates of flows 1, 2 and 3, after Salamy, figures 3-10 and 3-11."""
    if not view.shares or view.cycle_s <= 0:
        return None
    found = view.traffic
    begin = _middle(view)
    near = traffic.within(found, begin, min(found.end_ns, begin + int(2.5e9 * view.cycle_s)))
    step = max(1, int(view.cycle_s * 1e9 / 200 // near.width_ns)) * near.width_ns
    smooth = 5
    drawing, panels = figure(len(view.shares), height_in=0.8 + 1.05 * len(view.shares))
    for number, (panel, share) in enumerate(zip(panels, view.shares, strict=True)):
        rate = traffic.series(near, share.flows, width_ns=step) * 8 * scale / step
        at = (np.arange(len(rate)) + 0.5) * step / 1e6
        panel.plot(at, rate, color=SERIES[number], alpha=0.35, linewidth=0.6)
        panel.plot(at, traffic.moving_average(rate, smooth), color=SERIES[number], linewidth=1.2)
        panel.set_title(share.label, pad=2, loc="right")
        panel.set(xlim=(0, near.seconds * 1e3))
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("time (ms)")
    drawing.supylabel("Gbit/s", fontsize=9)
    return drawing, (
        f"Layer 2. Thin: steps of {span_text(step / 1e9)}; thick: moving average over {smooth} of them. "
        "About two and a half iterations from the middle of the stretch."
    )


def _period(view: View, scale: int) -> tuple[Any, str] | None:
    """Draw the autocorrelation of a training's traffic, and the sizes of its messages (Li et al., figure 1)."""
    if not view.jobs or not any(len(job.messages) for job in view.jobs):
        return None
    found = view.traffic
    drawing, (above, below) = figure(2, height_in=4.4, sharex=False)
    for number, job in enumerate(view.jobs):
        mine = found.of(TRAINING) & (found.name == job.name)
        values = traffic.series(found, mine, payload=True)
        most = min(
            len(values) // 3,
            int(3.3 * (job.iterations.period.period_s or 1) * 1e9 / found.width_ns)
            if job.iterations.period.found
            else len(values) // 3,
        )
        if most < 3:
            return None
        r = periodicity.autocorrelation(values, most)
        at = np.arange(len(r)) * found.width_ns / 1e6
        label = job.name or "training"
        color, line = SERIES[number % len(SERIES)], LINES[number % len(LINES)]
        keep = np.unique(np.linspace(0, len(r) - 1, 1200).astype(int))
        above.plot(at[keep], r[keep], color=color, linestyle=line, label=label, linewidth=1.1)
        if job.iterations.period.found:
            above.axvline(job.iterations.period.period_s * 1e3, color=color, linewidth=0.8, linestyle=":")
        sizes = np.sort(job.messages) * scale
        count = np.arange(1, len(sizes) + 1) / len(sizes)
        keep = np.unique(np.linspace(0, len(sizes) - 1, 800).astype(int))
        below.step(
            sizes[keep] / 1e6, count[keep], where="post", color=color, linestyle=line, label=f"{label}: messages"
        )
        below.step(
            sizes[keep] / 1e6,
            (np.cumsum(sizes) / sizes.sum())[keep],
            where="post",
            color=color,
            linestyle=LINES[(number + 1) % len(LINES)],
            label=f"{label}: bytes in them",
        )
    above.set(xlabel="lag (ms)", ylabel="autocorrelation")
    above.set_xlim(left=0)
    below.set(
        xlabel="sent by a flow without a pause of 2 ms (MB)",
        ylabel="share up to this size",
        xscale="log",
        ylim=(0, 1.02),
    )
    legend(below, columns=2)
    return drawing, (
        "Above: how the rate of the training's payload resembles itself some time later; dotted: the period. "
        "Below: sizes of messages as the wire shows them, which can be a part of a message or several."
    )
