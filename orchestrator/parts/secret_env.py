"""Variables of ranks whose values are taken from the controller when a run begins, and are written down nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.core import secret_looks
from orchestrator.core.errors import ConfigError
from orchestrator.parts.launch import Launch

MOST_BYTES = 1 << 16  # of a value; Linux takes 128 KiB for a variable with its name


def lacking(launches: Iterable[Launch]) -> list[tuple[str, str]]:
    """Return what of the launches' variables cannot be had here: (what, remedy) each, and no value in either."""
    found = []
    for name, source in _sources(launches):
        try:
            _value(source)
        except ValueError as error:
            remedy = f"put it there, or give {name} another source under env_from"
            found.append((f"env_from: {name}: {error}", remedy))
    return found


def values(launches: Iterable[Launch]) -> dict[str, str]:
    """Return the value of every source that the launches name; ConfigError for one that cannot be had."""
    found = {}
    for name, source in _sources(launches):
        try:
            found[source] = _value(source)
        except ValueError as error:
            raise ConfigError(f"env_from: {name}: {error}") from None
    return found


def filled(launch: Launch, known: Mapping[str, str]) -> dict[str, str]:
    """Return a launch's variables with their values."""
    return {name: known[source] for name, source in launch.env_from.items()}


def _sources(launches: Iterable[Launch]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(entry for launch in launches for entry in launch.env_from.items()))


def _value(source: str) -> str:
    """ValueError says what is wrong with a source, never what it holds."""
    text = _file(source) if secret_looks.is_file(source) else os.environ.get(source)
    if text is None:
        raise ValueError(f"there is no variable {source} in the environment of this command")
    if not text or "\0" in text or len(text.encode()) > MOST_BYTES:
        what = "is empty" if not text else "has a zero byte in it" if "\0" in text else "is larger than 64 KiB"
        raise ValueError(f"{source} {what}")
    return text


def _file(source: str) -> str:
    try:
        with Path(source).expanduser().open("rb") as file:
            raw = file.read(MOST_BYTES + 2)
    except FileNotFoundError:
        relative = not Path(source).expanduser().is_absolute()
        where = f" beside the file that names it, nor at {Path(source).absolute()}" if relative else ""
        raise ValueError(f"{source} cannot be read: there is no such file{where}") from None
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such home folder"
        raise ValueError(f"{source} cannot be read: {reason}") from None
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{source} is no text in UTF-8") from None
