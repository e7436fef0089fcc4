"""The output of a run's launches: where it lies, what the parts read from it, and the window of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import series
from orchestrator.analysis.windows import warmup
from orchestrator.core.errors import OrchError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.parts import registry
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput, Unread
from orchestrator.store.manifests.host_records import Clock
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Window
from orchestrator.store.tabular import tables


def located(folder: Path, manifest: Manifest) -> Iterable[tuple[str, LaunchOutput]]:
    """Every launch of a run, with the part that reads it."""
    for launch in manifest.launches:
        place = safepath.under(folder / "hosts", f"{launch.node}/{launch.name}")
        if place.is_dir():
            clock = manifest.clocks.get(launch.node, Clock()).before
            yield (
                launch.part,
                LaunchOutput(
                    folder=place,
                    node=launch.node,
                    launch=launch.name,
                    job=launch.job,
                    rank=launch.rank,
                    window=launch.window,
                    source=launch.source,
                    offset_ns=0 if clock is None else clock.offset_ns,
                ),
            )


def rows_of(part: str, output: LaunchOutput) -> Mapping[str, Columns]:
    """The rows that a part reads from the output of a launch; StoreError where it cannot have written that.

    A host that writes nonsense loses its own rows, and nobody else's. What was passed over is the table `unread`.
    """
    heard = replace(output, unread=Unread())  # some outputs are read twice
    try:
        found: Mapping[str, Columns] = registry.by_label(part).read(heard)
    except OrchError:
        raise
    except Exception as error:  # noqa: BLE001 - a reader, ours or of another package, that did not expect what is there
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(f"its output cannot be read: {reason or type(error).__name__}") from None
    passed = heard.unread.rows()
    return {**found, "unread": passed} if passed["count"] else found


def told(unread: Columns) -> list[str]:
    """Rows of the table `unread` as sentences."""
    return [
        f"{file}: {count} {what} passed over"
        + (f", the first in line {line}" if line else "")
        + (f": {text}" if text else "")
        for file, what, count, line, text in zip(*(unread[name] for name in TABLES["unread"]), strict=True)
    ]


def windows_of(columns: Columns, output: LaunchOutput, manifest: Manifest) -> Any:
    """The window of each iteration of a rank, by the numbers that rank 0 set."""
    numbers = np.asarray(columns["iteration"])
    names = np.full(len(numbers), "", dtype=object)
    for window in manifest.windows:
        span = window.iterations.get(output.job or "")
        if span:
            names[(numbers >= span.first) & (numbers <= span.last)] = window.name
    return names.tolist()


def rails_of(columns: Columns, output: LaunchOutput, manifest: Manifest) -> list[int | None]:
    """The rail of each device (network or RDMA) that a rank used; None where it is of none of its host's."""
    rails = manifest.topology.node(output.node).rails
    numbers = {name: number for number, rail in enumerate(rails) for name in (rail.device, rail.rdma) if name}
    return [numbers.get(device) for device in columns["device"]]


def settled(manifest: Manifest, outputs: Sequence[tuple[str, LaunchOutput]]) -> tuple[Window, ...]:
    """The windows with their warm-up chosen, for which every rank's iterations are read first."""
    if not any(map(warmup.is_open, manifest.windows)):
        return manifest.windows
    import pyarrow as pa

    logs = []
    for part, output in outputs:
        if output.rank is not None:
            with suppress(OrchError):  # told when its rows are written
                columns = rows_of(part, output).get("iterations")
                logs += [tables.batch("iterations", columns, run=manifest.run)] if columns else []
    whole = pa.concat_tables(logs or [tables.schema("iterations").empty_table()])
    logged = {job.name: series(whole, job.name) for job in manifest.jobs}
    return tuple(warmup.settled(window, logged) for window in manifest.windows)
