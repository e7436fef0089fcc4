"""Generate the reference of Prometheus metrics from the objects that serve them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from orchestrator.execution.observers import metrics


def page() -> str:
    """Return live metrics of runs, then what a sweep leaves for a node exporter, as Markdown."""
    live = [value for value in vars(metrics.Metrics()).values() if isinstance(value, MetricWrapperBase)]
    left = metrics.result_gauges(CollectorRegistry())
    return "\n".join(
        ["## While runs go on\n", *_table(live), "", "## What a sweep ended with\n", *_table(left.values())]
    )


def _table(found: Iterable[MetricWrapperBase]) -> Iterator[str]:
    yield "| metric | type | labels | |\n|---|---|---|---|"
    for metric in found:
        (told,) = metric.describe()
        name = f"{told.name}_total" if told.type == "counter" else told.name
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001 - they have no other name
        yield f"| `{name}` | {told.type} | {labels} | {told.documentation} |"
