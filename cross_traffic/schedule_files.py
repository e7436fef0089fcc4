"""Read and write schedules of flows as files, and sum up the load of flows."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from cross_traffic.agents import flow_drawing
from orchestrator.core.errors import ConfigError

LARGEST_FLOW = 1 << 50
LONGEST_S = 1e7
MOST_PHASES = 20  # of a burst's period, in a summary
RATE_STEP_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstShape:
    """A burst: every `period_s` seconds the load is `height` times its mean for `width_s` seconds."""

    width_s: float
    period_s: float
    height: float

    def phases_ns(self) -> list[int]:
        """Return the bounds of the period's phases: the first is the burst, and no other is shorter if possible."""
        width, period = round(self.width_s * 1e9), round(self.period_s * 1e9)
        parts = max(1, min(MOST_PHASES - 1, (period - width) // width))
        return [0, *(width + (period - width) * part // parts for part in range(parts)), period]

    def profile(self, sent: Sequence[float]) -> list[float]:
        """Return the rate in each phase over the mean, from the amount sent in each; empty where nothing is sent."""
        whole = sum(sent)
        edges = self.phases_ns()
        shares = (edges[-1] / (end - begin) for begin, end in pairwise(edges))
        return [one * share / whole for one, share in zip(sent, shares, strict=True)] if whole else []


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLine:
    """A flow of a schedule file: seconds since its beginning, bytes, and the host that it goes to ("" for any)."""

    start_s: float
    size: int
    to: str = ""


def write_schedule(path: Path, flows: Iterable[FlowLine], *, comment: str = "") -> int:
    """Write a schedule file, a flow a line, and return their number."""
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        if comment:
            file.write("".join(f"# {line}\n" for line in comment.splitlines()))
        file.write("start_s,bytes,to\n")
        for flow in flows:
            file.write(f"{flow.start_s:.9f},{flow.size},{flow.to}\n")
            count += 1
    return count


def read_schedule(path: Path) -> Iterator[FlowLine]:
    """Read the flows of a schedule file in order, one at a time; ConfigError with file and line of the first mistake.

    Columns are start_s, bytes and, where it is there, to; starts never fall; a `#` begins a comment.
    """
    try:
        file = path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        columns: list[str] | None = None
        before = 0.0
        count = 0
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip() or line.startswith("#"):
                    continue
                cells = [cell.strip() for cell in next(csv.reader([line]))]
                if columns is None:
                    columns = _columns(cells, f"{path}:{number}")
                    continue
                flow = _flow(dict(zip(columns, cells, strict=False)), f"{path}:{number}")
                if flow.start_s < before:
                    raise ConfigError(
                        f"{path}:{number}: starts must not fall, and {flow.start_s:g} comes after {before:g}"
                    )
                before = flow.start_s
                count += 1
                yield flow
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not UTF-8") from None
        if not count:
            raise ConfigError(
                f"{path}: holds no flows", hint="a head start_s,bytes and a line a flow, such as 0.25,10000"
            )


def _columns(cells: list[str], at: str) -> list[str]:
    unknown = sorted(set(cells) - {"start_s", "bytes", "to"})
    if unknown or not {"start_s", "bytes"} <= set(cells):
        raise ConfigError(f"{at}: the head must be start_s,bytes or start_s,bytes,to, not {','.join(cells)[:60]}")
    return cells


def _flow(cells: Mapping[str, str], at: str) -> FlowLine:
    try:
        start_s, size = float(cells["start_s"]), float(cells["bytes"])
    except (KeyError, ValueError):
        raise ConfigError(f"{at}: start_s and bytes must be numbers") from None
    if not 0 <= start_s <= LONGEST_S:  # false for NaN too
        raise ConfigError(f"{at}: {cells['start_s']} is no start: 0 to {LONGEST_S:g} seconds")
    if not (1 <= size <= LARGEST_FLOW and size == int(size)):
        raise ConfigError(f"{at}: {cells['bytes']} is no size: whole bytes, 1 to {LARGEST_FLOW:.0e}")
    return FlowLine(start_s=start_s, size=int(size), to=cells.get("to", ""))


@dataclass(slots=True, kw_only=True)
class Tally:
    """Totals of flows, added one at a time and in constant memory.

    Layer-2 bytes towards the sink, as `framing` counts them.
    """

    framing: flow_drawing.Framing
    burst: BurstShape | None = None
    flows: int = 0
    payload: int = 0
    wire: int = 0
    largest: int = 0
    last_s: float = 0.0
    busiest_step: int = 0  # most bytes that start within a millisecond
    sent: list[int] = field(default_factory=list)  # in each phase of a burst's period
    _step: int = -1
    _step_bytes: int = 0
    _ends_ns: list[int] = field(default_factory=list)

    def add(self, start_s: float, size: int) -> None:
        wire = self.framing.wire_bytes(size)
        self.flows += 1
        self.payload += flow_drawing.payload_bytes(size)
        self.wire += wire
        self.largest = max(self.largest, size)
        self.last_s = start_s
        step = int(start_s / RATE_STEP_S)
        if step != self._step:
            self._step, self._step_bytes = step, 0
        self._step_bytes += wire
        self.busiest_step = max(self.busiest_step, self._step_bytes)
        if self.burst is not None:
            ends = self._ends_ns = self._ends_ns or self.burst.phases_ns()[1:]
            self.sent = self.sent or [0] * len(ends)
            self.sent[bisect_right(ends, round(start_s * 1e9) % ends[-1])] += wire

    def load_bps(self, duration_s: float) -> float:
        """Return the load in layer-2 bit/s over so many seconds."""
        return self.wire * 8 / duration_s if duration_s > 0 else math.nan

    def profile(self) -> list[float]:
        """Return the load started in each phase of the period over the mean; the first one is the burst."""
        return [] if self.burst is None else self.burst.profile(self.sent)
