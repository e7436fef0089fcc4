"""Read and write `site.json`: whether the store's front page, `index.html`, is rewritten when a run is sealed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic
from orchestrator.store.manifests import coding

FILE = "site.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPageSettings:
    """The content of `site.json`."""

    keep_fresh: bool = False


def kept_fresh(results: Path) -> bool:
    """Return whether the page is kept fresh; not where the file is missing or says something else."""
    try:
        return coding.decoded(safepath.content(results / FILE) or b"", FrontPageSettings).keep_fresh
    except (OSError, UnsafePath, ValueError, RecursionError):
        return False


def keep_fresh(results: Path, *, yes: bool) -> None:
    """Set whether the page is kept fresh; StoreError where the store cannot be written."""
    path = results / FILE
    try:
        atomic.write(path, coding.encoded(FrontPageSettings(keep_fresh=yes), indent=1) + b"\n")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
