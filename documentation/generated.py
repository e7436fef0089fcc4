"""Replace the marks `<!-- generated: NAME -->` in a page by what is generated from code when the site is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from documentation import commands, gates, keys, measurements, metrics, questions, workloads
from orchestrator.store import query

PARTS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "causes": partial(measurements.page_of, "causes"),
        "commands": commands.page,
        "exit codes": commands.exit_codes,
        "dilation": partial(measurements.page_of, "dilation"),
        "fabric": partial(measurements.page_of, "fabric"),
        "faults": partial(measurements.page_of, "faults"),
        "gates": gates.page,
        "keys": keys.page,
        "measurements": measurements.page,
        "metrics": metrics.page,
        "predictions": partial(measurements.page_of, "predict"),
        "questions": questions.page,
        "tables": query.tables_page,
        "validity": partial(measurements.page_of, "validity"),
        "choose": partial(measurements.page_of, "choose"),
        "workloads": workloads.page,
    }
)
MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)


def expanded(text: str) -> str:
    """Return the page with its generated parts in place; KeyError for a mark of an unknown name."""
    return MARKER.sub(lambda match: PARTS[match[1]](), text)
