"""Multiply the durations of a configuration by the dilation of time of a testbed, as the plan does before it plans."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel

from orchestrator.core.fields import Duration

M = TypeVar("M", bound=BaseModel)

_READER = typing.get_args(Duration)[1]  # what marks a field as a duration, whatever else bounds it


def dilated(config: M, by: int) -> M:
    """Return a configuration with each duration (`core.fields.Duration`) in it, however deep, multiplied once."""
    if by == 1:
        return config
    found = {
        name: _dilated(getattr(config, name), by, is_duration=_is_duration(field.annotation, field.metadata))
        for name, field in type(config).model_fields.items()
    }
    return config.model_copy(update={name: value for name, value in found.items() if value != getattr(config, name)})


def _dilated(value: Any, by: int, *, is_duration: bool) -> Any:
    if isinstance(value, BaseModel):
        return dilated(value, by)
    if isinstance(value, dict):
        return {key: _dilated(one, by, is_duration=is_duration) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_dilated(one, by, is_duration=is_duration) for one in value)
    return value * by if is_duration and isinstance(value, int | float) else value


def _is_duration(annotation: Any, metadata: Iterable[Any] = ()) -> bool:
    """Return whether a type is a duration, or holds one: optional, in a list, as values of a mapping."""
    inside = (*metadata, *getattr(annotation, "__metadata__", ()))
    return any(one is _READER for one in inside) or any(map(_is_duration, typing.get_args(annotation)))
