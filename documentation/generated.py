"""The parts of pages that are made from code when the site is built: `<!-- generated: NAME -->` stands for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from documentation import commands, gates, keys, measurements, metrics, workloads
from orchestrator.store.queries import table_texts

PARTS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "commands": commands.page,
        "exit codes": commands.exit_codes,
        "faults": partial(measurements.page_of, "faults"),
        "gates": gates.page,
        "keys": keys.page,
        "measurements": measurements.page,
        "metrics": metrics.page,
        "predictions": partial(measurements.page_of, "predict"),
        "tables": table_texts.page,
        "validity": partial(measurements.page_of, "validity"),
        "workloads": workloads.page,
    }
)
MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)


def expanded(text: str) -> str:
    """The page with its generated parts; KeyError for a part that there is none of."""
    return MARKER.sub(lambda match: PARTS[match[1]](), text)
