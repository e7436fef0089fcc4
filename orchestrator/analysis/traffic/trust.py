"""Find which captures of a run are whole enough for figures, and which jobs' bytes can be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from orchestrator.parts.shared import capture_files
from orchestrator.store.manifests.capture_points import CAPTURING, alone
from orchestrator.store.manifests.records import Manifest

State = Literal["complete", "ended early", "never began"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A capture that a run was to make, or a meter in its place.

    `counts` are what its tool said at its exit (captured, received, dropped).
    """

    node: str
    port: str
    state: State
    why: str
    counts: Mapping[str, int] | None
    metered: bool = False  # by a meter in the place of a capture
    until_ns: int | None = None  # until when it is whole, where its host's budget of disk was used up


def planned(manifest: Manifest, captures: Any, packets: Any) -> tuple[Planned, ...]:
    """Return every capture among a manifest's launches; `captures` and `packets` are the run's tables (pyarrow Tables).

    One whose process failed, or that was gone before it could say its counts, may lack any part of the run. One that
    left neither counts nor packets measured nothing at all, and so nothing wrong.
    """
    said = {(row["node"], row["launch"]): row for row in captures.to_pylist()}
    heard = packets.select(["node", "launch"]).group_by(["node", "launch"], use_threads=False).aggregate([])
    began = {(row["node"], row["launch"]) for row in heard.to_pylist()} | said.keys()
    found = []
    meters = {(node, name) for node, name, _ in alone(manifest)}
    for launch in manifest.launches:
        key = (launch.node, launch.name)
        if launch.part != CAPTURING and key not in meters:
            continue
        counts = said.get(key)
        state: State = "never began" if key not in began else "complete"
        if key in began and (launch.failed or counts is None):
            state = "ended early"
        found.append(
            Planned(
                node=launch.node,
                port=counts["port"] if counts else capture_files.device(launch.argv),
                state=state,
                why=launch.failed or ("" if state == "complete" else "it left no counts"),
                counts={name: counts[name] for name in ("captured", "received", "dropped")} if counts else None,
                metered=key in meters,
                until_ns=counts["ended_ns"] if counts else None,
            )
        )
    return tuple(found)


def until(planned: Iterable[Planned], end_ns: int) -> tuple[Planned, ...]:
    """Return the captures as they are for a window that ends then: what ended before ended early."""
    why = "its host's budget of disk was used up"
    return tuple(
        replace(one, state="ended early", why=one.why or why)
        if one.until_ns is not None and one.until_ns < end_ns
        else one
        for one in planned
    )
