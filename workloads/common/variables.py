"""Environment variables of ranks: those that are recorded with the results, and those whose values never are."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from orchestrator.core import secret_looks
from orchestrator.core.units import Mistake
from orchestrator.parts.shared import secret_source

_INSTEAD = "env_from, such as `env_from: [{name}]`, which takes it from your environment and never records it"


def _recorded(value: Any) -> Any:
    """Refuse what looks like a secret, without showing it."""
    for name, text in value.items() if isinstance(value, dict) else ():
        sign = "its name" if text is not None and secret_looks.looks_secret(str(name), str(text)) else ""
        if not sign and isinstance(text, str) and secret_looks.value_looks_secret(text):
            sign = "its value"
        if sign:
            message = f"by {sign} this is a secret, and env is recorded with the results"
            raise Mistake(message, accepted=_INSTEAD.format(name=name), at=(name,))
    return value


def _taken(value: Any) -> Any:
    """A list of names stands for variables of the same names."""
    if not isinstance(value, dict) and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        raise Mistake("is neither a list of names nor a mapping", accepted="such as [WANDB_API_KEY]")
    entries = value if isinstance(value, dict) else {name: name for name in value}
    for name, source in entries.items():
        at = (name,) if isinstance(value, dict) else (value.index(name),)
        if not secret_looks.VARIABLE.fullmatch(name):
            raise Mistake("no name of a variable", accepted="letters, digits and '_', such as WANDB_API_KEY", at=at)
        secret_source.checked(source, at=at)
    return entries


def _beside(sources: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    """Relative paths from the folder of the file that names them."""
    return {name: secret_source.beside(source, info) for name, source in sources.items()}


Recorded = Annotated[dict[str, str], BeforeValidator(_recorded)]
Taken = Annotated[
    dict[str, str],
    BeforeValidator(_taken),
    AfterValidator(_beside),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]
