"""An agent's journal of changes: what is read from it are commands that undo changes, the rest is told as troubles."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from orchestrator.agents.agent.folders import JOURNAL, OPEN, Folder, Whose
from orchestrator.agents.agent.proc import identity
from orchestrator.agents.agent.steps import Refusal
from orchestrator.agents.agent.undo import Journal, Pending
from tests.fuzz import mutate
from tests.fuzz.target import Target

ENTRIES: tuple[dict[str, Any], ...] = (
    {"id": "qdisc", "undo": [["tc", "qdisc", "del"], ["true"]], "whole": False},
    {"id": "qdisc", "whole": True},
    {"id": "route", "undo": [["ip", "route", "replace"]]},
    {"id": "qdisc", "done": True},
    {"id": "x", "whole": False},
)


def _made(source: random.Random) -> bytes:
    entries = source.choices(ENTRIES, k=source.randint(1, 8))
    lines = [
        mutate.text(source, mutate.value(source, entry, ("qdisc", "x")) if source.random() < 0.3 else entry)
        for entry in entries
    ]
    data = b"\n".join(lines) + b"\n"
    return mutate.havoc(source, (data,)) if source.random() < 0.5 else data


def _read(data: bytes, folder: Path) -> None:
    path = folder / JOURNAL
    path.write_bytes(data)
    path.chmod(0o600)
    whose = Whose(os.geteuid(), os.geteuid(), os.getegid())
    with Folder(os.open(folder, OPEN), str(folder)) as here:
        journal = Journal(here, whose, identity())
        for key, change in journal.pending.items():
            assert isinstance(key, str)
            assert not any(b"\0" in os.fsencode(word) for argv in change.undo for word in argv)
            assert all(change.undo)
        before = dict(journal.pending)
        journal.add("new", Pending([["true"]], None))
        again = Journal(here, whose, identity())
        assert again.pending == {**before, "new": Pending([["true"]], None)}
        assert again.doubtful == journal.doubtful
        json.dumps(again.pending)


TARGETS = (Target(name="journal", make=_made, read=_read, ours=(Refusal,), share=100),)
