"""Orch: a live testbed measurement orchestrator.

`load`, `run` and `Store` are what programs and notebooks begin with (docs/python-api.md). They are imported when they
are first used, so that `import orchestrator` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.results import Store
    from orchestrator.api.running import load, run

__all__ = ["Store", "__version__", "load", "run"]

_PLACES = {"Store": "results", "load": "running", "run": "running"}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        from importlib import metadata

        return metadata.version("orch-testbed")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.api.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
