"""What generated cross traffic was drawn from: how it arrives, and how large its flows can be."""

from __future__ import annotations

from cross_traffic.websearch import ARRIVALS
from orchestrator.core.units import duration_text
from orchestrator.report.quantities import size
from orchestrator.report.runs import Run


def told(run: Run) -> list[str]:
    """A sentence for each source that had a schedule; flows are multiplied back by the scale."""
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
