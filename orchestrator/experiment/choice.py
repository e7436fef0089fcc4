"""One part of several, chosen by its key: the models of `workload`, `traffic`, `collect` and `conditions`."""

from __future__ import annotations

import typing
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, create_model, model_validator
from pydantic_core import CoreSchema

from orchestrator.core.opendata import JsonSchema
from orchestrator.core.units import Mistake
from orchestrator.parts import registry


class Choice(BaseModel):
    """One key that names a part, and below it what the part takes; a bare name takes its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {value: {}} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Choice:
        if len(self.model_fields_set) != 1:
            count = len(self.model_fields_set) or "nothing"
            raise Mistake(f"holds {count}", accepted=f"exactly one of {', '.join(names_of(type(self)))}")
        if self.config is None:
            keys = ", ".join(names_of(config_of(type(self), self.name)))
            raise Mistake("nothing stands below it", accepted=f"a mapping of {keys}", at=(self.name,))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        """Exactly one key; or the bare name of a part that needs nothing below it."""
        schema = handler.resolve_ref_schema(handler(core))
        properties = {name: _without_null(inner) for name, inner in schema.get("properties", {}).items()}
        bare = [
            name
            for name in properties
            if not any(field.is_required() for field in config_of(cls, name).model_fields.values())
        ]
        one = {**schema, "properties": properties, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [one, {"type": "string", "enum": bare}]} if bare else one

    @property
    def name(self) -> str:
        (field,) = self.model_fields_set
        return str(type(self).model_fields[field].alias)

    def with_config(self, config: Any) -> Choice:
        """The same part with another configuration."""
        (field,) = self.model_fields_set
        return self.model_copy(update={field: config})

    @property
    def config(self) -> Any:
        (field,) = self.model_fields_set
        return getattr(self, field)


def _without_null(schema: JsonSchema) -> JsonSchema:
    """The schema of an optional part where it stands: it is left out, or it is something."""
    (kept,) = [inner for inner in schema["anyOf"] if inner != {"type": "null"}]
    return dict(kept)


def config_of(choice: type[Choice], name: str) -> type[BaseModel]:
    """The model of what stands below a part's name."""
    (field,) = [field for field in choice.model_fields.values() if field.alias == name]
    return next(kind for kind in typing.get_args(field.annotation) if isinstance(kind, type))


def names_of(model: type[BaseModel]) -> list[str]:
    """The keys that a mapping of this model takes, as they stand in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def choice_of(title: str, kind: registry.Kind) -> type[Choice]:
    fields: dict[str, Any] = {
        name.replace("-", "_"): (part.Config | None, Field(default=None, alias=name))
        for name, part in registry.parts_of(kind).items()
    }
    return create_model(title, __base__=Choice, **fields)
