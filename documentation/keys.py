"""Generate the reference of YAML files from their JSON Schema: a section a mapping, a row a key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from orchestrator.core import units
from orchestrator.experiment import experiment, paperfile, sweepfile
from orchestrator.parts import registry

Schema = Mapping[str, Any]

EXAMPLES = Path(__file__).parents[1] / "tests/data"
# What a value with a unit is, by the example that its schema gives, and how a default of SI units reads in a file.
QUANTITIES = {
    "10gbit": ("rate", units.rate_text),
    "25mb": ("size", units.size_text),
    "180s": ("duration", units.duration_text),
    "5%": ("share", units.share_text),
}
FILES: Mapping[str, type[BaseModel]] = {
    "Experiment": experiment.model(),
    "Sweep": sweepfile.SweepFile,
    "Paper": paperfile.PaperFile,
}
_PLURALS = {"workload": "workload", "traffic": "traffic", "collect": "collector", "conditions": "condition"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping of a file: where it stands ("workload.ddp"), and its schema."""

    path: str
    schema: Schema


def page() -> str:
    """Return all keys of all files as Markdown, headings from the second level on."""
    return "\n".join(line for title, model in FILES.items() for line in _file(title, model))


def _file(title: str, model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema(by_alias=True)
    sections = list(sections_of(schema))
    anchors = {id(section.schema): f"{title.lower()}-{_slug(section.path)}" for section in sections}
    for section in sections:
        heading = f"### `{section.path}` " if section.path else f"## {title} files "
        anchor = anchors[id(section.schema)]
        yield f"{heading}{{#{anchor}}}\n"
        yield _one_line(section.schema.get("description", "")) + "\n"
        yield from _example(section.path)
        yield "| key | value | default | |\n|---|---|---|---|"
        required = section.schema.get("required", ())
        for key, found in section.schema["properties"].items():
            kind = _kind(found, schema["$defs"], anchors)
            default = "required" if key in required else _default(found)
            yield f"| `{key}` | {kind} | {default} | {_cell(found.get('description', ''))} |"
        yield ""


def _slug(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") or "file"


def sections_of(schema: Schema) -> list[Section]:
    """Return the file itself, then every mapping that its keys lead to by the shortest path, in the order of keys."""
    found: dict[int, tuple[tuple[int, ...], Section]] = {}
    level: list[tuple[tuple[int, ...], str, Schema]] = [((), "", schema)]
    while level:
        deeper = []
        for place, path, value in level:
            for mapping in _mappings(value, schema["$defs"]):
                if id(mapping) in found:
                    continue
                found[id(mapping)] = (place, Section(path=path, schema=mapping))
                below = enumerate(mapping["properties"].items())
                deeper += [((*place, at), f"{path}.{key}".removeprefix("."), inner) for at, (key, inner) in below]
        level = deeper
    ordered = sorted(found.values(), key=lambda one: one[0])
    return [section for _, section in ordered if not _is_choice(section.schema)]


def _mappings(found: Schema, defs: Schema) -> Iterator[Schema]:
    """Yield the schemas of the mappings that a value may be, or hold."""
    if "$ref" in found:
        yield from _mappings(defs[found["$ref"].rpartition("/")[2]], defs)
    elif "properties" in found:
        yield found
    for inner in (*found.get("anyOf", ()), found.get("items"), found.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _mappings(inner, defs)


def _is_choice(mapping: Schema) -> bool:
    return bool(mapping.get("maxProperties") == 1)


def _kind(found: Schema, defs: Schema, anchors: Mapping[int, str]) -> str:
    """Describe the type of a value, with links to the mappings that it may hold."""
    if "$ref" in found:
        return _kind(defs[found["$ref"].rpartition("/")[2]], defs, anchors)
    if "properties" in found:
        return (
            f"[mapping](#{anchors[id(found)]})" if id(found) in anchors else f"one of {_options(found, defs, anchors)}"
        )
    if "enum" in found or "const" in found:
        return ", ".join(f"`{value}`" for value in found.get("enum", [found.get("const")]))
    return _compound(found, defs, anchors) or _simple(found)


def _compound(found: Schema, defs: Schema, anchors: Mapping[int, str]) -> str:
    """Describe a value of several types, a list or a mapping of names; return an empty text for any other."""
    if "anyOf" in found:
        chosen = any(map(_is_choice, _mappings(found, defs)))  # then the enumeration has its bare names
        left = (inner for inner in found["anyOf"] if inner.get("type") != "null" and not (chosen and "enum" in inner))
        kinds = (_kind(inner, defs, anchors) for inner in left)
        return ", or ".join(dict.fromkeys(kinds))
    if "items" in found:
        return f"list of: {_kind(found['items'], defs, anchors)}"
    inner = found.get("additionalProperties")
    return f"mapping of names to: {_kind(inner, defs, anchors)}" if isinstance(inner, Mapping) else ""


def _options(choice: Schema, defs: Schema, anchors: Mapping[int, str]) -> str:
    """Describe the alternatives of which one is chosen, each with a link to its section."""
    told = []
    for name, inner in choice["properties"].items():
        anchor = next((anchors[id(mapping)] for mapping in _mappings(inner, defs) if id(mapping) in anchors), None)
        told.append(f"[`{name}`](#{anchor})" if anchor else f"`{name}`")
    return ", ".join(told)


def _simple(found: Schema) -> str:
    example = (found.get("examples") or [None])[0]
    if example in QUANTITIES:
        return f"{QUANTITIES[example][0]}, such as `{example}`"
    named = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "string": "text"}
    kind = named.get(found.get("type", ""), "anything" if not found.get("type") else "mapping")
    least = found.get("minimum", found.get("exclusiveMinimum"))
    most = found.get("maximum", found.get("exclusiveMaximum"))
    if least is not None and most is not None:
        return f"{kind}, {least:,} to {most:,}"
    if least is not None:
        return f"{kind}, {'more than' if 'exclusiveMinimum' in found else 'at least'} {least}"
    return kind


def defaults_of(mapping: Schema) -> dict[str, str]:
    """Return the default of each key of a mapping, as a file would have it."""
    return {key: _default(found) for key, found in mapping["properties"].items()}


def _default(found: Schema) -> str:
    value = found.get("default")
    if value is None or value == [] or isinstance(value, Mapping):
        return ""
    for inner in (found, *found.get("anyOf", ())):
        example = (inner.get("examples") or [None])[0]
        if example in QUANTITIES and isinstance(value, int | float):
            return f"`{QUANTITIES[example][1](value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _example(path: str) -> Iterator[str]:
    """Return the example that the part's contract tests use, as it stands in a file."""
    key, _, name = path.partition(".")
    if key not in _PLURALS or name not in registry.parts_of(_PLURALS[key]):
        return
    data = yaml.safe_load((EXAMPLES / name / "example.yaml").read_text(encoding="utf-8"))["config"]
    shown: Any = {name: data}
    shown = {key: shown if key == "workload" else [shown]}
    text = yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, width=100).replace("{here}/", "")
    yield f"```yaml\n{text}```\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")
