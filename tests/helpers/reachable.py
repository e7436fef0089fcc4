"""A folder for tests in which other users of the machine have a part."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In place of pytest's own, whose parent each session of pytest closes to others again when it begins."""
    with tempfile.TemporaryDirectory(prefix="orch-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
