"""Keys and words of files that had other names before.

In a file that a user writes an old name is a mistake that says the new one. A sealed run's experiment is read by the
names of today, whichever it was written with.
"""

from __future__ import annotations

from typing import Any

from orchestrator.experiment.yamlfiles.documents import Keys

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
    """What the key at the end of this path is called now; None for one that was never called so."""
    return _KEYS.get((_above(at[:-1]), str(at[-1])))


def word_now(at: Keys, value: object) -> str | None:
    """What the value at this path is called now; None for one that was never called so."""
    return _WORDS.get((_above(at), str(value)))


def current(data: Any, at: Keys = ()) -> Any:
    """What a sealed file holds, by the names of today."""
    if isinstance(data, dict):
        return {key_now((*at, key)) or key: current(value, (*at, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [current(value, (*at, place)) for place, value in enumerate(data)]
    return word_now(at, data) or data


def _above(at: Keys) -> str:
    return str(at[-1]) if at else ""
