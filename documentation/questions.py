"""Generate the reference of named questions: what each gives, and its arguments, from the functions themselves."""

from __future__ import annotations

import inspect

from orchestrator.questions import registry


def page() -> str:
    """Return all questions as Markdown: those that give rows of runs, then those that change rows."""
    heads = {"source": "## They give rows of runs\n", "step": "## They change rows\n"}
    found = registry.functions()
    lines = []
    for kind, head in heads.items():
        lines.append(head)
        for name in sorted(name for name, one in found.items() if registry.kind_of(one) == kind):
            lines += [f"### `{name}`\n", _arguments(name), "", inspect.getdoc(found[name]) or "", ""]
    return "\n".join(lines)


def _arguments(name: str) -> str:
    """Return the arguments: those that have to be given, then the others with what stands where none is given."""
    known = registry.arguments_of(registry.functions()[name]).values()
    needed = [f"`{one.name}`" for one in known if one.default is inspect.Parameter.empty]
    others = [_with_default(one) for one in known if one.default is not inspect.Parameter.empty]
    return f"Arguments: {', '.join(needed) or 'none needed'}; optional: {', '.join(others) or 'none'}."


def _with_default(one: inspect.Parameter) -> str:
    return f"`{one.name}`" if one.default is None else f"`{one.name}: {one.default}`"
