"""Translate keys and words that had other names in earlier versions.

In a file that a user writes an old name is a mistake that says the new one. A sealed run's experiment is read by the
names of today, whichever it was written with.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError, StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.experiment import documents
from orchestrator.experiment.documents import Document, Keys

_FILE = "experiment.yaml"
_MOST_BYTES = 8 << 20  # hosts that a file gives as a set are spelled out in it
_MOST_VALUES = 200_000
_HINT = "was the results folder copied whole?"

_KEYS = {  # the key above it ("" at the top of a file), the old key: the new one
    ("tcpdump", "snap"): "snaplen",
    ("measure", "stall"): "stall_timeout",
    ("", "fresh"): "recheck",  # of a sweep
    ("", "repeat"): "repetitions",
    ("", "dry_run"): "local_run",
    ("deepspeed", "stage"): "zero_stage",
    ("deepspeed", "stages"): "pipeline_stages",
    ("deepspeed", "micro_batches"): "microbatches",
}
_WORDS = {("peers", "in-turn"): "round-robin"}  # key, old value: the new one


def key_now(at: Keys) -> str | None:
    """Return the present name of the key at the end of this path; None for one that was never renamed."""
    return _KEYS.get((_above(at[:-1]), str(at[-1])))


def word_now(at: Keys, value: object) -> str | None:
    """Return the present name of the value at this path; None for one that was never renamed."""
    return _WORDS.get((_above(at), str(value)))


def current(data: Any, at: Keys = ()) -> Any:
    """Return the data of a sealed file, with present names."""
    if isinstance(data, dict):
        return {key_now((*at, key)) or key: current(value, (*at, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [current(value, (*at, place)) for place, value in enumerate(data)]
    return word_now(at, data) or data


def recorded(run: Path) -> Document:
    """Read the experiment in a run's folder, with present names.

    The folder may be somebody else's. StoreError where the file cannot be read.
    """
    path = run / _FILE
    try:
        with safepath.opened(path) as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise StoreError(f"{path}: is larger than {_MOST_BYTES >> 20} MiB", hint=_HINT)
        document = documents.parse(raw, name=str(path), needs="testbed", most=_MOST_VALUES)
    except (OSError, UnsafePath, ConfigError) as error:
        raise StoreError(f"cannot read {path}: {error}", hint=_HINT) from None
    return replace(document, data=current(document.data))


def _above(at: Keys) -> str:
    return str(at[-1]) if at else ""
