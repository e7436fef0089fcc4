"""Type aliases for data of unknown keys: what users write, what other programs print, records as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]  # of another program or an older version, or a record on its way to JSON
JsonSchema = dict[str, Any]  # of a model, as pydantic makes it and editors read it
YamlValue = Any  # as it stands in a user's file, until a model has checked it
YamlMapping = dict[str, YamlValue]
AxisValues = Mapping[str, YamlValue]  # a point of a sweep: by axis, the value as the experiment spells it, or its name
