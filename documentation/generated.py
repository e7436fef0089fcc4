"""The parts of pages that are made from code when the site is built: `<!-- generated: NAME -->` stands for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from documentation import commands, gates, keys, metrics, workloads

PARTS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "commands": commands.page,
        "exit codes": commands.exit_codes,
        "gates": gates.page,
        "keys": keys.page,
        "metrics": metrics.page,
        "workloads": workloads.page,
    }
)
MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)


def expanded(text: str) -> str:
    """The page with its generated parts; KeyError for a part that there is none of."""
    return MARKER.sub(lambda match: PARTS[match[1]](), text)
