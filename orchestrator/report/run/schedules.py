"""Generated cross traffic in the report: its schedule beside what captures saw, its rates, its distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cross_traffic.drawn_schedules import ARRIVALS
from cross_traffic.schedule_files import BurstShape
from orchestrator.analysis.traffic import throughput
from orchestrator.core.units import duration_text
from orchestrator.parts.rows import Row
from orchestrator.report.runs import Run
from orchestrator.report.style import GRID, LINES, SERIES, SOFT, figure, legend, look, save
from orchestrator.report.tables import size
from orchestrator.store.manifests.records import Window

SHOWN_NS = 100_000_000
STEP_NS = 1_000_000
CLASSES = 80


def plot(flows: Sequence[tuple[float, int]], burst: BurstShape | None, stem: Path) -> list[Path]:
    """Draw flows (start in seconds, bytes), with or without bursts, as STEM.svg and STEM.pdf; Salamy's figure B-4."""
    with look():
        drawing, (panel,) = figure(height_in=2.8)
        at = np.array([start * 1e3 for start, _ in flows])
        size = np.array([size / 1e3 for _, size in flows])
        inside = np.zeros(len(at), bool)
        if burst:
            width, period = burst.width_s * 1e3, burst.period_s * 1e3
            inside = at % period < width
            for number in range(int((at.max() if len(at) else 0) // period) + 1):
                panel.axvspan(number * period, number * period + width, color=SERIES[1], alpha=0.2, linewidth=0)
        panel.plot(at, size, color=GRID, linewidth=0.8, zorder=1)
        panel.plot(at[~inside], size[~inside], linestyle="", marker="o", markersize=3, color=SERIES[0], label="flows")
        if burst:
            panel.plot(
                at[inside],
                size[inside],
                linestyle="",
                marker="o",
                markersize=4,
                color=SERIES[1],
                label="flows of bursts",
            )
        panel.set(xlabel="start (ms)", ylabel="flow size (kB)")
        panel.set_ylim(bottom=0)
        legend(panel)
        save(drawing, stem)
    return [stem.with_suffix(".svg"), stem.with_suffix(".pdf")]


@dataclass(frozen=True, slots=True)
class _Generated:
    """The flows of a generator in a window: its row of `generated`, and that of its schedule where it has one."""

    window: Window
    row: Row
    plan: Row | None

    @property
    def source(self) -> str:
        return str(self.row["source"])

    @property
    def planned_bps(self) -> float:
        """The planned rate on the wire in bit/s."""
        return float(self.row["planned_bps"])


def _generators(run: Run) -> list[_Generated]:
    schedules = {(row["window_name"], row["source"]): row for row in run.rows("schedules")}
    windows = {window.name: window for window in run.windows}
    return [
        _Generated(windows[row["window_name"]], row, schedules.get((row["window_name"], row["source"])))
        for row in run.rows("generated")
        if row["window_name"] in windows
    ]


def beside(run: Run, window: str = "") -> tuple[Any, str] | None:
    """Return the schedule of the first generator beside what was captured of it; Salamy's figures B-4 and B-5.

    In this window, or in the first that has any.
    """
    found = [one for one in _generators(run) if window in ("", one.window.name)]
    if not found:
        return None
    shown = found[0]
    plan, begin = shown.plan, _beginning(shown)
    flows = _flows(run, shown, begin)
    if not flows.num_rows:
        return None
    drawing, (above, below) = figure(2, height_in=4.0)
    at = (flows["planned_start_ns"].to_numpy() - begin) / 1e6
    size = flows["planned_bytes"].to_numpy(zero_copy_only=False) * run.scale / 1e6
    above.vlines(at, 0, size, color=GRID, linewidth=0.8, zorder=1)
    above.plot(at, size, linestyle="", marker="o", markersize=3, color=SERIES[0], label="flows as planned")
    late = (flows["start_ns"].to_numpy() - begin) / 1e6
    above.plot(late, size, linestyle="", marker="|", markersize=8, color=SERIES[2], label="as started")
    for panel in (above, below):
        _shade_bursts(panel, plan, begin)
    above.set(ylabel="flow size (MB)")
    above.set_ylim(bottom=0)
    for number, (label, bins) in enumerate(_captured(run, shown).items()):
        x, rate = bins.rate(begin, begin + SHOWN_NS, STEP_NS)
        below.plot(
            x * 1e3, rate * run.scale / 1e9, color=SERIES[number], linestyle=LINES[number], label=label, linewidth=1.1
        )
    below.axhline(shown.planned_bps * run.scale / 1e9, color=SOFT, linewidth=0.9, label="mean of the window")
    below.set(xlabel="time (ms)", ylabel="Gbit/s", xlim=(0, SHOWN_NS / 1e6))
    below.set_ylim(bottom=0)
    legend(above)
    legend(below)
    back = "" if run.scale == 1 else f", multiplied back by the scale ({run.scale})"
    return drawing, (
        f"{shown.source} in window {shown.window.name}, a tenth of a second from its middle{back}. Above: the "
        "schedule, and when flows really started. Below: captured on the wire, in steps of a millisecond."
    )


def sample(run: Run, window: str, span_ns: int) -> Iterator[tuple[int, tuple[Any, Any], throughput.Bins]]:
    """Yield of a window's generators where a span in its middle begins, its flows, and bins of what was sent.

    Flows are their planned starts after that (ms) and their sizes (MB, at full size).
    """
    for shown in _generators(run):
        sent = _captured(run, shown).get("sent") if shown.window.name == window else None
        if sent is None:
            continue
        begin = _beginning(shown)
        flows = _flows(run, shown, begin)
        starts = (flows["planned_start_ns"].to_numpy() - begin) / 1e6
        sizes = flows["planned_bytes"].to_numpy(zero_copy_only=False) * run.scale / 1e6
        inside = starts < span_ns / 1e6
        yield begin, (starts[inside], sizes[inside]), sent


def _beginning(shown: _Generated) -> int:
    """Return the middle of the window, moved to the beginning of a period of the bursts."""
    middle: int = (sum(shown.window.span_ns) - SHOWN_NS) // 2
    plan = shown.plan
    if plan and plan["burst_period_s"]:
        period, zero = int(plan["burst_period_s"] * 1e9 + 0.5), int(plan["zero_ns"])
        return zero + (middle - zero) // period * period
    return middle // STEP_NS * STEP_NS


def _flows(run: Run, shown: _Generated, begin: int) -> Any:
    import pyarrow.compute as pc

    table = run.table("flows")
    planned = table["planned_start_ns"]
    mine = pc.and_(pc.equal(table["window_name"], shown.window.name), pc.equal(table["source"], shown.source))
    inside = pc.and_(pc.greater_equal(planned, begin), pc.less(planned, begin + SHOWN_NS))
    return table.filter(pc.and_(pc.and_(mine, inside), table["planned_bytes"].is_valid()))


def _shade_bursts(panel: Any, plan: Row | None, begin: int) -> None:
    if not plan or not plan["burst_period_s"]:
        return
    width, period = plan["burst_width_s"] * 1e3, plan["burst_period_s"] * 1e3
    first = -((begin - plan["zero_ns"]) / 1e6 % period)
    for number in range(int(SHOWN_NS / 1e6 // period) + 2):
        start = first + number * period
        panel.axvspan(start, start + width, color=SERIES[1], alpha=0.15, linewidth=0)


def _captured(run: Run, shown: _Generated) -> dict[str, throughput.Bins]:
    """Return millisecond bins where the generator's data leaves and where it arrives, all hosts of a kind together."""
    table = run.table("cross_packets")
    loads = [load for load in shown.window.loads if load.source == shown.source]
    found = {}
    for label, end, direction in (("sent", "src", "out"), ("received", "dst", "in")):
        parts = [
            throughput.bins(table, {"node": node, "direction": direction, "name": shown.source})
            for node in sorted({getattr(load, end) for load in loads})
        ]
        starts = np.concatenate([part.start_ns for part in parts]) if parts else np.zeros(0, np.int64)
        amounts = np.concatenate([part.amount for part in parts]) if parts else np.zeros(0)
        if len(starts):
            found[label] = throughput.Bins(starts, amounts, STEP_NS)
    return found


def injection(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Return how often generated traffic left at which rate, in steps of a millisecond; Salamy's figure 3-8."""
    curves = [
        (f"{run.name}, {source}" + (f", {window}" if len(run.windows) > 1 else ""), rate)
        for run in runs
        for window, source, rate in sent_rates(run)
    ]
    if not curves:
        return None
    scales = sorted({run.scale for run in runs})
    back = "" if scales == [1] else f" Multiplied back by the scale ({', '.join(map(str, scales))})."
    return (
        distribution(curves),
        f"As captured where it is sent, layer 2; the lowest class may be cut off. Dotted: means.{back}",
    )


def sent_rates(run: Run) -> Iterator[tuple[str, str, throughput.Floats]]:
    """Yield window, source, and rate in each millisecond (Gbit/s at full size) of generated traffic when sent."""
    for shown in _generators(run):
        sent = _captured(run, shown).get("sent")
        if sent is not None:
            _, rate = sent.rate(shown.window.start_ns, shown.window.end_ns, STEP_NS)
            yield shown.window.name, shown.source, rate * run.scale / 1e9


def distribution(curves: Sequence[tuple[str, throughput.Floats]]) -> Any:
    """Return how often each rate of each curve occurs, its name beside it.

    The highest class but the lowest is 1 high.
    """
    drawing, (panel,) = figure(height_in=2.7)
    edges = np.linspace(0, max(np.percentile(rate, 99.9) for _, rate in curves) or 1.0, CLASSES + 1)
    for number, (label, rate) in enumerate(curves):
        color = SERIES[number % len(SERIES)]
        count, _ = np.histogram(rate, edges)
        idle = count[0] / max(1, len(rate))  # of bursty traffic the highest class by far
        panel.stairs(
            count / max(1, count[1:].max()),
            edges,
            color=color,
            label=f"{label} ({len(rate):,} steps, {idle:.0%} of them below {edges[1]:.2g})",
            linestyle=LINES[number // len(SERIES) % len(LINES)],
            linewidth=1.2,
        )
        panel.axvline(float(rate.mean()), color=color, linestyle=":", linewidth=1.0)
    panel.set(xlabel="rate in a millisecond (Gbit/s)", ylabel="count (highest bar: 1)", xlim=(0, edges[-1]))
    panel.set_ylim(0, 1.05)
    legend(panel, columns=1)
    return drawing


def generator_lines(run: Run) -> list[str]:
    """Return a sentence for each source that had a schedule; flows are multiplied back by the scale."""
    found = []
    for row in run.rows("schedules"):
        largest = row["largest_bytes"]
        held = "" if largest is None else f"; flows of at most {size(largest * run.scale)}"
        arrivals = ARRIVALS.get(row["arrivals"])
        if row["burst_height"] is not None:
            arrivals = f"bursts of {row['burst_height']:g} times the mean, {duration_text(row['burst_width_s'])} every "
            arrivals += f"{duration_text(row['burst_period_s'])}, whose periods hold no larger flows"
        if arrivals:
            found.append(f"{row['window_name']}, {row['source']} to {row['dst']}: {arrivals}{held}")
    return list(dict.fromkeys(found))
