"""Types of values in YAML files: quantities with units, and mappings that refuse unknown keys.

Here and not beside the units themselves, because pydantic takes longer to load than most commands take to answer.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from orchestrator.core.opendata import JsonSchema
from orchestrator.core.units import (
    DURATIONS,
    RATES,
    SHARES,
    SIZES,
    Mistake,
    duration_text,
    measured,
    rate_text,
    share_text,
    size_text,
)


def _reader(table: dict[str, float], what: str, example: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        number = measured(value, table) if isinstance(value, str) else None
        if number is None:
            raise Mistake(f"not a {what}", accepted=f"a number and one of {', '.join(table)}, such as {example}")
        return number

    return BeforeValidator(read)


def _schema(example: str, units: dict[str, float]) -> WithJsonSchema:
    letters = {unit: "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in unit) for unit in units}
    pattern = "^ *[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? *(" + "|".join(letters.values()) + ") *$"
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


Rate = Annotated[float, _reader(RATES, "rate", "10gbit"), PlainSerializer(rate_text), _schema("10gbit", RATES)]
Size = Annotated[float, _reader(SIZES, "size", "25mb"), PlainSerializer(size_text), _schema("25mb", SIZES)]
Duration = Annotated[
    float, _reader(DURATIONS, "duration", "180s"), PlainSerializer(duration_text), _schema("180s", DURATIONS)
]


class LinkShare(float):
    """A load as a share of 1 of what its links carry: a rate once the testbed is known (`fitting.fitted`)."""


def _load(value: Any) -> float:
    number = measured(value, {**RATES, **SHARES}) if isinstance(value, str) else None
    if number is None:
        some = ", ".join(RATES)
        raise Mistake("not a load", accepted=f"a number and one of {some}, such as 8gbit, or of the link, such as 50%")
    return LinkShare(number) if str(value).strip().endswith("%") else number


def _load_text(value: float) -> str:
    return share_text(value) if isinstance(value, LinkShare) else rate_text(value)


# A load of cross traffic in bit/s, or a LinkShare.
Load = Annotated[float, PlainValidator(_load), PlainSerializer(_load_text), _schema("8gbit", {**RATES, **SHARES})]
Share = Annotated[float, _reader(SHARES, "share", "5%"), PlainSerializer(share_text), _schema("5%", SHARES)]


class Model(BaseModel):
    """Base of everything that a YAML file can hold: frozen, and an unknown key is an error.

    Values from a file need their unit; defaults in code are SI floats and are not validated again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _whole_numbers_as_such(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true`, "3" and 3.0 where only a whole number belongs."""
        if isinstance(value, bool | str | float) and _only_int(cls.model_fields[str(info.field_name)].annotation):
            raise Mistake("not a whole number", accepted="digits alone, such as 5")
        return value


class OrWord(Model):
    """A mapping for which a word alone may stand: the value of its field WORD."""

    WORD: ClassVar[str]

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        schema = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [schema["properties"][cls.WORD], schema], "description": schema["description"]}

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {cls.WORD: value} if isinstance(value, str) else value


def _only_int(kind: Any) -> bool:
    inner = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return all(one in (int, type(None)) for one in inner)
