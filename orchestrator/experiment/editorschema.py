"""Make JSON Schemas of the files that users write, for editors: of the models, with `include` and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from orchestrator.core.opendata import JsonSchema
from orchestrator.experiment import documents, experiment, variables
from orchestrator.experiment.paperfile import PaperFile
from orchestrator.experiment.sweepfile import SweepFile
from orchestrator.testbed.inventory import Inventory

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS: Mapping[str, Callable[[], type[BaseModel]]] = MappingProxyType(
    {
        "experiment": experiment.model,
        "sweep": lambda: SweepFile,
        "paper": lambda: PaperFile,
        "inventory": lambda: Inventory,
    }
)
_DEEP = 5  # keys below each other that a name is looked for in
_REFERENCE = "Variable"
_EMBEDDED = ("allOf", "anyOf", "oneOf", "prefixItems")


def of(kind: str) -> JsonSchema:
    """Return the schema of a kind of file.

    Wherever a file holds a number, a word of several or a text of a form, the reference to a variable may stand. What
    a file that includes others lacks, these may have: nothing is required of its top level then.
    """
    found = _with_references(KINDS[kind]().model_json_schema(by_alias=True))
    found["properties"] = {**found["properties"], documents.INCLUDE: _INCLUDE, variables.VARS: _VARS}
    required = found.pop("required", [])
    found["if"] = {"not": {"required": [documents.INCLUDE]}}
    found["then"] = {"required": required}
    found.setdefault("$defs", {})[_REFERENCE] = {
        "description": "The value of a variable.",
        "type": "string",
        "pattern": r"\$([A-Za-z_]\w*|\{[A-Za-z_]\w*\})",
    }
    return {"$schema": DIALECT, **found}


def paths(kind: str, key: str) -> list[str]:
    """Find the paths of a key in a kind of file, for `--set`: those nearest to the top; 0 is any entry."""
    schema = KINDS[kind]().model_json_schema(by_alias=True)
    reached: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    for _ in range(_DEEP):
        found = [".".join((*at, key)) for at, here in reached if key in _below(here, schema)]
        if found:
            return list(dict.fromkeys(found))
        reached = [((*at, name), inner) for at, here in reached for name, inner in _below(here, schema).items()]
    return []


def _below(here: Any, schema: JsonSchema) -> dict[str, Any]:
    """Return the properties below a part of a schema, by its key; entries of lists by 0."""
    if not isinstance(here, dict):
        return {}
    if "$ref" in here:
        return _below(schema["$defs"][here["$ref"].rpartition("/")[2]], schema)
    found = dict(here.get("properties", {}))
    if "items" in here:
        found["0"] = here["items"]
    for part in (inner for word in _EMBEDDED for inner in here.get(word, ())):
        found = {**_below(part, schema), **found}
    return found


def _with_references(schema: Any) -> Any:
    """Return a schema that accepts references to variables for all scalars below it."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    for key in ("properties", "patternProperties", "$defs"):
        if key in changed:
            changed[key] = {name: _with_references(inner) for name, inner in changed[key].items()}
    for key in ("items", "additionalProperties"):
        if key in changed:
            changed[key] = _with_references(changed[key])
    for key in _EMBEDDED:
        if key in changed:
            changed[key] = [_with_references(inner) for inner in changed[key]]
    if _is_narrow(changed):
        about = {key: changed[key] for key in ("title", "description", "default") if key in changed}
        return {**about, "anyOf": [changed, {"$ref": f"#/$defs/{_REFERENCE}"}]}
    return changed


def _is_narrow(schema: JsonSchema) -> bool:
    """Return whether a schema is of a scalar and does not accept the text of a reference."""
    narrow = {"enum", "const", "pattern", "format", "maxLength"} & schema.keys()
    return schema.get("type") in ("integer", "number", "boolean", "array") or bool(narrow)


_INCLUDE = {
    "description": "Files that lie under this one, from its folder; what stands here wins, key by key.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}
_VARS = {
    "description": "Variables: $name stands for the value, --set name=VALUE sets it.",
    "type": "object",
    "propertyNames": {"pattern": "^[a-z][a-z0-9_]{0,40}$", "not": {"enum": sorted(variables.RESERVED)}},
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number", "boolean", "array"]},
            {
                "type": "object",
                "properties": {"type": {"enum": list(variables.TYPES)}, "default": {}, "help": {"type": "string"}},
                "additionalProperties": False,
            },
        ]
    },
}
