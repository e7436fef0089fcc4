"""Orch: a live testbed measurement orchestrator.

`load`, `run` and `Store` are what programs and notebooks begin with (docs/python-api.md). They are imported when they
are first used, so that `import orchestrator` costs nothing.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.results import Store
    from orchestrator.api.running import load, run

__all__ = ["Store", "__version__", "load", "run"]

_PLACES = {"Store": "results", "load": "running", "run": "running"}


class _Package(types.ModuleType):
    """The package. Whatever is imported below it is bound here as usual, but for the room `run`: `run` is the function.

    The room is imported by its path as ever (`from orchestrator.run import execute`).
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PLACES or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        import importlib

        if name == "__version__":
            from importlib import metadata

            return metadata.version("orch-testbed")
        if name not in _PLACES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{self.__name__}.api.{_PLACES[name]}"), name)
        setattr(self, name, found)
        return found


sys.modules[__name__].__class__ = _Package
