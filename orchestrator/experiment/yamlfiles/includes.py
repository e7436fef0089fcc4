"""`include:` in a file: other files laid under it, so that what several experiments share is written once.

Data of the files are merged as JSON Merge Patch does it (RFC 7396): mappings key by key, of anything else the higher
one as a whole, and null takes a key away. Highest is the file itself, then the last of its includes; what an include
includes lies below that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.paths import safepath
from orchestrator.experiment.yamlfiles import documents
from orchestrator.experiment.yamlfiles.documents import Document

KEY = "include"
MOST_FILES = 32
_ACCEPTED = "a path from this file's folder, or a list of them"


def load(path: Path, *, needs: str) -> Document:
    """Read a file and all that it includes; ConfigError with the place of the first mistake."""
    own = documents.load(path, needs=needs)
    if KEY not in own.data:
        return own
    layers: list[Document] = []
    for layer in _layers(own, path, ()):
        if len(layers) == MOST_FILES:
            raise ConfigError(
                f"{own.place((KEY,))}: include: more than {MOST_FILES} files; accepted: at most {MOST_FILES}"
            )
        layers.append(layer)
    merged: Any = {}
    for layer in reversed(layers):
        merged = patched(merged, layer.data)
    return replace(own, data=merged, layers=tuple(layers))


def patched(low: Any, high: Any) -> Any:
    """What two values come to, the second one laid over the first (RFC 7396, section 2)."""
    if not isinstance(high, dict):
        return high
    found = dict(low) if isinstance(low, dict) else {}
    for key, value in high.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = patched(found.get(key), value)
    return found


def _layers(own: Document, path: Path, above: Sequence[Path]) -> Iterator[Document]:
    """A file and what it includes without their own `include`, the highest first; `above` leads to it.

    Each is read when it is asked for.
    """
    chain = [*above, path.resolve()]
    named = own.data.get(KEY, ())
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise ConfigError(f"{own.place((KEY,))}: include: holds {documents.kind_text(own.data[KEY])}; {_ACCEPTED}")
    yield replace(own, data={key: value for key, value in own.data.items() if key != KEY})
    for place in reversed(range(len(named))):
        at = (KEY, place) if isinstance(own.data[KEY], list) else (KEY,)
        where = f"{own.place(at)}: {documents.dotted(at)}"
        other = _beside(named[place], path, where)
        if other.resolve() in chain:
            circle = " -> ".join(str(file) for file in [*chain[chain.index(other.resolve()) :], other.resolve()])
            raise ConfigError(f"{where}: goes in a circle: {circle}; accepted: a file that does not include this one")
        if len(chain) >= MOST_FILES:
            raise ConfigError(f"{where}: {len(chain)} files include each other; accepted: fewer than {MOST_FILES}")
        yield from _layers(documents.load(other, needs="keys of an experiment"), other, chain)


def _beside(named: str, path: Path, where: str) -> Path:
    """The file that is meant, from the including file's folder; outside of that only where the path itself says so."""
    folder = path.parent
    try:
        given = Path(named).expanduser()
    except RuntimeError:  # no such user's home
        given = Path(named)
    found = folder / given
    if not safepath.is_there(found):
        raise ConfigError(f"{where}: no file {shortened(str(found))}; accepted: {_ACCEPTED}")
    says_so = given.is_absolute() or ".." in given.parts
    if not says_so and not found.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{where}: {found} is a link to {found.resolve()}; accepted: that path itself, if it is meant"
        )
    return found
