"""Find the functions that steps of a question name: `@source` gives rows of runs, `@step` changes rows."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar

from orchestrator.core.errors import ConfigError

Kind = Literal["source", "step"]
F = TypeVar("F", bound=Callable[..., Any])
_MARK = "orch_question"


def source(function: F) -> F:
    """Mark a function of `Measured` and keyword arguments that returns rows, one a point and repetition."""
    setattr(function, _MARK, "source")
    return function


def step(function: F) -> F:
    """Mark a function of rows and keyword arguments that returns rows."""
    setattr(function, _MARK, "step")
    return function


def kind_of(function: Callable[..., Any]) -> Kind | None:
    """Return what a function is marked as; None for one that is not marked."""
    found: Kind | None = getattr(function, _MARK, None)
    return found


def marked(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the marked functions that a module defines, by name."""
    return {
        name: one
        for name, one in vars(module).items()
        if inspect.isfunction(one) and kind_of(one) and one.__module__ == module.__name__
    }


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return every function of this package that a step can name."""
    found: dict[str, Callable[..., Any]] = {}
    package = importlib.import_module("orchestrator.questions")
    for entry in pkgutil.iter_modules(package.__path__):
        for name, one in marked(importlib.import_module(f"{package.__name__}.{entry.name}")).items():
            if name in found:
                raise AssertionError(f"two questions of the name {name}")
            found[name] = one
    return found


def arguments_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword arguments of a marked function."""
    parameters = inspect.signature(function).parameters
    return {name: one for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}


def check(name: str, function: Callable[..., Any], arguments: dict[str, Any], *, first: bool) -> None:
    """Raise ConfigError where a step cannot be called so; `first` is whether it is the first of its question."""
    wanted: Kind = "source" if first else "step"
    if kind_of(function) != wanted:
        raise ConfigError(
            f"{name}: gives rows of runs; accepted: as the first step"
            if not first
            else f"{name}: changes rows; accepted: after a step that gives some"
        )
    known = arguments_of(function)
    if unknown := sorted(set(arguments) - set(known)):
        raise ConfigError(f"{name}: {unknown[0]}: no such argument; accepted: {', '.join(known) or 'none'}")
    needed = [one for one, parameter in known.items() if parameter.default is inspect.Parameter.empty]
    if missing := [one for one in needed if one not in arguments]:
        raise ConfigError(f"{name}: {missing[0]}: missing; accepted: {', '.join(known)}")
