"""Loads the agent: the first text that a node runs makes a package in memory from the source texts after it."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Dict, Optional

PACKAGE = "orch_agent"


class Texts:
    """Finds and loads the modules of one package from source texts in memory, as an import hook."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.texts = {("%s.%s" % (PACKAGE, name)): text for name, text in texts.items()}
        self.packages = {name.rpartition(".")[0] for name in self.texts if name.endswith(".__init__")}
        self.texts.update({name: self.texts.pop(name + ".__init__") for name in self.packages})

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:  # noqa: ARG002
        if name not in self.texts:
            return None
        return ModuleSpec(name, self, origin=self.origin(name), is_package=name in self.packages)  # type: ignore[arg-type]

    def origin(self, name: str) -> str:
        """Return the file name of a module in tracebacks."""
        inside = name.split(".")[1:] + ["__init__"] * (name in self.packages)
        return "orch-agent/%s.py" % "/".join(inside)

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: the import system makes the module."""

    def exec_module(self, module: Any) -> None:
        name = module.__name__
        exec(compile(self.texts[name], self.origin(name), "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def get_source(self, name: str) -> str:
        return self.texts[name]


def become(texts: Dict[str, str]) -> None:
    """Run the agent whose modules these are, by name."""
    sys.meta_path.insert(0, Texts(texts))
    importlib.import_module(PACKAGE + ".main").main()
