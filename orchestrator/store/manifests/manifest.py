"""Read and write manifests: the records of `records` as JSON, also of older formats.

A store may be somebody else's, or damaged: whatever is read is of the type that its record says, or refused with file
and field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from orchestrator.core.errors import StoreError
from orchestrator.core.opendata import JsonObject
from orchestrator.store import atomic
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.summaries import FORMAT, Summary
from orchestrator.store.stamps import DAMAGED

if TYPE_CHECKING:
    from orchestrator.store.manifests.records import Manifest


@dataclass(frozen=True, slots=True)
class Renamed:
    """A field that was called otherwise up to a format, the last of `path` ("*": every key or entry), and its name."""

    until: int
    path: tuple[str, ...]
    name: str

    def bring_up(self, found: Any) -> None:
        *above, old = self.path
        for holder in _holders(found, above):
            if old in holder:
                holder[self.name] = holder.pop(old)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Fields of what stands at `path` up to a format: later they are those of the first record of a list, `name`.

    `least` are the fields of which one must say something: without, there was no such record.
    """

    until: int
    path: tuple[str, ...]
    fields: tuple[str, ...]
    least: tuple[str, ...]
    name: str

    def bring_up(self, found: Any) -> None:
        for holder in _holders(found, self.path):
            first = {field: holder.pop(field) for field in self.fields if field in holder}
            if any(first.get(field) for field in self.least):
                holder[self.name] = [first]


CHANGED: tuple[Renamed | Gathered, ...] = (
    Renamed(1, ("windows", "*", "processors", "*", "kept_share"), "others_wait_share"),
    Renamed(2, ("windows", "*", "window"), "name"),
    Renamed(2, ("sweep", "points", "*", "fresh"), "recheck"),
    Gathered(3, ("topology", "nodes", "*"), ("address", "prefix", "device"), ("address", "device"), "rails"),
)

S = TypeVar("S", bound=Summary)
T = TypeVar("T")


def load(path: Path) -> Manifest:
    """Return the manifest in a file; StoreError where it cannot be read, is damaged, or was made by a later version."""
    from orchestrator.store.manifests.records import Manifest

    return _checked(path, Manifest)


def decoded(data: bytes, place: str) -> Manifest:
    """Return the same from what a file at a `place` has."""
    from orchestrator.store.manifests.records import Manifest

    return _decoded(data, place, Manifest)


def summary(path: Path) -> Summary:
    """Return the same, as far as listings need it: quicker, and what else the file says is not looked at."""
    return _checked(path, Summary)


def brief(data: bytes) -> Summary:
    """Return a manifest in brief from JSON that `coding.encoded` made of one.

    ValueError, with the field, where it is none.
    """
    return decoded_as_now(data, Summary, FORMAT, CHANGED)


def save(path: Path, manifest: Manifest) -> None:
    """Write a manifest in place of what is there, whole or not at all; OSError where that cannot be done."""
    atomic.write(path, coding.sealed(manifest, indent=1))


def text(manifest: Manifest) -> bytes:
    """Return a manifest as JSON that people can read; what is not a finite number becomes null."""
    return coding.encoded(manifest, indent=1) + b"\n"


def decoded_as_now(data: bytes, kind: type[T], newest: int, changed: Sequence[Renamed | Gathered]) -> T:
    """Return the same where fields of an older format stood elsewhere.

    What is written again is of the `newest` format.
    """
    version = _format(data)
    if version == newest or not isinstance(version, int):
        return coding.decoded(data, kind)
    coding.check(data)
    coding.learned(kind)
    found = msgspec.json.decode(data)
    if not isinstance(found, dict):
        raise ValueError("it holds no object")  # noqa: TRY004 - as whatever decodes it raises
    for change in changed:
        if version <= change.until:
            change.bring_up(found)
    return msgspec.convert({**found, "format": newest}, kind)


def _checked(path: Path, kind: type[S]) -> S:
    try:
        if not path.is_file() and path.exists():  # a pipe would hold everybody up who lists runs
            raise StoreError(f"{path}: is no file", hint="orch ls")
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}", hint="orch ls") from None
    return _decoded(data, str(path), kind)


def _decoded(data: bytes, place: str, kind: type[S]) -> S:
    version = _format(data)
    if type(version) is not int or version > FORMAT:
        raise StoreError(
            f"{place}: is of format {str(version)[:20]}, and this orch reads formats up to {FORMAT}",
            hint="use the version of orch that made it, or a later one",
        )
    try:
        found = decoded_as_now(data, kind, FORMAT, CHANGED)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{place}: {_explained(error)}", hint=DAMAGED) from None
    return found


class _Version(msgspec.Struct):
    format: Any = FORMAT


def _format(data: bytes) -> object:
    try:
        return coding.learned(_Version).decode(data).format
    except (ValueError, RecursionError):
        return FORMAT


def _holders(value: Any, path: Sequence[str]) -> Iterator[JsonObject]:
    """Each object at a path of keys ("*": every key or entry); what is no such thing is left to the decoder."""
    if not path:
        if isinstance(value, dict):
            yield value
        return
    key, *below = path
    if key == "*":
        for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _holders(entry, below)
    elif isinstance(value, dict) and key in value:
        yield from _holders(value[key], below)


def _explained(error: Exception) -> str:
    """Where a manifest is not what it should be: "windows[0].start_ns: expected `int`, got `str`"."""
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    what, _, where = reason.partition(" - at `$")
    what = what[:1].lower() + what[1:] if re.match(r"[A-Z][a-z]", what) else what
    return f"{where.strip('.`')}: {what}" if where else what
