"""A selection of runs for a query, as every kind of store gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.store.rundir import Listed


@dataclass(frozen=True, slots=True)
class Picked:
    """Runs that a query is about: folders of sealed ones (from the store's), and those that are not sealed.

    `entries` gives some of the sealed ones in brief, which a question about all runs of a store may not need.
    """

    sealed: Sequence[str]
    unsealed: Sequence[Listed]
    entries: Callable[[Sequence[str]], list[Listed]]


def of_entries(entries: Sequence[Listed]) -> Picked:
    """Return the selection of these runs."""
    sealed = {folder_of(entry): entry for entry in entries if entry.sealed}
    unsealed = [entry for entry in entries if not entry.sealed]
    return Picked(list(sealed), unsealed, lambda folders: [sealed[folder] for folder in folders])


def folder_of(entry: Listed) -> str:
    """Return the folder of a run, from the store's."""
    return f"{entry.path.parent.name}/{entry.path.name}"
