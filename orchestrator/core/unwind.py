"""Undo steps in reverse order: every step runs, the first error is raised, the rest are its notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def add_note(error: BaseException, note: str) -> None:
    """Attach a sentence to an error (PEP 678, which Python 3.10 has not)."""
    notes = getattr(error, "__notes__", None)
    if notes is None:
        error.__notes__ = [note]  # type: ignore[attr-defined]
    else:
        notes.append(note)


@dataclass(slots=True)
class Unwind:
    """Steps to run in reverse; register the undo before the do."""

    _steps: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def push(self, name: str, step: Callable[[], None]) -> None:
        self._steps.append((name, step))

    def run(self) -> list[tuple[str, Exception]]:
        """Run every step once, last first, whatever the others do; give the errors in the order they came."""
        errors: list[tuple[str, Exception]] = []
        while self._steps:
            name, step = self._steps.pop()
            try:
                step()
            except Exception as error:  # noqa: BLE001 - the one place where no error may keep the next step from running
                errors.append((name, error))
        return errors


def combined(errors: list[tuple[str, Exception]]) -> Exception | None:
    """Return the first of the errors, with the others as notes."""
    if not errors:
        return None
    first = errors[0][1]
    for name, error in errors[1:]:
        add_note(first, f"{name}: {error}")
    return first
