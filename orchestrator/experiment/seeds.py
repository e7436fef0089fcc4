"""Derive the seeds of a run's random numbers from its salt and from what each is for, never from its place.

A salt is drawn when runs begin and is kept in their manifests, so that no two days repeat a draw. What is for the same
thing under the same salt has the same seed: `--seed SALT` repeats a run, and a further attempt at a measurement draws
what the first one drew, so that no gate can choose among draws.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.core.errors import ConfigError

PLANNED = "plan"  # the salt of what is planned alone

_SALT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_DRAWN_BYTES = 8
_SEED_BYTES = 4  # some generators take no more than 32 bits


def drawn() -> str:
    """Draw a new salt: 16 hexadecimal digits."""
    return secrets.token_hex(_DRAWN_BYTES)


def given(text: str | None) -> str | None:
    """Return the salt that `--seed` gives, None where it is left out; ConfigError for what is none."""
    if text is not None and not _SALT.fullmatch(text):
        raise ConfigError(
            f"--seed {text!r}: accepted: 1 to 64 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What the random numbers of runs follow from.

    `measured` says what a window of a sweep's run measures: its point, or nothing where all points of a repetition have
    the same random numbers. A window that is not there measures what its name says.
    """

    salt: str = PLANNED
    measured: Mapping[str, str] = field(default_factory=dict)

    def of_run(self, experiment: str, seed: int, repetition: int) -> int:
        """Return the seed of a run; `seed` is the experiment's own key.

        Of a run of several points it is that of the first by name, wherever in the run that is measured.
        """
        return _seed(self.salt, experiment, seed, repetition, "run", min(self.measured.values(), default=""))

    def of_source(self, experiment: str, seed: int, repetition: int, *, window: str, source: str) -> int:
        """Return the seed of a traffic source in a window."""
        return _seed(self.salt, experiment, seed, repetition, "source", self.measured.get(window, window), source)


def of_job(run: int, job: str) -> int:
    """Return the seed of a job in a run of this seed."""
    return _seed(run, "job", job)


def of_placement(seed: int, job: str) -> int:
    """Return the seed of the placement of a job, which is the same in each run; `seed` is the experiment's own key."""
    return _seed(seed, "placement", job)


def _seed(*path: str | int) -> int:
    """Return the first 32 bits of the digest (SHA-256) of a path."""
    return int.from_bytes(hashlib.sha256(json.dumps(path).encode()).digest()[:_SEED_BYTES], "big")
