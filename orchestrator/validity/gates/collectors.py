"""Gates `collector` and `capture-file`: collectors did not fail, and what they left can be read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.parts.collectors import processor
from orchestrator.parts.registry import COLLECTOR
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "collectors"
ORDER = 110
GATES = (
    GateSpec(
        name="collector",
        passes="no collector failed, and each brought something that can be read",
        limit="none",
        remedy="The message has the collector's error. An optional collector that fails causes a remark; one of "
        "`collect` that brings nothing makes the window invalid, since what was asked for is not there. Notes of the "
        "run name the files.",
    ),
    GateSpec(
        name="capture-file",
        passes="capture files can be read",
        limit="none",
        remedy="Look for a full disk under `work:`.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each collector that failed or brought nothing, and for each damaged capture.

    Every run has the collector of processors; it was asked for where an experiment has it in `collect`.
    """
    launches = [launch for launch in window.manifest.launches if launch.role == "collector"]
    failed = set()
    for launch in launches:
        if launch.failed:
            failed.add((launch.node, launch.name))
            text = f"{launch.name} on {launch.node} failed: {launch.failed}"
            yield verdict("collector", False, text, measured=math.nan, limit=None, required=launch.required)
    asked = {(launch.node, launch.name) for launch in launches if launch.part != COLLECTOR + processor.NAME}
    for (node, name), why in window.silent_collectors.items():
        text = f"{name} on {node} brought nothing{'' if (node, name) in failed else f': {why}'}"
        yield verdict("collector", None, text, measured=math.nan, limit=None, required=(node, name) in asked)
    for problem in window.unreadable_captures:
        yield verdict("capture-file", False, problem, measured=math.nan, limit=None)
