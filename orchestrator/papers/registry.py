"""Finds the papers: every folder beside this module is one."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import cast

from orchestrator.core.errors import ConfigError
from orchestrator.report.study.paper import Paper


def names() -> tuple[str, ...]:
    """The papers in alphabetical order; none of them is imported."""
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules([str(Path(__file__).parent)]) if entry.ispkg))


def paper(name: str) -> Paper:
    """The paper of this name; ConfigError for another."""
    if name not in names():
        raise ConfigError(f"no paper {name}; accepted: {', '.join(names())}")
    return cast("Paper", importlib.import_module(f"orchestrator.papers.{name}"))
