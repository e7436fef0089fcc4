"""Generate the reference of questions: functions that steps of a figure name, with their arguments."""

from __future__ import annotations

import inspect

from orchestrator.questions import registry


def page() -> str:
    """Return all sources and steps as Markdown, each with its signature and its docstring."""
    lines = []
    for kind, title in (("source", "## Sources: the first step"), ("step", "## Steps that change rows")):
        lines += [title, ""]
        for name, function in sorted(registry.functions().items()):
            if registry.kind_of(function) == kind:
                arguments = ", ".join(map(_argument, registry.arguments_of(function).values()))
                lines += [f"### `{name}`", "", f"`{name}: {{{arguments}}}`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines)


def _argument(one: inspect.Parameter) -> str:
    needed = one.default is inspect.Parameter.empty
    return f"{one.name}: ..." if needed else f"{one.name}: {_default(one.default)}"


def _default(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
