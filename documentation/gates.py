"""Generate the reference of validity gates: what each judges, its limit, and what to do when it fails."""

from __future__ import annotations

from documentation import keys
from orchestrator.experiment.experiment import validity_model
from orchestrator.validity import registry
from orchestrator.validity.declaration import Limit


def page() -> str:
    """Return all gates as a table of Markdown."""
    defaults = keys.defaults_of(validity_model().model_json_schema(by_alias=True))
    lines = ["| gate | a window passes when | limit | what to do |", "|---|---|---|---|"]
    for one in registry.specs():
        if isinstance(one.limit, Limit):
            key, remark = one.limit.key, "a remark unless the limit says otherwise"
            limit = f"{defaults[key]}, by `validity: {{{key}: ...}}`"
        else:
            limit, remark = one.limit, "a remark: it fails no window"
        passes = one.passes if one.required else f"{one.passes} ({remark})"
        lines.append(f"| `{one.name}` | {passes} | {limit} | {one.remedy} |")
    return "\n".join(lines)
