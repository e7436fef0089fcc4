"""Find the papers: every folder beside this module is one."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import cast

from orchestrator.core.errors import ConfigError
from orchestrator.report.study.paper import Paper


def names() -> tuple[str, ...]:
    """Return the papers in alphabetical order, without importing them."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules([str(Path(__file__).parent)]) if entry.ispkg))


def paper(name: str) -> Paper:
    """Return the paper of this name; ConfigError for an unknown one."""
    if name not in names():
        raise ConfigError(f"no paper {name}; accepted: {', '.join(names())}")
    return cast("Paper", importlib.import_module(f"orchestrator.papers.{name}"))
