"""Read the output of a run's launches: its folders, the rows that parts read from it, and the window of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import series
from orchestrator.analysis.windows import warmup
from orchestrator.core.errors import OrchError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.parts import ranks, registry
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.store.manifests.records import Clock, Launch, Manifest, Window
from orchestrator.store.tabular import tables


def named(manifest: Manifest) -> Iterable[tuple[Launch, str, str]]:
    """Return every output of a run: the launch, the part that reads it, and its folder's name below its node's."""
    for launch in manifest.launches:
        yield launch, launch.part, launch.name
        for part in launch.wrapped_by:
            yield launch, part, f"{launch.name}/{ranks.folder_of(part)}"


def located(folder: Path, manifest: Manifest) -> Iterable[tuple[str, LaunchOutput]]:
    """Return every launch of a run with the part that reads it, and the outputs of collectors that wrapped it."""
    for launch, part, name in named(manifest):
        place = safepath.under(folder / "hosts", f"{launch.node}/{name}")
        if place.is_dir():
            clock = manifest.clocks.get(launch.node, Clock()).before
            yield (
                part,
                LaunchOutput(
                    folder=place,
                    node=launch.node,
                    launch=name,
                    job=launch.job,
                    rank=launch.rank,
                    window=launch.window,
                    source=launch.source,
                    offset_ns=0 if clock is None else clock.offset_ns,
                ),
            )


def rows_of(part: str, output: LaunchOutput) -> Mapping[str, Columns]:
    """Return the rows that a part reads from the output of a launch; StoreError where it cannot have written that.

    A host that writes nonsense loses its own rows, and nobody else's. What was passed over is the table `unread`.
    """
    try:
        found: Mapping[str, Columns] = registry.by_label(part).read(output)
    except OrchError:
        raise
    except Exception as error:  # noqa: BLE001 - a reader, ours or of another package, that did not expect what is there
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(f"its output cannot be read: {reason or type(error).__name__}") from None
    passed = output.unread.rows()
    return {**found, "unread": passed} if passed["count"] else found


class RowsInIterations:
    """Holds rows that lie in iterations until their windows are known, by which each has the name of its window.

    They are as large in memory as in their files: compressed.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._held: list[tuple[str, LaunchOutput, Any]] = []  # table, origin, and a stream of Arrow

    def add(self, table: str, columns: Columns, output: LaunchOutput) -> None:
        """Hold rows of a table with the columns `iteration` and `window_name`; StoreError as of `tables.batch`."""
        import pyarrow as pa

        rows = tables.batch(table, columns, run=self._run, node=output.node, launch=output.launch)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(rows)
        self._held.append((table, output, sink.getvalue()))

    def judged(self, manifest: Manifest) -> tuple[Window, ...]:
        """Return the windows of the run with their warm-up judged, by the iterations of every rank."""
        if not any(map(warmup.is_open, manifest.windows)):
            return manifest.windows
        import pyarrow as pa

        logs = [_rows(held) for table, output, held in self._held if table == "iterations" and output.rank is not None]
        whole = pa.concat_tables([tables.schema("iterations").empty_table(), *logs])
        logged = {job.name: series(whole, job.name) for job in manifest.jobs}
        return tuple(warmup.judged(window, logged) for window in manifest.windows)

    def rows(self, windows: Sequence[Window]) -> Iterator[tuple[str, Any]]:
        """Yield table and rows (pyarrow) of each output in turn, with the names of their windows."""
        import pyarrow as pa

        for table, output, held in self._held:
            rows = _rows(held)
            place = rows.schema.get_field_index("window_name")
            names = _window_names(rows["iteration"].to_numpy(), output.job or "", windows)
            yield table, rows.set_column(place, rows.schema.field(place), pa.array(names, pa.string()))


def _rows(held: Any) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(held) as stream:
        return stream.read_all()


def _window_names(numbers: Any, job: str, windows: Sequence[Window]) -> list[str]:
    """Return the window of each iteration of a job, by the numbers that rank 0 set; empty outside of all."""
    names = np.full(len(numbers), "", dtype=object)
    for window in windows:
        span = window.iterations.get(job)
        if span:
            names[(numbers >= span.first) & (numbers <= span.last)] = window.name
    found: list[str] = names.tolist()
    return found


def rails_of(columns: Columns, output: LaunchOutput, manifest: Manifest) -> list[int | None]:
    """Return the rail of each device (network or RDMA) that a rank used; None where it is not one of its host's."""
    rails = manifest.topology.node(output.node).rails
    numbers = {name: number for number, rail in enumerate(rails) for name in (rail.device, rail.rdma) if name}
    return [numbers.get(device) for device in columns["device"]]
