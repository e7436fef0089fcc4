"""Environment variables of ranks: those that are recorded with the results, and those whose values never are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from orchestrator.core import lookup, secret_looks
from orchestrator.core.units import Mistake

_INSTEAD = "env_from, such as `env_from: [{name}]`, which takes it from your environment and never records it"


def _recorded(value: Any) -> Any:
    """Refuse what looks like a secret, without showing it."""
    for name, text in value.items() if isinstance(value, dict) else ():
        told = "its name" if text not in ("", None) and secret_looks.name_looks_secret(str(name)) else ""
        if not told and isinstance(text, str) and secret_looks.value_looks_secret(text):
            told = "its value"
        if told:
            message = f"by {told} this is a secret, and env is recorded with the results"
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
        known = isinstance(source, str) and (secret_looks.is_file(source) or secret_looks.VARIABLE.fullmatch(source))
        if not known or secret_looks.value_looks_secret(source):
            accepted = "the name of a variable of this command's environment, or the path of a file with a '/' in it"
            raise Mistake("says where a value comes from, not what it is", accepted=accepted, at=at)
    return entries


def _beside(sources: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    """Relative paths from the folder of the file that names them; a file that is not there may be when a run begins."""
    folders = lookup.folders_of(info)
    found = {name: lookup.find(source, folders) for name, source in sources.items() if secret_looks.is_file(source)}
    return {
        **sources,
        **{name: str(path) for name, path in found.items() if path is not None and path.parent != Path()},
    }


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
