"""Sources of secrets, read when a run begins: a variable of this command's environment, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from orchestrator.core import secret_looks
from orchestrator.core.paths import lookup
from orchestrator.core.units import Mistake

_ACCEPTED = "the name of a variable of this command's environment, or the path of a file with a '/' in it"


def checked(source: Any, *, at: tuple[str | int, ...] = ()) -> str:
    """Return a place where a value is; raises Mistake, without showing it, where it looks like the value itself."""
    known = isinstance(source, str) and (secret_looks.is_file(source) or secret_looks.VARIABLE.fullmatch(source))
    if not known or secret_looks.value_looks_secret(source):
        raise Mistake("says where a value comes from, not what it is", accepted=_ACCEPTED, at=at)
    return str(source)


def beside(source: str, info: ValidationInfo) -> str:
    """Return a relative path from the folder of the file that names it.

    One that is not there may be when a run begins.
    """
    found = lookup.find(source, lookup.folders_of(info)) if secret_looks.is_file(source) else None
    return source if found is None or found.parent == Path() else str(found)


SecretSource = Annotated[str, BeforeValidator(checked), AfterValidator(beside)]
