"""Observation (ii): iteration times over link rate, batch and model size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats import agreement, linear
from orchestrator.papers.farhat.published import Farhat, Finding, Name
from orchestrator.papers.farhat.trainings import LIBRARIES, Training
from orchestrator.report.study.content import (
    Comparison,
    Rows,
    Section,
    Table,
    cannot_tell,
    claimed,
    not_measured,
    percent,
    seconds,
)
from orchestrator.report.study.printed import Check
from orchestrator.report.style import LINES, SERIES, Picture, figure, from_zero, legend, look, save

TITLE = "Duration of an iteration"
HARDWARE = (
    "emulated compute is a time: a batch k times as large and an accelerator k times slower are one and the same here"
)

Curve = Sequence[tuple[float, Training]]  # by a setting: points that differ in nothing else
Curves = Mapping[str, Curve]


def section(found: Sequence[Training], printed: Farhat, folder: Path) -> Section:
    """Compare durations over the rate of links and over the batch, each with all else equal, and over model sizes."""
    plain = [one for one in found if not one.timeline]
    hardware = printed.finding("hardware")
    links = curves(plain, lambda one: one.link_bps / 1e9, lambda one: (one.model, one.controller, one.batch or 0))
    batches = curves(
        plain, lambda one: float(one.batch or 0), lambda one: (one.model, one.controller, round(one.link_bps))
    )
    return Section(
        title=TITLE,
        text=(
            "Mean time of an iteration. Points whose rank 0 wrote a Timeline are left out: the thread that writes it "
            "takes processor time from the ranks."
        ),
        pictures=tuple(_drawn(links, batches, folder)),
        comparisons=(
            not_size_alone(plain, printed),
            *dependence(links, "Gbit/s", "bandwidth", printed),
            *dependence(batches, "samples", "batch", printed),
            not_measured("hardware", hardware.text, source=hardware.source, why=HARDWARE),
        ),
        tables=(_table(found),),
    )


def curves(
    found: Sequence[Training], by: Callable[[Training], float], alike: Callable[[Training], tuple[Any, ...]]
) -> dict[str, Curve]:
    """Return points that differ in one setting alone, two or more each, in its order; named by model and library."""
    groups: dict[tuple[Any, ...], list[tuple[float, Training]]] = {}
    for one in found:
        groups.setdefault(alike(one), []).append((by(one), one))
    return {
        f"{key[0]} over {LIBRARIES[key[1]]}": sorted(group, key=lambda pair: pair[0])
        for key, group in sorted(groups.items(), key=lambda item: str(item[0]))
        if len({setting for setting, _ in group}) > 1
    }


def dependence(found: Curves, unit: str, name: Name, printed: Farhat) -> list[Comparison]:
    """Judge whether the duration changes between the ends of each curve, in the direction that was meant."""
    finding, check = printed.finding(name), printed.check(name)
    if not found:
        return [cannot_tell(check, name, finding.text, source=finding.source)]
    return [_depends(label, curve, unit, finding, check) for label, curve in found.items()]


def _depends(label: str, curve: Curve, unit: str, finding: Finding, check: Check) -> Comparison:
    (lowest, first), (highest, last) = curve[0], curve[-1]
    sent = last.payload / first.payload - 1
    return claimed(
        check,
        f"{finding.name}, {label}: duration at {highest:,g} {unit} over that at {lowest:,g}",
        agreement.ratio(last.run_seconds, first.run_seconds),
        told=f"{seconds(last.seconds.value)} s and {seconds(first.seconds.value)} s; data sent {percent(sent)}",
        printed=finding.text,
        source=finding.source,
    )


def not_size_alone(found: Sequence[Training], printed: Farhat) -> Comparison:
    """Compare the claim that size alone does not set durations with one model's durations, and a line over sizes."""
    finding, check = printed.finding("not-size-alone"), printed.check("not-size-alone")
    pairs = [
        (a, b)
        for place, a in enumerate(found)
        for b in found[place + 1 :]
        if (a.model, a.controller) == (b.model, b.controller)
    ]
    if not pairs:
        return cannot_tell(check, "durations of one model", finding.text, source=finding.source)
    ends = max(pairs, key=lambda pair: abs(math.log(pair[0].seconds.value / pair[1].seconds.value)))
    fast, slow = sorted(ends, key=lambda one: one.seconds.value)
    sizes = [one.model_bytes for one in found]
    lines = (
        linear.fit([one.seconds.value for one in found], {"size": sizes}, {}),
        linear.fit([one.payload for one in found], {"size": sizes}, {}),
    )
    explained = "; ".join(
        f"R2 of {what} over model sizes {line.r2:.3f}"
        for what, line in zip(("durations", "data"), lines, strict=True)
        if line is not None
    )
    told = f"{fast.model}, {seconds(fast.seconds.value)} to {seconds(slow.seconds.value)} s"
    return claimed(
        check,
        "durations of one model: longest over shortest",
        agreement.ratio(slow.run_seconds, fast.run_seconds, tests=len(pairs)),
        told=f"{told}; {explained}" if explained else told,
        printed=finding.text,
        source=finding.source,
    )


def _table(found: Sequence[Training]) -> Table:
    rows: Rows = []
    for one in sorted(found, key=lambda one: (one.model_bytes, one.controller, one.link_bps, one.batch or 0)):
        moving = one.payload / one.workers * 8 / one.link_bps
        mean = one.seconds
        interval = "unknown" if math.isnan(mean.low) else f"{seconds(mean.low)} to {seconds(mean.high)}"
        rows.append(
            (
                one.label + (", Timeline" if one.timeline else ""),
                seconds(mean.value),
                interval,
                seconds(one.computing_s),
                seconds(moving),
                f"{mean.value / max(one.computing_s, moving):.2f}",
                f"{mean.value / (one.computing_s + moving):.2f}",
            )
        )
    caption = (
        "Seconds; intervals of 95 %, of a single run its own. Sending: the payload of a worker over the rate of its "
        "link. Where an iteration takes the longer of computing and sending, all that can be hidden is; where it takes "
        "their sum, nothing is; beyond the sum are headers, messages of control, and processors that are short."
    )
    head = ("training", "mean", "interval", "computing", "sending", "mean / longer", "mean / sum")
    return Table(TITLE, caption, head, rows)


def _drawn(links: Curves, batches: Curves, folder: Path) -> list[Picture]:
    found = []
    with look():
        for name, of, label in (
            ("bandwidth", links, "rate of the links (Gbit/s)"),
            ("batch", batches, "samples of a worker"),
        ):
            if of:
                drawing, (panel,) = figure(height_in=2.9)
                for number, (training, curve) in enumerate(of.items()):
                    _curve(panel, training, curve, SERIES[number % len(SERIES)], single=len(of) == 1)
                panel.set(xlabel=label, ylabel="seconds an iteration", xscale="log")
                panel.set_xticks([setting for setting, _ in max(of.values(), key=len)])
                panel.get_xaxis().set_major_formatter("{x:g}")
                panel.minorticks_off()
                from_zero(panel)
                legend(panel)
                caption = "Means with their 95 % intervals. Dashed: computing; dotted: payload over the link's rate."
                title = f"Duration over {'bandwidth' if name == 'bandwidth' else 'the batch'}"
                saved = save(drawing, folder / f"duration-{name}")
                found.append(Picture(name=f"duration-{name}", title=title, caption=caption, saved=saved))
    return found


def _curve(panel: Any, label: str, curve: Curve, color: str, *, single: bool) -> None:
    x = [setting for setting, _ in curve]
    mean = np.array([one.seconds.value for _, one in curve])
    ends = np.array([[one.seconds.low, one.seconds.high] for _, one in curve])
    reach = np.nan_to_num(np.abs(ends - mean[:, None])).T
    panel.errorbar(x, mean, yerr=reach, color=color, marker="o", markersize=5, capsize=2, label=label)
    computing, sending = ("computing", "sending") if single else ("", "")
    panel.plot(x, [one.computing_s for _, one in curve], color=color, linestyle=LINES[1], label=computing)
    moving = [one.payload / one.workers * 8 / one.link_bps for _, one in curve]
    panel.plot(x, moving, color=color, linestyle=LINES[2], label=sending)
